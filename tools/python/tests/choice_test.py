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
import sysconfig
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
foreach(commands IN LISTS CHOICES)
  string(REPLACE "," ";" list "${{commands}}")
  tutti_choose_python(chosen ${{list}})
  tutti_summary("${{commands}}" "${{chosen}}${{chosen_why}}")
endforeach()
tutti_summary(headers "${{Python3_INCLUDE_DIRS}}")
tutti_print_summary()
"""
LACKING = {"bare": "numpy, jsonschema, torch", "broken": "numpy", "no-headers": "headers", "first": "torch"}
CHOICES = [("first", "second"), ("second", "first"), *((name, "whole") for name in LACKING), *(("whole", name) for name in LACKING),
           ("no-headers", "bare"), ("nowhere", "first"), ("nowhere",)]


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
        (no_headers / "headers.pth").write_text("import sysconfig; sysconfig.get_path = lambda name: '/nowhere'\n")
        (cls.folder / "headers").symlink_to(sysconfig.get_path("include"))
        linked = cls.environment("linked", *ALL)
        (linked / "headers.pth").write_text(f"import sysconfig; sysconfig.get_path = lambda name: '{cls.folder}/headers'\n")
        broken = cls.environment("broken", *ALL)
        (broken / "numpy.py").write_text("import nothing_of_this_name\n")
        commands = [",".join(map(cls.python, names)) for names in CHOICES]
        found = cls().configure(f"-DPython3_EXECUTABLE={cls.python('whole')}", f"-DCHOICES={';'.join(commands)}")
        cls.choices = {names: found[command] for names, command in zip(CHOICES, commands)}

    @classmethod
    def environment(cls, name, *modules):
        """Makes an interpreter that has these modules; the folder of its modules."""
        venv.create(cls.folder / name, symlinks=True)
        modules_folder = next((cls.folder / name).glob("lib/python*/site-packages"))
        for module in modules:
            (modules_folder / f"{module}.py").touch()
        return modules_folder

    @classmethod
    def python(cls, name):
        return str(cls.folder / name / "bin/python3")

    def configure(self, *options, path=os.environ["PATH"], fails=False):
        """The lines of the summary by their names, or what CMake prints where it fails."""
        done = subprocess.run([CMAKE, "-S", str(self.folder), "-B", str(self.folder / "build"), *options], text=True,
                              env={**os.environ, "PATH": path}, timeout=100, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode != 0, fails, done.stdout)
        return done.stdout if fails else dict(re.findall(r"^--   (\S+) +(.*)$", done.stdout, re.MULTILINE))

    def choose(self, *names):
        """Which of them is chosen, and why not another."""
        chosen, _, why = self.choices[names].partition(";")
        return chosen.removeprefix(f"{self.folder}/").removesuffix("/bin/python3"), why.replace(f"{self.folder}/", "")

    def test_the_first_of_equals(self):
        self.assertEqual(self.choose("first", "second")[0], "first")
        self.assertEqual(self.choose("second", "first")[0], "second")

    def test_the_one_that_has_more(self):
        for first, lacks in LACKING.items():
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
        """It is taken whatever it lacks, and another one the next time, with its own headers."""
        headers = sysconfig.get_path("include")
        for name, lacks, include in (("bare", "; it has no numpy, jsonschema, torch", headers), ("linked", "", f"{self.folder}/headers"),
                                     ("first", "; it has no torch", headers)):
            summary = self.configure(f"-DPython3_EXECUTABLE={self.python(name)}", "-DCHOICES=")
            self.assertEqual((summary["Python"], summary["headers"]), (f"{self.python(name)} ({VERSION}){lacks}", include))

    def test_the_one_in_path(self):
        """No other one has more than all."""
        summary = self.configure("-DPython3_EXECUTABLE=", "-DCHOICES=", path=f"{self.folder}/whole/bin:{os.environ['PATH']}")
        self.assertEqual(summary["Python"], f"{self.python('whole')} ({VERSION})")

    def test_the_user_s_own_does_not_run(self):
        wrong = self.configure("-DPython3_EXECUTABLE=/bin/false", fails=True)
        self.assertIn("Python3_EXECUTABLE is /bin/false, which does not run", " ".join(wrong.split()))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "--verbose"])
