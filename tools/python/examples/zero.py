# SPDX-License-Identifier: Apache-2.0
"""ZeRO, stage 1: data parallelism in which each rank keeps the optimizer's state of its shard of the parameters alone.

A reduce_scatter gives each rank the sum of its shard of the gradient; it updates that shard, with momentum; an all_gather
gives all shards to everyone. Together they send what an all_reduce of the gradient sends.

    python3 -m tutti.run -n 4 tools/python/examples/zero.py [EPOCHS]
"""
import numpy
import tutti
from training import RATE, Labels, Matrix, backward, compare, forward, network, softmax_loss

MOMENTUM = 0.9


class Zero:
    def __init__(self, comm: tutti.Communicator) -> None:
        self.comm, (self.weights, self.gradient, self.layers) = comm, network()
        shard = -(-len(self.weights) // comm.nranks)
        self.velocity, self.mine = numpy.zeros(shard), numpy.zeros(shard)
        self.all = numpy.zeros(shard * comm.nranks)  # the last shard may end in padding

    def logits(self, pixels: Matrix) -> Matrix:
        return forward(self.layers, pixels)[-1]

    def step(self, pixels: Matrix, labels: Labels) -> float:
        part = slice(*(len(labels) * rank // self.comm.nranks for rank in (self.comm.rank, self.comm.rank + 1)))
        activations = forward(self.layers, pixels[part])
        loss, error = softmax_loss(activations[-1], labels[part])
        backward(self.layers, activations, error)
        self.all[:len(self.gradient)] = self.gradient
        self.gradient[:] = 0
        self.comm.reduce_scatter(self.all, self.mine)
        self.velocity[:] = MOMENTUM * self.velocity + (1 - MOMENTUM) * RATE / len(labels) * self.mine
        self.comm.all_gather(self.velocity, self.all)  # the change of every parameter
        self.weights -= self.all[:len(self.weights)]
        return loss


if __name__ == "__main__":
    compare(Zero)
