# SPDX-License-Identifier: Apache-2.0
"""The examples, as their first lines say."""

import os
import re
import subprocess
import sys
import unittest

try:
    import numpy
except ImportError:
    numpy = None

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples")


class Examples(unittest.TestCase):
    def run_example(self, name, *starter, arguments=()):
        done = subprocess.run([sys.executable, "-B", *starter, os.path.join(EXAMPLES, name), *arguments], capture_output=True, text=True,
                              timeout=120)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    @unittest.skipIf(numpy is None, "numpy is not installed (python3-numpy)")
    def test_the_notebook(self):
        self.assertRegex(self.run_example("notebook.py"), r"^means of the columns: \[1.0, 2.0, 3.0\]\n"
                         r"names: \['rank 0', 'rank 1', 'rank 2'\]\n"
                         r"served: .*all_reduce by \w+.*\n"
                         r"<tutti.Proof, ok, .*> and 1 MiB a rank takes \d+ us at 10 GB/s\n$")

    @unittest.skipIf(numpy is None, "numpy is not installed (python3-numpy)")
    def test_overlap(self):
        self.assertEqual(self.run_example("overlap.py", "-m", "tutti.run", "-n", "2", "--no-label"), "8 blocks of 50000 numbers: right\n")

    @unittest.skipIf(numpy is None, "numpy is not installed (python3-numpy)")
    def test_ways_to_share_a_training(self):
        for name, sent in (("tensor_parallel", 32256), ("zero", 70800), ("pipeline", 32768)):
            with self.subTest(name):
                said = self.run_example(f"{name}.py", "-m", "tutti.run", "-n", "4", "--no-label", arguments=["2"])
                self.assertRegex(said, r"^4 ranks: loss \d\.\d+, held-out (6|7|8)\d\.\d\d %; a step sends \d+ bytes, mean of the ranks\n"
                                       r"1 rank:  loss \d\.\d+\n$")
                self.assertGreaterEqual(int(re.search(r"sends (\d+)", said)[1]), sent)  # the formulas' least

    def test_awaiting(self):
        totals = [1 + 2 * i for i in range(10)]
        self.assertEqual(sorted(self.run_example("awaiting.py", "-m", "tutti.run", "-n", "2", "--no-label").splitlines()),
                         [f"rank {rank}: totals {totals}, and the loop went on" for rank in range(2)])


if __name__ == "__main__":
    unittest.main()
