# SPDX-License-Identifier: Apache-2.0
"""One process of a JAX program: makes every collective on a mesh of DEVICES devices, trains, and writes what its devices
hold into a file.

    program.py FILE DEVICES [ADDRESS]

With ADDRESS, that of JAX's coordinator, the devices are one of each process, by RANK and WORLD_SIZE. Without it this
process has all of them.
"""
import os
import pathlib
import pickle
import sys

import jax

file, devices = sys.argv[1], int(sys.argv[2])
jax.config.update("jax_enable_x64", True)
if len(sys.argv) > 3:
    jax.distributed.initialize(sys.argv[3], int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"]))
else:
    jax.config.update("jax_num_cpu_devices", devices)

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P

assert jax.device_count() == devices, jax.devices()
DATA = pathlib.Path(__file__).resolve().parents[3] / "core/examples/train_digits/digits.csv.gz"
AUTO = jax.sharding.AxisType.Auto
line = jax.make_mesh((devices,), ("x",), (AUTO,))
square = jax.make_mesh((devices // 2, 2), ("a", "b"), (AUTO, AUTO))
results = {}


def keep(name, array):
    """The shards of a global array that are on this process's devices."""
    results[name] = (array.shape, [(shard.index, np.asarray(shard.data)) for shard in array.addressable_shards])


def spread(host, mesh, spec):
    return jax.make_array_from_callback(host.shape, NamedSharding(mesh, spec), lambda index: host[index])


def call(name, function, host, mesh=line, spec=P("x"), out_spec=None):
    """`function` on each device's shard of `host`."""
    out_spec = spec if out_spec is None else out_spec  # P() is false
    program = jax.jit(jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=out_spec, check_vma=False))
    keep(name, program(spread(host, mesh, spec)))


def data(dtype, *shape):
    """Small whole numbers, of which every sum and product is exact; they differ from element to element."""
    numbers = np.arange(int(np.prod(shape))).reshape(shape) * 7 % 11
    return (numbers + 1j * (numbers[::-1] % 3) if np.dtype(dtype).kind == "c" else numbers).astype(dtype)


n = devices
whole = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
for dtype in whole + ["float32", "float64", "complex64", "complex128"]:
    call(f"psum {dtype}", lambda x: lax.psum(x, "x"), data(dtype, n, 13))
    call(f"all_gather {dtype}", lambda x: lax.all_gather(x, "x", tiled=True), data(dtype, n, 5), out_spec=P(None, "x"))
    call(f"psum_scatter {dtype}", lambda x: lax.psum_scatter(x, "x", scatter_dimension=1, tiled=True), data(dtype, n, 6 * n))
    call(f"all_to_all {dtype}", lambda x: lax.all_to_all(x, "x", 1, 0, tiled=True), data(dtype, n, 3 * n), out_spec=P(None, "x"))
    call(f"ppermute {dtype}", lambda x: lax.ppermute(x, "x", [(i, (i + 1) % n) for i in range(n)]), data(dtype, n, 7))
for dtype in whole + ["float32", "float64"]:
    call(f"pmin {dtype}", lambda x: lax.pmin(x, "x"), data(dtype, n, 13))
    call(f"pmax {dtype}", lambda x: lax.pmax(x, "x"), data(dtype, n, 13))
for dtype in ("bfloat16",):
    call(f"psum {dtype}", lambda x: lax.psum(x, "x").astype("f4"), data(jnp.dtype(dtype), n, 13))
call("psum bool", lambda x: lax.psum(x > 5, "x"), data("int32", n, 9))
call("any", lambda x: jnp.any(lax.all_gather(x > 9, "x"), axis=0), data("int32", n, 9))
call("pmean", lambda x: lax.pmean(x, "x"), data("float32", n, 8))
call("empty", lambda x: lax.psum(x, "x"), data("float32", n, 0))
call("scalar", lambda x: lax.psum(x[0, 0], "x"), data("float32", n, 1), out_spec=P())
call("large psum", lambda x: lax.psum(x, "x"), data("float32", n, 300_001))
call("large all_to_all", lambda x: lax.all_to_all(x, "x", 1, 0, tiled=True), data("float64", n, 40_000 * n), out_spec=P(None, "x"))
# From the first device to the last: the others receive zeros.
call("ppermute to one", lambda x: lax.ppermute(x, "x", [(0, n - 1)]), data("float32", n, 7))
call("ppermute to itself", lambda x: lax.ppermute(x, "x", [(i, i) for i in range(n)]), data("float32", n, 7))
call("broadcast", lambda x: lax.psum(jnp.where(lax.axis_index("x") == n - 1, x, 0), "x"), data("float64", n, 7))
# Communicators of some of the devices, and several calls in one program.
for axis in "ab":
    call(f"psum along {axis}", lambda x: lax.psum(x, axis), data("float32", n // 2, 2, 9), square, P("a", "b"))
    call(f"all_gather along {axis}", lambda x: lax.all_gather(x, axis, axis=2, tiled=True), data("int32", n // 2, 2, 9), square,
         P("a", "b"))
call("in turn", lambda x: lax.ppermute(lax.psum(lax.psum_scatter(x, "a", scatter_dimension=2, tiled=True), "b"), "a",
                                       [(i, (i + 1) % (n // 2)) for i in range(n // 2)]),
     data("float32", n // 2, 2, 12), square, P("a", "b"))
call("in a loop", lambda x: lax.fori_loop(0, 50, lambda i, y: lax.ppermute(y, "x", [(j, (j + 1) % n) for j in range(n)]) + i, x),
     data("int64", n, 6))


def train(name, mesh, samples, weights_spec, steps=40):
    """The digits by a network of 64, 64 and 10 units; `samples` is the axis over which they are spread. XLA places the
    collectives."""
    table = np.random.default_rng(1).permutation(np.loadtxt(DATA, delimiter=",", dtype="i4"))
    pixels, labels = (table[:, :64] / 16).astype("f4"), table[:, 64]
    generator = np.random.default_rng(2)
    parts = [generator.standard_normal((64, 64)).astype("f4") / 8, generator.standard_normal((64, 10)).astype("f4") / 8]
    weights = [spread(part, mesh, spec) for part, spec in zip(parts, weights_spec)]

    def loss(weights, x, y):
        likely = jax.nn.log_softmax(jax.nn.relu(x @ weights[0]) @ weights[1])
        return -jnp.mean(jnp.take_along_axis(likely, y[:, None], 1))

    @jax.jit
    def step(weights, x, y):
        value, gradient = jax.value_and_grad(loss)(weights, x, y)
        return [w - 0.5 * g for w, g in zip(weights, gradient)], value

    losses = []
    for begin in range(0, 32 * steps, 32):
        x, y = (spread(part[begin:begin + 32], mesh, spec) for part, spec in ((pixels, P(samples, None)), (labels, P(samples))))
        weights, value = step(weights, x, y)
        losses.append(float(value))
    results[f"losses of {name}"] = np.array(losses)


train("data parallel", line, "x", [P(), P()])
train("tensor parallel", line, None, [P(None, "x"), P("x", None)])
train("both", square, "a", [P(None, "b"), P("b", None)])
with open(file, "wb") as out:
    pickle.dump(results, out)
print("done", flush=True)
