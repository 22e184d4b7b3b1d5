# SPDX-License-Identifier: Apache-2.0
"""Gradient buckets of a model beside DistributedDataParallel over Gloo, and DDP's buckets in wire formats."""

import unittest

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tutti
import tutti.torch
from ranks import SEED, gloo, run


def network(dtype=torch.float32):
    torch.manual_seed(SEED)
    return nn.Sequential(nn.Linear(30, 400), nn.ReLU(), nn.Linear(400, 300), nn.ReLU(), nn.Linear(300, 7)).to(dtype)


def batches(rank, count, dtype=torch.float32):
    generator = torch.Generator().manual_seed(SEED + rank)
    for _ in range(count):
        yield torch.randn(8, 30, generator=generator).to(dtype), torch.randn(8, 7, generator=generator).to(dtype)


def train(model, rank, after=lambda: None, steps=8, dtype=torch.float32):
    """The parameters after some steps on data that differ between the ranks. Calls after() between backward and step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for data, wanted in batches(rank, steps, dtype):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(data), wanted).backward()
        after()
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def expect_equal_on_all(mine):
    least, most = mine.clone(), mine.clone()
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    assert torch.equal(least, most), "the ranks' parameters differ"


def by_ddp(rank):
    return train(DistributedDataParallel(network(), process_group=gloo()), rank)


def own_model(rank):
    expected = by_ddp(rank)
    for settings in {}, {"thread": False, "declared_order": True}:
        model = network()
        with tutti.torch.gradients(model, bucket_bytes=100_000, first_bucket_bytes=10_000, **settings) as gradients:
            mine = train(model, rank, gradients.wait)
            assert gradients.facts["steps"] == 8 and gradients.facts["buckets"] > 2, gradients.facts
        expect_equal_on_all(mine)
        torch.testing.assert_close(mine, expected)
        train(model, rank, steps=1)  # without hooks
    model = network()
    with tutti.torch.gradients(model, wire="bfloat16", feedback=True) as gradients:
        mine = train(model, rank, gradients.wait)
    expect_equal_on_all(mine)
    torch.testing.assert_close(mine, expected, rtol=0.05, atol=0.01)


def several_types(rank):
    """Parameters of two types, which alternate."""
    torch.manual_seed(SEED)
    model = nn.ModuleList(nn.Linear(9, 9, dtype=(torch.float32, torch.bfloat16, torch.float64)[i % 3]) for i in range(6))
    with tutti.torch.gradients(model, op="sum") as gradients:
        for _ in range(3):
            model.zero_grad()
            data = torch.full((2, 9), 1.0 + rank, dtype=torch.float64)
            sum(layer(data.to(layer.weight.dtype)).sum().double() for layer in model).backward()
            gradients.wait()
            ranks = dist.get_world_size()
            for layer in model:
                assert torch.equal(layer.bias.grad, torch.full_like(layer.bias, 2 * ranks)), layer.bias.grad
                assert torch.equal(layer.weight.grad, torch.full_like(layer.weight, ranks * (ranks + 1))), layer.weight.grad
        assert gradients.facts["buckets"] == 3, gradients.facts


def unused(rank):
    """Each rank uses another layer; one layer is used by none."""
    model = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
    with tutti.torch.gradients(model) as gradients:
        for _ in range(3):
            model.zero_grad()
            model[rank](torch.ones(1, 4)).sum().backward()
            gradients.wait()
            for layer, expected in zip(model, (0.5, 0.5, 0.0)):
                assert torch.equal(layer.bias.grad, torch.full((4,), expected)), layer.bias.grad


def accumulated(rank):
    model = nn.Linear(3, 1)
    with tutti.torch.gradients(model) as gradients:
        for _ in range(2):
            model.zero_grad()
            with gradients.no_sync():
                model(torch.ones(1, 3)).sum().backward()
                model(torch.ones(1, 3)).sum().backward()
            model(torch.full((1, 3), float(rank))).sum().backward()
            gradients.wait()
            assert torch.equal(model.weight.grad, torch.full((1, 3), 2.5)), model.weight.grad


def mistakes(rank):
    test = unittest.TestCase()
    with test.assertRaisesRegex(ValueError, "no parameter of the model"):
        tutti.torch.gradients(nn.ReLU())
    with test.assertRaisesRegex(ValueError, 'wire is "float7"'):
        tutti.torch.gradients(nn.Linear(2, 2), wire="float7")
    with test.assertRaisesRegex(tutti.Mismatch, r'tensor 0 \("bias"\) has 2 of float32 on rank 0 and 3 of float32 on rank 1'):
        tutti.torch.gradients(nn.Linear(2, 2 + rank))
    model = nn.Linear(2, 2)
    with tutti.torch.gradients(model) as gradients:
        with test.assertRaisesRegex(tutti.InvalidUsage, r'tensor 0 \("bias"\) was marked ready already'):
            model(torch.ones(1, 2)).sum().backward()
            model(torch.ones(1, 2)).sum().backward()
        gradients.wait()
    model = nn.Embedding(5, 2, sparse=True)
    gradients = tutti.torch.gradients(model)
    with test.assertRaisesRegex(NotImplementedError, "the gradient of weight is sparse"):
        model(torch.tensor([1])).sum().backward()
    gradients.close()


def wired(rank):
    expected = by_ddp(rank)
    for wire, feedback, tolerance in (("plain", False, {}), ("float16", False, {"rtol": 0.01, "atol": 0.002}),
                                      ("float8", True, {"rtol": 0.2, "atol": 0.1})):
        model = DistributedDataParallel(network(), bucket_cap_mb=0.2)  # several buckets
        model.register_comm_hook(None, tutti.torch.wire_hook(wire, feedback=feedback))
        mine = train(model, rank)
        expect_equal_on_all(mine)
        torch.testing.assert_close(mine, expected, **tolerance)


def changing_buckets(rank):
    """Other buckets come in the middle of an iteration: what is on its way ends, and nothing is lost."""

    class Bucket:
        def __init__(self, index, data, last):
            self.index, self.buffer, self.is_last = lambda: index, lambda: data, lambda: last

    hook = tutti.torch.wire_hook("plain")
    for sizes in (3, 5), (3, 5), (3, 4, 6), (3, 4), (7,), (3, 4, 6):
        data = [torch.full((size,), float(rank + i)) for i, size in enumerate(sizes)]
        futures = [hook(None, Bucket(i, one, i + 1 == len(data))) for i, one in enumerate(data)]
        for i, future in enumerate(futures):
            assert torch.equal(future.wait(), torch.full((sizes[i],), 0.5 + i)), (sizes, i, future.value())
    hook(None, Bucket(0, torch.ones(3), False))
    try:
        hook(None, Bucket(0, torch.ones(3), False))
    except RuntimeError as error:
        assert "ended without its last bucket" in str(error), error
    else:
        raise AssertionError("nothing was raised")


class Hooks(unittest.TestCase):
    def test_own_model(self):
        run(2, own_model)
        run(3, own_model)

    def test_several_types(self):
        run(2, several_types)

    def test_unused_parameters(self):
        run(2, unused)

    def test_accumulated_gradients(self):
        run(2, accumulated)

    def test_mistakes(self):
        run(2, mistakes)

    def test_wire_formats_of_ddp(self):
        run(2, wired)
        run(3, wired)

    def test_buckets_that_change(self):
        run(2, changing_buckets)


if __name__ == "__main__":
    unittest.main()
