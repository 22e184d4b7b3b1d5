# SPDX-License-Identifier: Apache-2.0
"""Gradient buckets, between ranks that are threads, and in programs that end early."""

import array
import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import tutti

try:
    import numpy
except ImportError:
    numpy = None


def floats(values):
    return array.array("f", values)


class Steps(unittest.TestCase):
    def test_sums_and_means(self):
        def rank(comm, thread, wire):
            tensors = {"last": floats([0] * 40), "middle": (7, "float32"), "first": floats([0])}
            with comm.gradients(tensors, op="sum", wire=wire, thread=thread, bucket_bytes=100, first_bucket_bytes=100) as gradients:
                for step in range(3):
                    last, middle, first = (floats([comm.rank + step + i] * n) for i, n in enumerate((40, 7, 1)))
                    gradients.ready("first", first)
                    gradients.ready(1, middle)
                    gradients.ready("last", last)
                    self.assertTrue(gradients.wait())
                    n = comm.nranks
                    total = n * (n - 1) // 2 + n * step
                    self.assertEqual([list(last), list(middle), list(first)], [[total] * 40, [total + n] * 7, [total + 2 * n]])
                facts = gradients.facts
                self.assertEqual((facts["steps"], facts["started"]), (3, 6))
            self.assertTrue(gradients.closed)

        for thread in (False, True):
            for wire in ("plain", "float16", "float8"):
                tutti.run_threads(2, rank, thread, wire)
        tutti.run_threads(3, rank, False, "bfloat16")

    def test_the_order_of_rank_0_in_the_first_step(self):
        def rank(comm):
            gradients = comm.gradients([(5, "float64")] * 3, bucket_bytes=1, first_bucket_bytes=1)
            self.assertEqual([gradients.bucket(i) for i in range(3)], [0, 1, 2])
            for step in range(2):
                for i in (2, 0, 1) if comm.rank == 0 else (0, 1, 2):
                    gradients.ready(i, array.array("d", [comm.rank] * 5))
                gradients.wait()
                self.assertEqual([gradients.bucket(i) for i in range(3)], [1, 2, 0])
            kept = comm.gradients([(5, "float64")] * 2, declared_order=True)
            self.assertEqual(kept.bucket(1), 0)

        tutti.run_threads(2, rank)

    def test_unused_tensors(self):
        def rank(comm):
            gradients = comm.gradients([(3, "int32")] * 2, op="sum")
            for step in range(2):
                one = array.array("i", [5] * 3)
                gradients.ready(0, one)
                if comm.rank == 0:
                    gradients.unused(1)
                else:
                    other = array.array("i", [7] * 3)
                    gradients.ready(1, other)
                gradients.wait()
                self.assertEqual(list(one), [10] * 3)
                if comm.rank == 1:
                    self.assertEqual(list(other), [7] * 3)

        tutti.run_threads(2, rank)

    @unittest.skipUnless(numpy, "needs numpy")
    def test_several_types_and_arrays_that_nobody_else_keeps(self):
        def rank(comm):
            tensors = [numpy.zeros((3, 4), "f4"), numpy.zeros(5, "f2"), numpy.zeros(6, "f4")]
            gradients = comm.gradients(tensors, op="sum")
            self.assertEqual(gradients.facts["buckets"], 2)
            for step in range(3):
                for i, tensor in enumerate(tensors):
                    gradients.ready(i, numpy.full(tensor.shape, comm.rank + 1, tensor.dtype))
                gc.collect()
                gradients.wait()

        tutti.run_threads(2, rank)

    def test_wait_with_a_limit_and_test(self):
        def rank(comm):
            gradients = comm.gradients([(4, "float32")])
            data = floats([comm.rank] * 4)
            if comm.rank == 1:
                comm.barrier()
            gradients.ready(0, data)
            if comm.rank == 0:
                self.assertFalse(gradients.test())
                self.assertFalse(gradients.wait(0.01))
                with self.assertRaisesRegex(tutti.InvalidUsage, "marked ready already"):
                    gradients.ready(0, data)
                comm.barrier()
            self.assertTrue(gradients.wait(60))
            self.assertEqual(list(data), [0.5] * 4)

        tutti.run_threads(2, rank)


class Errors(unittest.TestCase):
    def test_of_a_step(self):
        def rank(comm):
            gradients = comm.gradients({"w": (4, "float32"), "b": (2, "float32")})
            with self.assertRaisesRegex(tutti.InvalidUsage, "no tensor was marked"):
                gradients.wait()
            with self.assertRaisesRegex(KeyError, 'ready: no tensor has the name \\\\?"x'):
                gradients.ready("x", floats([1]))
            with self.assertRaisesRegex(tutti.InvalidArgument, "tensor 2 does not exist: 2 were declared"):
                gradients.ready(2, floats([1]))
            with self.assertRaisesRegex(ValueError, r'ready: tensor 0 \("w"\) is float32, and data is float64'):
                gradients.ready("w", array.array("d", [1] * 4))
            with self.assertRaisesRegex(tutti.InvalidArgument, r'tensor 0 \("w"\) has 3 elements, but was declared with 4'):
                gradients.ready("w", floats([1] * 3))
            with self.assertRaises((TypeError, ValueError)):
                gradients.ready("w", b"1234567890123456")
            data = floats([1] * 4)
            gradients.ready("w", data)
            with self.assertRaisesRegex(tutti.InvalidUsage, r'tensor 0 \("w"\) was marked ready already'):
                gradients.unused("w")
            with self.assertRaisesRegex(tutti.InvalidUsage, r'tensor 1 \("b"\) was not marked'):
                gradients.wait()
            gradients.unused("b")
            gradients.wait()
            gradients.close()
            gradients.close()
            with self.assertRaisesRegex(tutti.InvalidUsage, "closed"):
                gradients.wait()

        tutti.run_threads(2, rank)

    def test_of_a_declaration(self):
        def rank(comm):
            for wrong, settings, error, text in (
                    ([(3, "float32")], {"op": "max"}, ValueError, 'op is "max": expected "avg", "sum"'),
                    ([(3, "float32")], {"wire": "f8"}, ValueError, 'wire is "f8": expected "plain", "float16"'),
                    ([(3, "float32")], {"order": "fast"}, ValueError, 'order is "fast": expected "free", "canonical"'),
                    ([(3, "float32")], {"order": "canonical", "wire": "float16"}, tutti.InvalidArgument,
                     "config.order goes with TUTTI_WIRE_PLAIN"),
                    ([(3, "float32")], {"order": ("free", "canonical")[comm.rank]}, tutti.Mismatch, "order is 1 on rank 0"),
                    ([(3, "float31")], {}, ValueError, 'no data type "float31"'),
                    ([(3,)], {}, ValueError, r"tensors\[0\] is \(3,\): expected an array, or a pair"),
                    ([3], {}, TypeError, r"tensors\[0\]"),
                    (5, {}, TypeError, "iter"),
                    ([(3, "float32")], {"bucket_bytes": -1}, tutti.InvalidArgument, "bucket_bytes is -1"),
                    ([(3, "float32")], {"timeout": 0.0}, ValueError, "timeout"),
                    ([], {}, tutti.InvalidArgument, "no tensor is declared"),
                    ([(3, "float64")], {"wire": "float16"}, tutti.InvalidArgument, "wire formats are for float32"),
                    ({"w": (3 + comm.rank, "float32")}, {}, tutti.Mismatch,
                     r'tensor 0 \("w"\) has 3 of float32 on rank 0 and 4 of float32 on rank 1')):
                with self.assertRaisesRegex(error, text):
                    comm.gradients(wrong, **settings)
            comm.barrier()

        tutti.run_threads(2, rank)

    def test_one_thread_at_a_time(self):
        def rank(comm):
            gradients = comm.gradients([(1, "float32")])
            if comm.rank == 0:
                gradients.ready(0, floats([1]))
                other = threading.Thread(target=gradients.wait)
                other.start()
                raised = False
                while not raised:
                    try:
                        gradients.test()
                    except tutti.InvalidUsage as error:
                        raised = "in use by another thread" in str(error)
                comm.barrier()
                other.join()
            else:
                comm.barrier()
                gradients.ready(0, floats([1]))
                gradients.wait()

        tutti.run_threads(2, rank)


class Ends(unittest.TestCase):
    def test_an_exception_ends_the_others(self):
        def rank(comm, inner):
            gradients = comm.gradients([(1, "float32")])
            if comm.rank == 1:
                if not inner:
                    raise KeyError("lost")
                with gradients:
                    raise KeyError("lost")
            gradients.ready(0, floats([1]))
            with self.assertRaisesRegex(tutti.Error, "KeyError"):
                gradients.wait()
                gradients.ready(0, floats([1]))

        for inner in (False, True):
            with self.assertRaises(KeyError):
                tutti.run_threads(2, rank, inner)

    def test_they_end_with_the_communicator(self):
        kept = []

        def rank(comm):
            kept.append(comm.gradients([(1, "float32")]))
            kept[-1].ready(0, floats([1]))
            comm.barrier()  # the end of a rank is heard in the others' calls

        tutti.run_threads(2, rank)
        self.assertTrue(all(one.closed for one in kept))
        self.assertRegex(repr(kept[0]), r"^<tutti.Gradients of 1 tensors, .*, closed>$")

    def run_script(self, script, **how):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "script.py")
            with open(path, "w") as file:
                file.write("import array, os, signal, sys, tutti\ncomm = tutti.Communicator()\n"
                           "gradients = comm.gradients([(3, 'float32')])\ndata = array.array('f', [1, 2, 3])\n" + script)
            return subprocess.run([sys.executable, "-m", "tutti.run", "-n", "2", "--no-label", path], capture_output=True,
                                  text=True, timeout=100, **how)

    def test_a_program_that_closes_nothing(self):
        for script in ("", "gradients.ready(0, data); gradients.wait()", "gradients.ready(0, data); comm.barrier()"):
            done = self.run_script(script)
            self.assertEqual((done.returncode, done.stderr), (0, ""), script)

    def test_a_forked_child_leaves_them_alone(self):
        done = self.run_script("if os.fork() == 0:\n    del gradients\n    os._exit(0)\nos.wait()\n"
                               "gradients.ready(0, data); gradients.wait(); print(list(data))")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "[1.0, 2.0, 3.0]\n" * 2, ""))

    def test_an_interrupt_ends_a_wait(self):
        done = self.run_script(
            "if comm.rank == 0:\n"
            "    signal.signal(signal.SIGALRM, lambda *_: sys.exit(7))\n    signal.setitimer(signal.ITIMER_REAL, 0.05)\n"
            "    gradients.ready(0, data)\n    gradients.wait()\n"
            "try:\n    comm.barrier()\nexcept tutti.Error:\n    sys.exit(8)")
        self.assertIn(done.returncode, (7, 8), done.stderr)


if __name__ == "__main__":
    unittest.main()
