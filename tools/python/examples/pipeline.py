# SPDX-License-Identifier: Apache-2.0
"""Pipeline parallelism, 1F1B: each rank has some of the four layers, a stage, and a batch goes through in eight micro-batches.

Stage s of p passes p - 1 - s micro-batches forward; then it takes one forward and one backward pass in turn; at last the
backward passes that are left. Activations go to the next rank, d loss / d them come back.

    python3 -m tutti.run -n 4 tools/python/examples/pipeline.py [EPOCHS]
"""
import numpy
import tutti
from training import RATE, Labels, Matrix, backward, compare, forward, network, softmax_loss, update

MICRO_BATCHES = 8


class Pipeline:
    def __init__(self, comm: tutti.Communicator) -> None:
        self.comm, (_, _, layers) = comm, network()
        if comm.nranks > len(layers):
            raise SystemExit(f"the network has {len(layers)} layers, at most one rank for each")
        begin, end = (len(layers) * rank // comm.nranks for rank in (comm.rank, comm.rank + 1))
        self.layers, self.first, self.last = layers[begin:end], comm.rank == 0, comm.rank == comm.nranks - 1
        self.kept: "list[list[Matrix]]" = []  # activations between the two passes
        self.sends: "list[tutti.Request]" = []

    def forth(self, pixels: Matrix) -> None:
        x = pixels if self.first else numpy.empty((len(pixels), len(self.layers[0].weights) - 1))
        if not self.first:
            self.comm.receive(x, self.comm.rank - 1)
        self.kept.append(forward(self.layers, x))
        if not self.last:
            self.sends.append(self.comm.start.send(self.kept[-1][-1], self.comm.rank + 1))

    def back(self, labels: Labels) -> float:
        activations = self.kept.pop(0)
        loss, error = softmax_loss(activations[-1], labels) if self.last else (0.0, numpy.empty_like(activations[-1]))
        if not self.last:
            self.comm.receive(error, self.comm.rank + 1)
        dx = backward(self.layers, activations, error)
        if not self.first:
            self.sends.append(self.comm.start.send(dx, self.comm.rank - 1))  # the request keeps the array
        return loss

    def finish(self) -> None:
        for send in self.sends:
            send.wait()
        self.sends.clear()

    def step(self, pixels: Matrix, labels: Labels) -> float:
        ahead, loss = min(MICRO_BATCHES, self.comm.nranks - 1 - self.comm.rank), 0.0
        cuts = [len(labels) * i // MICRO_BATCHES for i in range(MICRO_BATCHES + 1)]
        parts = [slice(*cuts[i:i + 2]) for i in range(MICRO_BATCHES)]
        for i in range(MICRO_BATCHES + ahead):
            if i < MICRO_BATCHES:
                self.forth(pixels[parts[i]])
            if i >= ahead:
                loss += self.back(labels[parts[i - ahead]])
        self.finish()
        update(self.layers, RATE / len(labels))
        return loss

    def logits(self, pixels: Matrix) -> Matrix:
        self.forth(pixels)
        logits = self.kept.pop()[-1] if self.last else numpy.empty((len(pixels), 10))
        self.finish()
        self.comm.broadcast(logits, root=self.comm.nranks - 1)
        return logits


if __name__ == "__main__":
    compare(Pipeline)
