# SPDX-License-Identifier: Apache-2.0
"""Computes and communicates at once: while one block is summed over the ranks, the next one is computed.

    python3 -m tutti.run -n 2 tools/python/examples/overlap.py
"""

import numpy.typing

import tutti

BLOCKS, NUMBERS = 8, 50_000


def compute(block: int, rank: int) -> "numpy.typing.NDArray[numpy.float64]":
    return numpy.sqrt(numpy.arange(NUMBERS) + block) * (rank + 1)


def main() -> None:
    comm = tutti.Communicator(progress_thread=True)  # operations go on while this thread computes
    sums = numpy.empty((BLOCKS, NUMBERS))
    requests = []
    for block, row in enumerate(sums):
        row[:] = compute(block, comm.rank)
        requests.append(comm.start.all_reduce(row))  # the row is the operation's from here ...
    for request in requests:
        request.wait()  # ... to here
    factor = comm.nranks * (comm.nranks + 1) // 2
    right = all(numpy.allclose(row, factor * compute(block, 0)) for block, row in enumerate(sums))
    if comm.rank == 0:
        print(f"{BLOCKS} blocks of {NUMBERS} numbers: {'right' if right else 'wrong'}")


if __name__ == "__main__":
    main()
