# SPDX-License-Identifier: Apache-2.0
"""Trains on the 1,797 handwritten digits with data-parallel gradient descent. All ranks end with the same weights.

    python3 -m tutti.run -n 4 tools/python/examples/digits.py
"""

import argparse
import pathlib

import numpy

import tutti

DATA = pathlib.Path(__file__).resolve().parents[3] / "core/examples/train_digits/digits.csv.gz"


def layers(generator):
    """Weights and biases of 64 pixels -> 40 -> 10 classes, as views of one array: one all_reduce serves all."""
    shapes = [(64, 40), (40,), (40, 10), (10,)]
    flat = numpy.zeros(sum(numpy.prod(shape, dtype=int) for shape in shapes), "f4")
    views, begin = [], 0
    for shape in shapes:
        end = begin + numpy.prod(shape, dtype=int)
        views.append(flat[begin:end].reshape(shape))
        if generator and len(shape) == 2:
            views[-1][:] = generator.standard_normal(shape) * numpy.sqrt(2 / shape[0])
        begin = end
    return flat, views


def forward(weights, pixels):
    w1, b1, w2, b2 = weights
    hidden = numpy.maximum(pixels @ w1 + b1, 0)
    scores = hidden @ w2 + b2
    odds = numpy.exp(scores - scores.max(1, keepdims=True))
    return hidden, odds / odds.sum(1, keepdims=True)


def backward(weights, gradient, pixels, labels):
    """Writes the gradient of the mean loss over these samples, and returns that loss."""
    hidden, likely = forward(weights, pixels)
    loss = -numpy.log(likely[numpy.arange(len(labels)), labels]).mean()
    likely[numpy.arange(len(labels)), labels] -= 1
    likely /= len(labels)
    back = (likely @ weights[2].T) * (hidden > 0)
    gradient[0][:], gradient[1][:] = pixels.T @ back, back.sum(0)
    gradient[2][:], gradient[3][:] = hidden.T @ likely, likely.sum(0)
    return loss


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=24, help="samples of all ranks in a step")
    options = parser.parse_args()
    comm = tutti.Communicator()
    table = numpy.loadtxt(DATA, delimiter=",", dtype="i4")
    generator = numpy.random.default_rng(1)  # the same on every rank
    generator.shuffle(table)
    pixels, labels = table[:, :64].astype("f4") / 16, table[:, 64]
    held_out, part = 360, options.batch // comm.nranks
    flat, weights = layers(generator)
    flat_gradient, gradient = layers(None)
    for epoch in range(1, options.epochs + 1):
        order = generator.permutation(len(labels) - held_out)
        losses = []
        for begin in range(0, len(order) - options.batch + 1, options.batch):
            mine = order[begin + comm.rank * part:begin + (comm.rank + 1) * part]
            losses.append(backward(weights, gradient, pixels[mine], labels[mine]))
            comm.all_reduce(flat_gradient, op="avg")
            flat -= 0.3 * flat_gradient
        loss = numpy.array([numpy.mean(losses)])
        comm.all_reduce(loss, op="avg")
        if comm.rank == 0:
            right = forward(weights, pixels[-held_out:])[1].argmax(1) == labels[-held_out:]
            print(f"epoch {epoch:3}  loss {loss[0]:.4f}  held-out {100 * right.mean():.2f} %", flush=True)
    least, most = flat.copy(), flat.copy()
    comm.all_reduce(least, op="min")
    comm.all_reduce(most, op="max")
    if not (least == most).all():
        raise SystemExit("the ranks' weights differ")
    if comm.rank == 0:
        print("weights: the same bits on all ranks")


if __name__ == "__main__":
    main()
