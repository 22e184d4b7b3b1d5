# SPDX-License-Identifier: Apache-2.0
"""The mean and the standard deviation of a file of float32 numbers that does not fit into memory: each rank reads a part.

    python3 -m tutti.run -n 4 tools/python/examples/mean_of_file.py NUMBERS.f4
"""

import os
import sys

import numpy

import tutti

CHUNK = 1 << 20  # numbers in memory at a time


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(f"usage: {sys.argv[0]} NUMBERS.f4, a file of float32 numbers")
    comm = tutti.Communicator()
    numbers = os.path.getsize(sys.argv[1]) // 4
    if numbers == 0:
        raise SystemExit(f"{sys.argv[1]} has no numbers")
    begin, end = (numbers * r // comm.nranks for r in (comm.rank, comm.rank + 1))
    sums = numpy.zeros(2)  # of the numbers and of their squares
    with open(sys.argv[1], "rb") as file:
        file.seek(4 * begin)
        for at in range(begin, end, CHUNK):
            part = numpy.fromfile(file, "f4", min(CHUNK, end - at)).astype("f8")
            sums += part.sum(), (part * part).sum()
    comm.reduce(sums)
    if comm.rank == 0:
        mean = sums[0] / numbers
        print(f"{numbers} numbers: mean {mean:.6g}, standard deviation {max(sums[1] / numbers - mean * mean, 0) ** 0.5:.6g}")


if __name__ == "__main__":
    main()
