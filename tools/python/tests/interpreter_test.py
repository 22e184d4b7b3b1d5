# SPDX-License-Identifier: Apache-2.0
"""An interpreter that the package was not built for learns which one it was built for, and what to do."""

import importlib.machinery
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import unittest

import tutti
from tutti import _build, _core


class Interpreter(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.package = pathlib.Path(folder.name, "tutti")
        self.package.mkdir()
        for file in pathlib.Path(tutti.__file__).parent.glob("*.py"):
            shutil.copy(file, self.package)

    def import_it(self):
        return subprocess.run([sys.executable, "-B", "-c", "import tutti; print('imported', tutti.__file__)"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
                              env={**os.environ, "PYTHONPATH": str(self.package.parent)})

    def test_built_for_this_one(self):
        """These tests are started by the interpreter that CMake chose."""
        self.assertTrue(os.path.samefile(_build.PYTHON, sys.executable), (_build.PYTHON, sys.executable))
        self.assertEqual(_build.VERSION, platform.python_version())
        self.assertEqual(_build.MEND, "cmake --preset release -DPython3_EXECUTABLE={python} && cmake --build build")

    def test_another_interpreter(self):
        """The extension module has another interpreter's suffix."""
        shutil.copy(_core.__file__, self.package / "_core.cpython-299-x86_64-linux-gnu.so")
        (self.package / "_build.py").write_text('PYTHON = "/opt/python2.99"\nVERSION = "2.99.1"\nMEND = "{python} make"\n')
        done = self.import_it()
        self.assertEqual(done.returncode, 1, done.stdout)
        last = done.stdout.splitlines()[-1]
        self.assertEqual(last, f"ImportError: tutti: {self.package} is for /opt/python2.99 (2.99.1), and has no extension module "
                         f"for this one, {sys.executable} ({platform.python_version()}): start that one, or build for this one, "
                         f"in Tutti's folder: {sys.executable} make")
        self.assertNotIn("ModuleNotFoundError", done.stdout)

    def test_an_extension_module_that_does_not_load(self):
        """The loader's own words, since the interpreter is the right one."""
        (self.package / f"_core{importlib.machinery.EXTENSION_SUFFIXES[0]}").write_bytes(b"no library")
        done = self.import_it()
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stdout.splitlines()[-1], "^ImportError: .*_core.*(file too short|invalid ELF header)")

    def test_the_right_interpreter(self):
        """The copy is complete: what the other tests see is not their own fault."""
        shutil.copy(_core.__file__, self.package)
        done = self.import_it()
        self.assertEqual(done.stdout, f"imported {self.package / '__init__.py'}\n")
