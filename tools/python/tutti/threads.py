# SPDX-License-Identifier: Apache-2.0
"""Ranks as threads of this process: for notebooks, tests, and code that releases the interpreter's lock."""

from __future__ import annotations

import itertools
import operator
import threading

from tutti._core import Communicator, Error, _abort_job, _join_job

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Literal, TypedDict, TypeVar
    from typing_extensions import Unpack

    _Result = TypeVar("_Result")

    class _Settings(TypedDict, total=False):
        name: str
        device: str | None
        transports: str | None
        algorithms: str | None
        timeout: float | None
        connect_timeout: float | None
        order: Literal["canonical", "exact"] | None
        check_calls: bool
        progress_thread: bool

_names = itertools.count()


def run_threads(nranks: int, function: Callable[..., _Result], *arguments: Any,
                **settings: Unpack[_Settings]) -> list[_Result]:
    """Calls function(comm, *arguments) in nranks threads, each with its communicator, and returns the results by rank.

    `settings` are those of Communicator. When a rank raises, the others' calls end, and the first exception that is not
    a consequence of another's is raised here. So they do when this thread is interrupted (Ctrl-C, "interrupt kernel");
    a rank that is in no call goes on until its next one. Both hold for all communicators that the ranks have made.
    Raises ValueError for less than one rank, and TypeError for a function that cannot be called.
    """
    try:
        nranks = operator.index(nranks)
    except TypeError:
        raise TypeError(f"run_threads: nranks is {nranks!r}: expected a whole number of ranks, an int") from None
    if nranks < 1:
        raise ValueError(f"run_threads: nranks is {nranks}: expected at least 1")
    if not callable(function):
        raise TypeError(f"run_threads: function is {function!r}: expected a function, called with a Communicator")
    results: list[Any] = [None] * nranks
    errors: list[BaseException | None] = [None] * nranks
    ended = [threading.Event() for _ in range(nranks)]  # join() of Python 3.11 returns too early after an interrupted one
    place = f"local:run_threads {next(_names)}"
    jobs = [f"{place} rank {rank}" for rank in range(nranks)]

    def run(rank: int) -> None:
        _join_job(jobs[rank])
        try:
            with Communicator(place, rank, nranks, **settings) as comm:
                results[rank] = function(comm, *arguments)
        except BaseException as error:  # raised in the calling thread
            errors[rank] = error
            _abort_job(jobs[rank], f"the rank left by {type(error).__name__}: {error}")
        finally:
            ended[rank].set()

    threads = [threading.Thread(target=run, args=(rank,), name=f"rank {rank}") for rank in range(nranks)]
    for thread in threads:
        thread.start()
    try:
        for event in ended:
            event.wait()
    except BaseException as error:  # a signal's handler has raised
        for event, thread in zip(ended, threads):
            while not event.is_set():
                for job in jobs:
                    _abort_job(job, f"run_threads was ended by {type(error).__name__}")
                event.wait(0.1)  # a rank may make another communicator meanwhile
            thread.join()
        raise
    for thread in threads:
        thread.join()
    causes = [error for error in errors if error is not None]
    if causes:
        raise next((error for error in causes if not isinstance(error, Error)), causes[0])
    return results
