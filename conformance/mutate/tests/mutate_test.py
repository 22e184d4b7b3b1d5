#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""usage: mutate_test.py    The mutator over a plugin of one file, judged by a program that calls its functions."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
SKIPPED = 77
PLUGIN = """#include <atomic>
#include <cstdint>
#include <mutex>
static std::mutex mutex; static void log(const char*, int) {}
static uint64_t sum(uint64_t n) {
  uint64_t all = 0;
  for (uint32_t i = 1; i <= n; ++i) all += i;
  return all;
}
static void put(std::atomic<int>& to, int value) {
  const std::lock_guard lock(mutex);
  if (value < 0 || value > 100)
    value = 100;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  to.store(value, std::memory_order_release);
}
extern "C" uint64_t answer(uint64_t n) {
  std::atomic<int> bound{0};
  put(bound, static_cast<int>(n)); log("an answer", 7);
  return sum(static_cast<uint64_t>(bound.load(std::memory_order_acquire)));
}
"""
# In the place of tutti-conform: lists one case, and runs it as the suite's processes do.
JUDGE = """#!/usr/bin/python3
import ctypes, os, sys
if "--list" in sys.argv:
    print("contract/transport/toy/answer  T-1")
    sys.exit(0)
library = ctypes.CDLL(sys.argv[3])
library.answer.restype = ctypes.c_uint64
library.answer.argtypes = [ctypes.c_uint64]
wrong = [n for n in (0, 1, 50, 99, 100, 101) if library.answer(n) != sum(range(min(n, 100) + 1))]
os.write(4, (f"fail\\nT-1\\nwrong for {wrong}" if wrong else "pass\\n\\n").encode())
"""
NINJA = """rule cc
  command = c++ -O1 -std=c++20 -fPIC -o $out -c $in
rule so
  command = : && c++ -shared -o $out $in && :
build toy.o: cc {source}
build lib/tutti/libtutti-toy.so: so toy.o
"""


class Mutator(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.addCleanup(self.place.cleanup)
        self.tree = Path(self.place.name, "tree")
        self.build = Path(self.place.name, "made")
        self.source = self.tree / "toy" / "src" / "toy.cpp"
        for folder in (self.source.parent, self.build / "bin"):
            folder.mkdir(parents=True)
        self.source.write_text(PLUGIN)
        (self.build / "build.ninja").write_text(NINJA.format(source=self.source))
        (self.build / "CMakeCache.txt").write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={self.tree}\n")
        judge = self.build / "bin" / "tutti-conform"
        judge.write_text(JUDGE)
        judge.chmod(0o755)
        subprocess.run(["ninja", "-C", self.build, "lib/tutti/libtutti-toy.so"], check=True, capture_output=True)

    def mutate(self, *more):
        command = [sys.executable, HERE.parent / "mutate", "--build", self.build, "--plugin", "toy"]
        return subprocess.run([*command, *more], capture_output=True, text=True)

    def test_every_operator_finds_its_place(self):
        listed = self.mutate("--sample", "0", "--list").stdout
        for expected in (
            "toy.cpp:6: narrow in sum: uint64_t -> uint8_t",
            "toy.cpp:6: share in sum:  -> static",
            "toy.cpp:7: compare in sum: <= -> <",
            "toy.cpp:7: constant in sum: 1 -> 2",
            "toy.cpp:7: drop in sum: all += i -> ",
            "toy.cpp:11: lock in put: const std::lock_guard lock(mutex); -> ;",
            "toy.cpp:12: logic in put: || -> &&",
            "toy.cpp:12: negate in put: value < 0 || value > 100 -> !(value < 0 || value > 100)",
            "toy.cpp:14: fence in put: std::atomic_thread_fence(std::memory_order_seq_cst) -> ",
            "toy.cpp:15: order in put: std::memory_order_release -> std::memory_order_relaxed",
            "toy.cpp:15: return in put: to.store(value, std::memory_order_release) -> return",
            "swap in put: std::atomic_thread_fence",
        ):
            self.assertIn(expected, listed)
        self.assertIn("in: for (uint32_t i = [1]; i <= n; ++i) all += i;", listed)
        self.assertNotIn("7 -> 8", listed)  # the words of a log
        self.assertNotIn("drop in answer: log", listed)

    def test_right_and_wrong_mutants_are_told_apart(self):
        report = Path(self.place.name, "report.json")
        only = ("--only", "drop", "--only", "narrow", "--only", "lock", "--only", "order")
        run = self.mutate("--sample", "0", *only, "--report", report)
        self.assertEqual(run.returncode, 0, run.stderr)
        verdicts = {tuple(v["mutant"][1:5]): v["verdict"] for v in json.loads(report.read_text())}
        self.assertEqual(verdicts["sum", "drop", "all += i", ""], "killed")
        narrowed = [v["verdict"] for v in json.loads(report.read_text()) if v["mutant"][1:3] == ["sum", "narrow"]]
        self.assertIn("killed", narrowed)
        self.assertEqual(verdicts["put", "lock", "const std::lock_guard lock(mutex);", ";"], "survives")  # one thread asks
        self.assertEqual(verdicts["answer", "order", "std::memory_order_acquire", "std::memory_order_relaxed"], "same code")
        told = {tuple(v["mutant"][1:5]): v for v in json.loads(report.read_text())}
        self.assertIn("-  const std::lock_guard lock(mutex);", told["put", "lock", "const std::lock_guard lock(mutex);", ";"]["diff"])
        self.assertEqual(told["sum", "drop", "all += i", ""]["clause"], "T-1")
        self.assertEqual(self.source.read_text(), PLUGIN)
        self.assertRegex(run.stdout, r"\d+ of \d+ mutants killed, \d+\.\d %")

    def test_a_sample_is_that_of_its_seed(self):
        first, again = self.mutate("--sample", "9", "--list", "--seed", "5"), self.mutate("--sample", "9", "--list", "--seed", "5")
        other = self.mutate("--sample", "9", "--list", "--seed", "6")
        self.assertEqual(first.stdout, again.stdout)
        self.assertNotEqual(first.stdout, other.stdout)
        self.assertEqual(len(first.stdout.splitlines()), 10)

    def test_survivors_are_judged_again(self):
        report = Path(self.place.name, "report.json")
        self.mutate("--only", "lock", "--sample", "0", "--report", report)
        self.assertIn("toy: 1 of", self.mutate("--again", report).stdout)

    def test_a_report_is_continued(self):
        report = Path(self.place.name, "report.json")
        self.mutate("--sample", "1", "--report", report)
        before = json.loads(report.read_text())
        run = self.mutate("--sample", "2", "--report", report)
        after = json.loads(report.read_text())
        self.assertEqual(after[: len(before)], before)
        self.assertNotRegex(run.stdout, r"(?m)^ +1 ")  # is not judged again
        self.assertEqual(sum(v["verdict"] in ("killed", "survives") for v in after), 2)

    def test_an_original_that_is_wrong_is_refused(self):
        self.source.write_text(PLUGIN.replace("all += i", "all -= i"))
        run = self.mutate("--sample", "3")
        self.assertEqual(run.returncode, 1)
        self.assertIn("the original does not pass", run.stderr)
        self.assertIn("answer: T-1: wrong for", run.stderr)

    def test_wrong_arguments(self):
        self.assertIn("there is no such file", self.mutate("--also", "nowhere").stderr)


if __name__ == "__main__":
    debian = "/usr/bin/python3"  # the package belongs to this one
    if importlib.util.find_spec("clang") is None and Path(debian).exists() and not Path(sys.executable).samefile(debian):
        os.execv(debian, [debian, *sys.argv])
    if importlib.util.find_spec("clang") is None:
        print("skipped: the mutator needs python3-clang-19 (tools/packages-full)")
        sys.exit(SKIPPED)
    unittest.main()
