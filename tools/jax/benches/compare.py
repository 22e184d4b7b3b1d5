#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""JAX's collectives over Tutti and over Gloo, in turn: microseconds of a call, the median of all rounds.

    compare.py [--build BUILD] [--python PYTHON] [--ranks 2] [--rounds 5]

PYTHON is an interpreter with jax. Each round starts a job of each library. A call is a jitted program with one
collective in a loop of XLA, so that Python's part is left out.
"""
import argparse
import contextlib
import os
import pathlib
import socket
import statistics
import subprocess
import sys

RANK = """
import os, sys, time, jax
jax.distributed.initialize(sys.argv[1], int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"]))
import jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P
n = jax.device_count()
mesh = jax.make_mesh((n,), ("x",))
ring = [(i, (i + 1) % n) for i in range(n)]
calls = {"psum": lambda x: lax.psum(x, "x") * (1 / n), "ppermute": lambda x: lax.ppermute(x, "x", ring),
         "all_gather": lambda x: lax.all_gather(x[:, :x.shape[1] // n], "x", axis=1, tiled=True),
         "all_to_all": lambda x: lax.all_to_all(x, "x", 1, 1, tiled=True)}
for name, call in calls.items():
    for bytes_ in (8 * n, 8 << 10, 256 << 10, 4 << 20):
        turns = max(4, min(400, (8 << 20) // bytes_))
        host = np.ones((n, bytes_ // 4), "f4")
        x = jax.make_array_from_callback(host.shape, NamedSharding(mesh, P("x")), lambda index: host[index])
        loop = jax.jit(jax.shard_map(lambda x: lax.fori_loop(0, turns, lambda i, y: call(y), x), mesh=mesh, in_specs=P("x"),
                                     out_specs=P("x"), check_vma=False))
        best = []
        for _ in range(4):
            begin = time.perf_counter()
            loop(x).block_until_ready()
            best.append((time.perf_counter() - begin) / turns * 1e6)
        if jax.process_index() == 0:
            print("row", name, bytes_, min(best[1:]), flush=True)
"""


def free_port():
    with contextlib.closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[3] / "build")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    over = {"tutti": {"JAX_CPU_COLLECTIVES_IMPLEMENTATION": "mpi",
                      "MPITRAMPOLINE_LIB": str(options.build / "lib/libtutti-mpitrampoline.so")},
            "gloo": {"JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo"}}
    rows = {}
    for _ in range(options.rounds):
        for library, settings in over.items():
            done = subprocess.run([options.build / "bin/tuttirun", "-n", str(options.ranks), "--no-label", options.python, "-B", "-c",
                                   RANK, f"127.0.0.1:{free_port()}"], text=True, capture_output=True,
                                  env={**os.environ, "JAX_PLATFORMS": "cpu", **settings})
            if done.returncode:
                sys.exit(f"{library}: {done.stdout}{done.stderr}")
            for word, name, size, micros in (line.split() for line in done.stdout.splitlines() if line.startswith("row ")):
                rows.setdefault((name, int(size)), {}).setdefault(library, []).append(float(micros))
    print(f"{'call':12} {'bytes':>9} {'tutti us':>10} {'gloo us':>10} {'gloo/tutti':>10}")
    for (name, size), times in rows.items():
        mine, theirs = (statistics.median(times[library]) for library in over)
        print(f"{name:12} {size:9} {mine:10.1f} {theirs:10.1f} {theirs / mine:10.1f}")


if __name__ == "__main__":
    main()
