# SPDX-License-Identifier: Apache-2.0
"""torch's own tests of torch.distributed (torch.testing, shipped with torch), those that run on Gloo, on Tutti.

    python3 torch_suite.py                tutti in the place of Gloo
    python3 torch_suite.py --gloo         Gloo itself
    python3 torch_suite.py -k all_reduce  only these

The last line counts. The suite is read with the backend's name exchanged: every "gloo" is "tutti", and every GLOO of
dist.Backend is TUTTI, in what it skips, asks for and expects. The tests of all_to_all, which it has for MPI, run too.
"""

import importlib.util
import os
import re
import sys
import types
import unittest

own = "--gloo" not in sys.argv
if not own:
    sys.argv.remove("--gloo")
NAME = "tutti" if own else "gloo"
os.environ.update(BACKEND=NAME, WORLD_SIZE="4", OMP_NUM_THREADS="1", MASTER_ADDR="127.0.0.1")
os.environ.setdefault("TEMP_DIR", os.environ.get("TMPDIR", "/tmp"))
try:
    import expecttest  # noqa: F401
except ImportError:  # the suite wants it at import; its tests of torch.distributed do not use it
    sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase, ACCEPT=True)

import torch  # noqa: E402
from torch.testing._internal.common_distributed import DistTestCases  # noqa: E402

import tutti.torch  # noqa: E402

EXCHANGED = [
    (r"\bgloo\b", "tutti"), (r"\bBackend\.GLOO\b", "Backend.TUTTI"),
    (r'BACKEND != "mpi", "Only MPI supports', 'False, "')]  # all_to_all
if torch.__version__ < "2.14":  # its own monitored_barrier takes Gloo's groups alone
    EXCHANGED.append((r"\bdist\.monitored_barrier\(", "tutti.torch.monitored_barrier("))


def read_suite(name):
    """The module, read with the name exchanged."""
    found = importlib.util.find_spec(name)
    text = found.loader.get_source(name)
    for pattern, replacement in EXCHANGED if own else []:
        text, count = re.subn(pattern, replacement, text)
        assert count, f"{name} of torch {torch.__version__} has no {pattern}"
    module = sys.modules[name] = importlib.util.module_from_spec(found)
    module.tutti = tutti
    exec(compile(text, found.origin, "exec"), module.__dict__)
    return module


for backends in DistTestCases.backend_feature.values():
    if "gloo" in backends:
        backends.add("tutti")
DistTestCases.backend_feature.setdefault("plugin", set()).add("tutti")
suite = read_suite("torch.testing._internal.distributed.distributed_test")


class Suite(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


class Results(unittest.TextTestResult):
    passed = 0

    def addSuccess(self, test):
        self.passed += 1
        super().addSuccess(test)


if __name__ == "__main__":
    program = unittest.main(exit=False, testRunner=unittest.TextTestRunner(resultclass=Results, verbosity=2))
    result = program.result
    bad = sorted({test.id().split(".")[-1] for test, _ in result.failures + result.errors})
    print("not passed:", *bad)
    print(f"{NAME}: {result.passed} passed, {len(bad)} failed, {len(result.skipped)} skipped")
    sys.exit(bool(bad))
