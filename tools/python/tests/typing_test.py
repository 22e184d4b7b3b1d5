# SPDX-License-Identifier: Apache-2.0
"""mypy agrees with the package, its examples, and typing_uses.py; and its stubtest with the module that was built."""

import importlib.util
import inspect
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import tutti
from tutti import _core

TESTS = pathlib.Path(__file__).resolve().parent
PACKAGE = pathlib.Path(tutti.__file__).resolve().parent
ABSENT = [name for name in ("mypy", "numpy") if not importlib.util.find_spec(name)]


@unittest.skipIf(ABSENT, f"{' and '.join(ABSENT)} is not installed (pip install mypy numpy)")
class Typing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)

    def run_module(self, name, *arguments):
        done = subprocess.run([sys.executable, "-B", "-m", name, *arguments], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              cwd=self.folder.name, env={**os.environ, "MYPYPATH": str(PACKAGE.parent), "PYTHONPATH": str(PACKAGE.parent)})
        return done.returncode, done.stdout

    def test_the_package_its_examples_and_typical_uses(self):
        files = [*PACKAGE.glob("*.py"), PACKAGE / "_core.pyi", *(TESTS.parent / "examples").glob("*.py"), TESTS / "typing_uses.py"]
        code, out = self.run_module("mypy", "--strict", *map(str, files))
        self.assertEqual(code, 0, out)

    def test_the_stubs_fit_the_module(self):
        # What a stub cannot say: pybind11's metaclass, and that a class has no constructor. __buffer__ is there since Python 3.12.
        allowed = pathlib.Path(self.folder.name, "allowed")
        classes = [f"tutti._core.{name}" for name, thing in vars(_core).items() if inspect.isclass(thing)]
        allowed.write_text("\n".join([*classes, "tutti._core.Memory.__buffer__",
                                      *(f"{name}.__init__" for name in classes if not name.endswith(("Communicator", "Plan", "Memory")))]))
        code, out = self.run_module("mypy.stubtest", "--concise", "--ignore-unused-allowlist", "--allowlist", str(allowed), "tutti._core")
        self.assertEqual(code, 0, out)


if __name__ == "__main__":
    unittest.main()
