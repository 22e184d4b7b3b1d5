# SPDX-License-Identifier: Apache-2.0
"""Tutti beside Gloo in one run, by turns: all_reduce from 8 B to 64 MiB, lists, and DDP's steps per second. Prints Markdown.

    python3 tools/torch/benches/compare.py              # 2 and 4 ranks; PYTHONPATH=build/python
    python3 tools/torch/benches/compare.py --ranks 2 --seconds 5
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

SIZES = [8, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20, 64 << 20]
LISTS = [(100, 1 << 10), (4, 64 << 20)]  # tensors, bytes of each
BLOCKS = 6  # of each backend, by turns


def clock(dist, call, seconds):
    """Seconds per call, the slowest rank's."""
    import torch
    call()
    dist.barrier()
    begin = time.perf_counter()
    call()
    dist.barrier()
    once = torch.tensor([max(time.perf_counter() - begin, 1e-6)])
    dist.all_reduce(once, op=dist.ReduceOp.MAX)
    n = max(2, min(2000, int(seconds / once.item())))
    begin = time.perf_counter()
    for _ in range(n):
        call()
    spent = torch.tensor([(time.perf_counter() - begin) / n], dtype=torch.float64)
    dist.all_reduce(spent, op=dist.ReduceOp.MAX)
    return spent.item()


def by_turns(dist, calls, seconds):
    """The median of the blocks of each backend."""
    times = {name: [] for name in calls}
    for _ in range(BLOCKS):
        for name, call in calls.items():
            times[name].append(clock(dist, call, seconds / BLOCKS))
    return {name: statistics.median(some) for name, some in times.items()}


def step_of(torch, group, width):
    model = torch.nn.Sequential(torch.nn.Linear(64, width), torch.nn.ReLU(), torch.nn.Linear(width, width),
                                torch.nn.ReLU(), torch.nn.Linear(width, 10))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    model = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    pixels, labels = torch.randn(32, 64), torch.randint(10, (32,))

    def step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(pixels), labels).backward()
        optimizer.step()
    return step, parameters


def text(seconds):
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def rank(seconds):
    import torch
    import torch.distributed as dist

    import tutti.torch  # noqa: F401
    dist.init_process_group("tutti")
    groups = {"tutti": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    lines = [f"\n{dist.get_world_size()} ranks\n", "| | Tutti | Gloo | Gloo / Tutti |", "| --- | --- | --- | --- |"]
    for size in SIZES:
        data = torch.zeros(size // 4)
        spent = by_turns(dist, {name: lambda group=group: dist.all_reduce(data, group=group)
                                for name, group in groups.items()}, seconds)
        lines.append(f"| all_reduce, {size} B | {text(spent['tutti'])} | {text(spent['gloo'])} | "
                     f"{spent['gloo'] / spent['tutti']:.1f} |")
    for n, size in LISTS:
        tensors = [torch.zeros(size // 4) for _ in range(n)]
        spent = by_turns(dist, {name: lambda group=group: dist.all_reduce_coalesced(tensors, group=group)
                                for name, group in groups.items()}, seconds)
        lines.append(f"| all_reduce_coalesced, {n} of {size} B | {text(spent['tutti'])} | {text(spent['gloo'])} | "
                     f"{spent['gloo'] / spent['tutti']:.1f} |")
    for width in (40, 1000):
        steps = {name: step_of(torch, group, width) for name, group in groups.items()}
        spent = by_turns(dist, {name: step for name, (step, _) in steps.items()}, seconds * 2)
        lines.append(f"| DDP, {steps['tutti'][1]:,} parameters | {1 / spent['tutti']:.0f} steps/s | "
                     f"{1 / spent['gloo']:.0f} steps/s | {spent['gloo'] / spent['tutti']:.2f} |")
    if dist.get_rank() == 0:
        print("\n".join(lines), flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--seconds", type=float, default=3, help="for each line and backend")
    options = parser.parse_args()
    if "RANK" in os.environ:
        return rank(options.seconds)
    for ranks in options.ranks:
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        subprocess.run([sys.executable, "-m", "tutti.run", "-n", str(ranks), "--no-label", os.path.abspath(__file__),
                        "--seconds", str(options.seconds)], check=True, env=environment)


if __name__ == "__main__":
    main()
