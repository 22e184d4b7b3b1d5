# SPDX-License-Identifier: Apache-2.0
"""JAX on processors, whose processes exchange arrays over Tutti: one call in the place of jax.distributed.initialize.

    import tutti.jax
    tutti.jax.initialize()        # started by python3 -m tutti.run -n 4 this.py
    import jax
    print(jax.device_count())     # 4
"""

import contextlib
import os
import pathlib
import socket
import sys
from typing import Any, Optional

import tutti

_NAME = "libtutti-mpitrampoline.so"


def library() -> str:
    """The path of libtutti-mpitrampoline.so: it lies beside the libtutti that this package uses."""
    path = pathlib.Path(tutti._libraries()[0]).with_name(_NAME)
    if not path.exists():
        raise FileNotFoundError(f"tutti.jax: {path} is absent, by which JAX reaches Tutti: build the target "
                                "tutti_mpitrampoline, or install the package tutti-tools")
    return str(path)


def _coordinator(comm: tutti.Communicator) -> str:
    """An address for JAX's coordinator, on the host of rank 0. The port is free when it is chosen."""
    address = bytearray(256)
    if comm.rank == 0:
        host = "127.0.0.1" if comm.host().hosts == 1 else os.environ.get("MASTER_ADDR") or socket.getfqdn()
        with contextlib.closing(socket.socket()) as held:
            held.bind(("", 0))
            text = f"{host}:{held.getsockname()[1]}".encode()
        address[:len(text)] = text
    comm.broadcast(address)
    return address.rstrip(b"\0").decode()


def initialize(coordinator_address: Optional[str] = None, **arguments: Any) -> None:
    """jax.distributed.initialize for the ranks that the environment tells, as tutti.Communicator() finds them.

    Call it before jax is imported: jaxlib looks for the library when it is loaded. Each process has one device.
    `arguments` are those of jax.distributed.initialize; without a coordinator_address rank 0 chooses one.
    """
    path = library()
    if "jaxlib" in sys.modules and os.environ.get("MPITRAMPOLINE_LIB") != path:
        raise tutti.InvalidUsage("tutti.jax.initialize: jax has been imported, and looked for its library of collectives "
                                 "then: call initialize() before `import jax`")
    os.environ["MPITRAMPOLINE_LIB"] = path
    with tutti.Communicator(name="tutti.jax", device="none") as comm:
        coordinator_address = coordinator_address or _coordinator(comm)
        rank, nranks = comm.rank, comm.nranks
    import jax  # type: ignore
    jax.config.update("jax_cpu_collectives_implementation", "mpi")
    jax.distributed.initialize(coordinator_address, nranks, rank, **arguments)
