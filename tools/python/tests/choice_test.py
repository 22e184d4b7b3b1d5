#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""choice_test.py CMAKE SOURCE CXX: which interpreter cmake/TuttiPython.cmake chooses, and what the summary says of it.

The interpreters are environments of this one, with empty modules in the place of numpy, jsonschema and torch.
"""
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import unittest
import venv

CMAKE, SOURCE, CXX = sys.argv[1:4]
VERSION = platform.python_version()
ALL = ("numpy", "jsonschema", "torch")
PROJECT = f"""cmake_minimum_required(VERSION 3.25)
project(choice VERSION 1.0 LANGUAGES NONE)
list(APPEND CMAKE_MODULE_PATH "{SOURCE}/cmake")
set(CMAKE_CXX_COMPILER "{CXX}")
set(CMAKE_BUILD_TYPE Release)
set(TUTTI_BUILD_TESTS ON)
include(TuttiSummary)
include(TuttiPython)
if(COMMANDS)
  tutti_choose_python(chosen ${{COMMANDS}})
  tutti_summary(choice "${{chosen}}${{chosen_why}}")
endif()
tutti_summary(headers "${{Python3_INCLUDE_DIRS}}")
tutti_print_summary()
"""


class Choice(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = pathlib.Path(cls.temporary.name).resolve()
        (cls.folder / "CMakeLists.txt").write_text(PROJECT)
        cls.environment("whole", *ALL)
        cls.environment("first", "numpy", "jsonschema")
        cls.environment("second", "numpy", "jsonschema")
        cls.environment("bare")
        no_headers = cls.environment("no-headers", *ALL)
        (no_headers / "sitecustomize.py").write_text("import sysconfig\nsysconfig.get_path = lambda name: '/nowhere'\n")
        broken = cls.environment("broken", *ALL)
        (broken / "numpy.py").write_text("import nothing_of_this_name\n")

    @classmethod
    def environment(cls, name, *modules):
        """Makes an interpreter that has these modules; the folder of its modules."""
        venv.create(cls.folder / name, symlinks=True)
        modules_folder = next((cls.folder / name).glob("lib/python*/site-packages"))
        for module in modules:
            (modules_folder / f"{module}.py").touch()
        return modules_folder

    def python(self, name):
        return str(self.folder / name / "bin/python3")

    def configure(self, *options, path=os.environ["PATH"], fails=False):
        """The lines of the summary by their names, or what CMake prints where it fails."""
        done = subprocess.run([CMAKE, "-S", str(self.folder), "-B", str(self.folder / "build"), *options], text=True,
                              env={**os.environ, "PATH": path}, timeout=100, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode != 0, fails, done.stdout)
        return done.stdout if fails else dict(re.findall(r"^--   (\w+) +(.*)$", done.stdout, re.MULTILINE))

    def choose(self, *names):
        """Which of them is chosen, and why not another."""
        commands = [self.python(name) for name in names]
        chosen, _, why = self.configure(f"-DPython3_EXECUTABLE={self.python('whole')}", f"-DCOMMANDS={';'.join(commands)}")[
            "choice"].partition(";")
        return chosen.removeprefix(f"{self.folder}/").removesuffix("/bin/python3"), why.replace(f"{self.folder}/", "")

    def test_the_first_of_equals(self):
        self.assertEqual(self.choose("first", "second")[0], "first")
        self.assertEqual(self.choose("second", "first")[0], "second")

    def test_the_one_that_has_more(self):
        for first, lacks in (("bare", "numpy, jsonschema, torch"), ("broken", "numpy"), ("no-headers", "headers"), ("first", "torch")):
            chosen, why = self.choose(first, "whole")
            self.assertEqual(chosen, "whole", (first, why))
            self.assertTrue(why.endswith(f", chosen before {first}/bin/python3, which has no {lacks}"), why)
            self.assertEqual(self.choose("whole", first)[0], "whole")

    def test_headers_before_modules(self):
        chosen, why = self.choose("no-headers", "bare")
        self.assertEqual(chosen, "bare")
        self.assertTrue(why.endswith("which has no headers; it has no numpy, jsonschema, torch"), why)

    def test_what_does_not_run(self):
        self.assertEqual(self.choose("nowhere", "first")[0], "first")
        self.assertEqual(self.choose("nowhere"), ("", ""))

    def test_the_user_s_own(self):
        """It is taken whatever it lacks, and another one the next time."""
        for name in ("bare", "first", "bare"):
            summary = self.configure(f"-DPython3_EXECUTABLE={self.python(name)}", "-DCOMMANDS=")
            lacks = "torch" if name == "first" else "numpy, jsonschema, torch"
            self.assertEqual(summary["Python"], f"{self.python(name)} ({VERSION}); it has no {lacks}")
            self.assertIn("python3", summary["headers"])

    def test_the_one_in_path(self):
        """No other one has more than all."""
        summary = self.configure("-DPython3_EXECUTABLE=", "-DCOMMANDS=", path=f"{self.folder}/whole/bin:{os.environ['PATH']}")
        self.assertEqual(summary["Python"], f"{self.python('whole')} ({VERSION})")

    def test_the_user_s_own_does_not_run(self):
        wrong = self.configure("-DPython3_EXECUTABLE=/bin/false", fails=True)
        self.assertIn("Python3_EXECUTABLE is /bin/false, which does not run", " ".join(wrong.split()))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "--verbose"])
