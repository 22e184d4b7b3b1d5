# SPDX-License-Identifier: Apache-2.0
"""Distributed tensors, meshes and groups, objects, calls in batches, functional collectives, and what compilers and
tracers make of them. Each program runs on two and on four ranks."""

import collections
import itertools
import unittest

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.nn import functional as differentiable
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel, SequenceParallel, loss_parallel,
                                               parallelize_module)
from torch.fx.experimental.proxy_tensor import make_fx

import tutti.torch
from digits import whole
from programs import COMPILERS, WHILE_A_COMPILER_RUNS, DebuggedPrograms, add_tests, grid, line, named
from ranks import equal, shared_folder


# Distributed tensors and meshes.

def redistribution(rank):
    """From each placement to each other one, with sizes that the ranks do not divide."""
    ranks, mesh = dist.get_world_size(), line()
    for shape in ((2 * ranks, 4), (2 * ranks + 1, 3), (1, ranks + 1), (ranks - 1, 5)):
        data = torch.arange(float(shape[0] * shape[1])).reshape(shape)
        placements = [Shard(0), Shard(1), Replicate()]
        for before, after in itertools.product([*placements, Partial()], placements):
            if before.is_partial():
                tensor = DTensor.from_local(data * (rank + 1), mesh, [before], run_check=False)
                expected = data * ranks * (ranks + 1) / 2
            else:
                tensor, expected = distribute_tensor(data, mesh, [before]), data
            what = f"{shape} from {before} to {after}"
            moved = tensor.redistribute(mesh, [after])
            chunks = expected.chunk(ranks, after.dim) if after.is_shard() else [expected] * ranks
            mine = chunks[rank] if rank < len(chunks) else chunks[0].narrow(after.dim, 0, 0)
            equal(moved.to_local(), mine, what)
            equal(moved.full_tensor(), expected, what)


def arithmetic(rank):
    mesh = line()
    data = torch.arange(70.0).reshape(10, 7) / 70
    for placement in (Shard(0), Shard(1), Replicate()):
        tensor = distribute_tensor(data, mesh, [placement])
        for call in (lambda x: x @ x.T, lambda x: x.sum(0), lambda x: x.mean(), lambda x: x.softmax(1),
                     lambda x: x.max(), lambda x: x.flatten(1), lambda x: nn.functional.layer_norm(x, [7])):
            torch.testing.assert_close(call(tensor).full_tensor(), call(data))


def sequence_parallel(rank):
    """Between the two layers each rank has a part of the features, around them a part of the sequence."""
    def block():
        torch.manual_seed(1)
        return nn.Sequential(collections.OrderedDict(
            norm=nn.LayerNorm(8), up=nn.Linear(8, 16), act=nn.GELU(), down=nn.Linear(16, 8))).double()

    ranks, mesh, reference = dist.get_world_size(), line(), block()
    model = parallelize_module(block(), mesh, {
        "norm": SequenceParallel(use_local_output=True), "up": ColwiseParallel(input_layouts=Shard(1)),
        "down": RowwiseParallel(output_layouts=Shard(1))})
    data = torch.randn(3, 2 * ranks, 8, dtype=torch.double)
    mine = model(data.chunk(ranks, 1)[rank])
    torch.testing.assert_close(mine, reference(data).chunk(ranks, 1)[rank])
    mine.square().sum().backward()
    reference(data).square().sum().backward()
    for name in ("up", "down"):
        for kind in ("weight", "bias"):
            gradients = [getattr(one.get_submodule(name), kind).grad for one in (model, reference)]
            torch.testing.assert_close(whole(gradients[0]), gradients[1])


def loss_of_sharded_classes(rank):
    data, labels = torch.arange(48.0).sin().reshape(6, 8), torch.tensor([0, 7, 3, 1, 5, 2])
    logits = distribute_tensor(data, line(), [Shard(1)]).requires_grad_()
    with loss_parallel():
        loss = nn.functional.cross_entropy(logits, labels)
        loss.backward()
    data.requires_grad_()
    expected = nn.functional.cross_entropy(data, labels)
    expected.backward()
    torch.testing.assert_close(whole(loss), expected.detach())
    torch.testing.assert_close(whole(logits.grad), data.grad)


def meshes(rank):
    half = dist.get_world_size() // 2
    mesh = grid("row", "column")
    for name, members in (("row", [rank % half, rank % half + half]),
                          ("column", range(rank // half * half, (rank // half + 1) * half))):
        sums = torch.tensor([float(rank)])
        dist.all_reduce(sums, group=mesh.get_group(name))
        equal(sums, torch.tensor([float(sum(members))]), f"the sum in a {name}")
        assert dist.get_process_group_ranks(mesh[name].get_group()) == list(members)
    sums = torch.ones(1)
    dist.all_reduce(sums, group=mesh._flatten("all").get_group())
    assert sums.item() == dist.get_world_size()


# Groups, objects, and calls in batches.

def objects(rank):
    ranks = dist.get_world_size()
    every = [{"rank": r, "text": "x" * 1000 * r} for r in range(ranks)]
    got = [None] * ranks
    dist.all_gather_object(got, every[rank])
    assert got == every
    got = [None] * ranks if rank == 1 else None
    dist.gather_object(every[rank], got, dst=1)
    assert got == (every if rank == 1 else None)
    got = [every[1] if rank == 1 else None, rank]
    dist.broadcast_object_list(got, src=1)
    assert got == [every[1], 1]
    got = [None]
    dist.scatter_object_list(got, every if rank == 0 else None, src=0)
    assert got == [every[rank]]
    if rank == 0:
        dist.send_object_list([every, "end"], dst=ranks - 1)
    elif rank == ranks - 1:
        got = [None, None]
        dist.recv_object_list(got, src=0)
        assert got == [every, "end"]


def subgroups(rank):
    ranks = dist.get_world_size()
    for mine, _ in (dist.new_subgroups(ranks // 2), dist.new_subgroups_by_enumeration(
            [list(range(0, ranks, 2)), list(range(1, ranks, 2))])):
        members = dist.get_process_group_ranks(mine)
        assert rank in members and len(members) == ranks // 2
        sums = torch.tensor([2 ** rank])
        dist.all_reduce(sums, group=mine)
        assert sums.item() == sum(2 ** member for member in members), (sums, members)


def coalesced(rank):
    """The manager makes one call of the calls within it."""
    ranks = dist.get_world_size()
    for background in (False, True):
        sums = [torch.full((n,), float(rank)) for n in (3, 4, 5000)]
        with dist._coalescing_manager(async_ops=background) as manager:
            for one in sums:
                dist.all_reduce(one)
        if background:
            manager.wait()
        for one in sums:
            equal(one, torch.full_like(one, ranks * (ranks - 1) / 2), "all_reduce")
        gathered = [torch.empty(n * ranks) for n in (3, 5000)]
        with dist._coalescing_manager(async_ops=background) as manager:
            for one in gathered:
                dist.all_gather_into_tensor(one, torch.full((len(one) // ranks,), float(rank)))
        if background:
            manager.wait()
        for one in gathered:
            equal(one, torch.arange(float(ranks)).repeat_interleave(len(one) // ranks), "all_gather_into_tensor")
        parts = [torch.empty(n) for n in (3, 5000)]
        with dist._coalescing_manager(async_ops=background) as manager:
            for one in parts:
                dist.reduce_scatter_tensor(one, torch.arange(float(ranks)).repeat_interleave(len(one)))
        if background:
            manager.wait()
        for one in parts:
            equal(one, torch.full_like(one, float(ranks * rank)), "reduce_scatter_tensor")


def rings(rank):
    """Each rank sends to the next one and receives from the one before, large and small, in one batch."""
    ranks = dist.get_world_size()
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    got = [torch.empty(n) for n in (2, 100_000)]
    calls = [dist.P2POp(dist.isend, torch.full_like(one, float(rank)), after) for one in got]
    calls += [dist.P2POp(dist.irecv, one, before) for one in got]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    for one in got:
        equal(one, torch.full_like(one, float(before)), "a ring")


def barriers(rank):
    dist.barrier()
    tutti.torch.monitored_barrier()
    if torch.__version__ >= "2.14":  # before, torch itself takes Gloo's groups alone
        dist.monitored_barrier()


def again(rank):
    """The default group ends and comes again, with other groups beside it."""
    ranks = dist.get_world_size()
    folder = shared_folder()
    for attempt in range(3):
        for group in [dist.new_group() for _ in range(3)]:
            dist.all_reduce(torch.ones(1), group=group)
        dist.barrier()
        dist.destroy_process_group()
        store = dist.FileStore(f"{folder}/store {attempt}", ranks)
        dist.init_process_group("tutti", store=store, rank=rank, world_size=ranks)
        sums = torch.ones(1)
        dist.all_reduce(sums)
        assert sums.item() == ranks


# Functional collectives, compilers and tracers.

def functional_calls(rank):
    ranks, group = dist.get_world_size(), dist.group.WORLD
    ones, ramp, every = torch.ones(3), torch.arange(2.0 * ranks), torch.arange(float(ranks)).repeat_interleave(3)
    equal(functional.all_reduce(ones * rank, "sum", group), ones * (ranks * (ranks - 1) / 2), "all_reduce")
    equal(functional.all_reduce(ones * rank, "avg", group), ones * ((ranks - 1) / 2), "average")
    equal(functional.broadcast(ones * rank, 1, group), ones, "broadcast")
    equal(functional.all_gather_tensor(ones[None] * rank, 1, group), every[None], "all_gather_tensor")
    equal(functional.reduce_scatter_tensor(ramp[None], "sum", 1, group), ranks * ramp[None, 2 * rank:2 * rank + 2],
          "reduce_scatter_tensor")
    equal(functional.all_to_all_single(ramp + 100 * rank, None, None, group),
          torch.cat([ramp[2 * rank:2 * rank + 2] + 100 * other for other in range(ranks)]), "all_to_all_single")
    equal(functional.permute_tensor(ones * rank, [(r + 1) % ranks for r in range(ranks)], group),
          ones * ((rank - 1) % ranks), "permute_tensor")
    sums = functional.all_reduce_coalesced([ones, ramp], "sum", group)
    equal(sums[1], ranks * ramp, "all_reduce_coalesced")
    gathered = functional.all_gather_into_tensor_coalesced([ones * rank, ramp], group)
    equal(gathered[0], every, "all_gather_into_tensor_coalesced")
    equal(gathered[1], ramp.repeat(ranks), "all_gather_into_tensor_coalesced")
    parts = functional.reduce_scatter_tensor_coalesced([ramp, ones.repeat(ranks)], "sum", [0, 0], group)
    equal(parts[0], ranks * ramp[2 * rank:2 * rank + 2], "reduce_scatter_tensor_coalesced")
    equal(parts[1], ranks * ones, "reduce_scatter_tensor_coalesced")


def gradients(rank):
    """The gradient of a collective is a collective."""
    ranks, group = dist.get_world_size(), dist.group.WORLD
    weights = torch.arange(3.0 * ranks)
    leaf = torch.ones(3, requires_grad=True)
    (functional.all_gather_tensor_autograd(leaf, 0, group) * weights).sum().backward()
    equal(leaf.grad, ranks * weights[3 * rank:3 * rank + 3], "of all_gather_tensor")
    leaf = torch.ones(3 * ranks, requires_grad=True)
    (functional.reduce_scatter_tensor_autograd(leaf, "sum", 0, group) * (rank + 1)).sum().backward()
    equal(leaf.grad, torch.arange(1.0, ranks + 1).repeat_interleave(3), "of reduce_scatter_tensor")
    leaf = torch.ones(ranks, requires_grad=True)
    (functional.all_to_all_single_autograd(leaf, [1] * ranks, [1] * ranks, group) * (rank + 1)).sum().backward()
    equal(leaf.grad, torch.arange(1.0, ranks + 1), "of all_to_all_single")
    leaf = torch.ones(3, requires_grad=True)
    (differentiable.all_reduce(leaf) * (rank + 1)).sum().backward()
    equal(leaf.grad, torch.full((3,), ranks * (ranks + 1) / 2), "of all_reduce")


def collective_between(data):
    """A computation with collectives in its midst."""
    group = dist.group.WORLD
    return functional.all_gather_tensor(functional.all_reduce(data.sin() * 2, "sum", group).cos(), 0, group) + 1


def expected_of_collective_between(data):
    ranks = dist.get_world_size()
    return (data.sin() * 2 * ranks).cos().repeat(ranks, 1) + 1


def compiled_collectives(backend, rank):
    data = torch.arange(24.0).reshape(4, 6)
    compiled = torch.compile(collective_between, backend=backend, fullgraph=True)
    for one in (data, data + 1):
        torch.testing.assert_close(compiled(one), expected_of_collective_between(one))


def traced(rank):
    data = torch.arange(24.0).reshape(4, 6)
    graph = make_fx(collective_between)(data)
    called = [node.target._opname for node in graph.graph.nodes if "c10d" in str(node.target)]
    assert called == ["all_reduce", "wait_tensor", "all_gather_into_tensor", "wait_tensor"], called
    torch.testing.assert_close(graph(data + 1), expected_of_collective_between(data + 1))


def fake_tensors(rank):
    """A call on fake tensors has shapes and no data, so nothing waits for the other ranks."""
    if rank == 0:
        with FakeTensorMode():
            assert collective_between(torch.ones(4, 6)).shape == (4 * dist.get_world_size(), 6)
            dist.all_reduce(torch.ones(3))
            dist.all_gather_into_tensor(torch.empty(3 * dist.get_world_size()), torch.ones(3))
    dist.barrier()


def disagreement(rank):
    """torch's debugging layer compares the ranks' calls before they are made."""
    try:
        dist.all_reduce(torch.ones(2 + rank))
    except RuntimeError as error:
        assert "mismatch between" in str(error), error
    else:
        raise AssertionError("ranks with tensors of unequal sizes")


class Tensors(unittest.TestCase):
    """A test for each of the programs above."""


class UnderTorchsDebuggingLayer(DebuggedPrograms):
    """TORCH_DISTRIBUTED_DEBUG=DETAIL"""


add_tests(Tensors, [
    redistribution, arithmetic, sequence_parallel, loss_of_sharded_classes, meshes, objects, subgroups, coalesced,
    rings, barriers, again, functional_calls, gradients, traced, fake_tensors])
add_tests(Tensors, [named(compiled_collectives, compiler, compiler) for compiler in COMPILERS], **WHILE_A_COMPILER_RUNS)
add_tests(UnderTorchsDebuggingLayer, [
    redistribution, objects, subgroups, coalesced, rings, functional_calls, disagreement])

if __name__ == "__main__":
    unittest.main()
