# SPDX-License-Identifier: Apache-2.0
"""torch.distributed over Tutti: import this module, then init_process_group("tutti").

    import torch, tutti.torch
    torch.distributed.init_process_group("tutti")      # under torchrun
    gradient = torch.ones(1000)
    torch.distributed.all_reduce(gradient)

Errors are tutti.PeerFailed, tutti.Timeout and so on (all are RuntimeErrors), with Tutti's text.
"""

import atexit
import contextlib
import datetime
import importlib
import importlib.machinery
import operator
import os
import sys

import torch
import torch.distributed

import tutti
from tutti import _build

if not torch.distributed.is_available():
    raise ImportError("tutti.torch: this torch was built without torch.distributed")


def _load():
    """The extension module of torch's minor version: C++ of one does not fit another's."""
    version = torch.__version__.split(".")[:2]
    if tuple(map(int, version)) < (2, 13):
        raise ImportError(f"tutti.torch: torch {torch.__version__} is too old, expected 2.13 or later")
    minor = "_".join(version)
    try:
        return importlib.import_module(f"tutti.torch._core_{minor}")
    except ModuleNotFoundError as absent:
        if absent.name != f"tutti.torch._core_{minor}":
            raise
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    there = sorted(name.removeprefix("_core_").removesuffix(suffix).replace("_", ".")
                   for name in os.listdir(__path__[0]) if name.startswith("_core_") and name.endswith(suffix))
    raise ImportError(f"tutti.torch: {__path__[0]} is for torch {' and '.join(there) or 'of no version'}, and the torch of "
                      f"{sys.executable} is {torch.__version__}: build for this one, in Tutti's folder: "
                      f"{_build.MEND.format(python=sys.executable)}", name="tutti.torch")


_core = _load()
ProcessGroupTutti = _core.ProcessGroupTutti
_recorded = _core._flight_recordings(False) is not None
if _recorded:
    from tutti.torch import _flight_recorder
    _flight_recorder.install(_core._flight_recordings)

_errors = {
    -1: tutti.InvalidArgument, -2: tutti.NotSupported, -3: tutti.NotFound, -4: tutti.NoResources, -5: tutti.Timeout,
    -6: tutti.PeerFailed, -7: tutti.Aborted, -8: tutti.Mismatch, -9: tutti.SystemFailure, -10: tutti.InvalidUsage,
    -11: tutti.Internal}


def _error_of(status):
    return _errors.get(status, tutti.Error)


def _create(options, backend_options=None):
    if backend_options is not None and not isinstance(backend_options, ProcessGroupTutti.Options):
        raise ValueError(f"tutti.torch: pg_options are {backend_options!r}, expected None or ProcessGroupTutti.Options")
    timeout = options.timeout
    seconds = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else float(timeout)
    if _recorded:
        _flight_recorder.remember(options)
    return ProcessGroupTutti(options.store, options.group_rank, options.group_size, seconds,
                             f"group {options.group_id or 'world'}",
                             deferred=getattr(options, "enable_reconfigure", False))  # torch 2.14


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """torch.distributed.monitored_barrier, which itself takes Gloo's groups alone. Rank 0 raises, naming the ranks that
    have not come within the timeout (a datetime.timedelta): the first, or all of them. A rank that is not in the group
    returns at once."""
    group = group or torch.distributed.group.WORLD
    if group == torch.distributed.GroupMember.NON_GROUP_MEMBER:
        return
    backend = group._get_backend(torch.device("cpu"))
    backend.monitored_barrier(timeout or torch.distributed.constants.default_pg_timeout, wait_all_ranks)


_orders = {"free": 1, "canonical": 2, "exact": 3}
_wires = {"plain": 0, "float16": 1, "bfloat16": 2, "float8": 3}


def _value_of(setting, given, names):
    if given is None:
        return None
    if given not in names:
        raise ValueError(f"tutti.torch.call: {setting} is {given!r}, expected one of {', '.join(map(repr, names))} or None")
    return names[given]


@contextlib.contextmanager
def call(*, algorithms=None, order=None, wire=None, tag=None):
    """Options of the collectives that a block calls, and that backward passes begun in it call:

        with tutti.torch.call(wire="bfloat16", tag=step):
            loss.backward()                            # DDP's all-reduces, too

    `algorithms`: those that may carry them out, as "ring", "flat,direct" or "^ring". `order`: of reductions, "free",
    "canonical" or "exact", as TUTTI_ORDER. `wire`: "float16", "bfloat16" or "float8", in which float32 tensors of
    reductions, all_gathers and broadcasts travel, or "plain"; every number is rounded, also a broadcast's at its root.
    Other calls and types, as DDP's counts, barriers or all_to_all, travel as they are. A float32 call that cannot have
    the format is an error: of a product, on a device, or in an order that is not free. `tag`: a whole number by which
    reports, hang verdicts and traces name the calls. None: as in the block around it, or else the group's. Equal on all
    ranks. Sends and receives take none."""
    order, wire = _value_of("order", order, _orders), _value_of("wire", wire, _wires)
    if tag is not None:
        tag = operator.index(tag)
        if not 0 <= tag < 2**64:
            raise ValueError(f"tutti.torch.call: tag is {tag}, expected a whole number from 0 to 2**64 - 1")
    _core._enter_call(algorithms, order, wire, tag)
    try:
        yield
    finally:
        _core._leave_call()


def _close_at_exit():
    """The other ranks must not wait for a rank that an exception has ended."""
    error = getattr(sys, "last_value", None)
    _core._close_all("" if error is None else f"the rank ended by {type(error).__name__}: {error}")


atexit.register(_close_at_exit)
if "tutti" not in torch.distributed.Backend.backend_list:  # where it is, a wheel's entry point was here
    torch.distributed.Backend.register_backend("tutti", _create, extended_api=True, devices=["cpu", "cuda"])

from tutti.torch.hooks import gradients, wire_hook  # noqa: E402,F401  (needs what stands above)
