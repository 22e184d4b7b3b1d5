# SPDX-License-Identifier: Apache-2.0
"""torch.distributed over Tutti: import this module, then init_process_group("tutti").

    import torch, tutti.torch
    torch.distributed.init_process_group("tutti")      # under torchrun
    gradient = torch.ones(1000)
    torch.distributed.all_reduce(gradient)

Errors are tutti.PeerFailed, tutti.Timeout and so on (all are RuntimeErrors), with Tutti's text.
"""

import atexit
import datetime
import inspect
import sys

import torch
import torch.distributed

import tutti
from tutti.torch import _build

if not torch.distributed.is_available():
    raise ImportError("tutti.torch: this torch was built without torch.distributed")
if "extended_api" not in inspect.signature(torch.distributed.Backend.register_backend).parameters:
    raise ImportError(f"tutti.torch: torch {torch.__version__} is too old, expected 1.13 or later")

# C++ of one minor version does not fit another's.
if torch.__version__.split(".")[:2] != _build.TORCH.split(".")[:2]:
    raise ImportError(f"tutti.torch: {__path__[0]} is for torch {_build.TORCH}, and this one, of {sys.executable}, is "
                      f"{torch.__version__}: build the target tutti_torch for it, configured with "
                      f"-DPython3_EXECUTABLE={sys.executable}")

from tutti.torch import _core  # noqa: E402  (its base class is torch's, which must be there)

ProcessGroupTutti = _core.ProcessGroupTutti

_errors = {
    -1: tutti.InvalidArgument, -2: tutti.NotSupported, -3: tutti.NotFound, -4: tutti.NoResources, -5: tutti.Timeout,
    -6: tutti.PeerFailed, -7: tutti.Aborted, -8: tutti.Mismatch, -9: tutti.SystemFailure, -10: tutti.InvalidUsage,
    -11: tutti.Internal}


def _error_of(status):
    return _errors.get(status, tutti.Error)


def _create(options, backend_options=None):
    if backend_options is not None:
        raise ValueError(f"tutti.torch: pg_options are {backend_options!r}, expected None: the backend has none")
    timeout = options.timeout
    seconds = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else float(timeout)
    return ProcessGroupTutti(options.store, options.group_rank, options.group_size, seconds,
                             f"group {options.group_id or 'world'}",
                             deferred=getattr(options, "enable_reconfigure", False))  # torch 2.14


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """torch.distributed.monitored_barrier, which itself takes Gloo's groups alone. Rank 0 raises, naming the ranks that
    have not come within the timeout (a datetime.timedelta): the first, or all of them."""
    group = group or torch.distributed.group.WORLD
    if hasattr(group, "_get_backend"):  # torch 2
        group = group._get_backend(torch.device("cpu"))
    group.monitored_barrier(timeout or torch.distributed.constants.default_pg_timeout, wait_all_ranks)


def _close_at_exit():
    """The other ranks must not wait for a rank that an exception has ended."""
    error = getattr(sys, "last_value", None)
    _core._close_all("" if error is None else f"the rank ended by {type(error).__name__}: {error}")


atexit.register(_close_at_exit)
_devices = {"devices": ["cpu", "cuda"]} if "devices" in inspect.signature(
    torch.distributed.Backend.register_backend).parameters else {}
torch.distributed.Backend.register_backend("tutti", _create, extended_api=True, **_devices)
