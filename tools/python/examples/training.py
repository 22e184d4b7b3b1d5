# SPDX-License-Identifier: Apache-2.0
"""What tensor_parallel.py, zero.py and pipeline.py have in common: the digits, a network 64-32-32-64-10 of numpy arrays, and
the comparison with the run of one rank. Values are double, so that a sum in another order changes a loss in its last digits."""
import pathlib
import sys
from typing import Callable, NamedTuple, Protocol

import numpy
import numpy.typing
import tutti

DATA = pathlib.Path(__file__).resolve().parents[3] / "core/examples/train_digits/digits.csv.gz"
Matrix = numpy.typing.NDArray[numpy.float64]
Labels = numpy.typing.NDArray[numpy.int64]
SHAPES, BATCH, RATE, HELD_OUT = [(65, 32), (33, 32), (33, 64), (65, 10)], 64, 0.2, 360


class Dense(NamedTuple):
    """y = x W + b, then maybe ReLU. The last row of the weights is the bias; the gradient is that of the samples' sum."""
    weights: Matrix
    gradient: Matrix
    relu: bool

    def forward(self, x: Matrix) -> Matrix:
        y: Matrix = x @ self.weights[:-1] + self.weights[-1]
        return numpy.maximum(y, 0) if self.relu else y

    def backward(self, x: Matrix, y: Matrix, dy: Matrix) -> Matrix:
        """d loss / d x. Adds to the gradient."""
        dy = dy * (y > 0) if self.relu else dy
        self.gradient[:-1] += x.T @ dy
        self.gradient[-1] += dy.sum(0)
        dx: Matrix = dy @ self.weights[:-1].T
        return dx


def network() -> "tuple[Matrix, Matrix, list[Dense]]":
    """All weights and all gradients, each as one array, and the layers, which are views of them; the same on every rank."""
    sizes, generator = [rows * columns for rows, columns in SHAPES], numpy.random.default_rng(1)
    weights, gradient = numpy.zeros(sum(sizes)), numpy.zeros(sum(sizes))
    layers, begin = [], 0
    for shape, size in zip(SHAPES, sizes):
        part = slice(begin, begin + size)
        layers.append(Dense(weights[part].reshape(shape), gradient[part].reshape(shape), shape != SHAPES[-1]))
        layers[-1].weights[:-1] = generator.uniform(-1, 1, (shape[0] - 1, shape[1])) * numpy.sqrt(6 / (shape[0] - 1))
        begin += size
    return weights, gradient, layers


def forward(layers: "list[Dense]", x: Matrix) -> "list[Matrix]":
    """x, and the outputs of all layers."""
    activations = [x]
    for layer in layers:
        activations.append(layer.forward(activations[-1]))
    return activations


def backward(layers: "list[Dense]", activations: "list[Matrix]", dy: Matrix) -> Matrix:
    for i in reversed(range(len(layers))):
        dy = layers[i].backward(activations[i], activations[i + 1], dy)
    return dy


def update(layers: "list[Dense]", rate: float) -> None:
    for layer in layers:
        layer.weights[:] -= rate * layer.gradient
        layer.gradient[:] = 0


def softmax_loss(logits: Matrix, labels: Labels) -> "tuple[float, Matrix]":
    """The sum of the samples' cross-entropies, and d of it / d logits."""
    odds = numpy.exp(logits - logits.max(1, keepdims=True))
    error = odds / odds.sum(1, keepdims=True)
    loss = float(-numpy.log(error[numpy.arange(len(labels)), labels]).sum())
    error[numpy.arange(len(labels)), labels] -= 1
    return loss, error


class Way(Protocol):
    """One way to share a training between the ranks of a communicator."""
    def step(self, pixels: Matrix, labels: Labels) -> float: ...  # of all samples of a batch; returns this rank's part of their loss
    def logits(self, pixels: Matrix) -> Matrix: ...


def sent_bytes(comm: tutti.Communicator) -> int:
    return sum(row["sent_bytes"] for row in comm.traffic())


def train(comm: tutti.Communicator, way: Way, epochs: int) -> "tuple[float, float, int]":
    """The mean loss of the last epoch, percent of the held-out digits, and the bytes that this rank sent in the second step."""
    table = numpy.random.default_rng(1).permutation(numpy.loadtxt(DATA, delimiter=",", dtype="i8"))
    pixels, labels, sent = table[:, :64] / 16, table[:, 64], []
    samples = len(labels) - HELD_OUT
    for _ in range(epochs):
        loss = numpy.zeros(1)
        for begin in range(0, samples, BATCH):
            part = slice(begin, min(begin + BATCH, samples))
            before = sent_bytes(comm)
            loss += way.step(pixels[part], labels[part])
            sent.append(sent_bytes(comm) - before)
        comm.all_reduce(loss)
    right = way.logits(pixels[samples:]).argmax(1) == labels[samples:]
    return float(loss[0]) / samples, 100 * float(right.mean()), sent[1]


def compare(make: "Callable[[tutti.Communicator], Way]") -> None:
    """Trains on all ranks, then on rank 0 alone; fails unless both losses agree to 1e-5 of them."""
    comm, epochs = tutti.Communicator(), int(sys.argv[1] if len(sys.argv) > 1 else 30)
    loss, accuracy, sent = train(comm, make(comm), epochs)
    bytes_sent = numpy.array([float(sent)])
    comm.all_reduce(bytes_sent, op="avg")
    alone = comm.split(0 if comm.rank == 0 else None)
    if alone:
        reference, _, _ = train(alone, make(alone), epochs)
        print(f"{comm.nranks} ranks: loss {loss:.9f}, held-out {accuracy:.2f} %; a step sends {bytes_sent[0]:.0f} bytes, mean of the ranks")
        print(f"1 rank:  loss {reference:.9f}")
        if not abs(loss - reference) <= 1e-5 * reference:
            comm.abort("the losses differ")
            raise SystemExit("the losses differ")
