# SPDX-License-Identifier: Apache-2.0
"""Batches of calls with one handle: the coalescing manager with a device, batch_isend_irecv, and what goes wrong in one."""

import datetime
import os
import random
import signal
import threading
import unittest

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _coalescing_manager

import tutti
import tutti.torch
from errors_test import raises
from ranks import SEED, backend, equal, gloo, run

CPU = torch.device("cpu")


def values(draws, shape):
    """Small whole numbers, by a generator of random: sums of them are exact."""
    count = shape if isinstance(shape, int) else shape[0] * shape[1]
    return torch.tensor([float(draws.randint(-3, 3)) for _ in range(count)]).reshape(shape)


def mixed(rank, ranks):
    """Calls of every kind in one batch, beside the same calls of Gloo, one after another."""
    other, shared, own = gloo(), random.Random(SEED), random.Random(SEED * 100 + rank)
    for turn in range(12):
        async_ops = turn % 2 == 0
        shape, root = (shared.randint(1, 40), shared.choice([1, 3, 2000])), shared.randrange(ranks)
        after, before = (rank + 1) % ranks, (rank - 1) % ranks
        begin = [values(own, shape) for _ in range(4)]

        def calls(group, async_op):
            one, two, three, four = (tensor.clone() for tensor in begin)
            lists = [torch.empty(shape) for _ in range(ranks)]
            whole = [torch.empty(shape) for _ in range(ranks)] if rank == root else None
            received = torch.empty(shape)
            works = [dist.broadcast(one, root, group, async_op=async_op), dist.all_gather(lists, two, group, async_op=async_op),
                     dist.isend(three, after, group, tag=turn), dist.irecv(received, before, group, tag=turn),
                     dist.reduce(four, root, group=group, async_op=async_op), dist.gather(three, whole, root, group, async_op=async_op)]
            if group is other or not async_op:  # messages have handles of their own
                for work in works:
                    work and work.wait()
            # Gloo leaves parts of the sum in the others' tensors.
            return [one, *lists, received, *(whole or []), *([four] if rank == root else [])]

        expected = calls(other, False)
        with _coalescing_manager(dist.group.WORLD, CPU, async_ops) as batch:
            got = calls(dist.group.WORLD, async_ops)
        if async_ops:
            assert len(batch.works) == 1, batch.works
            batch.wait()
        for number, (mine, gloos) in enumerate(zip(got, expected, strict=True)):
            equal(mine, gloos, f"turn {turn}: tensor {number} of {tuple(shape)}, async_ops={async_ops}")


def collected(rank, ranks):
    """The calls that the manager itself collects, with a device and without."""
    for device in CPU, None:
        for elements in 3, 100_000:
            sums = [torch.full((elements,), float(rank + n)) for n in range(3)]
            with _coalescing_manager(device=device, async_ops=True) as batch:
                for one in sums:
                    dist.all_reduce(one)
            batch.wait()
            for n, one in enumerate(sums):
                equal(one, torch.full((elements,), float(sum(r + n for r in range(ranks)))), f"all_reduce {n}")
            wholes, parts = [torch.empty(ranks * elements) for _ in range(3)], [torch.full((elements,), float(rank * 3 + n)) for n in range(3)]
            with _coalescing_manager(device=device):
                for whole, part in zip(wholes, parts):
                    dist.all_gather_into_tensor(whole, part)
            for n, whole in enumerate(wholes):
                equal(whole, torch.arange(ranks).mul(3).add(n).float().repeat_interleave(elements), f"all_gather_into_tensor {n}")
            with _coalescing_manager(device=device):
                for whole, part in zip(wholes, parts):
                    dist.reduce_scatter_tensor(part, whole)
            for n, part in enumerate(parts):
                equal(part, torch.full((elements,), float((rank * 3 + n) * ranks)), f"reduce_scatter_tensor {n}")


def ring(rank, ranks):
    """Messages to and from both neighbours, several by one tag, matched in order; a batch meets single calls of peers."""
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    for elements in 1, 70_000:
        out = [torch.full((elements,), float(10 * rank + n)) for n in range(3)]
        into = [torch.empty(elements) for _ in range(3)]
        if elements == 1 or rank % 2 == 0:
            works = dist.batch_isend_irecv([op for n in range(3) for op in (
                dist.P2POp(dist.isend, out[n], after, tag=n // 2), dist.P2POp(dist.irecv, into[n], before, tag=n // 2))])
            assert len(works) == 1, works
        else:
            works = [work for n in range(3)
                     for work in (dist.irecv(into[n], before, tag=n // 2), dist.isend(out[n], after, tag=n // 2))]
        for work in works:
            work.wait()
        for n in range(3):
            equal(into[n], torch.full((elements,), float(10 * before + n)), f"message {n}")


def at_once(rank, ranks):
    """A call in a batch does not wait for the batch's end: its answer is awaited inside."""
    with _coalescing_manager(device=CPU, async_ops=True) as batch:
        if rank == 0:
            dist.isend(torch.ones(3), 1)
            answer = torch.empty(3)
            dist.recv(answer, 1)
            assert answer[0] == 2
        if rank == 1:
            question = torch.empty(3)
            dist.recv(question, 0)
            dist.isend(question + 1, 0)
        dist.broadcast(torch.ones(2), 0)
    batch.wait()


def handle(rank, ranks):
    group = dist.group.WORLD
    group._start_coalescing(CPU)
    one, two = torch.ones(3), torch.full((2,), float(rank))
    group.allreduce([one])
    dist.broadcast(two, 0, async_op=True)
    batch = group._end_coalescing(CPU)
    assert batch.wait() and batch.wait(datetime.timedelta(seconds=50))
    assert batch.is_completed() and batch.is_success() and batch.exception() is None
    equal(one, torch.full((3,), float(ranks)), "all_reduce")
    assert [tuple(tensor.shape) for tensor in batch.result()] == [(3,), (2,)]
    assert batch.get_future() is not None and [len(tensor) for tensor in batch.get_future().wait()] == [3, 2]
    # A batch that is under way.
    group._start_coalescing(CPU)
    received = torch.zeros(3)
    if rank == 0:
        dist.irecv(received, 1)
    group.allreduce([torch.ones(1)])
    batch = group._end_coalescing(CPU)
    future, told = batch.get_future(), threading.Event()
    future.add_done_callback(lambda _: told.set())
    if rank == 0:
        assert not batch.is_completed() and not batch.is_success() and not future.done()
        raises(tutti.Timeout, "tutti:recv: rank 0: not complete after 50 ms; it goes on", batch.wait,
               datetime.timedelta(milliseconds=50))
    dist.barrier()
    if rank == 1:
        dist.send(torch.ones(3), 0)
    assert told.wait(90), "the future is not told"
    if rank == 0:
        equal(received, torch.ones(3), "recv")
    batch.wait()
    # None at all.
    group._start_coalescing(CPU)
    batch = group._end_coalescing(CPU)
    assert batch.is_completed() and batch.wait() and batch.get_future().wait() == [] and batch.result() == []


def threads(rank, ranks):
    """Each thread's batch is its own, also of one group. (torch's coalescing manager is for one thread.)"""
    group, answers = dist.group.WORLD, {}

    def exchange(tag):
        out, into = torch.full((1000,), float(tag)), torch.empty(1000)
        for _ in range(20):
            group._start_coalescing(CPU)
            group.send([out], 1 - rank, tag)
            group.recv([into], 1 - rank, tag)
            batch = group._end_coalescing(CPU)
            batch.wait()
            assert [one.data_ptr() for one in batch.result()] == [into.data_ptr()]
        answers[tag] = into

    both = [threading.Thread(target=exchange, args=[tag]) for tag in (1, 2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    for tag in 1, 2:
        equal(answers[tag], torch.full((1000,), float(tag)), f"thread {tag}")


def misuse(rank, ranks):
    group = dist.group.WORLD
    raises(RuntimeError, f"tutti: rank {rank}: group .*: endCoalescing: this thread has begun no batch, expected startCoalescing",
           group._end_coalescing, CPU)
    group._start_coalescing(CPU)
    work = group.allreduce([torch.ones(3)])
    raises(RuntimeError, f"rank {rank}: .*: startCoalescing: this thread's last batch, of 1 calls, has no end: batches do not nest",
           group._start_coalescing, CPU)
    raises(RuntimeError, "this thread has begun no batch", group._end_coalescing, CPU)  # it was given up
    assert work.wait()

    # An exception that leaves a batch: the next one says so, and then all goes on.
    def batch(tensor):
        peer = 1 - rank
        for one in dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.ones(3), peer, tag=5),
                                           dist.P2POp(dist.irecv, tensor, peer, tag=5)]):
            one.wait()

    raises(RuntimeError, "shares elements with itself", batch, torch.ones(1).expand(3))
    raises(RuntimeError, "this thread's last batch, of 1 calls, has no end", batch, torch.empty(3))
    batch(torch.empty(3))  # meets the first message
    dist.recv(torch.empty(3), 1 - rank, tag=5)
    dist.barrier()


def first_error(rank, ranks):
    """Rank 1 is killed between two calls of a batch."""
    group = dist.group.WORLD
    dist.barrier()
    if rank == 1:
        group.allreduce([torch.ones(3)]).wait()
        os.kill(os.getpid(), signal.SIGKILL)
    group._start_coalescing(CPU)
    works = [group.allreduce([torch.ones(3)])]
    works[0].wait()
    try:
        works += [dist.irecv(torch.empty(3), 1, tag=tag) for tag in (1, 2)]
    except tutti.PeerFailed as error:  # the loss was noticed before
        assert "rank 1" in str(error)
        return
    batch = group._end_coalescing(CPU)
    text = raises(tutti.PeerFailed, "tutti:recv: .*rank 1", batch.wait)
    assert works[0].is_success() and not batch.is_success()
    raises(tutti.PeerFailed, "rank 1", batch.get_future().wait)
    raises(tutti.PeerFailed, "rank 1", batch.wait)
    assert batch.is_completed() and "rank 1" in text


def aborted(rank, ranks):
    """As torch itself aborts all groups: within a batch of the default one."""
    group = dist.group.WORLD
    if rank == 1:
        raises(tutti.Aborted, "rank 0 aborted|abort", lambda: dist.irecv(torch.empty(3), 0).wait())
    else:
        group._start_coalescing(CPU)
        received = dist.irecv(torch.empty(3), 1)
        backend(group).abort()
        batch = group._end_coalescing(CPU)
        assert batch.wait() and batch.result() == []
        raises(tutti.Aborted, "abort", received.wait)
        raises(RuntimeError, "this thread has begun no batch", group._end_coalescing, CPU)
    dist.distributed_c10d._abort_process_group()
    assert not dist.is_initialized()


class Coalescing(unittest.TestCase):
    def each(self, function, sizes=(2, 4), **options):
        for ranks in sizes:
            run(ranks, lambda rank: function(rank, ranks), **options)

    def test_calls_of_every_kind(self):
        self.each(mixed)

    def test_calls_that_the_manager_collects(self):
        self.each(collected)

    def test_messages(self):
        self.each(ring)

    def test_calls_start_at_once(self):
        self.each(at_once)

    def test_the_handle(self):
        self.each(handle)

    def test_threads(self):
        self.each(threads, [2])

    def test_misuse(self):
        self.each(misuse, [2])

    def test_the_first_error(self):
        self.each(first_error, [3], lost=[1])

    def test_an_abort_inside(self):
        self.each(aborted, [2])


if __name__ == "__main__":
    unittest.main()
