# SPDX-License-Identifier: Apache-2.0
"""Every operation beside Gloo's in the same processes, with random shapes and types."""

import copy
import datetime
import random
import time
import unittest

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ErrorType

import tutti.torch
from ranks import SEED, backend, equal, gloo, run

INTEGERS = [torch.int8, torch.uint8, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.float32, torch.float64]
MOVED = INTEGERS + FLOATS + [torch.bfloat16, torch.bool, torch.int16, torch.complex64, torch.complex128]
Op = dist.ReduceOp


class Draws:
    """Shapes that all ranks draw alike, and values that differ. Sums of the values are exact in all types."""

    def __init__(self, rank):
        self.shared, self.own = random.Random(SEED), torch.Generator().manual_seed(SEED * 100 + rank)

    def shape(self):
        dimensions = [self.shared.choice([1, 2, 3, 7, 40]) for _ in range(self.shared.randint(1, 3))]
        dimensions[0] *= self.shared.choice([1, 1, 8])
        if self.shared.random() < 0.1:
            dimensions[-1] = 0
        return dimensions

    def values(self, shape, dtype):
        if dtype.is_complex:
            parts = torch.float32 if dtype == torch.complex64 else torch.float64
            return torch.complex(self.values(shape, parts), self.values(shape, parts))
        small = torch.randint(0 if dtype in (torch.uint8, torch.bool) else -3, 4, shape, generator=self.own)
        return small != 0 if dtype == torch.bool else small.to(dtype)

    def pick(self, values):
        return self.shared.choice(values)


def by_gloo(call, tensor, *arguments, **options):
    """The result on a copy by Gloo, in a type that Gloo has."""
    wide = {torch.bfloat16: torch.float32, torch.bool: torch.uint8, torch.int16: torch.int32}.get(tensor.dtype)
    copy = tensor.to(wide) if wide else tensor.clone()
    call(copy.contiguous() if not copy.is_contiguous() else copy, *arguments, **options)
    return copy.to(tensor.dtype)


def reductions(rank, ranks):
    draws, other = Draws(rank), gloo()
    for turn in range(40):
        dtype = draws.pick(INTEGERS + FLOATS + [torch.bfloat16, torch.int16])
        bits = [Op.BAND, Op.BOR, Op.BXOR] if not dtype.is_floating_point else []
        op = draws.pick([Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX] + bits)
        mine = draws.values(draws.shape(), dtype)
        if op == Op.PRODUCT:
            mine = mine.sign()
        if mine.dim() == 2 and turn % 3 == 0:  # not contiguous
            mine = mine.t()
        contiguous = mine.contiguous()
        what = f"turn {turn}: {op} of {dtype} {tuple(mine.shape)}"
        expected = contiguous.clone()
        if mine.numel():
            expected = by_gloo(dist.all_reduce, contiguous, op=op, group=other)
        got = mine.clone(memory_format=torch.preserve_format)
        dist.all_reduce(got, op=op)
        equal(got, expected, "all_reduce, " + what)
        root = draws.pick(range(ranks))
        got = mine.clone(memory_format=torch.preserve_format)
        dist.reduce(got, root, op=op)
        if rank == root:
            equal(got, expected, "reduce, " + what)
        # reduce_scatter, whose parts Gloo has as all_reduce
        inputs = [draws.values(mine.shape, dtype).sign() for _ in range(ranks)]
        sums = [by_gloo(dist.all_reduce, one, op=op, group=other) if one.numel() else one for one in inputs]
        got = torch.empty(mine.shape, dtype=dtype)
        dist.reduce_scatter(got, list(inputs), op=op)
        equal(got, sums[rank], "reduce_scatter, " + what)
        got = torch.empty(mine.shape, dtype=dtype)
        dist.reduce_scatter_tensor(got, torch.cat([one.reshape(-1) for one in inputs]).contiguous(), op=op)
        equal(got, sums[rank], "reduce_scatter_tensor, " + what)


def own_operators(rank, ranks):
    """Operators that Gloo does not have."""
    data = torch.full((33,), float(rank + 1))
    got = data.clone()
    dist.all_reduce(got, op=Op.AVG)
    equal(got, torch.full((33,), (ranks + 1) / 2), "avg")
    got = data.clone()
    premul = torch.distributed._make_nccl_premul_sum
    dist.all_reduce(got, op=premul(0.5))
    equal(got, torch.full((33,), ranks * (ranks + 1) / 4), "premul_sum")
    got = data.clone()
    dist.all_reduce(got, op=premul(torch.tensor([2.0])))
    equal(got, torch.full((33,), float(ranks * (ranks + 1))), "premul_sum by a tensor")
    got = torch.empty(3)
    dist.reduce_scatter_tensor(got, torch.ones(3 * ranks), op=premul(0.5))
    equal(got, torch.full((3,), ranks / 2), "reduce_scatter of premul_sum")
    flags = torch.tensor([rank == 1, True, False])
    for op, expected in ((Op.SUM, [True, True, False]), (Op.MIN, [False, True, False]), (Op.BOR, [True, True, False])):
        got = flags.clone()
        dist.all_reduce(got, op=op)
        equal(got, torch.tensor(expected), f"{op} of bool")
    got = torch.complex(torch.tensor([1.0]), torch.tensor([float(rank)]))
    dist.all_reduce(got)
    equal(got, torch.complex(torch.tensor([float(ranks)]), torch.tensor([ranks * (ranks - 1) / 2])), "sum of complex")
    uneven = [torch.full((r + 1,), float(rank)) for r in range(ranks)]
    got = torch.empty(rank + 1)
    dist.reduce_scatter(got, uneven)
    equal(got, torch.full((rank + 1,), ranks * (ranks - 1) / 2), "reduce_scatter of unequal tensors")
    outs = [torch.empty(r + 1) for r in range(ranks)]
    dist.all_gather(outs, torch.full((rank + 1,), float(rank)))
    for r in range(ranks):
        equal(outs[r], torch.full((r + 1,), float(r)), "all_gather of unequal tensors")


def sparse_sums(rank, ranks):
    """Sums of sparse tensors, whose elements are elsewhere on each rank, also several of one place."""
    draws, other = Draws(rank), gloo()
    for turn in range(20):
        dtype, dense = draws.pick([torch.float32, torch.float64]), draws.shared.choice([[], [3], [2, 5]])
        sizes = [draws.shared.choice([1, 4, 50]) for _ in range(draws.shared.randint(1, 3))]
        elements = int(torch.randint(0, 9, [1], generator=draws.own))
        indices = torch.stack([torch.randint(0, size, [elements], generator=draws.own) for size in sizes])
        mine = torch.sparse_coo_tensor(indices, draws.values([elements] + dense, dtype), sizes + dense)
        if turn % 2:
            mine = mine.coalesce()
        expected = mine.to_dense()
        dist.all_reduce(expected, group=other)
        got = mine.clone()
        work = dist.all_reduce(got, async_op=True)
        work.wait()
        equal(got.to_dense(), expected, f"turn {turn}: all_reduce of {elements} of {sizes} and {dense}")
        equal(work.get_future().wait()[0].to_dense(), expected, f"turn {turn}: its future")


def movements(rank, ranks):
    draws, other = Draws(rank), gloo()
    for turn in range(40):
        dtype, shape, root = draws.pick(MOVED), draws.shape(), draws.pick(range(ranks))
        mine = draws.values(shape, dtype)
        what = f"turn {turn}: {dtype} {tuple(shape)}"
        whole = [torch.empty(shape, dtype=dtype) for _ in range(ranks)]
        for r in range(ranks):  # what all ranks have, by Gloo's broadcast of bytes
            raw = mine.clone().reshape(-1).view(torch.uint8) if r == rank else whole[r].reshape(-1).view(torch.uint8)
            if raw.numel():
                dist.broadcast(raw, r, group=other)
            whole[r] = raw.view(dtype).reshape(shape)
        got = mine.clone()
        dist.broadcast(got, root)
        equal(got, whole[root], "broadcast, " + what)
        outs = [torch.empty(shape, dtype=dtype) for _ in range(ranks)]
        dist.all_gather(outs, mine)
        for r in range(ranks):
            equal(outs[r], whole[r], "all_gather, " + what)
        flat = torch.empty([ranks] + shape, dtype=dtype)
        dist.all_gather_into_tensor(flat, mine)
        equal(flat, torch.stack(whole), "all_gather_into_tensor, " + what)
        outs = [torch.empty(shape, dtype=dtype) for _ in range(ranks)] if rank == root else None
        dist.gather(mine, outs, root)
        for r in range(ranks if rank == root else 0):
            equal(outs[r], whole[r], "gather, " + what)
        got = torch.empty(shape, dtype=dtype)
        dist.scatter(got, whole if rank == root else None, root)
        equal(got, whole[rank], "scatter, " + what)
        if dtype not in (torch.complex64, torch.complex128):
            lists = [[torch.empty(shape, dtype=dtype), torch.empty([3], dtype=dtype)] for _ in range(ranks)]
            dist.all_gather_coalesced(lists, [mine, mine.new_full([3], rank)])
            for r in range(ranks):
                equal(lists[r][0], whole[r], "all_gather_coalesced, " + what)
                equal(lists[r][1], mine.new_full([3], r), "all_gather_coalesced, " + what)


def exchanges(rank, ranks):
    draws, other = Draws(rank), gloo()
    for turn in range(40):
        dtype = draws.pick(INTEGERS + FLOATS)
        table = [[draws.shared.choice([0, 1, 2, 5, 64]) for _ in range(ranks)] for _ in range(ranks)]
        rows = draws.pick([1, 3, 100])
        ins, outs = table[rank], [table[r][rank] for r in range(ranks)]
        mine = draws.values([sum(ins), rows], dtype)
        what = f"turn {turn}: {dtype} rows of {rows}, {table}"
        expected = torch.empty([sum(outs), rows], dtype=dtype)
        dist.all_to_all_single(expected, mine, outs, ins, group=other)
        got = torch.empty([sum(outs), rows], dtype=dtype)
        dist.all_to_all_single(got, mine, outs, ins)
        equal(got, expected, "all_to_all_single with splits, " + what)
        lists = [torch.empty([n, rows], dtype=dtype) for n in outs]
        dist.all_to_all(lists, list(mine.split(ins)))
        equal(torch.cat(lists), expected, "all_to_all, " + what)
        mine = draws.values([2 * ranks, rows], dtype)
        expected, got = torch.empty_like(mine), torch.empty_like(mine)
        dist.all_to_all_single(expected, mine, group=other)
        dist.all_to_all_single(got, mine)
        equal(got, expected, "all_to_all_single, " + what)


def lists_of(values, layout):
    """Tensors with these values, which lie in memory as the layout says."""
    rows, columns = values[0].shape
    n = len(values)
    if layout == "in one piece":
        made = list(torch.empty(n * rows, columns, dtype=values[0].dtype).split(rows))
    elif layout == "backwards":
        made = list(torch.empty(n * rows, columns, dtype=values[0].dtype).split(rows))[::-1]
    elif layout == "with gaps":
        made = list(torch.empty(2 * n * rows, columns, dtype=values[0].dtype).split(rows))[::2]
    elif layout == "columns":
        made = list(torch.empty(rows, n * columns, dtype=values[0].dtype).split(columns, 1))
    else:
        made = [torch.empty(rows, columns, dtype=values[0].dtype) for _ in range(n)]
    for tensor, value in zip(made, values):
        tensor.copy_(value)
    return made


def large_lists(rank, ranks):
    """Lists are used where they lie from 64 KiB a tensor on. They may lie otherwise on each rank."""
    draws, other = Draws(rank), gloo()
    layouts = ["in one piece", "backwards", "with gaps", "columns", "apart"]
    for turn in range(2 * len(layouts)):
        dtype = draws.pick([torch.int32, torch.float32, torch.float64, torch.uint8])
        layout = layouts[(turn + rank) % len(layouts)] if turn < len(layouts) else layouts[turn - len(layouts)]
        columns = draws.pick([1, 3, 64])
        rows = draws.pick([65 * 1024, 300 * 1024]) // columns // torch.empty(0, dtype=dtype).element_size() + draws.pick([0, 1])
        root = draws.shared.randrange(ranks)
        values = [draws.values([rows, columns], dtype) for _ in range(ranks)]
        mine, nothing = values[rank], [torch.zeros(rows, columns, dtype=dtype) for _ in range(ranks)]
        what = f"turn {turn}: {ranks} of [{rows}, {columns}] {dtype}, {layout}"
        whole = [torch.empty_like(mine) for _ in range(ranks)]
        dist.all_gather(whole, mine, group=other)

        def compare(got, expected, call):
            for r, (one, right) in enumerate(zip(got, expected)):
                equal(one, right, f"{call} of rank {r}, {what}")

        got = lists_of(nothing, layout)
        dist.all_gather(got, mine)
        compare(got, whole, "all_gather")
        got = lists_of(values, layout)
        dist.all_gather(got, got[rank])
        compare(got, whole, "all_gather in place")
        got = lists_of(nothing, layout)
        dist.gather(mine, got if rank == root else None, root)
        compare(got if rank == root else [], whole, "gather")
        got = torch.empty_like(mine)
        dist.scatter(got, lists_of(whole, layout) if rank == root else None, root)
        equal(got, whole[rank], "scatter, " + what)
        sums = [value.clone() for value in values]
        for one in sums:
            dist.all_reduce(one, group=other)
        dist.reduce_scatter(got, lists_of(values, layout))
        equal(got, sums[rank], "reduce_scatter, " + what)
        if dtype.is_floating_point:
            dist.reduce_scatter(got, lists_of(values, layout), op=dist._make_nccl_premul_sum(0.5))
            equal(got, sums[rank] * 0.5, "reduce_scatter by premul_sum, " + what)
        ins, expected = torch.cat(values), torch.empty(ranks * rows, columns, dtype=dtype)
        dist.all_to_all_single(expected, ins, group=other)
        got = lists_of(nothing, layout)
        dist.all_to_all(got, lists_of(values, layout))
        compare(got, expected.split(rows), "all_to_all")
        got = lists_of(values, layout)
        dist.all_to_all(got, got)
        compare(got, expected.split(rows), "all_to_all in place")
        got = lists_of(values, layout)
        dist.reduce_scatter(got[0], got)
        equal(got[0], sums[rank], "reduce_scatter into the first of the list, " + what)
        got = lists_of(whole, layout)
        dist.scatter(got[-1], got if rank == root else None, root)
        equal(got[-1], whole[rank], "scatter into the last of the list, " + what)


def coalesced(rank, ranks):
    draws, other = Draws(rank), gloo()
    tensors = [draws.values(draws.shape(), torch.float32) for _ in range(5)]
    expected = [one.clone() for one in tensors]
    for one in expected:
        if one.numel():
            dist.all_reduce(one, group=other)
    dist.all_reduce_coalesced(tensors)
    for one, right in zip(tensors, expected):
        equal(one, right, "all_reduce_coalesced")
    # torch calls these by itself.
    group = dist.distributed_c10d._get_default_group()
    parts = [draws.values([size, 3], torch.int32) for size in (1, 4, 0)]
    whole = [torch.empty([ranks * len(one), 3], dtype=torch.int32) for one in parts]
    group.allgather_into_tensor_coalesced(whole, parts).wait()
    for one, part in zip(whole[:2], parts):  # Gloo takes no empty ones
        lists = [torch.empty_like(part) for _ in range(ranks)]
        dist.all_gather(lists, part, group=other)
        equal(one, torch.cat(lists), "allgather_into_tensor_coalesced")
    for op in (Op.SUM, Op.MAX):
        mine = [draws.values([ranks * size, 3], torch.int32) for size in (1, 4)]
        got = [torch.empty([size, 3], dtype=torch.int32) for size in (1, 4)]
        how = dist.distributed_c10d.ReduceScatterOptions()
        how.reduceOp = op
        group.reduce_scatter_tensor_coalesced(got, mine, how).wait()
        for one, whole in zip(got, mine):
            dist.all_reduce(whole, op, group=other)
            equal(one, whole.chunk(ranks)[rank], "reduce_scatter_tensor_coalesced")


def numbered(shape, rank, number):
    """Values of a rank's tensor in a list, which all ranks know."""
    elements = torch.Size(shape).numel()
    return (torch.arange(elements, dtype=torch.int32) % 1013 + 17 * rank + 5 * number).reshape(shape)


def coalesced_lists(rank, ranks):
    """Lists of small, large and empty tensors: those of a call that are alike travel together, the others where they lie."""
    group = dist.distributed_c10d._get_default_group()
    options = dist.distributed_c10d.ReduceScatterOptions()
    shapes = [[1], [8 * 1024 // 4 // ranks], [8 * 1024 // 4 // ranks + 1], [0, 5], [33, 64], [8 * 1024 // 4], [64 * 1024 // 4 - 1],
              [256, 64], [3], [257, 513]]
    mine = [numbered(shape, rank, n) for n, shape in enumerate(shapes)]
    each = [[numbered(shape, r, n) for n, shape in enumerate(shapes)] for r in range(ranks)]
    joined = [torch.stack([of_rank[n] for of_rank in each]) for n in range(len(shapes))]

    def gaps(tensors):
        """The same values, where each second tensor is not contiguous."""
        return [torch.stack([one, one], -1)[..., 0] if n % 2 else one.clone() for n, one in enumerate(tensors)]

    def compare(got, expected, call):
        for n, (one, right) in enumerate(zip(got, expected)):
            equal(one.contiguous(), right, f"{call}, tensor {n} of {shapes[n]}")

    for name, layout in ("", lambda tensors: [one.clone() for one in tensors]), (" with gaps", gaps):
        got = layout(mine)
        group.allreduce_coalesced(got).wait()
        compare(got, [one.sum(0, dtype=torch.int32) for one in joined], "all_reduce_coalesced" + name)
        lists = [layout([torch.zeros_like(one) for one in mine]) for _ in range(ranks)]
        work = group.allgather_coalesced(lists, layout(mine))
        work.wait()
        for r in range(ranks):
            compare(lists[r], each[r], f"all_gather_coalesced of rank {r}" + name)
        for n, (one, right) in enumerate(zip(work.get_future().wait(), sum(each, []))):
            equal(one.contiguous(), right, f"the future of all_gather_coalesced{name}, value {n}: rank by rank")
        whole = [torch.zeros_like(one) for one in joined]
        group.allgather_into_tensor_coalesced(whole, layout(mine)).wait()
        compare(whole, joined, "allgather_into_tensor_coalesced" + name)
        parts = layout([torch.zeros_like(one) for one in mine])
        group.reduce_scatter_tensor_coalesced(parts, [one.clone() for one in joined], options).wait()
        compare(parts, [one[rank] * ranks for one in joined], "reduce_scatter_tensor_coalesced" + name)
    many = [[numbered([2305], r, n) for n in range(257)] for r in range(ranks)]  # too many to be used where they lie
    for some in many, [of_rank[:256] for of_rank in many]:
        lists = [[torch.zeros_like(one) for one in some[rank]] for _ in range(ranks)]
        group.allgather_coalesced(lists, some[rank]).wait()
        for r in range(ranks):
            equal(torch.stack(lists[r]), torch.stack(some[r]), f"all_gather_coalesced of {len(some[r])} tensors of rank {r}")
    # In place.
    lists = [[torch.zeros_like(one) for one in mine] for _ in range(ranks)]
    for place, one in zip(lists[rank], mine):
        place.copy_(one)
    group.allgather_coalesced(lists, lists[rank]).wait()
    for r in range(ranks):
        compare(lists[r], each[r], f"all_gather_coalesced in place of rank {r}")
    whole = [torch.zeros_like(one) for one in joined]
    for place, one in zip(whole, mine):
        place[rank].copy_(one)
    group.allgather_into_tensor_coalesced(whole, [one[rank] for one in whole]).wait()
    compare(whole, joined, "allgather_into_tensor_coalesced in place")
    whole = [one.clone() for one in joined]
    parts = [one[rank] for one in whole]
    group.reduce_scatter_tensor_coalesced(parts, whole, options).wait()
    compare(parts, [one[rank] * ranks for one in joined], "reduce_scatter_tensor_coalesced in place")


def coalesced_overlaps(rank, ranks):
    """Tensors that are read can lie where another call of the list writes, or at another rank's place."""
    group = dist.distributed_c10d._get_default_group()
    options = dist.distributed_c10d.ReduceScatterOptions()
    shapes = [[7], [40_000], [40_000]]
    expected = [torch.stack([numbered(shape, r, n) for r in range(ranks)]) for n, shape in enumerate(shapes)]

    def compare(got, right, call):
        for n, (one, other) in enumerate(zip(got, right)):
            equal(one, other, f"{call}, tensor {n}")

    for shift in range(1, ranks):  # each rank's values at another rank's place
        whole = [torch.zeros_like(one) for one in expected]
        places = [one[(rank + shift) % ranks] for one in whole]
        for place, values in zip(places, expected):
            place.copy_(values[rank])
        group.allgather_into_tensor_coalesced(whole, places).wait()
        compare(whole, expected, "allgather_into_tensor_coalesced from another rank's place")
    whole = [torch.zeros_like(one) for one in expected]
    places = [whole[0][rank], whole[2][rank], whole[1][rank]]  # the large ones where the other one's values belong
    for place, values in zip(places, expected):
        place.copy_(values[rank])
    group.allgather_into_tensor_coalesced(whole, places).wait()
    compare(whole, expected, "allgather_into_tensor_coalesced from another tensor's place")
    lists = [[torch.zeros_like(one[0]) for one in expected] for _ in range(ranks)]
    places = [lists[rank][0], lists[rank][2], lists[rank][1]]
    for place, values in zip(places, expected):
        place.copy_(values[rank])
    group.allgather_coalesced(lists, places).wait()
    for r in range(ranks):
        compare(lists[r], [one[r] for one in expected], f"all_gather_coalesced from another tensor's place, of rank {r}")
    whole = [one.clone() for one in expected]
    parts = [torch.zeros(7, dtype=torch.int32), whole[2][rank], whole[1][(rank + 1) % ranks]]
    group.reduce_scatter_tensor_coalesced(parts, whole, options).wait()
    compare(parts, [one[rank] * ranks for one in expected], "reduce_scatter_tensor_coalesced into other inputs")
    twice = expected[1].clone()  # read by both calls, and written in place by the first one
    parts = [twice[rank], torch.zeros(40_000, dtype=torch.int32)]
    group.reduce_scatter_tensor_coalesced(parts, [twice, twice], options).wait()
    compare(parts, [expected[1][rank] * ranks] * 2, "reduce_scatter_tensor_coalesced in place of an input that is given twice")


def coalesced_without_copies(rank, ranks):
    """No tensor of a coalesced call that is contiguous is copied, but small ones of lists for each rank."""
    group = dist.distributed_c10d._get_default_group()
    options = dist.distributed_c10d.ReduceScatterOptions()
    mine = [torch.zeros(elements) for elements in (100, 20_000, 300_000)]
    whole = [torch.zeros(ranks * len(one)) for one in mine]
    lists = [[torch.zeros(elements) for elements in (20_000, 300_000)] for _ in range(ranks)]
    calls = {"all_reduce": lambda: group.allreduce_coalesced(mine),
             "all_gather_into_tensor": lambda: group.allgather_into_tensor_coalesced(whole, mine),
             "reduce_scatter_tensor": lambda: group.reduce_scatter_tensor_coalesced(mine, whole, options),
             "all_gather": lambda: group.allgather_coalesced(lists, mine[1:])}
    for name, call in calls.items():
        with torch.autograd.profiler.profile(use_kineto=False) as seen:
            call().wait()
        copies = [event.name for event in seen.function_events if event.name in ("aten::empty", "aten::copy_")]
        if copies:
            raise AssertionError(f"{name}_coalesced made {copies}, expected no copy")


def values_of_views(rank, ranks):
    """The bytes of a conjugated or negated view are not its values."""
    def zeros(like, count=1):
        return torch.zeros(like.numel() * count, dtype=like.dtype)

    real = torch.arange(4.0) + 10 * rank
    for view in torch._neg_view(real.clone()), torch.complex(real, real + 1).conj():
        name = "negated" if view.is_neg() else "conjugated"
        mine = torch.complex(real, -real - 1) if view.is_conj() else -real
        of_all = [zeros(mine) for _ in range(ranks)]
        dist.all_gather(of_all, mine)
        joined = torch.cat(of_all)

        out = zeros(mine)
        if not view.is_conj():  # which these refuse before they ask the backend
            lists, whole = [zeros(mine) for _ in range(ranks)], zeros(mine, ranks)
            dist.all_gather(lists, view)
            equal(torch.cat(lists), joined, f"all_gather, {name}")
            dist.all_gather_into_tensor(whole, view)
            equal(whole, joined, f"all_gather_into_tensor, {name}")
            dist.scatter(out, [view] * ranks if rank == 1 else None, 1)
            equal(out, of_all[1], f"scatter, {name}")
            dist.reduce_scatter(out, [view] * ranks)
            equal(out, sum(of_all), f"reduce_scatter, {name}")
            dist.all_to_all_single(whole, torch._neg_view(-mine.repeat(ranks)))
            equal(whole, joined, f"all_to_all_single, {name}")
            if rank == 1:
                dist.send(view, 0)
            elif rank == 0:
                dist.recv(out, 1)
                equal(out, of_all[1], f"send, {name}")
            sent = view if rank == 1 else zeros(mine)
            dist.broadcast(sent, 1)
            equal(sent.clone(), of_all[1], f"broadcast, {name}")
        lists = [zeros(mine) for _ in range(ranks)] if rank == 0 else None
        dist.gather(view, lists, 0)
        if rank == 0:
            equal(torch.cat(lists), joined, f"gather, {name}")
        # Written, below what torch makes of such views itself.
        into = torch._neg_view(zeros(mine)) if view.is_neg() else zeros(mine).conj()
        backend(dist.group.WORLD).broadcast(into if rank else mine, 0).wait()
        if rank:
            equal(into.resolve_conj().resolve_neg(), of_all[0], f"broadcast into a view, {name}")


def shared_elements(rank, ranks):
    """Tensors whose elements share memory can be read, and are not written then."""
    same = torch.full((1,), 5.0).expand(4)
    mine = same if rank == 0 else torch.zeros(4)
    dist.broadcast(mine, 0)
    equal(mine.clone(), torch.full((4,), 5.0), "broadcast of an expanded tensor")
    mine = torch.ones(4) if rank == 0 else torch.ones(1).expand(4)
    dist.reduce(mine, 0)
    equal(mine.clone(), torch.full((4,), float(ranks if rank == 0 else 1)), "reduce of expanded tensors")
    columns = torch.zeros(4, ranks)  # they interleave, and share nothing
    dist.all_gather(list(columns.t()), same + rank)
    equal(columns.t().clone(), torch.stack([same + r for r in range(ranks)]), "all_gather into columns")


def modes(rank, ranks):
    """The backend's copies are no operations of the caller's."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Noted(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            names.append(str(function))
            return function(*arguments, **(options or {}))

    names, apart, mine = [], [torch.zeros(3) for _ in range(ranks)], torch.ones(3)
    with Noted():
        dist.all_gather(apart, mine)
    equal(torch.cat(apart), torch.ones(3 * ranks), "all_gather under a mode")
    others = [name for name in names if not name.startswith("c10d.")]
    if others:
        raise AssertionError(f"the caller's mode saw {others}, expected c10d's alone of {names}")


def messages(rank, ranks):
    draws = Draws(rank)
    for turn in range(20):
        dtype, shape = draws.pick(MOVED), draws.shape()
        ahead, behind = (rank + 1) % ranks, (rank - 1) % ranks
        sent = torch.full(shape, rank, dtype=dtype)
        got = torch.empty(shape, dtype=dtype)
        requests = dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, ahead, tag=turn),
                                           dist.P2POp(dist.irecv, got, behind, tag=turn)])
        for request in requests:
            request.wait()
        equal(got, torch.full(shape, behind, dtype=dtype), f"turn {turn}: batch_isend_irecv")
    if rank == 0:
        seen = set()
        for _ in range(ranks - 1):
            got = torch.empty(4)
            source = dist.recv(got, tag=77)
            equal(got, torch.full((4,), float(source)), "recv from any")
            seen.add(source)
        assert seen == set(range(1, ranks)), seen
    else:
        dist.send(torch.full((4,), float(rank)), 0, tag=77)
    apart = torch.empty(4, 4)
    if rank == 0:
        dist.send(torch.arange(16.0).reshape(4, 4).t()[:, :2], 1)
    elif rank == 1:
        dist.recv(apart.t()[:, :2], 0)
        equal(apart.t()[:, :2].contiguous(), torch.arange(16.0).reshape(4, 4).t()[:, :2].contiguous(), "send in parts")
    large = torch.full((3 << 20,), float(rank))
    if rank < 2:  # longer than any buffer on the way
        other, got = 1 - rank, torch.empty(3 << 20)
        request = dist.isend(large, other)
        dist.recv(got, other)
        request.wait()
        equal(got, torch.full((3 << 20,), float(other)), "large messages")


def handles(rank, ranks):
    works = []
    for n in range(30):
        tensor = torch.full((1000 * (n + 1),), float(rank))
        works.append((tensor, dist.all_reduce(tensor, async_op=True)))
    for tensor, work in reversed(works):
        assert work.wait() and work.is_completed()
        assert tensor[0] == tensor[-1] == ranks * (ranks - 1) / 2 and work.result()[0] is not None
    tensor = torch.ones(5)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    equal(doubled.wait(), torch.full((5,), 2.0 * ranks), "a future's value")
    chained = dist.all_reduce(torch.ones(5), async_op=True).get_future().then(
        lambda done: dist.all_reduce(done.value()[0], async_op=True).get_future().wait()[0])
    equal(chained.wait(), torch.full((5,), float(ranks * ranks)), "a call in a future's callback")
    polled = dist.all_reduce(torch.ones(5), async_op=True)
    while not polled.is_completed():
        pass
    forgotten = torch.ones(100_000)
    for _ in range(5):
        dist.all_reduce(forgotten, async_op=True)  # nobody keeps the handle, or the tensor
    del forgotten
    dist.barrier()
    if rank == 0:  # a send that nobody waits for arrives while its rank does something else
        dist.isend(torch.full((1 << 20,), 7.0), 1)
        time.sleep(1)
    elif rank == 1:
        got, begin = torch.empty(1 << 20), datetime.datetime.now()
        dist.recv(got, 0)
        assert got[-1] == 7 and (datetime.datetime.now() - begin).total_seconds() < 0.9, "sent only at the next call"
    dist.barrier(async_op=True).wait(datetime.timedelta(seconds=30))


def settings(rank, ranks):
    """Options, timeouts, numbers and times, as torch and its users ask for them."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=50))
    own = backend(group)
    options = own.options
    assert (options.backend, options._timeout, options.group_name) == ("tutti", datetime.timedelta(seconds=50), group.group_name)
    copied = copy.deepcopy(options)
    assert (type(copied), copied._timeout, copied.group_name) == (type(options), options._timeout, group.group_name)
    options._timeout = datetime.timedelta(seconds=7)  # torch changes them for a group that it makes by them
    assert own.options._timeout == copied._timeout == datetime.timedelta(seconds=50)
    group.set_timeout(datetime.timedelta(seconds=40))
    assert own.options._timeout == datetime.timedelta(seconds=40)
    assert own.perform_nocolor_split(torch.device("cpu")) is None
    assert own.get_error() == ErrorType.SUCCESS

    # A group's collectives have numbers, and its messages.
    before = own._get_sequence_number_for_group()
    works = [dist.all_reduce(torch.ones(3), group=group, async_op=True), dist.barrier(group, async_op=True)]
    messages = [dist.isend(torch.ones(3), 1, group=group) if rank == 0 else dist.irecv(torch.ones(3), 0, group=group)
                for _ in range(2 if rank < 2 else 0)]
    for work in works + messages:
        work.wait()
    assert own._get_sequence_number_for_group() == before + 2
    if hasattr(works[0], "_get_sequence_number"):  # torch 2.14
        assert [work._get_sequence_number() for work in works] == [before + 1, before + 2]
        assert [work._get_sequence_number() for work in messages] == [1, 2][:len(messages)]

    # Both futures of one operation, told when it ends or asked for later.
    for later in False, True:
        work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
        if later:
            work.wait()
        future, result = work.get_future(), work.get_future_result()
        assert result.wait() == 0  # WorkResult::SUCCESS
        equal(future.wait()[0], torch.full((3,), float(ranks)), "the value of the other future")

    # An operation lasts as long as its end is waited for, or less.
    try:
        raise AssertionError(f"a duration without timing: {works[0]._get_duration()}")
    except RuntimeError as error:
        assert "all_reduce: it was not timed: call the group's _enable_collectives_timing()" in str(error), error
    group._enable_collectives_timing()
    begin = time.monotonic()
    work = dist.all_reduce(torch.ones(300_000), group=group, async_op=True)
    work.wait()
    whole = (time.monotonic() - begin) * 1000
    assert 0 < work._get_duration() <= whole, (work._get_duration(), whole)
    dist.destroy_process_group(group)


def groups(rank, ranks):
    members = [[0, 1], [1, 2], list(range(ranks)), [ranks - 1, 0], [1]]
    made = [dist.new_group(one) for one in members]
    for turn in range(3):
        works = []
        for one, group in zip(members, made):
            if rank in one:
                tensor = torch.full((100,), float(rank))
                works.append((dist.all_reduce(tensor, group=group, async_op=True), tensor, sum(one)))
        for work, tensor, total in reversed(works):
            work.wait()
            equal(tensor, torch.full((100,), float(total)), f"overlapping groups, turn {turn}")
    if rank in (0, ranks - 1):
        tensor = torch.full((3,), float(rank))
        dist.broadcast(tensor, ranks - 1, group=made[3])
        equal(tensor, torch.full((3,), ranks - 1.0), "broadcast in a group")
    dist.barrier()
    objects = [None] * ranks
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank * 1000})
    assert [one["rank"] for one in objects] == list(range(ranks))
    told = [{"from": rank}, "text"] if rank == 1 else [None, None]
    dist.broadcast_object_list(told, 1)
    assert told == [{"from": 1}, "text"], told
    got = [None]
    dist.scatter_object_list(got, [f"for {r}" for r in range(ranks)] if rank == 0 else None, 0)
    assert got == [f"for {rank}"], got
    parts = [None] * ranks if rank == 0 else None
    dist.gather_object(rank * 10, parts, 0)
    assert rank != 0 or parts == [10 * r for r in range(ranks)], parts
    tutti.torch.monitored_barrier()
    for _ in range(3):  # and once more, over the same store
        group = dist.new_group([0, 1])
        if rank < 2:
            dist.barrier(group)
            dist.destroy_process_group(group)


class Operations(unittest.TestCase):
    """With 2 and 4 ranks."""

    @classmethod
    def setUpClass(cls):
        print(f"TUTTI_TEST_SEED={SEED}")


def add(function, *sizes):
    def test(self):
        for ranks in sizes:
            run(ranks, lambda rank: function(rank, ranks))
    setattr(Operations, f"test_{function.__name__}", test)


for function in (reductions, own_operators, sparse_sums, movements, exchanges, large_lists, coalesced, coalesced_lists, coalesced_overlaps,
                 coalesced_without_copies, values_of_views, shared_elements, modes, messages, handles,
                 settings):
    add(function, 2, 4)
add(groups, 3, 4)

if __name__ == "__main__":
    unittest.main()
