# SPDX-License-Identifier: Apache-2.0
"""Collectives in an event loop: each is awaited in a task of its own, and the loop serves other tasks meanwhile.

    python3 -m tutti.run -n 2 tools/python/examples/awaiting.py
"""

import array
import asyncio

import tutti


async def total(comm: tutti.Communicator, number: int) -> int:
    values = array.array("q", [number])
    await comm.start.all_reduce(values)
    return values[0]


async def ticks(seconds: float) -> int:
    count = 0
    try:
        while True:
            await asyncio.sleep(seconds)
            count += 1
    except asyncio.CancelledError:
        return count


async def main() -> None:
    comm = tutti.Communicator()
    clock = asyncio.create_task(ticks(0.001))
    # Tasks begin in this order: all ranks start their collectives in one order.
    totals = await asyncio.gather(*(total(comm, comm.rank + i) for i in range(10)))
    if comm.rank == 0:
        await asyncio.sleep(0.05)  # the others wait for this rank, and their loops go on
    await comm.start.barrier()
    clock.cancel()
    counted = await clock
    print(f"rank {comm.rank}: totals {totals}, and the loop went {'on' if counted else 'nowhere'}")


if __name__ == "__main__":
    asyncio.run(main())
