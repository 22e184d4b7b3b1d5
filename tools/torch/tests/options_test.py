# SPDX-License-Identifier: Apache-2.0
"""with tutti.torch.call(...): the algorithms, the order, the wire format and the tag of the calls that a block makes."""

import threading
import unittest

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import tutti
import tutti.torch
from errors_test import raises
from ranks import run

OTHER = "with other algorithms"


def served(rank):
    """Every kind of call, in a block that has all options; sends and receives take none, and the order is for sums."""
    total, own = torch.ones(4), torch.full((2,), float(rank))
    lists = [torch.empty(2), torch.empty(2)]
    with tutti.torch.call(algorithms="^bruck", order="canonical", tag=7):
        dist.all_reduce(total)
        dist.all_reduce_coalesced([torch.ones(2), torch.ones(3)])
        dist.reduce(torch.ones(2), 1)
        dist.reduce_scatter_tensor(torch.empty(2), torch.ones(4))
        dist.broadcast(own, 1)
        dist.all_gather(lists, torch.full((2,), float(rank)))
        dist.all_to_all_single(torch.empty(4), torch.ones(4))
        dist.barrier()
        work = dist.isend(torch.ones(3), 1 - rank, tag=3)
        dist.recv(torch.empty(3), 1 - rank, tag=3)
        work.wait()
        assert dist.all_reduce(torch.ones(2).to_sparse()) is None
    assert total.tolist() == [2] * 4 and own.tolist() == [1, 1], (total, own)
    assert [one.tolist() for one in lists] == [[0, 0], [1, 1]], lists


def wired(rank):
    """float16 has `exact`, and rounds `rounded` down to 1."""
    exact, rounded = 1 + 2**-9, 1 + 2**-12
    pair = [exact, rounded]

    def holds(tensor, *expected):
        assert tensor.tolist() == list(expected), (tensor.tolist(), expected)

    def results(one):
        """Every call that has a wire format, of float32."""
        data = torch.tensor(pair)
        dist.all_reduce(data)
        holds(data, 2 * exact, 2 * one)
        data = torch.tensor(pair)
        dist.all_reduce(data, dist.ReduceOp.MAX)
        holds(data, exact, one)
        several = [torch.tensor(pair), torch.tensor([rounded])]
        dist.all_reduce_coalesced(several)
        holds(several[0], 2 * exact, 2 * one)
        holds(several[1], 2 * one)
        data = torch.tensor(pair)
        dist.reduce(data, 1)
        if rank == 1:
            holds(data, 2 * exact, 2 * one)
        data = torch.empty(2)
        dist.reduce_scatter_tensor(data, torch.tensor(pair * 2))
        holds(data, 2 * exact, 2 * one)
        strided = torch.zeros(2, 2)[:, 0]
        strided.copy_(torch.tensor(pair))
        for data in (torch.tensor(pair), strided):
            dist.broadcast(data, 1)
            holds(data, exact, one)
        data = torch.empty(4)
        dist.all_gather_into_tensor(data, torch.tensor(pair))
        holds(data, exact, one, exact, one)
        for count in (2, 20000):
            lists = [torch.empty(count), torch.empty(count)]
            dist.all_gather(lists, torch.tensor(pair).repeat(count // 2))
            for data in lists:
                holds(data, *[exact, one] * (count // 2))
        sparse = torch.tensor(pair).to_sparse()
        dist.all_reduce(sparse)
        holds(sparse.to_dense(), 2 * exact, 2 * one)

    def others():
        """Calls and types without wire formats."""
        data = torch.tensor([2**40 + 1])
        dist.all_reduce(data)
        holds(data, 2**41 + 2)
        dist.broadcast(data, 0)
        data = torch.tensor(pair, dtype=torch.float64)
        dist.all_reduce(data)
        holds(data, 2 * exact, 2 * rounded)
        data = torch.empty(2)
        dist.all_to_all_single(data, torch.full((2,), rounded))
        holds(data, rounded, rounded)
        dist.scatter(data, [torch.tensor(pair)] * 2 if rank == 0 else None)
        holds(data, exact, rounded)
        if rank == 0:
            dist.send(data, 1)
        else:
            dist.recv(data, 0)
        holds(data, exact, rounded)
        objects = [None, None]
        dist.all_gather_object(objects, {"rank": rank})
        assert objects == [{"rank": 0}, {"rank": 1}], objects
        dist.barrier()

    results(rounded)
    with tutti.torch.call(wire="float16"):
        results(1)
        others()
        with tutti.torch.call(tag=3):
            results(1)
        with tutti.torch.call(wire="plain"):
            results(rounded)
        raises(tutti.InvalidArgument, "float16, but the error of prod", dist.all_reduce, torch.ones(2), dist.ReduceOp.PRODUCT)
        with tutti.torch.call(order="exact"):
            raises(tutti.InvalidArgument, "the order of the sum is exact", dist.all_reduce, torch.ones(2))
        if rank == 0:
            raises(RuntimeError, "share", dist.broadcast, torch.ones(1).expand(2), 0)
        # Buffers of float32 and int64, and the bitmap of parameters that a pass does not use.
        model = torch.nn.Linear(1, 1, bias=False)
        model.register_buffer("steps", torch.tensor(2**40 + 1))
        model.register_buffer("mean", torch.tensor(pair))
        model = DistributedDataParallel(model, find_unused_parameters=True)
        model(torch.full((1, 1), rounded)).sum().backward()
        holds(model.module.weight.grad[0], 1)
        holds(model.module.mean, exact, 1)
        assert model.module.steps == 2**40 + 1
    results(rounded)


def refused(rank):
    def sum_with(**options):
        with tutti.torch.call(**options):
            dist.all_reduce(torch.ones(4))

    raises(tutti.NotFound, 'tutti:all_reduce: .*all_reduce: options.algorithms="rings": .*ring', sum_with, algorithms="rings")
    raises(tutti.NotSupported, "bruck: it does no all_reduce", sum_with, algorithms="bruck")
    raises(tutti.NotSupported, "ring: its operands are not in the canonical order", sum_with, algorithms="ring", order="canonical")
    raises(ValueError, "tutti.torch.call: order is 'any', expected one of 'free', 'canonical', 'exact' or None", sum_with, order="any")
    raises(ValueError, "tutti.torch.call: wire is 'float7', expected one of 'plain', 'float16', 'bfloat16', 'float8' or None",
           sum_with, wire="float7")
    raises(ValueError, "tutti.torch.call: tag is -1, expected", sum_with, tag=-1)
    raises(TypeError, "interpreted as an integer", sum_with, tag="step")
    raises(TypeError, "incompatible function arguments", sum_with, algorithms=3)
    sum_with()


def nested(rank):
    """An inner block keeps what it does not give; after each block is what was before, also after an exception, and where a
    profiler has begun in it; other threads have none."""
    def algorithms_are(expected):
        if expected:
            raises(tutti.NotFound, f'options.algorithms="{expected}"', dist.barrier)
        else:
            dist.barrier()

    def fails():
        with tutti.torch.call(algorithms="inner"):
            1 / 0

    with tutti.torch.call(algorithms="outer"):
        with tutti.torch.call(tag=1):
            algorithms_are("outer")
        with tutti.torch.call(algorithms="inner"):
            algorithms_are("inner")
        algorithms_are("outer")
        thread = threading.Thread(target=algorithms_are, args=(None,))
        thread.start()
        thread.join()
        raises(ZeroDivisionError, "division", fails)
        algorithms_are("outer")
    algorithms_are(None)
    profiler = torch.profiler.profile()
    with tutti.torch.call(algorithms="outer"):
        profiler.__enter__()
        algorithms_are("outer")
    algorithms_are(None)
    profiler.__exit__(None, None, None)
    algorithms_are(None)
    with tutti.torch.call(algorithms="again"):
        algorithms_are("again")
    algorithms_are(None)

    @tutti.torch.call(algorithms="decorated")
    def function():
        algorithms_are("decorated")

    function()
    algorithms_are(None)


def backward(rank):
    """DDP's all-reduces have the options of the block that begins the backward pass."""
    model = DistributedDataParallel(torch.nn.Linear(3, 2))
    for _ in range(2):
        with tutti.torch.call(algorithms="ring", tag=3):
            model(torch.ones(1, 3)).sum().backward()
    with tutti.torch.call(algorithms="none-of-these", tag=3):
        loss = model(torch.ones(1, 3)).sum()
        raises(RuntimeError, "none-of-these", loss.backward)


def differing(options, words):
    def rank_of(rank):
        def call():
            with tutti.torch.call(**options[rank]):
                dist.all_reduce(torch.ones(4))
            dist.barrier()

        raises(tutti.Mismatch, words, call)

    return rank_of


class Options(unittest.TestCase):
    def test_every_call(self):
        run(2, served)

    def test_wire_formats(self):
        run(2, wired)

    def test_what_is_refused(self):
        run(2, refused)

    def test_blocks(self):
        run(2, nested)

    def test_backward_passes(self):
        run(2, backward)

    def test_ranks_that_differ(self):
        for options, words in (([{"tag": 7}, {"tag": 8}], "tag 8"), ([{"algorithms": "ring"}, {}], OTHER),
                               ([{"order": "canonical"}, {}], "canonical order"), ([{"wire": "float16"}, {}], "float16")):
            run(2, differing(options, words))


if __name__ == "__main__":
    unittest.main()
