#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_models.py FOLDER: writes resnet50.csv and gpt2.csv, the models of `tutti-perf buckets`.

A line is a parameter of the model, in the order in which the framework lists parameters: its name, its shape, its type,
and the microseconds of the backward pass after which its gradient is complete. Shapes are those of the published
networks: K. He et al., Deep Residual Learning for Image Recognition, 2015, with the names and the strides of
torchvision; A. Radford et al., Language Models are Unsupervised Multitask Learners, 2019, with the names of its
published weights.

Times follow from shapes. The backward pass runs the layers in reverse. A layer takes as long as its arithmetic or its
memory traffic, whichever is longer, on a device that does 100 operations in the time in which it moves a byte. Numbers
have 4 bytes. The whole pass is scaled to 100 ms; `--compute` scales it to another time.

  matrix multiplications, convolutions  twice the operations of the forward pass, for the gradients of weights and of
                                        inputs; reads and writes inputs, outputs and weights twice
  norms with their activation           5 times their elements move
  attention                             twice the operations of the forward pass; 8 times the elements move
  other functions of elements           3 times their elements move
"""
import pathlib
import sys

OPERATIONS_PER_BYTE = 100
PASS_US = 100_000
NUMBER_BYTES = 4


class Model:
    """The layers in the order of the forward pass: what each takes backward, and which parameters it completes."""

    def __init__(self):
        self.parameters = {}  # name: shape, in the framework's order
        self.layers = []  # (time, names)

    def layer(self, operations, moved, *parameters):
        """`parameters`: pairs of name and shape, which are declared in this order."""
        self.parameters.update(parameters)
        self.layers.append((max(operations / OPERATIONS_PER_BYTE, moved * NUMBER_BYTES), [name for name, _ in parameters]))

    def product(self, rows, inputs, outputs, *parameters, inputs_are_data=False):
        """rows x inputs times inputs x outputs."""
        sides = 1 if inputs_are_data else 2
        moved = 2 * (rows * (inputs + outputs) + inputs * outputs)
        self.layer(sides * 2 * rows * inputs * outputs, moved, *parameters)

    def ready(self):
        """When each parameter is complete, in microseconds."""
        clock, times = 0, {}
        for time, names in reversed(self.layers):
            clock += time
            times.update(dict.fromkeys(names, clock))
        return {name: round(time * PASS_US / clock) for name, time in times.items()}


def resnet50(images=32):
    model = Model()

    def convolution(name, inputs, outputs, kernel, size, data=False):
        """To `outputs` maps of size x size, then a norm."""
        pixels = images * size * size
        model.product(pixels, inputs * kernel * kernel, outputs, (f"{name[0]}.weight", (outputs, inputs, kernel, kernel)),
                      inputs_are_data=data)
        model.layer(0, 5 * pixels * outputs, (f"{name[1]}.weight", (outputs,)), (f"{name[1]}.bias", (outputs,)))

    convolution(("conv1", "bn1"), 3, 64, 7, 112, data=True)
    inputs, size = 64, 56
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), 1):
        for block in range(blocks):
            name = f"layer{stage}.{block}"
            halves = block == 0 and stage > 1
            convolution((f"{name}.conv1", f"{name}.bn1"), inputs, width, 1, size)
            size = size // 2 if halves else size
            convolution((f"{name}.conv2", f"{name}.bn2"), width, width, 3, size)
            convolution((f"{name}.conv3", f"{name}.bn3"), width, 4 * width, 1, size)
            if block == 0:
                convolution((f"{name}.downsample.0", f"{name}.downsample.1"), inputs, 4 * width, 1, size)
            inputs = 4 * width
    model.product(images, inputs, 1000, ("fc.weight", (1000, inputs)), ("fc.bias", (1000,)))
    return model


def gpt2(sequences=8, length=1024, width=768, words=50257, blocks=12):
    model, tokens = Model(), sequences * length

    def norm(name):
        model.layer(0, 5 * tokens * width, (f"{name}.weight", (width,)), (f"{name}.bias", (width,)))

    def linear(name, inputs, outputs):
        model.product(tokens, inputs, outputs, (f"{name}.weight", (inputs, outputs)), (f"{name}.bias", (outputs,)))

    # The output layer shares the words' table, so the table's gradient is complete at the end of the pass.
    model.layer(0, 3 * (tokens + words) * width, ("wte.weight", (words, width)), ("wpe.weight", (length, width)))
    for block in range(blocks):
        norm(f"h.{block}.ln_1")
        linear(f"h.{block}.attn.c_attn", width, 3 * width)
        model.layer(2 * 4 * sequences * length * length * width, 8 * tokens * width)
        linear(f"h.{block}.attn.c_proj", width, width)
        norm(f"h.{block}.ln_2")
        linear(f"h.{block}.mlp.c_fc", width, 4 * width)
        model.layer(0, 3 * tokens * 4 * width)
        linear(f"h.{block}.mlp.c_proj", 4 * width, width)
    norm("ln_f")
    model.product(tokens, width, words)
    model.layer(0, 3 * tokens * words)
    return model


def text(model, about):
    ready = model.ready()
    lines = [f"# {about}", "# Made by tools/perf/models/make_models.py, which says how.", "name,shape,dtype,ready_us"]
    for name, shape in model.parameters.items():
        lines.append(f"{name},{'x'.join(map(str, shape))},float32,{ready[name]}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(f"{__doc__}\nexpected one argument, the folder to write to")
    to = pathlib.Path(sys.argv[1])
    (to / "resnet50.csv").write_text(text(resnet50(), "ResNet-50 for 1,000 classes, 32 images of 224 x 224 a step"))
    (to / "gpt2.csv").write_text(text(gpt2(), "GPT-2 small, 8 sequences of 1,024 tokens a step"))
