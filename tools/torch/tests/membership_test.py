# SPDX-License-Identifier: Apache-2.0
"""Groups made of a group (split, merged, shrunk) and groups that get other members."""

import datetime
import os
import signal
import tempfile
import threading
import unittest
from unittest import mock

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend
from torch.distributed.device_mesh import init_device_mesh

import tutti
import tutti.torch
from errors_test import raises
from ranks import backend, equal, run

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])


def seconds(count):
    return datetime.timedelta(seconds=count)


def all_here(store, key, rank, ranks):
    """A barrier without the group."""
    store.set(f"{key}/{rank}", "")
    for one in range(ranks):
        store.get(f"{key}/{one}")


def check_sum(group, members, what):
    """All members add their numbers in the default group."""
    one = torch.full((3,), float(members[group.rank()]))
    group.allreduce([one]).wait()
    assert group.size() == len(members), f"{what}: {group.size()} ranks, expected {len(members)}"
    equal(one, torch.full((3,), float(sum(members))), what)


def split(rank):
    world = dist.group.WORLD
    assert backend(world).supports_splitting
    mine = [0, 2] if rank % 2 == 0 else [1, 3]
    half = world.split_group(mine, timeout=seconds(50), group_name=f"halves {mine}", group_desc="half")
    assert half.rank() == mine.index(rank)
    check_sum(half, mine, "a half")
    for _ in range(2):  # by the name that torch makes, which is the same each time
        half = world.split_group(mine)
        check_sum(half, mine, "a half again")
    # Of some ranks, in an order of their own. torch before 2.14 sorts them.
    some = [3, 0, 2]
    ordered = some if TORCH >= (2, 14) else sorted(some)
    if TORCH < (2, 14) or rank in some:
        part = world.split_group(some, timeout=seconds(3), group_name="some")
    if rank in some:
        assert part.rank() == ordered.index(rank), f"rank {part.rank()}, expected {ordered.index(rank)}"
        check_sum(part, ordered, "some")
        # Its timeout and name are those that were given; its ranks are its own.
        if rank == ordered[0]:
            raises(tutti.Timeout, r"no progress for 3\.0 s", lambda: part.allreduce([torch.ones(5)]).wait())
    elif TORCH < (2, 14):
        assert part is None
    dist.barrier()
    # A split of a split.
    single = half.split_group([half.rank()], group_name=f"single {rank}")
    check_sum(single, [rank], "a split of a split")
    check_sum(world, [0, 1, 2, 3], "the parent")


def split_alone(rank):
    """A rank of the split that does not come is named."""
    if rank != 2:
        return
    raises(tutti.Timeout, "tutti: rank 1: group alone: rank 0 of 2 did not come within 300 ms", dist.group.WORLD.split_group,
           [0, 2], timeout=datetime.timedelta(milliseconds=300), group_name="alone")


def split_as_bound(rank):
    """What torch does where the default group is bound to a device, here with the processor in that device's place."""
    world = dist.group.WORLD
    raises(RuntimeError, "No device associated with the default pg", dist.split_group, None, [[0, 1], [2, 3]])
    world.bound_device_id = torch.device("cuda", 0)
    with mock.patch("torch.accelerator.is_available", lambda: True), \
         mock.patch("torch.accelerator.current_accelerator", lambda: torch.device("cpu")):
        half = dist.split_group(None, [[0, 1], [2, 3]], timeout=seconds(50))
        mine = [0, 1] if rank < 2 else [2, 3]
        check_sum(half, mine, "a half")
        one = torch.full((3,), float(rank))
        dist.broadcast(one, mine[1], group=half)  # by the number in the default group
        equal(one, torch.full((3,), float(mine[1])), "broadcast")
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("row", "column"))
        check_sum(mesh.get_group("row"), [rank % 2, rank % 2 + 2], "a mesh's dimension")
        check_sum(mesh.get_group("column"), mine, "a mesh's other dimension")
    # torch 2.13 splits no group after this: it makes names of the number of a rank's groups, which differs then.
    group = dist.new_group([0, 2])  # the others are told by perform_nocolor_split
    if rank in (0, 2):
        check_sum(group, [0, 2], "a new group")
    else:
        assert group == dist.GroupMember.NON_GROUP_MEMBER
    world.bound_device_id = None
    dist.barrier()


def merge(rank):
    """Two groups of two become one of four; those that come after these are told."""
    half = dist.new_subgroups(2)[0]
    store = dist.FileStore(os.environ["TUTTI_TEST_STORE"], 4)
    whole = half.merge_remote_group(store, 4, seconds(50), group_name="whole")
    ranks = torch.zeros(4)
    ranks[rank] = whole.rank()
    whole.allreduce([ranks]).wait()
    assert sorted(ranks.tolist()) == [0, 1, 2, 3], ranks
    one = torch.full((2,), float(rank))
    dist.barrier()
    whole.allreduce([one]).wait()
    equal(one, torch.full((2,), 6.0), "the sum of all")
    raises(RuntimeError, r"tutti: rank \d: group .*: merge: this rank would be rank [4-7] of 4, expected 0 to 3: the store was used",
           half.merge_remote_group, store, 4, seconds(50))
    dist.barrier()


def survive(rank, lost):
    """The default group goes on without the lost ranks."""
    others = [one for one in range(4) if one not in lost]
    dist.shrink_group(lost)
    assert dist.get_world_size() == len(others) and dist.get_rank() == others.index(rank)
    check_sum(dist.group.WORLD, others, "the rest")
    one = torch.full((3,), float(rank))
    dist.broadcast(one, group_src=0)
    equal(one, torch.full((3,), float(others[0])), "broadcast")


def shrink_killed(rank):
    dist.barrier()
    if rank in (0, 2):
        os.kill(os.getpid(), signal.SIGKILL)
    raises(tutti.PeerFailed, "rank [02]", lambda: [dist.all_reduce(torch.ones(3)) for _ in range(1000)])
    survive(rank, [0, 2])


def shrink_with_one_that_stays_out(rank):
    """No end waits for it: the deadlines are longer than a test may last. It learns the reason."""
    store = dist.FileStore(os.environ["TUTTI_TEST_STORE"], 4)
    world = dist.group.WORLD
    if rank == 1:
        pending = dist.irecv(torch.empty(3), 0)
        dist.barrier()
        raises(tutti.Aborted, r"rank [023] shrank group 0: it goes on without rank 1", pending.wait)
        store.get("shrunk")
        return
    dist.barrier()
    survive(rank, [1])
    raises((tutti.InvalidUsage, tutti.Aborted), "process group", world.allreduce, [torch.ones(3)])
    if dist.get_rank() == 0:
        store.set("shrunk", "")


def shrink_flags(rank):
    group = dist.new_group()
    if rank == 3:
        for _ in range(3):
            dist.barrier()
        return
    others = [0, 1, 2]
    # 0: messages under way arrive before the group ends.
    ring = [dist.isend(torch.full((200_000,), float(rank)), (rank + 1) % 3, group)]
    into = torch.empty(200_000)
    ring.append(dist.irecv(into, (rank - 1) % 3, group))
    smaller = backend(group).shrink([3], 0)
    for work in ring:
        assert work.is_completed()
        work.wait()
    equal(into, torch.full((200_000,), float((rank - 1) % 3)), "a message under way")
    check_sum(smaller, others, "shrunk")
    dist.barrier()
    # 1: what is under way is aborted, what waits for a rank that never comes as well.
    stuck = smaller.recv([torch.empty(3)], (rank + 1) % 3, 7)
    dist.barrier()
    smallest = smaller.shrink([2], 1, Backend.Options("tutti", seconds(50))) if rank != 2 else None
    raises(tutti.Aborted, "rank [01] shrank .*: it goes on without rank 2", stuck.wait)
    if rank != 2:
        check_sum(smallest, [0, 1], "shrunk twice")
    dist.barrier()


def shrink_wrong(rank):
    world = backend(dist.group.WORLD)
    who = f"tutti: rank {rank}: group 0: shrink: "
    for excluded, flags, text in (([4], 0, "got rank 4, expected ranks of this group, 0 to 3"),
                                  ([-1], 0, "got rank -1, expected ranks of this group, 0 to 3"),
                                  ([(rank + 1) % 4] * 2, 0, "got rank . twice, expected each rank once"),
                                  ([], 0, "no rank is excluded, expected at least one"),
                                  ([rank], 0, "this rank is excluded, expected a call of the others alone"),
                                  ([(rank + 1) % 4], 2, "got the flags 2, expected 0 .*SHRINK_DEFAULT.* or 1 .*SHRINK_ABORT")):
        raises(RuntimeError, who + text, world.shrink, excluded, flags)
    dist.barrier()
    # Ranks that exclude others do not meet, and each names who did not come. The group goes on.
    group = dist.new_group()
    if rank != 3:
        excluded = [3] if rank != 2 else [1, 3]
        missing = "rank 2 of 3" if rank != 2 else "rank 0 of 2"
        raises(tutti.Timeout, f"group .* without ranks? {', '.join(map(str, excluded))}: {missing} did not come within 1000 ms",
               backend(group).shrink, excluded, 0, Backend.Options("tutti", seconds(1)))
    dist.barrier()
    check_sum(group, [0, 1, 2, 3], "the group goes on")


def init_deferred(rank, ranks):
    """A default group without members yet, as torch.distributed makes it."""
    store = dist.FileStore(os.environ["TUTTI_TEST_STORE"], ranks)
    dist.destroy_process_group()
    dist.init_process_group("tutti", store=store, rank=rank, world_size=ranks, timeout=seconds(60), enable_reconfigure=True)
    return store


def handles(store, key, rank, ranks):
    store.set(f"{key}/{rank}", dist.distributed_c10d._get_reconfigure_handle())
    return [store.get(f"{key}/{one}").decode() for one in ranks]


def reconfigure(uuid, members, **options):
    work = dist.distributed_c10d._reconfigure(uuid, members, **options)
    assert work.wait() and work.is_completed()


def membership(rank):
    store = init_deferred(rank, 4)
    world = dist.group.WORLD
    assert world.supports_reconfigure
    raises(tutti.InvalidUsage, "all_reduce: group 0 has no members yet: call reconfigure first", dist.all_reduce, torch.ones(3))
    mine = dist.distributed_c10d._get_reconfigure_handle()
    everybody = handles(store, "first", rank, range(4))
    assert everybody[rank] == mine and len(set(everybody)) == 4
    # Alone, in pairs, all in another order, all as a set.
    reconfigure(10 + rank, [mine])
    check_sum(world, [rank], "alone")
    pair = [0, 1] if rank < 2 else [3, 2]
    reconfigure(20 + rank // 2, [everybody[one] for one in pair])
    assert world.rank() == pair.index(rank)
    check_sum(world, pair, "a pair")
    reconfigure(30, everybody[::-1])
    assert dist.get_rank() == 3 - rank
    check_sum(world, [3, 2, 1, 0], "all, in another order")
    reconfigure(31, set(everybody), timeout=seconds(50))
    sums = torch.zeros(4)
    sums[world.rank()] = rank + 1
    dist.all_reduce(sums)
    assert sorted(sums.tolist()) == [1, 2, 3, 4], sums
    # What members have finished and others have not is not lost: nothing ends before all are here.
    for turn in range(20):
        one = torch.full((50_000,), float(rank))
        dist.all_reduce(one)
        reconfigure(100 + turn, everybody)
        equal(one, torch.full((50_000,), 6.0), f"turn {turn}")
    # One that is left out learns why, also where nothing is under way on the others. It may come back.
    if rank == 3:
        stuck = dist.irecv(torch.empty(3), 0)
    all_here(store, "before one is left out", rank, 4)
    if rank == 3:
        raises(tutti.Aborted, "rank [012] reconfigured group 0: it goes on with 3 members", stuck.wait)
    else:
        reconfigure(150, everybody[:3])
        check_sum(world, [0, 1, 2], "without one")
    reconfigure(151, everybody)
    check_sum(world, [0, 1, 2, 3], "all again")
    # An abort, and a new start with what is left. The one that is left out learns why.
    if rank == 3:
        stuck = dist.irecv(torch.empty(3), 0)
    all_here(store, "before the abort", rank, 4)
    if rank == 3:
        raises(tutti.Aborted, "rank [012] aborted: the program called abort", stuck.wait)
        raises(RuntimeError, "", dist.all_reduce, torch.ones(3))
    else:
        world.abort()
        reconfigure(200, everybody[:3])
        check_sum(world, [0, 1, 2], "after an abort")
        reconfigure(201, everybody[:3])
        check_sum(world, [0, 1, 2], "once more")
    # With an operation under way, which is aborted.
    all_here(store, "before the last", rank, 4)
    if rank == 0:
        stuck = dist.irecv(torch.empty(3), 1)
    if rank != 3:
        reconfigure(202, everybody[:3])
        check_sum(world, [0, 1, 2], "with an operation under way")
    if rank == 0:
        raises(tutti.Aborted, "rank [012] reconfigured group 0: it goes on with 3 members", stuck.wait)
    all_here(store, "end", rank, 4)


def membership_lost(rank):
    """After a rank has been killed, and with one that comes later in its place."""
    store = init_deferred(rank, 3)
    everybody = handles(store, "first", rank, range(3))
    if rank < 2:  # the third comes later
        reconfigure(1, everybody[:2])
    reconfigure(2, everybody)
    all_here(store, "all", rank, 3)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    raises(tutti.PeerFailed, "rank 1", lambda: [dist.all_reduce(torch.ones(3)) for _ in range(1000)])
    reconfigure(3, [everybody[0], everybody[2]])
    check_sum(dist.group.WORLD, [0, 2], "the rest")


def membership_wrong(rank):
    store = init_deferred(rank, 2)
    both, mine = handles(store, "first", rank, range(2)), dist.distributed_c10d._get_reconfigure_handle()
    who = f"tutti: rank {rank}: group 0: reconfigure: "
    raises(RuntimeError, who + "this group's handle, .*, is not among the 1 handles, expected those of all members",
           reconfigure, 1, [both[1 - rank]])
    raises(RuntimeError, who + "got 3 handles of 2 members, expected each once", reconfigure, 1, both + [mine])
    raises(RuntimeError, who + "this group's handle, .*, is not among the 0 handles", reconfigure, 1, [])
    reconfigure(1, both)
    raises(RuntimeError, who + "the uuid 1 was already used, by a call before or with other handles, .*expected a fresh one",
           reconfigure, 1, both)
    check_sum(dist.group.WORLD, [0, 1], "the group goes on")
    # Members that disagree about the order.
    if rank == 0:
        raises(tutti.Timeout, "group 0: rank 1 of 2 did not come within 1000 ms", reconfigure, 2, both, timeout=seconds(1))
        store.set("timed out", "")
    else:
        store.get("timed out")
        raises(RuntimeError, "the uuid 2 was already used, .*or the handles in another order", reconfigure, 2, both[::-1])
    dist.barrier()
    # One thread at a time: rank 0's first one is inside until rank 1 comes.
    if rank == 0:
        first = threading.Thread(target=reconfigure, args=[3, both])
        first.start()
        dist.PrefixStore("cpu/", dist.group.WORLD.get_group_store()).get("reconfigure/3/members")
        raises(RuntimeError, who + "another thread is in reconfigure, expected one at a time", reconfigure, 4, both)
        store.set("seen", "")
        first.join()
    else:
        store.get("seen")
        reconfigure(3, both)
    check_sum(dist.group.WORLD, [0, 1], "after all of that")


def hooks(rank):
    """They run once before an abort, also where an operation has ended the communicator; one that fails keeps none away."""
    called = []
    one = backend(dist.new_group())

    def fails():
        raise ValueError("of a hook")

    one.register_abort_hook(1, fails)
    one.register_abort_hook(2, lambda: called.append("replaced"))
    one.register_abort_hook(2, lambda: called.append(2))
    one.register_abort_hook(3, lambda: called.append(3))
    one.unregister_abort_hook(3)
    one.unregister_abort_hook(99)
    dist.barrier()
    assert called == []
    one.abort()
    assert called == [2], called
    one.abort()
    assert called == [2], called
    # By a timeout that nobody waits for.
    told = threading.Event()
    group = dist.new_group(timeout=seconds(3))
    backend(group).register_abort_hook(0, told.set)
    if rank == 0:
        work = group.allreduce([torch.ones(3)])
        assert told.wait(90), "the hook is not called"
        raises(tutti.Timeout, "rank 1", work.wait)
    dist.barrier()


def gather_single(rank):
    for shape, dtype in (((3, 2), torch.float32), ((), torch.int64), ((0,), torch.float32), ((70_000,), torch.float64),
                         ((5,), torch.bool), ((2, 3), torch.complex64)):
        for root in 0, 3:
            mine = torch.full(shape, rank % 3 + 1).to(dtype)
            whole = torch.zeros((4, *shape), dtype=dtype) if rank == root else None
            work = dist.gather_single(mine, whole, root, async_op=True)
            work.wait()
            if rank == root:
                equal(whole, torch.stack([torch.full(shape, one % 3 + 1).to(dtype) for one in range(4)]), f"{shape} of {dtype}")
    # In place, and into a tensor with gaps.
    whole = torch.full((4, 2), float(rank))
    dist.gather_single(whole[rank], whole if rank == 1 else None, 1)
    if rank == 1:
        equal(whole, torch.arange(4.0).reshape(4, 1).expand(4, 2).contiguous(), "in place")
        raises(RuntimeError, "tutti:gather_into_tensor: the output tensor has 9 elements of Float, expected 8 of Float",
               dist.gather_single, torch.ones(2), torch.empty(9), 1)
    gaps = torch.zeros(8, 2)[::2]
    dist.gather_single(torch.full((2,), float(rank)), gaps if rank == 2 else None, 2)
    if rank == 2:
        equal(gaps, whole.new_tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]), "with gaps")
    dist.barrier()


def with_store(ranks, function, **options):
    """With a file for a store of the test's own."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, TUTTI_TEST_STORE=f"{folder}/store"):
        run(ranks, function, **options)


class Groups(unittest.TestCase):
    """Made of a group."""

    def test_split(self):
        run(4, split)
        run(4, split_alone)

    def test_split_where_the_default_group_has_a_device(self):
        run(4, split_as_bound)

    def test_merge(self):
        with_store(4, merge)

    def test_shrink_without_killed_ranks(self):
        run(4, shrink_killed, lost=[0, 2])

    def test_shrink_with_a_rank_that_stays_out(self):
        with mock.patch.dict(os.environ, TUTTI_CONNECT_TIMEOUT="600"):
            with_store(4, shrink_with_one_that_stays_out, seconds=600)

    def test_shrink_flags(self):
        run(4, shrink_flags)

    def test_shrink_errors(self):
        run(4, shrink_wrong)


@unittest.skipUnless(TORCH >= (2, 14), "torch 2.14 has it, this is an older one")
class Newer(unittest.TestCase):
    def test_members(self):
        with_store(4, membership)

    def test_members_that_are_lost(self):
        with_store(3, membership_lost, lost=[1])

    def test_members_errors(self):
        with_store(2, membership_wrong)

    def test_abort_hooks(self):
        run(2, hooks)

    def test_gather_single(self):
        run(4, gather_single)


if __name__ == "__main__":
    unittest.main()
