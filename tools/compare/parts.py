# SPDX-License-Identifier: Apache-2.0
"""What is measured: parts, each a number of ranks and a transport with its collectives and sizes."""
from dataclasses import dataclass, replace

COLLECTIVES = ("broadcast", "reduce", "all_reduce", "gather", "all_gather", "scatter", "reduce_scatter", "all_to_all",
               "send_receive", "barrier")
MODES = ("constant", "rewritten")
TRANSPORTS = ("shm", "tcp")
RANKS = (2, 4, 8)
KIB, MIB = 1 << 10, 1 << 20
SOME = ("broadcast", "all_reduce", "all_gather", "all_to_all")


@dataclass(frozen=True)
class Part:
    ranks: int
    transport: str
    collectives: tuple
    sizes: tuple
    modes: tuple = MODES


# A round of these takes about three minutes on two cores.
USUAL = (
    Part(2, "shm", COLLECTIVES, (8, 64, 512, 4 * KIB, 32 * KIB, 256 * KIB, 2 * MIB, 16 * MIB)),
    Part(2, "shm", ("all_reduce",), (256 * MIB,)),
    Part(2, "tcp", COLLECTIVES, (8, 4 * KIB, 64 * KIB, MIB, 16 * MIB)),
    Part(4, "shm", COLLECTIVES, (8, 8 * KIB, 256 * KIB, 4 * MIB)),
    Part(8, "shm", SOME, (8, 8 * KIB, 256 * KIB, 4 * MIB)),
    Part(4, "tcp", SOME, (8, 64 * KIB, 4 * MIB)),
    Part(8, "tcp", ("all_reduce",), (8, 64 * KIB, 4 * MIB)),
)


def steps(first, last, factor):
    sizes = []
    while first <= last:
        sizes.append(first)
        first *= factor
    return tuple(sizes)


def everything(sizes, ranks):
    return tuple(Part(number, transport, COLLECTIVES, sizes) for number in ranks for transport in TRANSPORTS)


def restricted(parts, ranks, transports, collectives, modes, smallest, largest):
    """What is left of the parts. None restricts nothing. A barrier has no size."""
    left = []
    for part in parts:
        if (ranks and part.ranks not in ranks) or (transports and part.transport not in transports):
            continue
        sizes = tuple(size for size in part.sizes if smallest <= size <= largest)
        wanted = tuple(one for one in part.collectives
                       if (not collectives or one in collectives) and (sizes or one == "barrier"))
        if wanted:
            left.append(replace(part, collectives=wanted, sizes=sizes or (0,), modes=tuple(modes or part.modes)))
    return left
