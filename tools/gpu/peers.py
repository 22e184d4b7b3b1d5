#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch does on the same GPUs: its copies and sums, and all-reduce by the libraries that it brings.

    peers.py [MEBIBYTES]        of a large buffer, 1024 unless told

NCCL takes one rank per GPU; Gloo also takes several, whose bytes it moves through the host. Times are the median of
several calls, each waited for. Exits with 77, after a line that says why, where there is nothing to compare with."""
import statistics
import sys
import tempfile
import time

try:
    import torch
    import torch.distributed as dist
    import torch.multiprocessing as processes
except ImportError as absent:
    print(f"PyTorch is not here ({absent}): there is nothing to compare with")
    sys.exit(77)

SMALL = 2  # floats


def median_seconds(call, repeats):
    times = []
    for turn in range(repeats + 2):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        if turn >= 2:
            times.append(time.perf_counter() - begin)
    return statistics.median(times)


def rank_main(rank, backend, ranks, devices, floats, meeting, rows):
    torch.cuda.set_device(rank % devices)
    dist.init_process_group(backend, init_method=f"file://{meeting}/{backend}", rank=rank, world_size=ranks)
    for count, repeats in ((SMALL, 200), (floats, 5)):
        values = torch.full((count,), float(rank + 1), device="cuda")
        dist.all_reduce(values)
        expected = ranks * (ranks + 1) / 2
        if not bool((values == expected).all()):
            raise RuntimeError(f"{backend}: a wrong sum")
        seconds = median_seconds(lambda: dist.all_reduce(values.fill_(1.0)), repeats)
        if rank == 0:
            rows.put((count * 4, seconds))
    dist.destroy_process_group()


def all_reduce(backend, ranks, devices, floats):
    context = processes.get_context("spawn")
    rows = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as meeting:
        processes.spawn(rank_main, (backend, ranks, devices, floats, meeting, rows), nprocs=ranks)
    for _ in range(2):
        size, seconds = rows.get()
        print(f"{backend} all-reduce, {ranks} processes on {min(ranks, devices)} GPU(s), {size} bytes: "
              f"{seconds * 1e6:.1f} us, {size / seconds / 1e9:.2f} GB/s (with a fill of the buffer)")


def main():
    floats = int(sys.argv[1] if len(sys.argv) > 1 else 1024) << 18
    if not torch.cuda.is_available():
        print("PyTorch sees no GPU: there is nothing to compare with")
        return 77
    devices = torch.cuda.device_count()
    print(f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}, "
          f"{devices} x {torch.cuda.get_device_name(0)}")
    a, b, c = (torch.ones(floats, device="cuda") for _ in range(3))
    for what, moves, call in (("copy", 2, lambda: b.copy_(a)), ("sum of two", 3, lambda: torch.add(a, b, out=c))):
        print(f"{what} of {floats * 4} bytes: {moves * floats * 4 / median_seconds(call, 7) / 1e9:.0f} GB/s in bytes moved")
    del a, b, c
    torch.cuda.empty_cache()
    if devices > 1:
        all_reduce("nccl", devices, devices, floats)
    else:
        print("NCCL takes one rank per GPU: with one GPU there is nothing to compare with")
    all_reduce("gloo", max(2, devices), devices, floats // 4)
    return 0


if __name__ == "__main__":
    sys.exit(main())
