# SPDX-License-Identifier: Apache-2.0
"""Tensor parallelism: every rank takes all samples, and a part of the columns of one layer and of the rows of the next.

Each rank's rows give a part of every logit: an all_reduce makes the logits. Backward, each rank's columns give a part of
d loss / d their input: a second one makes what the layers before need.

    python3 -m tutti.run -n 4 tools/python/examples/tensor_parallel.py [EPOCHS]
"""
import numpy
import tutti
from training import RATE, Dense, Labels, Matrix, backward, compare, forward, network, softmax_loss, update


class TensorParallel:
    def __init__(self, comm: tutti.Communicator) -> None:
        self.comm, (_, _, (first, second, wide, last)) = comm, network()
        begin, end = (wide.weights.shape[1] * rank // comm.nranks for rank in (comm.rank, comm.rank + 1))
        columns = wide.weights[:, begin:end].copy()
        rows = last.weights[[*range(begin, end), -1]]  # a copy, with the bias
        rows[-1] *= comm.rank == 0  # one rank adds it
        self.whole = [first, second]
        self.divided = [Dense(columns, numpy.zeros_like(columns), True), Dense(rows, numpy.zeros_like(rows), False)]

    def logits(self, pixels: Matrix) -> Matrix:
        self.below = forward(self.whole, pixels)
        self.above = forward(self.divided, self.below[-1])
        logits = self.above[-1].copy()
        self.comm.all_reduce(logits)
        return logits

    def step(self, pixels: Matrix, labels: Labels) -> float:
        loss, error = softmax_loss(self.logits(pixels), labels)
        dx = backward(self.divided, self.above, error)
        self.comm.all_reduce(dx)
        backward(self.whole, self.below, dx)
        self.divided[1].gradient[-1] *= self.comm.rank == 0
        update(self.whole + self.divided, RATE / len(labels))
        return loss if self.comm.rank == 0 else 0.0  # all ranks have it


if __name__ == "__main__":
    compare(TensorParallel)
