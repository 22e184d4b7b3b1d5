# SPDX-License-Identifier: Apache-2.0
"""The flight recorder: what ranks record, and what torch's analyser reads of it."""

import collections
import datetime
import functools
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import unittest

os.environ["TORCH_FR_BUFFER_SIZE"] = "200"  # read by the import
import torch
import torch.distributed as dist

import tutti
from programs import DebuggedPrograms
from ranks import backend, gloo, run
from torch._C import _distributed_c10d

FOLDER = pathlib.Path(__file__).parent
CPU = torch.device("cpu")


def dumped(**options):
    return _distributed_c10d._dump_fr_trace(**options)


def analyse(dumps):
    """What torch's analyser prints about the dumps of ranks 0 to n, and the collectives that it finds."""
    with tempfile.TemporaryDirectory() as folder:
        for rank, dump in enumerate(dumps):
            pathlib.Path(folder, f"rank_{rank}").write_bytes(dump)
        out = folder + "_found"
        try:
            told = subprocess.run([sys.executable, "-B", "-m", "torch.distributed.flight_recorder.fr_trace", folder, "-p", "rank_",
                                   "-o", out], capture_output=True, text=True)
            if told.returncode:
                raise AssertionError(told.stdout + told.stderr)
            return told.stdout + told.stderr, pickle.loads(pathlib.Path(out).read_bytes())[1].collectives
        finally:
            pathlib.Path(out).unlink(missing_ok=True)


# ---- Ranks -------------------------------------------------------------------------------------------------

def ring_batch(rank, ranks):
    after, before = (rank + 1) % ranks, (rank - 1) % ranks
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.ones(5), after), dist.P2POp(dist.irecv, torch.empty(5), before)]):
        work.wait()


def every_call(rank):
    ranks = dist.get_world_size()
    numbers = torch.arange(4.0)
    dist.all_reduce(numbers)
    dist.broadcast(numbers, 1)
    dist.reduce(numbers, 0)
    dist.barrier()
    dist.all_gather([torch.empty(4) for _ in range(ranks)], numbers)
    dist.all_gather([torch.empty(n + 1) for n in range(ranks)], torch.ones(rank + 1))
    dist.all_gather_into_tensor(torch.empty(4 * ranks), numbers)
    dist.gather(numbers, [torch.empty(4) for _ in range(ranks)] if rank == 1 else None, 1)
    dist.scatter(numbers, [torch.ones(4) for _ in range(ranks)] if rank == 1 else None, 1)
    dist.reduce_scatter(torch.empty(4), [torch.ones(4) for _ in range(ranks)])
    dist.reduce_scatter(torch.empty(rank + 1), [torch.ones(n + 1) for n in range(ranks)])
    dist.reduce_scatter_tensor(torch.empty(4), torch.ones(4 * ranks))
    dist.all_to_all_single(torch.empty(ranks), torch.ones(ranks))
    dist.all_to_all_single(torch.empty(ranks * (rank + 1)), torch.ones(sum(range(ranks + 1))), [rank + 1] * ranks,
                           list(range(1, ranks + 1)))
    dist.all_to_all([torch.empty(rank + 1) for _ in range(ranks)], [torch.ones(n + 1) for n in range(ranks)])
    dist.all_reduce(torch.sparse_coo_tensor([[rank]], [1.0], (ranks,)))
    with dist.distributed_c10d._coalescing_manager():
        for _ in range(2):
            dist.all_reduce(torch.ones(4))
    with dist.distributed_c10d._coalescing_manager():
        for _ in range(2):
            dist.all_gather_into_tensor(torch.empty(4 * ranks), numbers)
    with dist.distributed_c10d._coalescing_manager():
        for _ in range(2):
            dist.reduce_scatter_tensor(torch.empty(4), torch.ones(4 * ranks))
    ring_batch(rank, ranks)
    with dist.distributed_c10d._coalescing_manager(device=CPU):
        dist.broadcast(numbers, 0)
    pair = dist.new_group([ranks - 2, ranks - 1], group_desc="a pair")
    if rank >= ranks - 2:
        dist.all_reduce(torch.ones(2, dtype=torch.int32), group=pair)
        if rank == ranks - 1:
            for elements in 3, 7:
                dist.send(torch.ones(elements), ranks - 2, group=pair)
        else:
            dist.recv(torch.ones(3), ranks - 1, group=pair)
            assert dist.recv(torch.ones(7), group=pair) == ranks - 1
        dist.all_reduce(torch.ones(2), group=pair)
    dist.destroy_process_group(pair)
    dist.all_reduce(torch.ones(1), group=gloo())
    dist.barrier()
    return dumped(), _distributed_c10d._dump_fr_trace_json(), dumped(onlyActive=True), dumped(includeCollectives=False)


def one_that_does_not_call(rank):
    dist.all_reduce(torch.ones(2))
    dist.barrier()
    if rank != 1:
        work = dist.all_reduce(torch.ones(3), async_op=True)
    dump = dumped()
    if rank == 1:
        work = dist.all_reduce(torch.ones(3), async_op=True)
    work.wait()
    return dump


def one_that_calls_another(rank):
    dist.all_reduce(torch.ones(2))
    try:
        (dist.all_reduce if rank != 1 else functools.partial(dist.broadcast, src=0))(torch.ones(3), async_op=True)
    except RuntimeError:
        pass  # the other one's call was here already
    dump = dumped()
    backend(dist.group.WORLD).abort()
    return dump


def one_too_late(rank):
    if rank == 0:
        options = dist.AllreduceOptions()
        options.timeout = datetime.timedelta(milliseconds=300)
        try:
            dist.group.WORLD.allreduce([torch.ones(3)], options).wait()
        except tutti.Timeout:
            pass
        else:
            raise AssertionError("no timeout")
        dist.distributed_c10d._get_default_store().set("late", "")
    else:
        dist.distributed_c10d._get_default_store().wait(["late"])
    dump = dumped()
    backend(dist.group.WORLD).abort()
    return dump


def a_message_too_few(rank):
    dist.barrier()
    if rank == 2:
        works = [dist.isend(torch.ones(2), 1, tag=7) for _ in range(2)]
    if rank == 1:
        works = [dist.irecv(torch.ones(2), 2, tag=7)]
        works[0].wait()
    dump = dumped()
    if rank == 1:
        dist.recv(torch.ones(2), 2, tag=7)
    dist.barrier()
    return dump


class Recordings(unittest.TestCase):
    def check_every_call(self, ranks):
        answers = run(ranks, every_call)
        told, collectives = analyse([dump for dump, *_ in answers])
        self.assertNotIn("rror", told)
        self.assertNotIn("Not all ranks", told)
        self.assertTrue(all(one.pass_check and not one.missing_ranks for one in collectives), told)
        names = [one.collective_name.removeprefix("gloo:") for one in collectives]
        for name in ("all_reduce", "broadcast", "reduce", "barrier", "all_gather", "all_gather_v", "_all_gather_base", "gather",
                     "scatter", "reduce_scatter", "reduce_scatter_v", "_reduce_scatter_base", "all_to_all", "allreduce_coalesced",
                     "all_gather_into_tensor_coalesced", "reduce_scatter_tensor_coalesced"):
            self.assertIn(name, names)
        self.assertEqual(collections.Counter(one.group_id.split(": ")[1] for one in collectives if ": " in one.group_id),
                         collections.Counter([f"{rank} to {(rank + 1) % ranks}" for rank in range(ranks)] +
                                             2 * [f"{ranks - 1} to {ranks - 2}"]))
        for rank, (dump, text, active, without) in enumerate(answers):
            self.check_entries(rank, ranks, pickle.loads(dump))
            whole, entries = json.loads(text), pickle.loads(dump)["entries"]
            self.assertEqual([entry["profiling_name"] for entry in whole["entries"]], [entry["profiling_name"] for entry in entries])
            self.assertEqual([entry for entry in pickle.loads(active)["entries"] if entry["state"] == "completed"], [])
            self.assertNotIn("entries", pickle.loads(without))
            self.assertIn("0", pickle.loads(without)["pg_config"])

    def check_entries(self, rank, ranks, whole):
        self.assertEqual(whole["pg_config"]["0"], {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))})
        pairs = [one for one in whole["pg_config"].values() if one["desc"] == "a pair" and ":" not in one["name"]]
        self.assertEqual([one["ranks"] for one in pairs], [str([ranks - 2, ranks - 1])] * (rank >= ranks - 2))
        ids = [entry["record_id"] for entry in whole["entries"]]
        self.assertEqual(ids, list(range(ids[0], ids[0] + len(ids))))
        ours = [entry for entry in whole["entries"] if entry["process_group"] == ("0", "default_pg")]
        first = ours[0]
        self.assertEqual((first["profiling_name"], first["input_sizes"], first["output_sizes"], first["input_dtypes"]),
                         ("gloo:all_reduce", [[4]], [[4]], ["Float"]))
        self.assertEqual((first["collective_seq_id"], first["op_id"], first["is_p2p"], first["timeout_ms"]), (1, 1, False, 60_000))
        self.assertLessEqual(first["time_created_ns"], first["time_discovered_started_ns"])
        self.assertLessEqual(first["time_discovered_started_ns"], first["time_discovered_completed_ns"])
        self.assertGreaterEqual(first["duration_ms"], 0)
        self.assertIn(("every_call", __file__), [(frame["name"], frame["filename"]) for frame in first["frames"]])
        self.assertEqual({entry["state"] for entry in ours}, {"completed"})
        self.assertTrue(all(entry["retired"] for entry in ours))
        collectives = [entry["collective_seq_id"] for entry in ours]
        self.assertEqual(collectives, list(range(1, len(collectives) + 1)))
        self.assertEqual(whole["pg_status"][str(first["pg_id"])],
                         dict.fromkeys(("last_enqueued_collective", "last_started_collective", "last_completed_collective"),
                                       collectives[-1]))
        ahead, behind = (rank + 1) % ranks, (rank - 1) % ranks
        self.assertEqual(self.messages(whole, "default_pg"),
                         [(f"0: {rank} to {ahead}", "gloo:send 0->1" if rank < ahead else "gloo:send 1->0", 1),
                          (f"0: {behind} to {rank}", "gloo:recv 1<-0" if behind < rank else "gloo:recv 0<-1", 1)])
        if rank >= ranks - 2:
            name = "gloo:send 1->0" if rank == ranks - 1 else "gloo:recv 0<-1"
            channel = f"{pairs[0]['name']}: {ranks - 1} to {ranks - 2}"
            self.assertEqual(self.messages(whole, "a pair"), [(channel, name, 1), (channel, name, 2)])

    def messages(self, whole, description):
        return [(entry["process_group"][0], entry["profiling_name"], entry["p2p_seq_id"]) for entry in whole["entries"]
                if entry["is_p2p"] and entry["process_group"][1] == description]

    def test_every_call(self):
        for ranks in 2, 4:
            self.check_every_call(ranks)

    def test_a_rank_that_does_not_call(self):
        for ranks in 2, 4:
            told, collectives = analyse(run(ranks, one_that_does_not_call))
            self.assertRegex(told, r"Not all ranks joining collective, sequence number: 3\n(.*\n)*?.*collective: gloo:all_reduce\n"
                                   r".*missing ranks: \{1\}\n(.*\n)*?.*collective state: (started|scheduled)\n(.*\n)*?"
                                   r".*one_that_does_not_call at .*recorder_test.py")
            self.assertEqual([one.missing_ranks for one in collectives if not one.pass_check or one.missing_ranks], [{1}])

    def test_a_rank_that_calls_another_collective(self):
        for ranks in 2, 4:
            told, _ = analyse(run(ranks, one_that_calls_another))
            self.assertRegex(told, "Collective sequence number: 2 has errors")
            # The analyser holds the rank whose file it finds first to be right.
            self.assertRegex(told, "|".join(
                f"Culprit rank {rank}; Error type: COLLECTIVE_TYPE_MISMATCH, Expected collective type: '{expected}' "
                f"does not match found collective type: '{found}'"
                for rank, expected, found in ((1, "all_reduce", "broadcast"), (0, "broadcast", "all_reduce"))))

    def test_a_timeout(self):
        zero, one = (pickle.loads(dump) for dump in run(2, one_too_late))
        last = zero["entries"][-1]
        self.assertEqual((last["profiling_name"], last["timeout_ms"], last["state"], last["retired"]),
                         ("gloo:all_reduce", 300, "started", True))
        self.assertIsNone(last["time_discovered_completed_ns"])
        self.assertEqual(one["entries"], [])

    def test_a_message_that_nobody_receives(self):
        told, collectives = analyse(run(4, a_message_too_few))
        self.assertRegex(told, r"Not all ranks joining collective, sequence number: 2\n.*\n.*group info: 0: 2 to 1, tag 7:default_pg\n"
                               r".*collective: gloo:send 1->0\n.*missing ranks: \{1\}")
        self.assertEqual(told.count("Not all ranks"), 1)


class UnderTorchsDebuggingLayer(DebuggedPrograms):
    def test_a_rank_that_does_not_call(self):
        told, _ = analyse(run(2, one_that_does_not_call))
        self.assertRegex(told, r"Not all ranks joining collective(.*\n)*?.*missing ranks: \{1\}\n")


class Settings(unittest.TestCase):
    """In a process of its own, whose only rank calls all_reduce ten times."""

    SCRIPT = """
import pickle, sys, torch, torch.distributed as dist, tutti.torch
theirs = "built-in" in repr(torch._C._distributed_c10d._dump_fr_trace)
dist.init_process_group("tutti", store=dist.HashStore(), rank=0, world_size=1)
for n in range(10):
    dist.all_reduce(torch.ones(n))
entries = pickle.loads(torch._C._distributed_c10d._dump_fr_trace())["entries"]
print(theirs, [(entry["record_id"], entry["input_sizes"]) for entry in entries])
"""

    def told(self, **variables):
        environment = {name: value for name, value in os.environ.items() if "TORCH_FR" not in name and "TRACE_BUFFER" not in name}
        return subprocess.run([sys.executable, "-B", "-c", self.SCRIPT], capture_output=True, text=True,
                              env={**environment, **variables})

    def test_the_last_calls_are_kept(self):
        for name in "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE":
            told = self.told(**{name: "3"})
            self.assertEqual(told.stdout, "False [(7, [[7]]), (8, [[8]]), (9, [[9]])]\n", told.stderr)

    def test_off(self):
        for variables in {}, {"TORCH_FR_BUFFER_SIZE": "0"}:
            told = self.told(**variables)
            self.assertEqual(told.stdout, "True []\n", told.stderr)

    def test_no_number(self):
        for value in "many", "-1", "3 calls", "":
            told = self.told(TORCH_FR_BUFFER_SIZE=value)
            self.assertIn(f'ValueError: tutti: TORCH_FR_BUFFER_SIZE is "{value}", expected the number of calls', told.stderr)
