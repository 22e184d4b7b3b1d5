# SPDX-License-Identifier: Apache-2.0
"""Ranks as threads of this process: for notebooks, tests, and code that releases the interpreter's lock."""

import itertools
import threading

from tutti._core import Communicator, Error

_names = itertools.count()


def run_threads(nranks, function, *arguments, **settings):
    """Calls function(comm, *arguments) in nranks threads, each with its communicator, and returns the results by rank.

    `settings` are those of Communicator. When a rank raises, the others' calls end, and the first exception that is not
    a consequence of another's is raised here.
    """
    results, errors = [None] * nranks, [None] * nranks
    place = f"local:run_threads {next(_names)}"

    def run(rank):
        try:
            with Communicator(place, rank, nranks, **settings) as comm:
                results[rank] = function(comm, *arguments)
        except BaseException as error:  # raised in the calling thread
            errors[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), name=f"rank {rank}") for rank in range(nranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    causes = [error for error in errors if error is not None]
    if causes:
        raise next((error for error in causes if not isinstance(error, Error)), causes[0])
    return results
