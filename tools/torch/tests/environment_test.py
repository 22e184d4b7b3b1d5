#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""environment_test.py TORCH_ENVIRONMENT: what the script asks of venv and pip, by an interpreter that only writes it down."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = sys.argv[1]
INTERPRETER = """#!/bin/sh
echo "${0##*/} $*" >>"$LOG"
case "$1 $2" in
"-m venv")
  for folder; do :; done
  mkdir -p "$folder/bin"
  cp "$0" "$folder/bin/python3" ;;
"-m pip") exit "$PIP_STATUS" ;;
"-c "*) echo 2.13.0+cpu; exit "$TORCH_STATUS" ;;
esac
"""


class Environment(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()
        self.python = self.folder / "python"
        self.python.write_text(INTERPRETER)
        self.python.chmod(0o755)

    def run_it(self, *arguments, pip=0, torch=0):
        """The status, what is printed, and the calls of the interpreters."""
        log = self.folder / "log"
        log.write_text("")
        done = subprocess.run([SCRIPT, *arguments], cwd=self.folder, text=True, timeout=30, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT,
                              env={**os.environ, "LOG": str(log), "PIP_STATUS": str(pip), "TORCH_STATUS": str(torch)})
        return done.returncode, done.stdout, log.read_text().splitlines()

    def test_a_new_one(self):
        status, printed, calls = self.run_it("--python", str(self.python), "--system-site-packages", "a folder")
        self.assertEqual(status, 0, printed)
        self.assertEqual(calls[0], "python -m venv --system-site-packages a folder")
        self.assertRegex(calls[1], "^python3 -m pip install .*torch==2.13.0 numpy jsonschema mypy ml_dtypes$")
        self.assertIn("torch 2.13.0+cpu is in", printed)
        self.assertEqual(printed.splitlines()[-1].split(None, 3)[-1].replace("\\", ""),
                         f"-DPython3_EXECUTABLE={self.folder}/a folder/bin/python3")

    def test_one_that_is_there(self):
        self.run_it("--python", str(self.python), "folder")
        status, printed, calls = self.run_it("--torch", "torch==2.2.2", "folder")
        self.assertEqual(status, 0, printed)
        self.assertEqual(len(calls), 2)
        self.assertIn(" torch==2.2.2 ", calls[0])

    def test_failures(self):
        for status_of, words in (({"pip": 1}, "pip did not install torch==2.13.0"), ({"torch": 1}, "cannot be imported")):
            status, printed, _ = self.run_it("--python", str(self.python), "folder", **status_of)
            self.assertEqual(status, 1, printed)
            self.assertIn(words, printed)

    def test_wrong_usage(self):
        for arguments, words in (((), "expected a folder"), (("a", "b"), "expected one folder"), (("--gpu", "a"), "unknown option --gpu"),
                                 (("a", "--torch"), "--torch needs a value")):
            status, printed, calls = self.run_it(*arguments)
            self.assertEqual((status, calls), (2, []), printed)
            self.assertIn(words, printed)
        self.assertIn("usage: tools/torch-environment", self.run_it("--help")[1])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "--verbose"])
