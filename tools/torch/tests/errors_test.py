# SPDX-License-Identifier: Apache-2.0
"""What goes wrong is an exception with Tutti's text, and nothing hangs."""

import datetime
import importlib.machinery
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ErrorType

import tutti
import tutti.torch
from ranks import backend, run


def raises(kind, pattern, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except kind as error:
        text = str(error)
        if not re.search(pattern, text):
            raise AssertionError(f"{text!r} is not {pattern!r}")
        return text
    raise AssertionError(f"no {kind.__name__}: {pattern!r}")


def arguments(rank):
    ones = torch.ones(4)
    raises(RuntimeError, "Split sizes doesn't match total dim 0 size: their sum is 3, expected 4",
           dist.all_to_all_single, torch.empty(4), ones, [2, 2], [1, 2])
    raises(RuntimeError, "splits not equal to group size: 3 splits, 2 ranks", dist.all_to_all_single,
           torch.empty(4), ones, [2, 1, 1], [2, 2])
    raises(RuntimeError, "does not divide equally across group size: 3 rows, 2 ranks", dist.all_to_all_single,
           torch.empty(3), torch.ones(3))
    raises(RuntimeError, "Sparse, expected a dense one: call to_dense", backend(dist.group.WORLD).broadcast, ones.to_sparse(), 0)
    raises(RuntimeError, "sparse tensors can only be added: expected the operator SUM", dist.all_reduce, ones.to_sparse(),
           op=dist.ReduceOp.MAX)
    raises(RuntimeError, f"rank {1 - rank}'s has the shape .{4 - rank}., of which 1 .*; expected the shape .{3 + rank}., .* rank {rank}",
           dist.all_reduce, torch.ones(3 + rank).to_sparse())
    raises(RuntimeError, "must be equal to world_size times input tensor size: it has 5 .* expected 8",
           dist.all_gather_into_tensor, torch.empty(5), ones)
    raises(RuntimeError, "invalid tensor size: .* has the shape .3., expected .4.", dist.all_gather,
           [torch.empty(3), torch.empty(3)], ones)
    raises(RuntimeError, "has the shape .4., expected .3.", dist.reduce_scatter, torch.empty(3), [ones, ones])
    raises(RuntimeError, "invalid tensor size: .* has the shape .3, 2., expected .2, 3.", dist.all_gather,
           [torch.empty(3, 2), torch.empty(3, 2)], torch.ones(2, 3))
    group = dist.distributed_c10d._get_default_group()
    for options, call in ((dist.BroadcastOptions(), group.broadcast), (dist.ReduceOptions(), group.reduce)):
        options.rootTensor = 1
        raises(RuntimeError, "the root's tensor is number 1, expected 0: there is one per process", call, [ones], options)
    raises(RuntimeError, "got 1 tensors of all ranks and 2 of one, expected as many", group.allgather_into_tensor_coalesced,
           [torch.empty(8)], [ones, ones])
    raises(RuntimeError, "tensor 0 of all ranks has 6 elements, expected 8 without", group.reduce_scatter_tensor_coalesced,
           [torch.empty(4)], [torch.empty(6)])
    raises(RuntimeError, "8 elements with gaps, expected 8 without", group.allgather_into_tensor_coalesced,
           [torch.empty(16)[::2]], [ones])
    raises(RuntimeError, "tensor 1 of all ranks is of Int, that of one of Float, expected one type",
           group.allgather_into_tensor_coalesced, [torch.empty(8), torch.empty(8, dtype=torch.int32)], [ones, ones])
    raises(RuntimeError, "the lists' tensors are of Int, expected Float", group.allgather_coalesced,
           [list(torch.empty(2, 4, dtype=torch.int32)) for _ in range(2)], [ones, ones])
    raises(RuntimeError, "tensors differ: Int on cpu, expected Float", group.allreduce_coalesced,
           [ones, torch.empty(4, dtype=torch.int32)])
    shares = "tensor {} of those that are written shares elements with {}.* expected memory of its own"
    raises(RuntimeError, shares.format(0, "itself"), dist.all_reduce, torch.ones(1).expand(4))
    raises(RuntimeError, shares.format(0, "itself"), dist.all_gather_into_tensor, torch.ones(10).as_strided((2, 4), (3, 1)), ones)
    raises(RuntimeError, shares.format(1, "another one"), dist.all_gather, [ones] * 2, torch.zeros(4))
    raises(RuntimeError, shares.format(1, "another one"), dist.all_gather, [ones[:3], ones[1:]], torch.zeros(3))
    raises(RuntimeError, shares.format(1, "another one"), group.allreduce_coalesced, [ones[:3], ones[1:]])
    raises(RuntimeError, shares.format(1, "another one"), group.allgather_into_tensor_coalesced, [torch.ones(8)] * 2, [ones, ones])
    matrix = torch.ones(4, 4)
    raises(RuntimeError, shares.format(1, "another one"), dist.all_gather, [matrix[:, :3], matrix[:, 1:]], torch.zeros(4, 3))
    raises(RuntimeError, shares.format(1, "another one"), dist.all_gather, [matrix[:, :2], matrix.t()[:2]],
           torch.zeros((4, 2) if rank == 0 else (2, 4)))
    dist.all_gather([matrix[:, ::2], matrix[:, 1::2]], torch.zeros(4, 2))  # which interleave
    if rank != 0:
        raises(RuntimeError, shares.format(0, "itself"), backend(dist.group.WORLD).broadcast, torch.zeros(1).expand(4), 0)
    raises(ValueError, "destination rank should not be the same as the rank of the current", dist.send, ones, rank)
    raises(RuntimeError, "the other rank is .* and not this rank", backend(dist.group.WORLD).send, [ones], rank, 0)
    raises(RuntimeError, "the timeout is 0 ms, expected more than 0", dist.group.WORLD.set_timeout, datetime.timedelta(0))
    raises(RuntimeError, "premul_sum takes a factor, and a tensor of a floating-point type; got Int", dist.all_reduce,
           torch.ones(2, dtype=torch.int32), op=dist._make_nccl_premul_sum(2.0))
    raises(tutti.InvalidArgument, "avg", dist.all_reduce, torch.ones(2, dtype=torch.bool), op=dist.ReduceOp.AVG)
    raises(tutti.InvalidArgument, "band", dist.all_reduce, ones, op=dist.ReduceOp.BAND)
    several = dist.AllreduceCoalescedOptions()
    several.reduceOp = dist.ReduceOp.BAND
    raises(tutti.InvalidArgument, "tutti:all_reduce: rank .*band", group.allreduce_coalesced, [ones, torch.ones(2)], several)
    raises(RuntimeError, "got 2 tensors, expected one per process", dist.group.WORLD.allreduce, [ones, ones])
    # As a GPU's tensor for a torch without CUDA.
    raises(RuntimeError, "the tensor is on meta, expected the cpu", backend(dist.group.WORLD).allreduce,
           [torch.empty(4, device="meta")])
    raises(ValueError, "pg_options", tutti.torch._create, None, "something")
    dist.all_reduce(ones)  # all goes on
    assert ones[0] == 2


def mismatch(rank):
    raises(tutti.Error, "rank", dist.all_reduce, torch.ones(10 + rank))


def coalesced_mismatch(call, elements):
    """The second tensor of a list has another size on rank 1."""
    def on(rank):
        group = dist.distributed_c10d._get_default_group()
        mine = [torch.ones(elements), torch.ones(elements + rank)]
        whole = [torch.ones(2 * len(one)) for one in mine]
        start = {"all_reduce": lambda: group.allreduce_coalesced(mine),
                 "all_gather": lambda: group.allgather_coalesced([[torch.ones_like(one) for one in mine] for _ in range(2)], mine),
                 "all_gather_into_tensor": lambda: group.allgather_into_tensor_coalesced(whole, mine)}[call]
        raises(tutti.Mismatch, "rank .*all ranks must make the same calls", lambda: start().wait())
    return on


def exchange_mismatch(rank):
    """Both think differently of what rank 0 sends."""
    ins, outs = ([1, 3], [1, 1]) if rank == 0 else ([1, 1], [2, 1])
    def calls():
        dist.all_to_all_single(torch.empty(sum(outs)), torch.ones(sum(ins)), outs, ins)
        dist.barrier()

    raises(tutti.Mismatch, "rank", calls)


def killed(rank):
    begin = time.monotonic()
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    text = raises(tutti.PeerFailed, "rank 1", dist.all_reduce, torch.ones(1000))
    raises(ConnectionError, "rank 1", dist.barrier)  # still, and by Python's own kind
    raises(RuntimeError, "rank 1", dist.all_reduce, torch.ones(5), async_op=False)
    assert time.monotonic() - begin < 30
    return text


def killed_while_a_future_is_out(rank):
    future = dist.group.WORLD.allreduce([torch.ones(1000)]).get_future() if rank != 1 else None
    if rank == 1:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    raises(tutti.PeerFailed, "rank 1", future.wait)


def deadline(rank):
    """The second group's timeout is 1 s."""
    group = dist.new_group(timeout=datetime.timedelta(seconds=1))
    if rank == 0:
        tensor = torch.ones(5)
        begin = time.monotonic()
        raises(tutti.Timeout, r"all_reduce: a timeout ended it: rank 1 has not entered operation #0; no progress for 1\.0 s "
               r"\(the communicator's timeout\)",
               dist.all_reduce, tensor, group=group)
        assert time.monotonic() - begin < 20
    else:
        time.sleep(3)


def wait_for_a_while(rank):
    if rank == 0:
        work = dist.irecv(torch.empty(3), 1)
        raises(tutti.Timeout, "recv: rank 0: not complete after 100 ms; it goes on",
               work.wait, datetime.timedelta(milliseconds=100))
        dist.barrier()
        assert work.wait()
    else:
        dist.barrier()
        dist.send(torch.ones(3), 0)


def monitored(rank):
    short = datetime.timedelta(milliseconds=300)
    tutti.torch.monitored_barrier(timeout=datetime.timedelta(seconds=30))
    if rank == 0:
        raises(tutti.Timeout, r"Rank 0\]: Ranks 2, 3 failed to pass monitoredBarrier in 300 ms",
               tutti.torch.monitored_barrier, timeout=short, wait_all_ranks=True)
    elif rank == 1:
        raises(RuntimeError, "Rank 1 successfully reached monitoredBarrier, but .* it missed others",
               tutti.torch.monitored_barrier)
    dist.barrier()
    if rank >= 2:  # too late: the verdict is there
        raises(RuntimeError, "rank 0: it missed others", tutti.torch.monitored_barrier)
    dist.barrier()
    tutti.torch.monitored_barrier()


def after_the_end(rank):
    group, other, world = dist.new_group(), dist.new_group(), dist.group.WORLD
    work = dist.all_reduce(torch.ones(3), async_op=True)
    backend(group).shutdown()
    backend(group).close()  # once more
    gone = "all_reduce: the process group has been destroyed"
    raises(tutti.InvalidUsage, gone, dist.all_reduce, torch.ones(3), group=group)
    assert backend(group).get_error() == ErrorType.SUCCESS
    if rank == 1:
        backend(other).close("bad page 7")
        raises(tutti.Aborted, "the process group has been aborted: bad page 7", dist.barrier, other)
    else:
        raises(tutti.Error, "bad page 7", dist.barrier, other)
    work.wait()
    dist.destroy_process_group()
    raises((RuntimeError, ValueError), "not been initialized", dist.all_reduce, torch.ones(3))
    raises(tutti.InvalidUsage, gone, world.allreduce, [torch.ones(3)])


def changed_timeout(rank):
    """The second group's timeout is 60 s at first."""
    group = dist.new_group()
    group.set_timeout(datetime.timedelta(seconds=1))
    if rank == 0:
        work = dist.all_reduce(torch.ones(5), group=group, async_op=True)
        result = work.get_future_result()
        raises(tutti.Timeout, r"rank 1 has not entered operation #0; .*no progress for 1\.0 s \(the call's timeout\)", work.wait)
        assert result.wait() == 1  # WorkResult::TIMEOUT
        assert backend(group).get_error() == ErrorType.TIMEOUT
    dist.barrier()
    raises(tutti.Error, "no progress for 1", dist.all_reduce, torch.ones(5), group=group)
    group = dist.new_group()
    group.set_timeout(datetime.timedelta(seconds=1))
    if rank == 1:
        raises(tutti.Timeout, r"monitored_barrier: .*no progress for 1\.0 s", tutti.torch.monitored_barrier, group)
    dist.barrier()


def aborted(rank):
    """Rank 0 aborts a group in which its other threads and rank 1 wait."""
    group = dist.new_group()
    why, own = r"the program called abort\(\)", backend(group)
    if rank == 0:
        works, found = [dist.irecv(torch.ones(3), 1, group=group, tag=tag) for tag in range(3)], []

        def wait(work):
            raises(tutti.Aborted, why, work.wait)
            found.append(work)

        threads = [threading.Thread(target=wait, args=[work]) for work in works]
        for thread in threads:
            thread.start()
        time.sleep(0.1)  # most threads wait now, which is not needed
        own.abort()
        for thread in threads:
            thread.join(60)
        assert len(found) == 3, found
        assert works[0].get_future_result().wait() == 2  # WorkResult::COMM_ERROR
    else:
        raises(tutti.Aborted, "rank 0.*" + why, dist.all_reduce, torch.ones(3), group=group)
        assert own.get_error() == ErrorType.REMOTE_ERROR
        own.abort()
    assert own.get_error() == ErrorType.SUCCESS
    raises(tutti.Aborted, "all_reduce: the process group has been aborted: " + why, dist.all_reduce, torch.ones(3), group=group)
    own.abort()
    dist.barrier()
    dist.destroy_process_group(group)


def abort_of_an_end(rank):
    """Ends that wait for others end by an abort: in another thread, and from a callback for which they wait."""
    os.environ["TUTTI_CONNECT_TIMEOUT"] = "1000"
    group = dist.new_group(timeout=datetime.timedelta(seconds=500))
    if rank == 0:
        end = threading.Thread(target=backend(group).shutdown)
        end.start()
        time.sleep(0.1)  # it is likely to wait now
        backend(group).abort()
        end.join(60)
        assert not end.is_alive(), "abort() did not end a shutdown() that waits"
    dist.barrier()
    group = dist.new_group()
    future = dist.all_reduce(torch.ones(3), group=group, async_op=True).get_future().then(lambda _: backend(group).abort())
    dist.destroy_process_group(group)
    future.wait()


def ends_in_a_row(rank):
    """Operations that do not end are waited for once, not in each of the groups."""
    groups = [dist.new_group() for _ in range(7)]
    if rank == 0:
        works = [dist.irecv(torch.ones(3), 1, group=group) for group in groups]
        begin = time.monotonic()
        for group in groups:
            dist.destroy_process_group(group)
        assert time.monotonic() - begin < 60
        for work in works:
            raises(tutti.Aborted, "destroyed the process group with operations pending", work.wait)
    dist.barrier()


def again(rank):
    """The same store once more, after each kind of end."""
    store = dist.FileStore(os.environ["TUTTI_TEST_STORE"], 2)
    ends = [dist.destroy_process_group, dist.distributed_c10d._abort_process_group, dist.destroy_process_group]
    for turn, end in enumerate(ends):
        end()
        dist.init_process_group("tutti", store=store, rank=rank, world_size=2, timeout=datetime.timedelta(seconds=60))
        ones = torch.ones(3)
        dist.all_reduce(ones)
        assert ones[0] == 2
        store.set(f"{turn}/{rank}", "done")
        store.get(f"{turn}/{1 - rank}")


def in_detail(rank):
    """As with TORCH_DISTRIBUTED_DEBUG=DETAIL: torch puts a group of its own, which compares the calls, around each."""
    store = dist.FileStore(os.environ["TUTTI_TEST_STORE"], 2)
    dist.destroy_process_group()
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    dist.init_process_group("tutti", store=store, rank=rank, world_size=2, timeout=datetime.timedelta(seconds=60))
    wrapper = backend(dist.group.WORLD)
    assert type(wrapper.wrapped_pg) is tutti.torch.ProcessGroupTutti, wrapper
    group = dist.new_group(timeout=datetime.timedelta(seconds=20))
    ones, both = torch.ones(3), torch.zeros(6)
    dist.all_reduce(ones, group=group)
    dist.all_gather_into_tensor(both, ones, group=group)
    assert both.sum() == 12
    dist.send(ones, 1) if rank == 0 else dist.recv(ones, 0)
    objects = [None, None]
    dist.all_gather_object(objects, rank)
    assert objects == [0, 1]
    dist.barrier()
    assert backend(group).get_error() == ErrorType.SUCCESS
    assert backend(group).options._timeout == datetime.timedelta(seconds=20)
    raises(RuntimeError, "Detected mismatch between collectives on ranks", dist.all_reduce, torch.ones(3 + rank))
    group.abort()
    raises(tutti.Aborted, "the process group has been aborted", backend(group).wrapped_pg.allreduce, [ones])


def forked(rank):
    child = os.fork()
    if child == 0:
        try:
            dist.all_reduce(torch.ones(3))
        except tutti.InvalidUsage as error:
            os._exit(7 if "child of fork" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    dist.barrier()


def meet(store, rank, seconds):
    group = tutti.torch.ProcessGroupTutti(store, rank, 2, seconds, "pair")
    ones = torch.ones(3)
    group.allreduce([ones]).wait()
    assert ones[0] == 2
    return group


def attempts(rank):
    """A store that holds what an attempt of one rank alone has left. Both ranks have been that one."""
    store, alone = dist.FileStore(os.environ["TUTTI_TEST_STORE"], 2), 0
    for alone in (0, 1, 0):
        if rank == alone:
            raises(tutti.Timeout, f"rank {rank}: pair: rank {1 - rank} of 2 did not come within 200 ms",
                   tutti.torch.ProcessGroupTutti, store, rank, 2, 0.2, "pair")
        dist.barrier()
    for _ in range(2):  # and what meetings that came about have left
        meet(store, rank, 60)
        dist.barrier()
    # One that comes and then does not connect: the deadline is the same.
    if rank == 1:
        store.set("tutti/rank/1", "one that is gone")
        answer = store.get("tutti/answer/one that is gone").decode()
        store.set(f"tutti/taken/{answer}/one that is gone", "taken")
    else:
        begin = time.monotonic()
        raises(tutti.Timeout, "rank 1", tutti.torch.ProcessGroupTutti, store, rank, 2, 1, "pair")
        assert time.monotonic() - begin < 20
    dist.barrier()


def handlers(rank):
    """Python's signal handlers run while a rank waits, and what they raise ends the wait."""
    class Told(Exception):
        pass

    def tell(*_):
        raise Told

    before = signal.signal(signal.SIGUSR1, tell)
    if rank == 0:
        threading.Thread(target=lambda: (time.sleep(0.3), os.kill(os.getpid(), signal.SIGUSR1))).start()
        work = dist.irecv(torch.empty(3), 1)
        raises(Told, "", work.wait)
        threading.Thread(target=lambda: (time.sleep(0.3), os.kill(os.getpid(), signal.SIGUSR1))).start()
        raises(Told, "", tutti.torch.ProcessGroupTutti, dist.HashStore(), 0, 2, 100, "one that nobody joins")
        dist.barrier()
        work.wait()
    else:
        dist.barrier()
        dist.send(torch.ones(3), 0)
    signal.signal(signal.SIGUSR1, before)


class Imports(unittest.TestCase):
    """What an import says of a torch that does not suit: a stand-in for torch, in a process of its own."""

    def import_with(self, distributed):
        with tempfile.TemporaryDirectory() as folder:
            package = pathlib.Path(folder) / "torch"
            (package / "distributed").mkdir(parents=True)
            (package / "__init__.py").write_text("__version__ = '1.12.1'\n")
            (package / "distributed/__init__.py").write_text(distributed)
            path = os.pathsep.join([folder, os.environ["PYTHONPATH"]])
            return subprocess.run([sys.executable, "-B", "-c", "import tutti.torch"], env={**os.environ, "PYTHONPATH": path},
                                  capture_output=True, text=True, timeout=60)

    def test_a_torch_that_is_too_old(self):
        done = self.import_with("is_available = lambda: True\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("ImportError: tutti.torch: torch 1.12.1 is too old, expected 2.13 or later", done.stderr)

    def test_a_torch_without_distributed(self):
        done = self.import_with("is_available = lambda: False\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("ImportError: tutti.torch: this torch was built without torch.distributed", done.stderr)


class Errors(unittest.TestCase):
    def test_arguments(self):
        run(2, arguments)

    def test_ranks_that_disagree(self):
        run(2, mismatch, seconds=5)
        run(2, exchange_mismatch, seconds=5)
        for call in "all_reduce", "all_gather", "all_gather_into_tensor":
            for elements in 10, 300_000:
                run(2, coalesced_mismatch(call, elements), seconds=5)

    def test_a_killed_rank(self):
        run(3, killed, lost=[1])
        run(3, killed_while_a_future_is_out, lost=[1])

    def test_deadlines(self):
        run(2, deadline)
        run(2, changed_timeout)
        run(2, wait_for_a_while)

    def test_meeting_after_failed_attempts(self):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["TUTTI_TEST_STORE"] = f"{folder}/store"
            run(2, attempts)

    def test_signals(self):
        run(2, handlers)

    def test_monitored_barrier(self):
        run(4, monitored)

    def test_after_the_end(self):
        run(2, after_the_end)

    def test_aborts(self):
        run(2, aborted)
        run(2, abort_of_an_end)

    def test_ends_in_a_row(self):
        run(2, ends_in_a_row)

    def test_groups_again(self):
        for what in again, in_detail:
            with tempfile.TemporaryDirectory() as folder:
                os.environ["TUTTI_TEST_STORE"] = f"{folder}/store"
                run(2, what)

    def test_a_forked_child(self):
        run(2, forked)

    def test_a_rank_that_does_not_come(self):
        from ranks import dist as d
        begin = time.monotonic()
        with self.assertRaisesRegex(tutti.Timeout, "rank 0: group 0: rank 1 of 2 did not come within 1000 ms"):
            d.init_process_group("tutti", store=d.HashStore(), rank=0, world_size=2,
                                 timeout=datetime.timedelta(seconds=1))
        self.assertLess(time.monotonic() - begin, 20)


class Import(unittest.TestCase):
    def test_another_version_of_torch(self):
        with tempfile.TemporaryDirectory() as folder:
            package = pathlib.Path(folder, "tutti")
            shutil.copytree(pathlib.Path(tutti.__file__).parent, package)
            for module in (package / "torch").glob("_core_*"):
                module.rename(module.with_name("_core_1_0" + importlib.machinery.EXTENSION_SUFFIXES[0]))
            done = subprocess.run([sys.executable, "-W", "ignore", "-B", "-c", "import tutti.torch"], text=True, timeout=100,
                                  env={**os.environ, "PYTHONPATH": folder}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual(done.stdout.splitlines()[-1], f"ImportError: tutti.torch: {package}/torch is for torch 1.0, and the torch "
                         f"of {sys.executable} is {torch.__version__}: build for this one, in Tutti's folder: cmake --preset release "
                         f"-DPython3_EXECUTABLE={sys.executable} && cmake --build build")


if __name__ == "__main__":
    unittest.main()
