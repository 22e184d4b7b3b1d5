# SPDX-License-Identifier: Apache-2.0
"""The examples that need no data, as their first lines say."""

import os
import subprocess
import sys
import unittest

try:
    import numpy
except ImportError:
    numpy = None

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples")


class Examples(unittest.TestCase):
    def run_example(self, name, *starter):
        done = subprocess.run([sys.executable, "-B", *starter, os.path.join(EXAMPLES, name)], capture_output=True, text=True, timeout=120)
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

    def test_awaiting(self):
        totals = [1 + 2 * i for i in range(10)]
        self.assertEqual(sorted(self.run_example("awaiting.py", "-m", "tutti.run", "-n", "2", "--no-label").splitlines()),
                         [f"rank {rank}: totals {totals}, and the loop went on" for rank in range(2)])


if __name__ == "__main__":
    unittest.main()
