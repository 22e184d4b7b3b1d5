# SPDX-License-Identifier: Apache-2.0
"""Trains on the 1,797 handwritten digits with data-parallel gradient descent. All ranks end with the same weights.

    python3 -m tutti.run -n 4 tools/python/examples/digits.py [EPOCHS]
"""
import pathlib
import sys

import numpy.typing
import tutti

DATA = pathlib.Path(__file__).resolve().parents[3] / "core/examples/train_digits/digits.csv.gz"
Floats = numpy.typing.NDArray[numpy.floating]
SHAPES, BATCH, RATE, HELD_OUT = [(64, 40), (40,), (40, 10), (10,)], 24, 0.3, 360


def layers() -> "tuple[Floats, list[Floats]]":
    """Weights and biases of 64 pixels -> 40 -> 10 classes, as views of one array: one all_reduce serves all."""
    sizes = [int(numpy.prod(shape)) for shape in SHAPES]
    flat = numpy.zeros(sum(sizes), "f4")
    return flat, [part.reshape(shape) for part, shape in zip(numpy.split(flat, numpy.cumsum(sizes)[:-1]), SHAPES)]


def forward(weights: "list[Floats]", pixels: Floats) -> "tuple[Floats, Floats]":
    hidden = numpy.maximum(pixels @ weights[0] + weights[1], 0)
    scores = hidden @ weights[2] + weights[3]
    odds = numpy.exp(scores - scores.max(1, keepdims=True))
    return hidden, odds / odds.sum(1, keepdims=True)


def backward(weights: "list[Floats]", gradient: "list[Floats]", pixels: Floats, labels: "numpy.typing.NDArray[numpy.int32]") -> None:
    """Writes the gradient of the mean loss over these samples."""
    hidden, likely = forward(weights, pixels)
    likely = (likely - numpy.eye(10, dtype="f4")[labels]) / len(labels)
    back = (likely @ weights[2].T) * (hidden > 0)
    for part, value in zip(gradient, (pixels.T @ back, back.sum(0), hidden.T @ likely, likely.sum(0))):
        part[:] = value


comm, generator = tutti.Communicator(), numpy.random.default_rng(1)  # the same numbers on every rank
table = generator.permutation(numpy.loadtxt(DATA, delimiter=",", dtype="i4"))
pixels, labels, part = table[:, :64].astype("f4") / 16, table[:, 64], BATCH // comm.nranks
(flat, weights), (flat_gradient, gradient) = layers(), layers()
for matrix in (weights[0], weights[2]):
    matrix[:] = generator.standard_normal(matrix.shape) * numpy.sqrt(2 / len(matrix))
for epoch in range(1, int(sys.argv[1] if len(sys.argv) > 1 else 30) + 1):
    order = generator.permutation(len(labels) - HELD_OUT)
    for begin in range(0, len(order) - BATCH + 1, BATCH):
        mine = order[begin + comm.rank * part:][:part]
        backward(weights, gradient, pixels[mine], labels[mine])
        comm.all_reduce(flat_gradient, op="avg")
        flat -= RATE * flat_gradient
    if comm.rank == 0:
        right = forward(weights, pixels[-HELD_OUT:])[1].argmax(1) == labels[-HELD_OUT:]
        print(f"epoch {epoch:3}  held-out {100 * right.mean():.2f} %", flush=True)
least, most = flat.copy(), flat.copy()
comm.all_reduce(least, op="min")
comm.all_reduce(most, op="max")
if comm.rank == 0:
    print("weights:", "the same bits on all ranks" if (least == most).all() else "they differ")
