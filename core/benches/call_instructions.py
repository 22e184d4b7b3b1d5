#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of calls of 8 bytes between two ranks over shared memory, for nine collectives and an
exchange.

    core/benches/call_instructions.py build [COLLECTIVE ...]

The folder is that of a build with the target call_loop, and the plugins shm and algorithms. One rank runs under
callgrind and the other does not. That one is many times faster, so the counted rank rarely polls without finding what
it waits for. A count is the difference of two runs with different numbers of calls, divided by the difference. Each is
the lowest of three, since a poll in vain adds to it. The ranks take turns: the root of a collective is rank 0.
"""
import os, re, subprocess, sys, tempfile
from pathlib import Path

COLLECTIVES = ("barrier", "broadcast", "reduce", "all_reduce", "gather", "all_gather", "scatter", "reduce_scatter", "all_to_all",
               "exchange")
FEW, MANY = 2000, 6000  # calls
ROUNDS = 1
LIMIT_S = 120


def instructions(loop: Path, collective: str, counted: int, calls: int) -> int:
    """The instructions of one whole run of the rank `counted`."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(loop), f"{folder}/meeting"]
        (Path(folder) / "meeting").mkdir()
        environment = dict(os.environ, TUTTI_PLUGIN_PATH=str(loop.parent.parent / "lib/tutti"), TUTTI_RECORDER_DIR=f"{folder}/records")
        tool = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
        ranks = [subprocess.Popen((tool if rank == counted else []) + command + [str(rank), collective, str(calls)], env=environment,
                                  stderr=subprocess.PIPE, text=True) for rank in (0, 1)]
        try:
            errors = [rank.communicate(timeout=LIMIT_S)[1] for rank in ranks]
        except subprocess.TimeoutExpired:
            sys.exit(f"call_instructions: {collective}: two ranks made {calls} calls in more than {LIMIT_S} s: is the machine busy?")
        finally:
            for rank in ranks:
                if rank.poll() is None:
                    rank.kill()
                    rank.wait()
    for rank, process in enumerate(ranks):
        if process.returncode:
            sys.exit(f"call_instructions: {collective}: rank {rank} ended with {process.returncode}: {errors[rank].strip()}")
    found = re.search(r"Collected : (\d+)", errors[counted])
    if not found:
        sys.exit(f"call_instructions: callgrind printed no \"Collected : N\", but: {errors[counted].strip()}")
    return int(found[1])


def main() -> None:
    build = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("build")
    loop = (build / "benches/call_loop").resolve()
    if not loop.exists():
        sys.exit(f"call_instructions: {loop} does not exist: expected the folder of a build: cmake --build build --target "
                 "call_loop shm algorithms")
    chosen = sys.argv[2:] or COLLECTIVES
    for name in chosen:
        if name not in COLLECTIVES:
            sys.exit(f"call_instructions: unknown collective {name}: expected some of {', '.join(COLLECTIVES)}")
    print(f"{'instructions per call, 8 B':28}{'rank 0':>8}{'rank 1':>8}{'both':>8}")
    for name in chosen:
        lowest = [[min(instructions(loop, name, rank, calls) for _ in range(ROUNDS)) for calls in (FEW, MANY)] for rank in (0, 1)]
        of_rank = [(many - few) / (MANY - FEW) for few, many in lowest]
        print(f"{name:28}{of_rank[0]:8.0f}{of_rank[1]:8.0f}{sum(of_rank):8.0f}", flush=True)


if __name__ == "__main__":
    main()
