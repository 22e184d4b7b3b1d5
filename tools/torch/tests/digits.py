# SPDX-License-Identifier: Apache-2.0
"""A network for the handwritten digits, and what training it in one process gives: the measure of every way to share
the work. All of it is in double precision, so sums in another order differ by far less than TOLERANCE."""

import functools
import pathlib

import numpy
import torch
import torch.distributed as dist
from torch import nn

DATA = pathlib.Path(__file__).resolve().parents[3] / "core/examples/train_digits/digits.csv.gz"
BATCH, STEPS = 96, 75
TOLERANCE = 1e-9

_rows = torch.from_numpy(numpy.loadtxt(DATA, delimiter=",", dtype="i8"))
_rows = _rows[torch.randperm(len(_rows), generator=torch.Generator().manual_seed(1))]
_pixels, _labels = _rows[:, :64].double() / 16, _rows[:, 64]
_TRAINED = len(_rows) // BATCH * BATCH - 3 * BATCH  # the others are held out


def network():
    """The same on every rank. Eight modules, as many as the stages of two on each of four ranks."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(),
                         nn.Linear(32, 10), nn.LogSoftmax(1)).double()


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.2, momentum=0.9)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


loss_of = nn.functional.nll_loss


def batches(steps=STEPS):
    for step in range(steps):
        begin = step * BATCH % _TRAINED
        yield _pixels[begin:begin + BATCH], _labels[begin:begin + BATCH]


def share(part=None, parts=None):
    """This rank's part of a batch: one of as many equal parts as there are ranks, unless others are named."""
    part, parts = (dist.get_rank(), dist.get_world_size()) if parts is None else (part, parts)
    return slice(part * BATCH // parts, (part + 1) * BATCH // parts)


def train(model, optimizer, mine=slice(None), data=None, steps=STEPS):
    for pixels, labels in data or batches(steps):
        optimizer.zero_grad()
        loss_of(model(pixels[mine]), labels[mine]).backward()
        optimizer.step()


def accuracy(model):
    with torch.no_grad():
        return (model(_pixels[_TRAINED:]).argmax(1) == _labels[_TRAINED:]).double().mean().item()


@functools.cache
def alone(optimizer=sgd, steps=STEPS):
    """The network as one process trains it."""
    model = network()
    train(model, optimizer(model.parameters()), steps=steps)
    return model


def whole(tensor):
    """A tensor that may be distributed."""
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach()


def as_one_process(model, optimizer=sgd, steps=STEPS, tolerance=TOLERANCE):
    """Raises unless the parameters of the model, which may be a part of the network, are those of one process."""
    expected = dict(alone(optimizer, steps).named_parameters())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(whole(parameter), expected[name].detach(), rtol=0, atol=tolerance,
                                   msg=lambda text, name=name: f"{name}: {text}")
    if steps == STEPS and accuracy(alone(optimizer)) < 0.85:
        raise AssertionError("one process has not learnt the digits")
