#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rules for tests of the gate, on trees of one or two files: what is planted is refused by name, and what is like it is not."""
import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import test_rules  # noqa: E402

CASE = "TEST(Planted, {name}) {{\n{body}\n}}\n"
SLEEP = "  std::this_thread::sleep_for(std::chrono::milliseconds(50));"
DEADLINE = "  options.timeout_ns = 1'000'000'000;"


def case(body, name="Case"):
    return CASE.format(name=name, body=body)


class Rules(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)

    def put(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def check(self, *build):
        faults = test_rules.check(self.root, *build)[0]
        return bool(faults), "\n".join(faults)

    def assert_refused(self, *words):
        status, said = self.check()
        self.assertTrue(status, said)
        for word in words:
            self.assertIn(word, said)

    def assert_accepted(self, build=()):
        status, said = self.check(*build)
        self.assertFalse(status, said)

    def refuses(self, rule, line, path="core/tests/planted_test.cpp"):
        with self.subTest(line=line):
            self.put(path, case(line) if path.endswith("cpp") else line)
            self.assert_refused(f"{path}:{2 if path.endswith('cpp') else 1}: {rule}: {line.strip()}\n    ")
            (self.root / path).unlink()

    def accepts(self, body, path="core/tests/planted_test.cpp"):
        with self.subTest(body=body):
            self.put(path, case(body) if path.endswith("cpp") else body)
            self.assert_accepted()
            (self.root / path).unlink()

    def test_a_planted_sleep(self):
        self.refuses("sleep", SLEEP)
        self.refuses("sleep", "  if (rank == 1) usleep(300'000);")
        self.refuses("sleep", "time.sleep(0.5)", "tools/tests/planted_test.py")
        self.refuses("sleep", "start & sleep 2", "tools/tests/planted_test.sh")
        self.refuses("sleep", '  run("kill -9 $$; sleep 0.5; echo gone");')

    def test_a_look_again_and_again_is_no_sleep(self):
        self.accepts("  while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));")
        self.accepts("  while (!over) {\n    look();\n    std::this_thread::sleep_for(std::chrono::milliseconds(1));\n  }")
        self.accepts('  run("echo $$; sleep 60");')
        self.accepts(f"  // {SLEEP.strip()}")
        self.refuses("sleep", "  for (int i = 0; i < 3; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));")

    def test_a_planted_deadline(self):
        self.refuses("deadline", DEADLINE)
        self.refuses("deadline", "  options.timeout_ns = 300000000;")
        self.refuses("deadline", "  run_ranks(2, body, {nullptr, nullptr, 0, 500'000'000});")
        self.refuses("deadline", "  EXPECT_FALSE(request.wait_for(std::chrono::seconds(1)));")
        self.refuses("deadline", "  make_bootstrap(meeting, 300ms);")
        self.refuses("deadline", '  setenv("TUTTI_TIMEOUT", "2", 1);')
        self.refuses("deadline", "  ASSERT_EQ(::poll(&waiting, 1, 1000), 1);")
        self.refuses("deadline", "run(TUTTI_HOST_TIMEOUT=3)", "tools/tests/planted_test.py")

    def test_deadlines_that_nobody_reaches(self):
        self.accepts("  options.timeout_ns = 60'000'000'000;")
        self.accepts("  make_bootstrap(meeting, 60s);")
        self.accepts('  setenv("TUTTI_TIMEOUT", "30", 1);')
        self.accepts("  std::vector<float> data(1'000'000);")
        self.accepts("  // It had 300ms.")

    def test_a_planted_verdict(self):
        self.refuses("clock", "  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));")
        self.refuses("clock", "  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);")
        self.refuses("clock", "assert time.monotonic() - begin < 30", "tools/tests/planted_test.py")
        self.put("core/tests/planted_test.cpp", "constexpr std::chrono::seconds soon(20);\n" + case(
            "  const auto begin = Clock::now();\n  EXPECT_LT(Clock::now() - begin, soon);"))
        self.assert_refused("planted_test.cpp:4: clock: ")

    def test_a_minute_is_no_verdict(self):
        self.accepts("  const auto begin = Clock::now();\n  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(60));")
        self.accepts("  const auto limit = Clock::now() + std::chrono::minutes(1);\n  while (!over && Clock::now() < limit) look();")

    def test_a_port_that_is_not_held(self):
        self.refuses("port", "  const uint16_t dead = Listener().port();")
        self.refuses("port", '  make_bootstrap("tcp://127.0.0.1:4711");')
        self.refuses("port", "port = free_port()", "tools/tests/planted_test.py")

    def test_seeds_of_chance(self):
        self.refuses("random", "  std::mt19937 random(std::random_device{}());")
        self.refuses("random", "seed=$RANDOM", "tools/tests/planted_test.sh")
        self.refuses("random", "noise = os.urandom(8)", "tools/tests/planted_test.py")
        self.accepts("  std::mt19937 random(7);")
        self.accepts("random.Random(7).random()", "tools/tests/planted_test.py")

    def test_real_time_cases_are_free(self):
        self.put("core/tests/planted_test.cpp", f"void real_time_wait() {{\n{SLEEP}\n}}\n"
                 + case(f"{SLEEP}\n{DEADLINE}\n  real_time_wait();", "RealTimeCase"))
        self.assert_accepted()
        self.put("core/tests/planted_test.cpp", case(DEADLINE, "RealTimeCase") + case("  check();") + case(SLEEP, "Other"))
        self.assert_refused("planted_test.cpp:8: sleep: ")

    def test_cases_by_a_virtual_clock_are_free_of_times(self):
        self.accepts(f"  const VirtualTime time;\n{SLEEP}\n{DEADLINE}")
        self.refuses("deadline", DEADLINE)
        self.put("core/tests/planted_test.cpp", case("  const VirtualTime time;\n  std::random_device seed;") + case(SLEEP, "Other"))
        self.assert_refused("planted_test.cpp:3: random", "planted_test.cpp:6: sleep")

    def test_what_they_share_serves_them_only(self):
        self.put("core/tests/planted_test.cpp", f"void real_time_wait() {{\n{SLEEP}\n}}\n" + case("  real_time_wait();"))
        self.assert_refused("planted_test.cpp:5: helper: real_time_wait();")

    def test_other_sources_are_none_of_its(self):
        self.put("core/src/waiter.cpp", case(SLEEP))
        self.put("build/core/tests/planted_test.cpp", case(SLEEP))
        self.assert_accepted()

    def test_the_allow_list_only_shrinks(self):
        self.put("core/tests/planted_test.cpp", case(SLEEP))
        entry = r"core/tests/planted_test.cpp: milliseconds\(50\): any order passes"
        self.put("tools/test_rules/allowed.txt", f"# a comment\n{entry}\n")
        self.assert_accepted()
        self.put("core/tests/planted_test.cpp", case("  check();"))
        self.assertIn("allowed.txt:2: nothing in core/tests/planted_test.cpp needs this entry any more", self.check()[1])
        self.put("tools/test_rules/allowed.txt", "core/tests/planted_test.cpp sleeps\n")
        self.assertIn("allowed.txt:1: an entry is PATH: PATTERN: reason", self.check()[1])

    def build(self, tests, program="planted_test"):
        """A build folder in which these tests have these labels."""
        lines = ""
        for name, (command, labels) in tests.items():
            lines += f'add_test({name} "{command[0]}"' + "".join(f' "{word}"' for word in command[1:]) + ")\n"
            lines += f'set_tests_properties({name} PROPERTIES LABELS "{labels}")\n' if labels else ""
        self.put("build/CTestTestfile.cmake", lines)
        source = self.root / "core/tests/planted_test.cpp"
        self.put("build/compile_commands.json", json.dumps(
            [{"file": str(source), "command": f"c++ -o core/CMakeFiles/{program}.dir/planted_test.cpp.o -c {source}"}]))
        return [self.root / "build"]

    def test_programs_with_real_time_cases_are_two_tests(self):
        self.put("core/tests/planted_test.cpp", case(SLEEP, "RealTimeCase"))
        gate, soak = ["/bin/planted_test", "--gtest_filter=-*RealTime*"], ["/bin/planted_test", "--gtest_filter=*RealTime*"]
        good = {"planted_test": (gate, ""), "planted_test.real_time": (soak, "soak")}
        self.assert_accepted(self.build(good))
        for bad, words in (({"planted_test": (gate, "")}, "planted_test.real_time is no soak test"),
                           ({**good, "planted_test.real_time": (soak, "")}, "planted_test.real_time is no soak test"),
                           ({**good, "planted_again": (["/bin/true"], "")}, "")):
            status, said = self.check(*self.build(bad))
            self.assertEqual(status, bool(words), said)
            self.assertIn(words, said)
        # The path of a program that is there: ctest tells no other commands.
        self.put("bin/planted_test", "#!/bin/sh\n")
        (self.root / "bin/planted_test").chmod(0o755)
        gate[0] = soak[0] = str(self.root / "bin/planted_test")
        self.assert_accepted(self.build(good))
        self.assertIn("planted_again is no soak test, and runs all cases of planted_test",
                      self.check(*self.build({**good, "planted_again": ([gate[0]], "")}))[1])
        # One of a group of sources.
        self.put("bin/planted_tests", "#!/bin/sh\n")
        group = self.root / "bin/planted_tests"
        group.chmod(0o755)
        def of(source, *more):
            return [str(group), f"--sources={source}", *more]
        good = {"planted_test": (of("planted_test.cpp", gate[1]), ""), "others_test": (of("others_test.cpp"), ""),
                "planted_test.real_time": (of("planted_test.cpp", soak[1]), "soak")}
        self.assert_accepted(self.build(good, "planted_tests"))
        for bad, words in (({"planted_test": (of("planted_test.cpp"), "")}, "planted_test is no soak test, and runs all cases of planted_tests"),
                           ({"planted_test.real_time": (of("others_test.cpp", soak[1]), "soak")}, "planted_tests.real_time is no soak test")):
            self.assertIn(words, self.check(*self.build({**good, **bad}, "planted_tests"))[1])

    def test_the_lists_name_tests(self):
        self.put("core/tests/planted_test.cpp", case(SLEEP))
        self.put("tools/test_rules/allowed.txt", "core/tests/planted_test.cpp: soak: planted_test\n")
        self.put("cmake/soak_tests.txt", "# reason\nplanted_test\nwalk\\..*\n")
        tests = {"planted_test": (["/bin/true"], "soak"), "walk.shm": (["/bin/true"], "soak")}
        self.assert_accepted(self.build(tests))
        self.assertIn("planted_test is no soak test", self.check(*self.build({**tests, "planted_test": (["/bin/true"], "")}))[1])
        del tests["walk.shm"]
        self.assertIn("soak_tests.txt:3: no test is called walk", self.check(*self.build(tests))[1])


if __name__ == "__main__":
    unittest.main()
