# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel beside Gloo; and programs as users start them: torchrun, tutti.run, ends of every kind."""

import os
import re
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ranks import SEED, gloo, run

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples")
TORCHRUN = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run"]


def trained(group, rank, hook=False):
    """The parameters after some steps on data that differ between the ranks."""
    torch.manual_seed(SEED)
    net = nn.Sequential(nn.Linear(30, 400), nn.ReLU(), nn.Linear(400, 300), nn.ReLU(), nn.Linear(300, 7))
    model = DistributedDataParallel(net, process_group=group, bucket_cap_mb=0.2)  # several buckets
    if hook:
        def average(state, bucket):
            future = dist.all_reduce(bucket.buffer(), group=group, async_op=True).get_future()
            return future.then(lambda done: done.value()[0] / dist.get_world_size())
        model.register_comm_hook(None, average)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(SEED + rank)
    for _ in range(10):
        data, wanted = torch.randn(8, 30, generator=generator), torch.randn(8, 7, generator=generator)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(data), wanted).backward()
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


def training(rank):
    own, hooked, by_gloo = trained(None, rank), trained(None, rank, hook=True), trained(gloo(), rank)
    for mine in (own, hooked):
        least, most = mine.clone(), mine.clone()
        dist.all_reduce(least, op=dist.ReduceOp.MIN)
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        assert torch.equal(least, most), "the ranks' parameters differ"
        torch.testing.assert_close(mine, by_gloo)


def embedding(rank):
    """An embedding whose gradients are sparse: other rows on each rank, and one on all."""
    weights = []
    for group in None, gloo():
        torch.manual_seed(SEED)
        net = nn.Embedding(50, 6, sparse=True)
        model = DistributedDataParallel(net, process_group=group)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(5):
            optimizer.zero_grad()
            (model(torch.tensor([7, 10 * rank + step, 10 * rank + step])) ** 2).sum().backward()
            optimizer.step()
        weights.append(net.weight.detach())
    torch.testing.assert_close(*weights)


class Training(unittest.TestCase):
    def test_parameters(self):
        print(f"TUTTI_TEST_SEED={SEED}")
        run(2, training)
        run(3, training)

    def test_sparse_gradients(self):
        run(2, embedding)
        run(3, embedding)

    def test_digits(self):
        accuracy = {}
        for backend, start in (("tutti", [*TORCHRUN, "--nproc-per-node", "2"]),
                               ("gloo", [sys.executable, "-m", "tutti.run", "-n", "2", "--no-label"])):
            try:
                # Beside 20 busy programs, at nice 10: 80 s until torch is imported, 124 s in all. So later is a hang.
                done = subprocess.run([*start, os.path.join(EXAMPLES, "digits_ddp.py"), "--backend", backend],
                                      capture_output=True, text=True, timeout=500)
            except subprocess.TimeoutExpired as late:
                self.fail(f"{backend}: not at its end after {late.timeout} s; printed so far: {late.stdout}{late.stderr}")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("weights: the same bits on all ranks", done.stdout)
            accuracy[backend] = float(re.findall(r"held-out ([0-9.]+) %", done.stdout)[-1])
        self.assertGreater(accuracy["tutti"], 95)
        self.assertAlmostEqual(accuracy["tutti"], accuracy["gloo"], delta=1)


class Ends(unittest.TestCase):
    def run_script(self, script, ranks=2):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "script.py")
            with open(path, "w") as file:
                file.write("import os, sys, time, torch, torch.distributed as dist, tutti.torch\n"
                           "dist.init_process_group('tutti')\nrank = dist.get_rank()\n"
                           "open(__file__ + '.begun', 'w').write(str(time.monotonic()))\n" + textwrap.dedent(script))
            start = [sys.executable, "-W", "ignore", "-m", "tutti.run", "-n", str(ranks), "--no-label", path]
            done = subprocess.run(start, capture_output=True, text=True, timeout=500)
            with open(path + ".begun") as begun:  # a busy machine takes a minute to import torch
                self.assertLess(time.monotonic() - float(begun.read()), 60)
        return done.returncode, done.stdout, done.stderr

    def test_a_program_that_destroys_nothing(self):
        code, _, err = self.run_script("dist.all_reduce(torch.ones(3)); group = dist.new_group()")
        self.assertEqual((code, err), (0, ""))

    def test_requests_in_flight_at_the_end(self):
        code, _, err = self.run_script("work = dist.irecv(torch.ones(3), 1 - rank).get_future()\n"
                                       "work.then(lambda done: done.wait())")
        self.assertNotIn("Fatal", err)
        self.assertNotIn("terminate called", err)

    def test_threads_in_calls_at_the_end(self):
        code, out, err = self.run_script("""
            import threading

            def forever():
                while True:
                    try:
                        dist.recv(torch.ones(3), 1 - rank)
                    except RuntimeError:
                        pass

            def poll():
                work = dist.irecv(torch.ones(3), 1 - rank, tag=1)
                while not work.is_completed():
                    pass

            for call in (forever, poll):
                threading.Thread(target=call, daemon=True).start()
            time.sleep(1)
            print("ends", flush=True)
            """)
        self.assertEqual((code, out), (0, "ends\n" * 2), err)
        self.assertNotIn("terminate called", err)

    def test_an_exception_ends_the_others(self):
        code, out, err = self.run_script("""
            if rank == 1:
                raise ValueError("bad page 7")
            try:
                dist.all_reduce(torch.ones(3))
            except tutti.Error as error:
                print(error, flush=True)
            """)
        self.assertRegex(out + err, "rank 1.*the rank ended by ValueError: bad page 7")

    def test_workers_of_a_loader(self):
        code, out, err = self.run_script("""
            data = torch.utils.data.TensorDataset(torch.arange(64.0))
            for epoch in range(2):
                for batch, in torch.utils.data.DataLoader(data, batch_size=16, num_workers=2):
                    dist.all_reduce(batch)
            print("sum", batch.sum().item())
            """)
        self.assertEqual((code, out), (0, "sum 1776.0\n" * 2), err)


if __name__ == "__main__":
    unittest.main()
