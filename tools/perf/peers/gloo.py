#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gloo's all_reduce through torch.distributed, as CSV for tutti-perf --peer.

    tuttirun -n 2 --no-label python3 tools/perf/peers/gloo.py 8M > gloo.csv

The time is the median of single calls on float32 sums in place, each rank's mean of the calls between two barriers."""
import statistics
import sys
import time

import torch
import torch.distributed as dist


def rounds(data, calls):
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(data)
    return (time.perf_counter() - begin) / calls


def main():
    text = sys.argv[1] if len(sys.argv) > 1 else "8M"
    most = int(text.rstrip("KM")) << {"K": 10, "M": 20}.get(text[-1], 0)
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        print("collective,size,time_us")
    size = 8
    while size <= most:
        data = torch.zeros(size // 4)
        rounds(data, 3)
        spent = statistics.median(rounds(data, 200 if size < 1 << 18 else 10) for _ in range(5))
        if dist.get_rank() == 0:
            print(f"all_reduce,{size},{spent * 1e6:.3f}", flush=True)
        size *= 4
    dist.destroy_process_group()


main()
