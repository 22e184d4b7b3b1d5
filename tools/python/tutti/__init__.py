# SPDX-License-Identifier: Apache-2.0
"""Tutti: collective communication between threads, processes and hosts.

    import numpy, tutti
    comm = tutti.Communicator()                    # started by python3 -m tutti.run -n 4 this.py
    gradient = numpy.full(1000, comm.rank, "f4")
    comm.all_reduce(gradient, op="avg")            # in place

Arrays are what has the buffer protocol (numpy.ndarray, bytearray, array.array), DLPack (torch.Tensor) or
__array_interface__. They are used where they lie: nothing is copied, so they must be C-contiguous. Calls that only move
elements take every type that is no reference. Those with an operator take bool, 8 to 64-bit integers, float16,
bfloat16, float32, float64, float8, complex64, complex128, and pairs of a value and an index (op="minloc", "maxloc"):
numpy.dtype(tutti.FLOAT32_INT32), numpy.dtype(tutti.FLOAT64_INT64).
"""

import atexit
import sys

from tutti import _build


def _libraries() -> "list[str]":
    """The files libtutti.so that this process has loaded."""
    with open("/proc/self/maps") as maps:
        return sorted({line.split(maxsplit=5)[5].strip() for line in maps if "/libtutti.so" in line})


try:
    from tutti._core import (IN, OUT, SCRATCH, Aborted, Calls, Communicator, Envelope, Error, Gradients, Group, Host, Internal,
                             InvalidArgument, InvalidUsage, Lane, Memory, Message, Mismatch, NoResources, NotFound,
                             NotSupported, Operator, PeerFailed, Persistent, Plan, Proof, Query, Receive, Request,
                             Schedule, Send, Span, Start, Step, SystemFailure, Timeout, Window, __version__, _close_all,
                             algorithms, register, unique_id)
except ModuleNotFoundError as absent:
    if absent.name != "tutti._core":
        raise
    import platform  # an import of others, which the way without an error need not wait for

    raise ImportError(
        f"tutti: {__path__[0]} is for {_build.PYTHON} ({_build.VERSION}), and has no extension module for this one, "
        f"{sys.executable} ({platform.python_version()}): start that one, or build for this one, in Tutti's folder: "
        f"{_build.MEND.format(python=sys.executable)}", name=absent.name) from None
except ImportError as problem:
    there = _libraries()
    if "undefined symbol" not in str(problem) or not there:
        raise
    raise ImportError(f"tutti: {__path__[0]} does not fit {' and '.join(there)}, which is in this process already: see "
                      f"LD_PRELOAD and LD_LIBRARY_PATH, and what loads that library before ({problem})") from None
from tutti.threads import run_threads

__all__ = ["FLOAT32_INT32", "FLOAT64_INT64", "IN", "OUT", "SCRATCH", "Aborted", "Calls", "Communicator", "Envelope",
           "Error", "Group", "Host", "Internal", "InvalidArgument", "InvalidUsage", "Lane", "Memory", "Message",
           "Mismatch", "NoResources", "NotFound", "NotSupported", "Operator", "PeerFailed", "Persistent", "Plan",
           "Proof", "Query", "Receive", "Request", "Schedule", "Send", "Span", "Start", "Step", "SystemFailure",
           "Timeout", "Window", "algorithms", "register", "run_threads", "unique_id", "__version__"]

# The fields of pairs, as numpy.dtype takes them. The names are free.
FLOAT32_INT32 = [("value", "<f4"), ("index", "<i4")]
FLOAT64_INT64 = [("value", "<f8"), ("index", "<i8")]


async def _wait(request: Request) -> None:
    """Advances a request between the other tasks of the event loop: at once for a while, then at intervals."""
    import asyncio  # only here: it takes longer than the rest of the package

    turns = 0
    try:
        while not request.test():
            await asyncio.sleep(0 if turns < 1000 else 0.0005)
            turns += 1
    except asyncio.CancelledError:
        _cancelled[:] = [one for one in _cancelled if not _is_over(one)] + [request]
        raise


# Requests whose await was cancelled. Their operations go on, and one that is dropped would wait for its end.
_cancelled: "list[Request]" = []


def _is_over(request: Request) -> bool:
    try:
        return request.test()
    except InvalidUsage:  # another thread uses the communicator
        return False
    except Error:
        return True


setattr(Request, "__await__", lambda request: _wait(request).__await__())


def _close_at_exit() -> None:
    """Closes what the program left open. The other ranks must not wait for a rank that an exception has ended."""
    error = getattr(sys, "last_value", None)
    _close_all(None if error is None else f"the rank ended by {type(error).__name__}: {error}")


atexit.register(_close_at_exit)
