# SPDX-License-Identifier: Apache-2.0
"""Uses for a type checker (typing_test.py). A line with "type: ignore" must be an error of this kind."""

import array
import ctypes
import mmap
from typing import Any, Optional

import numpy

import tutti


def arrays(comm: tutti.Communicator) -> None:
    for data in (bytearray(8), array.array("f", [1]), memoryview(bytearray(8)), tutti.Memory(64), (ctypes.c_int * 2)(), mmap.mmap(-1, 8)):
        comm.all_reduce(data)
    comm.all_reduce(numpy.zeros((2, 3), "f4"))
    comm.broadcast(numpy.array(["a"]), root=numpy.int64(0))
    comm.broadcast(b"constant")
    comm.all_reduce([1, 2])  # type: ignore[arg-type]
    comm.all_reduce(0.5)  # type: ignore[arg-type]
    comm.broadcast("text")  # type: ignore[arg-type]
    comm.broadcast(numpy.zeros(2), root=1.0)  # type: ignore[arg-type]
    comm.send(numpy.zeros(2))  # type: ignore[call-arg]
    comm.all_gather(numpy.zeros(2))  # type: ignore[call-arg]


class Tensor:
    """As torch's."""

    def __dlpack__(self, *, stream: Optional[Any] = -1, max_version: Optional[tuple[int, int]] = None) -> Any:
        return None

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class OnDevice:
    __cuda_array_interface__: dict[str, Any] = {}


def other_arrays(comm: tutti.Communicator) -> None:
    comm.all_reduce(Tensor())
    comm.all_reduce(OnDevice(), stream=5)


def operators(comm: tutti.Communicator) -> None:
    data = numpy.zeros(2)
    comm.all_reduce(data, op="max")
    comm.all_reduce(data, op=comm.premul_sum(numpy.float64(0.5)))
    comm.reduce(data, root=0, op=comm.operator("first", lambda left, right: None, "float64"))
    comm.all_reduce(data, op="maximum")  # type: ignore[arg-type]
    comm.operator("first", lambda left: None, "float64")  # type: ignore[misc, arg-type]


def options(comm: tutti.Communicator) -> None:
    data = numpy.zeros(2)
    comm.all_reduce(data, algorithms="ring", order="exact", tag=7)
    comm.all_reduce(data, wire="bfloat16")
    comm.start.broadcast(data, wire="float8").wait()
    comm.start.barrier(algorithms="^ring", tag=numpy.int64(7)).wait()
    comm.all_reduce(data, order="any")  # type: ignore[arg-type]
    comm.broadcast(data, order="exact")  # type: ignore[call-arg]
    comm.all_reduce(data, wire="float7")  # type: ignore[arg-type]
    comm.scan(data, wire="float16")  # type: ignore[call-arg]


def requests(comm: tutti.Communicator) -> bool:
    request: tutti.Request = comm.start.all_reduce(numpy.zeros(2))
    done: bool = request.wait(0.5)
    again = comm.persistent.barrier()
    again.start()
    again.wait("soon")  # type: ignore[arg-type]
    comm.all_reduce(numpy.zeros(2)).wait()  # type: ignore[attr-defined]
    with comm.start.group() as group:
        comm.barrier()
    return group.request.test() and done


async def awaits(comm: tutti.Communicator) -> None:
    await comm.start.barrier()
    await comm.barrier()  # type: ignore[misc]


def messages(comm: tutti.Communicator) -> int:
    comm.exchange([tutti.Send(b"a", 1), tutti.Receive(bytearray(1), 1, tag=4)])
    comm.exchange([b"a"])  # type: ignore[list-item]
    found = comm.probe(timeout=None)
    return found.bytes  # type: ignore[union-attr]


def blocks(comm: tutti.Communicator) -> None:
    comm.all_gather_v(numpy.zeros(1), numpy.zeros(3), [1, 2])
    comm.all_gather_v(numpy.zeros(1), numpy.zeros(3), numpy.array([1, 2]), (0, 1))
    comm.all_gather_v(numpy.zeros(1), numpy.zeros(3), 5)  # type: ignore[arg-type]


def parts(comm: tutti.Communicator) -> int:
    part = comm.split(comm.rank % 2)
    part.barrier()  # type: ignore[union-attr]
    with comm.duplicate() as other, comm.register(bytearray(64), zero_copy=True) as window:
        comm.rank = 5  # type: ignore[misc]
        return other.nranks + window.bytes


def gradients(comm: tutti.Communicator) -> float:
    with comm.gradients({"weights": numpy.zeros(3), "bias": (4, "float32")}, wire="bfloat16", feedback=True) as buckets:
        buckets.ready("weights", numpy.zeros(3))
        buckets.unused(1)
        buckets.wait(seconds="soon")  # type: ignore[arg-type]
    comm.gradients([numpy.zeros(3)], op="max")  # type: ignore[arg-type]
    comm.gradients([3])  # type: ignore[list-item]
    return buckets.facts["exposed_seconds"]


def settings() -> None:
    tutti.Communicator("tcp://127.0.0.1:1", 0, 2, timeout=5.0, progress_thread=True)
    tutti.Communicator(rank="0", nranks=2)  # type: ignore[arg-type]
    tutti.Communicator(device=0)  # type: ignore[arg-type]


def threads() -> list[float]:
    def rank(comm: tutti.Communicator, scale: float, more: int = 0) -> float:
        return comm.rank * scale

    tutti.run_threads(2.0, rank)  # type: ignore[arg-type]
    tutti.run_threads(2, rank, 0.5, time_out=3)  # type: ignore[call-arg]
    tutti.run_threads(2, 5)  # type: ignore[arg-type]
    words: list[str] = tutti.run_threads(2, rank, 0.5)  # type: ignore[arg-type]
    return tutti.run_threads(2, rank, 0.5, timeout=60, name="pair")


def errors(comm: tutti.Communicator) -> int:
    try:
        comm.barrier()
    except (tutti.PeerFailed, tutti.Timeout) as error:
        return error.status
    return comm.failure.status if comm.failure else 0


@tutti.register
class Line:
    name, summary, collectives = "typed-line", "along the line", ["broadcast"]

    def schedule(self, query: tutti.Query, schedule: tutti.Schedule) -> None:
        lane = schedule.lane()
        step: tutti.Step = lane.recv(query.prev(), tutti.OUT()).final()
        lane.send(query.next(), step)  # type: ignore[arg-type]


@tutti.register
class Nameless:  # type: ignore[type-var]
    pass


def plans() -> str:
    plan = tutti.Plan("ring", "all_reduce", 8, hosts=[0] * 8)
    proof = plan.verify()
    proof.ok = True  # type: ignore[misc]
    return proof.error + plan.draw()
