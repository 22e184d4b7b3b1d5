# SPDX-License-Identifier: Apache-2.0
"""torch's own tests of torch.distributed (torch.testing, shipped with torch), those that run on Gloo, on Tutti.

    python3 torch_suite.py                tutti in the place of Gloo
    python3 torch_suite.py --gloo         Gloo itself
    python3 torch_suite.py -k all_reduce  only these

The last line counts. The suite skips by the backend's name, so Tutti's groups are made where the tests ask for Gloo's.
"""

import os
import sys
import types
import unittest

os.environ.update(BACKEND="gloo", WORLD_SIZE="3", OMP_NUM_THREADS="1", MASTER_ADDR="127.0.0.1")
os.environ.setdefault("TEMP_DIR", os.environ.get("TMPDIR", "/tmp"))
own = "--gloo" not in sys.argv
if not own:
    sys.argv.remove("--gloo")
try:
    import expecttest  # noqa: F401
except ImportError:  # the suite wants it at import; its tests of torch.distributed do not use it
    sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase, ACCEPT=True)

import torch  # noqa: E402
import torch.distributed.distributed_c10d as c10d  # noqa: E402
from torch.testing._internal.distributed import distributed_test as suite  # noqa: E402

import tutti.torch  # noqa: E402

if own:
    original, wrapper, events = c10d.ProcessGroupGloo, c10d._create_process_group_wrapper, suite.get_profiling_event

    def wrapped(*arguments, **options):  # torch's debugging layer has a group of Gloo for itself
        c10d.ProcessGroupGloo = original
        try:
            return wrapper(*arguments, **options)
        finally:
            c10d.ProcessGroupGloo = in_place_of_gloo

    def in_place_of_gloo(store, rank, size, timeout):
        return tutti.torch.ProcessGroupTutti(store, rank, size, timeout.total_seconds(), "suite")
    c10d.ProcessGroupGloo, c10d._create_process_group_wrapper = in_place_of_gloo, wrapped

    def renamed(name, profiler):
        found = events(name.replace("gloo:", "tutti:"), profiler)
        for event in found:
            event.name = event.name.replace("tutti:", "gloo:")
        return found
    suite.get_profiling_event = renamed


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
    print(f"{'tutti' if own else 'gloo'}: {result.passed} passed, {len(bad)} failed, {len(result.skipped)} skipped")
    sys.exit(bool(bad))
