#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_test.py SOURCE_DIR: tools/check on small projects with tests that pass, fail and skip: counts, reasons, logs."""
import os
import pathlib
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(sys.argv[1])
ROOT = os.geteuid() == 0
failures = []

SKIPPING = r"""printf '[ RUN      ] Kernels.Add\n/a/b.cpp:7: Skipped\nno GPU\n\n[  SKIPPED ] Kernels.Add (0 ms)\n'
printf '[ RUN      ] Kernels.Max\n/a/b.cpp:7: Skipped\nno GPU\n\n[  SKIPPED ] Kernels.Max (0 ms)\n'
"""
TESTS = {
    "good": "echo fine",
    "some_skipped": SKIPPING + r"printf '[       OK ] Kernels.Host (1 ms)\n'; seq 1 1000",
    "all_skipped": SKIPPING,
    "absent": "echo needs a cable; exit 77",
    "where": "if [ -n \"$TOY_LOG\" ]; then echo \"$PWD as $(id -u)\" >>\"$TOY_LOG\"; fi",
}
ASSERTION = r"""printf '[ RUN      ] Sum.Small\n/a/sum.cpp:12: Failure\nExpected equality of these values:\n  3\n  4\n'; exit 1"""


class Project:
    """A folder NAME with the scripts of this tree and tests of its own."""

    def __init__(self, folder, name="project", tests=(), cmake="", packages="exit 0"):
        self.root = pathlib.Path(folder) / name
        for part in ("tools/check", "tools/copy-tree", "tools/test_results/results.py", ".ci/run", "CMakePresets.json"):
            (self.root / part).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SOURCE / part, self.root / part)
        (self.root / "tools/install-packages").write_text(f"#!/bin/sh\n{packages}\n")
        (self.root / "tools/install-packages").chmod(0o755)
        lines = ["cmake_minimum_required(VERSION 3.25)", "project(toy NONE)", "include(CTest)",
                 "add_custom_target(one ALL COMMAND true)", cmake]
        for test, script in {**TESTS, **dict(tests)}.items():
            (self.root / f"{test}.sh").write_text(script)
            lines.append(f'add_test(NAME {test} COMMAND sh "${{CMAKE_SOURCE_DIR}}/{test}.sh")')
            lines.append(f"set_tests_properties({test} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 2)")
        (self.root / "CMakeLists.txt").write_text("\n".join(lines) + "\n")

    def check(self, *arguments, script="tools/check", before=(), **environment):
        return subprocess.run([*before, str(self.root / script), *arguments], capture_output=True, text=True, timeout=120,
                              env={**os.environ, **environment}, stdin=subprocess.DEVNULL)

    def check_on_a_terminal(self):
        ours, theirs = pty.openpty()
        process = subprocess.Popen([str(self.root / "tools/check"), "--quick"], stdin=theirs, stdout=theirs, stderr=theirs,
                                   start_new_session=True)
        os.close(theirs)
        text = b""
        try:
            while chunk := os.read(ours, 65536):
                text += chunk
        except OSError:  # the other end is closed
            pass
        process.wait(120)
        os.close(ours)
        return text.decode()


def expect(what, condition, result):
    if not condition:
        failures.append(f"{what}: status {result.returncode}\n{result.stdout}{result.stderr}")


def expect_failure(what, project, name, words, counts):
    """The first failure's name, reason and log are in the last ten lines, and the log is there."""
    result = project.check("--quick")
    end = result.stdout.splitlines()[-10:]
    said = "\n".join(end)
    logs = [line.removeprefix("  log: ") for line in end if line.startswith("  log: ")]
    expect(what, result.returncode == 1 and end[-1] == counts and f"first failure: {name}\n  " in said and words in said
           and len(logs) == 1 and pathlib.Path(logs[0]).is_file(), result)
    return pathlib.Path(logs[0]).read_text() if logs else ""


with tempfile.TemporaryDirectory() as folder:
    os.chmod(folder, 0o755)
    good = Project(folder)
    result = good.check("--quick")
    end = result.stdout.splitlines()[-5:]
    expect("skipped cases are counted and listed",
           result.returncode == 0 and end[0] == "skipped:" and end[-1] == "3 passed, 0 failed, 5 skipped" and sorted(end[1:4]) == [
               "  release: absent: needs a cable", "  release: all_skipped: Kernels.Add, Kernels.Max: no GPU",
               "  release: some_skipped: Kernels.Add, Kernels.Max: no GPU"], result)
    expect("no progress where there is no terminal", "\r" not in result.stdout and "\x1b" not in result.stdout, result)
    told = good.check_on_a_terminal()
    expect("progress on a terminal", "\r\x1b[Krelease: " in told and told.endswith("3 passed, 0 failed, 5 skipped\r\n"),
           subprocess.CompletedProcess([], 0, told, ""))

    result = good.check("--help")
    expect("--help", result.returncode == 0 and "usage: tools/check" in result.stdout and "--full" in result.stdout, result)
    result = good.check("--fast")
    expect("an unknown option", result.returncode == 2 and "unknown option --fast" in result.stderr, result)

    # All parts; one of them elsewhere.
    place = pathlib.Path(folder) / "where"
    place.touch()
    place.chmod(0o666)
    result = good.check(TOY_LOG=str(place))
    lines = place.read_text().splitlines()
    expect(f"four parts, one elsewhere: {lines}", result.returncode == 0 and len(lines) == 4 and
           len([line for line in lines if " of " in line and "/tutti/build as " in line and (not ROOT or not line.endswith(" 0"))]) == 1
           and result.stdout.endswith("\n12 passed, 0 failed, 20 skipped\n"), result)
    expect("nothing is left of it", not any(pathlib.Path(line.partition(" as ")[0]).exists() for line in lines if " of " in line), result)

    # In a folder called tutti: a copy, or the checkout itself.
    for name, expected in (("other", f"{folder}/other/build-ci/tutti/build as "), ("tutti", f"{folder}/tutti/build as ")):
        place.write_text("")
        project = Project(folder, name)
        for _ in range(2):
            result = project.check("--quick", script=".ci/run", TOY_LOG=str(place))
            expect(f".ci/run in {name}", result.returncode == 0 and result.stdout.endswith("\n3 passed, 0 failed, 5 skipped\n"), result)
        expect(f"it ran in a folder called tutti: {place.read_text()}",
               all(line.startswith(expected) for line in place.read_text().splitlines()), result)

    # Planted failures.
    log = expect_failure("an assertion", Project(folder, "assertion", {"sum": ASSERTION}), "release: sum",
                         "/a/sum.cpp:12: Failure Expected equality of these values: 3 4", "3 passed, 1 failed, 5 skipped")
    if "Sum.Small" not in log:
        failures.append(f"the log holds what the test printed: {log}")
    result = Project(folder, "two", {"sum": ASSERTION, "zero": "exit 3"}).check("--quick")
    expect("all that failed are named", result.returncode == 1 and "\nfailed:\n  release: sum\n  release: zero\n\nfirst failure: release: sum\n"
           in result.stdout and result.stdout.endswith("3 passed, 2 failed, 5 skipped\n"), result)
    expect_failure("a test that takes too long", Project(folder, "late", {"late": "echo waiting; sleep 30"}), "release: late",
                   "timeout after 2 s; waiting", "3 passed, 1 failed, 5 skipped")
    expect_failure("a signal", Project(folder, "signal", {"broken": "kill -SEGV $$"}), "release: broken", "SEGFAULT",
                   "3 passed, 1 failed, 5 skipped")
    expect_failure("a program that is not there", Project(folder, "missing", cmake="add_test(NAME gone COMMAND /no/such/program)"),
                   "release: gone", "Unable to find executable", "3 passed, 1 failed, 5 skipped")
    expect_failure("configuring", Project(folder, "configure", cmake='message(FATAL_ERROR "no compiler")'),
                   "release: configuring", "CMake Error at CMakeLists.txt:5", "0 passed, 1 failed")
    expect_failure("building", Project(folder, "build", cmake="add_custom_target(two ALL COMMAND false)"),
                   "release: building", "FAILED: CMakeFiles/two", "0 passed, 1 failed")
    result = Project(folder, "packages", packages="echo no apt; exit 1").check("--quick")
    expect("packages", result.returncode == 1 and "first failure: packages" in result.stdout and result.stdout.endswith("0 passed, 1 failed\n"),
           result)

    # Interrupted while a test runs: all of it ends, and the last line is there.
    slow = Project(folder, "slow", {"slow": "echo $$ >\"$TOY_PROCESS\"; exec sleep 100"})
    place = pathlib.Path(folder) / "process"
    place.write_text("")
    process = subprocess.Popen([str(slow.root / "tools/check"), "--quick"], stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "TOY_PROCESS": str(place)}, stdin=subprocess.DEVNULL)
    until = time.monotonic() + 30
    while not place.read_text().strip().isdigit() and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out = process.communicate(timeout=30)[0]
    pid = place.read_text().strip()
    until = time.monotonic() + 30
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < until:
        time.sleep(0.05)
    expect(f"an interrupt, while process {pid} ran", process.returncode == 130 and pid.isdigit() and not os.path.exists(f"/proc/{pid}")
           and out.endswith("check: interrupted\n0 passed, 0 failed\n"), subprocess.CompletedProcess([], process.returncode, out, ""))

    locked = Project(folder, "locked")
    locked.root.chmod(0o555)
    # Root may write anywhere: another user then.
    before = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if ROOT else []
    result = locked.check(before=before)
    locked.root.chmod(0o755)
    expect("a folder that cannot be written", result.returncode == 1 and result.stdout == "0 passed, 0 failed\n" and
           len(result.stderr.splitlines()) == 1 and "cannot be written" in result.stderr, result)

print("\n".join(failures) if failures else "tools/check counts and tells as it should")
sys.exit(1 if failures else 0)
