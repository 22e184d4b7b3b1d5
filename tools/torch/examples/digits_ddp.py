# SPDX-License-Identifier: Apache-2.0
"""Trains on the 1,797 handwritten digits with DistributedDataParallel.

    torchrun --nproc-per-node 4 tools/torch/examples/digits_ddp.py
    python3 -m tutti.run -n 4 tools/torch/examples/digits_ddp.py --backend gloo
"""

import argparse
import pathlib

import numpy
import torch
import torch.distributed as dist
from torch import nn

import tutti.torch  # noqa: F401  (registers the backend)

DATA = pathlib.Path(__file__).resolve().parents[3] / "core/examples/train_digits/digits.csv.gz"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="tutti")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=24, help="samples of all ranks in a step")
    options = parser.parse_args()
    dist.init_process_group(options.backend)
    rank, part = dist.get_rank(), options.batch // dist.get_world_size()
    table = torch.from_numpy(numpy.loadtxt(DATA, delimiter=",", dtype="i8"))
    torch.manual_seed(1)  # the same on every rank
    table = table[torch.randperm(len(table))]
    pixels, labels, held_out = table[:, :64].float() / 16, table[:, 64], 360
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 40), nn.ReLU(), nn.Linear(40, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for epoch in range(1, options.epochs + 1):
        order = torch.randperm(len(labels) - held_out)
        for begin in range(0, len(order) - options.batch + 1, options.batch):
            mine = order[begin + rank * part:begin + (rank + 1) * part]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(pixels[mine]), labels[mine])
            loss.backward()
            optimizer.step()
        loss = loss.detach()
        dist.all_reduce(loss)
        with torch.no_grad():
            right = (model.module(pixels[-held_out:]).argmax(1) == labels[-held_out:]).float().mean()
        if rank == 0:
            print(f"epoch {epoch:3}  loss {loss / dist.get_world_size():.4f}  held-out {100 * right:.2f} %", flush=True)
    flat = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    least, most = flat.clone(), flat.clone()
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    if not torch.equal(least, most):
        raise SystemExit("the ranks' weights differ")
    if rank == 0:
        print("weights: the same bits on all ranks")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
