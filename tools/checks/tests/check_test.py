#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_test.py SOURCE_DIR: tools/check on small projects with tests that pass, fail and skip: counts, reasons, logs."""
import json
import os
import pathlib
import pty
import re
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
    "job_where": "if [ -n \"$TOY_LOG\" ]; then case \"$PWD\" in *' of '*) echo \"$PWD as $(id -u)\" >>\"$TOY_LOG\";; esac; fi",
    "some_skipped": SKIPPING + r"printf '[       OK ] Kernels.Host (1 ms)\n'; seq 1 1000",
    "all_skipped": SKIPPING,
    "absent": "echo needs a cable; exit 77",
    "soak_chance": "echo by chance",
    "where": "if [ -n \"$TOY_LOG\" ]; then echo \"$PWD as $(id -u)\" >>\"$TOY_LOG\"; fi",
}
PROGRAMS = ("tests/survival", "bin/tutti-conform")
ASSERTION = r"""printf '[ RUN      ] Sum.Small\n/a/sum.cpp:12: Failure\nExpected equality of these values:\n  3\n  4\n'; exit 1"""


class Project:
    """A folder NAME with the scripts of this tree and tests of its own."""

    def __init__(self, folder, name="project", tests=(), cmake="", packages="exit 0"):
        self.root = pathlib.Path(folder) / name
        scripts = [file.relative_to(SOURCE) for file in (SOURCE / "tools/checks").glob("*.py")]
        for part in ("tools/check", "tools/copy-tree", *scripts, "cmake/TuttiTestTiers.cmake", ".ci/run", "CMakePresets.json"):
            (self.root / part).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(SOURCE / part, self.root / part)
        (self.root / "tools/install-packages").write_text(f"#!/bin/sh\n{packages}\n")
        (self.root / "tools/install-packages").chmod(0o755)
        lines = ["cmake_minimum_required(VERSION 3.25)", "project(toy NONE)", "include(CTest)",
                 "add_custom_target(one ALL COMMAND true)", 'include(cmake/TuttiTestTiers.cmake)', cmake]
        # Programs that the soak tier runs by themselves.
        for program in PROGRAMS:
            lines.append(f'file(WRITE "${{CMAKE_BINARY_DIR}}/{program}" "#!/bin/sh\\necho \\"$0 $*\\"\\n")')
            lines.append(f'file(CHMOD "${{CMAKE_BINARY_DIR}}/{program}" PERMISSIONS OWNER_READ OWNER_EXECUTE)')
        vm = self.root / "net-ib/tests/rdma-vm"
        vm.parent.mkdir(parents=True)
        vm.write_text("#!/bin/sh\necho 'rdma-vm: no kernel here'; exit 77\n")
        vm.chmod(0o755)
        wheel = self.root / "tools/package/tests/wheel_test.py"
        wheel.parent.mkdir(parents=True)
        wheel.write_text("print('all of them')\n")
        for script in ("core/tests/mpi/differential", "tools/torch-environment"):
            (self.root / script).parent.mkdir(parents=True, exist_ok=True)
            (self.root / script).write_text("#!/bin/sh\n")
            (self.root / script).chmod(0o755)
        (self.root / "cmake/soak_tests.txt").write_text("# judged by the scheduler\nsoak_.*\n")
        for test, script in {**TESTS, **dict(tests)}.items():
            (self.root / f"{test}.sh").write_text(script)
            lines.append(f'add_test(NAME {test} COMMAND sh "${{CMAKE_SOURCE_DIR}}/{test}.sh")')
            lines.append(f"set_tests_properties({test} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 2)")
        lines.append("tutti_sort_tests()")
        (self.root / "CMakeLists.txt").write_text("\n".join(lines) + "\n")

    def check(self, *arguments, script="tools/check", before=(), **environment):
        return subprocess.run([*before, str(self.root / script), *arguments], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "TUTTI_TEST_TIME_SCALE": "1", **environment}, stdin=subprocess.DEVNULL)

    def check_on_a_terminal(self):
        ours, theirs = pty.openpty()
        process = subprocess.Popen([str(self.root / "tools/check"), "--quick"], stdin=theirs, stdout=theirs, stderr=theirs,
                                   start_new_session=True, env={**os.environ, "TUTTI_TEST_TIME_SCALE": "1"})
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
           result.returncode == 0 and end[0] == "skipped:" and end[-1] == "4 passed, 0 failed, 5 skipped" and sorted(end[1:4]) == [
               "  release: absent: needs a cable", "  release: all_skipped: Kernels.Add, Kernels.Max: no GPU",
               "  release: some_skipped: Kernels.Add, Kernels.Max: no GPU"], result)
    expect("no progress where there is no terminal", "\r" not in result.stdout and "\x1b" not in result.stdout, result)
    told = good.check_on_a_terminal()
    expect("progress on a terminal", "\r\x1b[Krelease: " in told and told.endswith("4 passed, 0 failed, 5 skipped\r\n"),
           subprocess.CompletedProcess([], 0, told, ""))

    result = good.check("--help")
    expect("--help", result.returncode == 0 and "usage: tools/check" in result.stdout and "--full" in result.stdout, result)
    result = good.check("--fast")
    expect("an unknown option", result.returncode == 2 and "unknown option --fast" in result.stderr, result)

    # The soak tier: one part elsewhere, and a record.
    place = pathlib.Path(folder) / "where"
    place.touch()
    place.chmod(0o666)
    result = good.check("--soak", TOY_LOG=str(place))
    lines = place.read_text().splitlines()
    end = result.stdout.splitlines()
    # "where" is a test of the sanitized parts only; "job_where" is one that sees the place.
    expect(f"sanitized parts, and one elsewhere: {lines}", result.returncode == 0 and len(lines) == 4 and
           len([line for line in lines if " of " in line and "/tutti/build as " in line and (not ROOT or not line.endswith(" 0"))]) == 1
           and end[-2] == "21 passed, 0 failed, 16 skipped", result)
    expect("the line to quote", re.fullmatch(
        r"soak of \S+ on \d+ cores of .+, scale [\d.]+, steal [\d.]+ %, seed \d+: 21 passed, 0 failed, 16 skipped in [\d.]+ min", end[-1]), result)
    expect("nothing is left of it", not any(pathlib.Path(line.partition(" as ")[0]).exists() for line in lines if " of " in line), result)
    told = json.loads((good.root / "build/check-record.json").read_text())
    expect("the record", told["mode"] == "soak" and told["counts"] == "21 passed, 0 failed, 16 skipped" and
           [part["part"] for part in told["parts"]] == ["torch", "release", "survival", "random", "differential", "elsewhere", "minimal", "asan-ubsan", "tsan", "wheel"]
           and f"--seed {told['seed']}" in told["parts"][3]["command"] and all(part["scale"] >= 1 for part in told["parts"])
           and told["parts"][-2]["scale"] >= 3 and "good" in told["parts"][-2]["seconds"], result)

    # In a folder called tutti: a copy, or the checkout itself.
    for name, expected in (("other", f"{folder}/other/build-ci/tutti/build as "), ("tutti", f"{folder}/tutti/build as ")):
        place.write_text("")
        project = Project(folder, name)
        for _ in range(2):
            result = project.check("--quick", script=".ci/run", TOY_LOG=str(place))
            expect(f".ci/run in {name}", result.returncode == 0 and result.stdout.endswith("\n4 passed, 0 failed, 5 skipped\n"), result)
        expect(f"it ran in a folder called tutti: {place.read_text()}",
               all(line.startswith(expected) for line in place.read_text().splitlines()), result)

    # Planted failures.
    log = expect_failure("an assertion", Project(folder, "assertion", {"sum": ASSERTION}), "release: sum",
                         "/a/sum.cpp:12: Failure Expected equality of these values: 3 4", "4 passed, 1 failed, 5 skipped")
    if "Sum.Small" not in log:
        failures.append(f"the log holds what the test printed: {log}")
    result = Project(folder, "two", {"sum": ASSERTION, "zero": "exit 3"}).check("--quick")
    expect("all that failed are named", result.returncode == 1 and "\nfailed:\n  release: sum\n  release: zero\n\nfirst failure: release: sum\n"
           in result.stdout and result.stdout.endswith("4 passed, 2 failed, 5 skipped\n"), result)
    expect_failure("a test that takes too long", Project(folder, "late", {"late": "echo waiting; sleep 30"}), "release: late",
                   "timeout after 2 s; waiting", "4 passed, 1 failed, 5 skipped")
    expect_failure("a signal", Project(folder, "signal", {"broken": "kill -SEGV $$"}), "release: broken", "SEGFAULT",
                   "4 passed, 1 failed, 5 skipped")
    expect_failure("a program that is not there", Project(folder, "missing", cmake="add_test(NAME gone COMMAND /no/such/program)"),
                   "release: gone", "Unable to find executable", "4 passed, 1 failed, 5 skipped")
    expect_failure("configuring", Project(folder, "configure", cmake='message(FATAL_ERROR "no compiler")'),
                   "release: configuring", "CMake Error at CMakeLists.txt:6", "0 passed, 1 failed")
    expect_failure("building", Project(folder, "build", cmake="add_custom_target(two ALL COMMAND false)"),
                   "release: building", "FAILED: CMakeFiles/two", "0 passed, 1 failed")
    result = Project(folder, "packages", packages="echo no apt; exit 1").check("--quick")
    expect("packages", result.returncode == 1 and "first failure: packages" in result.stdout and result.stdout.endswith("0 passed, 1 failed\n"),
           result)

    # Failed once: run again alone, twice.
    once = 'echo x >>"$TOY_RUNS"; [ "$(wc -l <"$TOY_RUNS")" -gt 1 ] || { %s; }'
    runs = pathlib.Path(folder) / "runs"

    def once_failing(name, script, **more):
        runs.write_text("")
        project = Project(folder, name, {"once": once % script, **more})
        return project, project.check("--quick", TOY_RUNS=str(runs)), len(runs.read_text().splitlines())

    flaky, result, times = once_failing("flaky", "echo seed 42; echo no luck; exit 1")
    expect("a flaky test", result.returncode == 0 and times == 3 and result.stdout.endswith("\n4 passed, 0 failed, 1 flaky, 5 skipped\n")
           and "\nflaky:\n  release: once: no luck (" in result.stdout, result)
    entries = [json.loads(line) for line in (flaky.root / "build/check-runs.jsonl").read_text().splitlines()]
    expect("its record", len(entries) == 1 and [(entry["test"], entry["seed"], entry["part"]) for entry in entries[0]["flaky"]] ==
           [("once", 42, "release")] and "no luck" in entries[0]["flaky"][0]["reason"] and
           "no luck" in pathlib.Path(entries[0]["flaky"][0]["log"]).read_text(), result)
    runs.write_text("")
    result = flaky.check("--quick", TOY_RUNS=str(runs))
    expect("the same test again", result.returncode == 1 and "once was flaky in 2 of the last 10 runs" in result.stdout and
           result.stdout.endswith("\n4 passed, 1 failed, 1 flaky, 5 skipped\n"), result)
    result = flaky.check("--quick", TOY_RUNS=str(runs))
    expect("a run without flaky tests", result.returncode == 0 and result.stdout.endswith("\n5 passed, 0 failed, 5 skipped\n"), result)
    several = {f"once_{i}": f'[ -f "$TOY_RUNS.{i}" ] || {{ touch "$TOY_RUNS.{i}"; exit 1; }}' for i in range(2)}
    _, result, _ = once_failing("three", "exit 1", **several)
    expect("three flaky tests", result.returncode == 1 and "3 tests were flaky; at most 2" in result.stdout, result)
    for kind, script in (("crash", "kill -SEGV $$"), ("crash", "echo terminate called after throwing; exit 1"),
                         ("sanitizer", "echo '==7==ERROR: AddressSanitizer: heap-use-after-free'; exit 1"),
                         ("sanitizer", "echo 'WARNING: ThreadSanitizer: data race'; exit 66"),
                         ("leak", "echo '2 descriptors leaked'; exit 1"), ("hang", "sleep 30"),
                         ("wrong", "printf '/a/sum.cpp:12: Failure\\nExpected equality of these values:\\n'; exit 1"),
                         ("wrong", "echo '3 wrong elements'; exit 1")):
        _, result, times = once_failing(f"{kind}-{len(script)}", script)
        expect(f"{kind} is not run again", result.returncode == 1 and times == 1 and f"once is not run again: {kind}" in result.stdout,
               result)
    _, result, times = once_failing("deadline", "echo 'Expected equality of these values: TUTTI_OK, TUTTI_TIMEOUT'; exit 1")
    expect("a comparison after a deadline is", result.returncode == 0 and times == 3, result)
    result = Project(folder, "twice", {"always": "exit 1"}).check("--quick")
    expect("a test that fails again", result.returncode == 1 and result.stdout.endswith("\n4 passed, 1 failed, 5 skipped\n"), result)

    # Limits follow the machine's speed, and a test that comes near its own is listed.
    slow = Project(folder, "slow-machine", {"tardy": "sleep 3"})
    text = (slow.root / "tools/checks/machine.py").read_text()
    (slow.root / "tools/checks/machine.py").write_text(text.replace("LOOP_SECONDS = ", "LOOP_SECONDS = 1e-9 * "))
    result = slow.check("--quick", TUTTI_TEST_TIME_SCALE="")
    expect("limits are stretched", result.returncode == 0 and "time scale 20" in result.stdout and
           result.stdout.endswith("\n5 passed, 0 failed, 5 skipped\n"), result)
    result = Project(folder, "near", {"tardy": "sleep 1.5"}).check("--quick")
    expect("near its limit", result.returncode == 0 and "near their limits:\n  release: tardy: " in result.stdout, result)
    result = good.check("--quick", TUTTI_TEST_TIME_SCALE="fast")
    expect("a scale that is no number", result.returncode == 1 and "TUTTI_TEST_TIME_SCALE=fast: expected a number" in result.stderr, result)
    result = good.check("--quick", "--full")
    expect("two options", result.returncode == 2 and "one option is expected, 2 came" in result.stderr, result)

    # Interrupted while a test runs: all of it ends, and the last line is there.
    slow = Project(folder, "slow", {"slow": "echo $$ >\"$TOY_PROCESS\"; exec sleep 100"})
    place = pathlib.Path(folder) / "process"
    place.write_text("")
    process = subprocess.Popen([str(slow.root / "tools/check"), "--quick"], stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "TUTTI_TEST_TIME_SCALE": "1", "TOY_PROCESS": str(place)}, stdin=subprocess.DEVNULL)
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
    expect("a folder that cannot be written", result.returncode == 1 and result.stdout == "0 passed, 1 failed\n" and
           len(result.stderr.splitlines()) == 1 and "cannot be written" in result.stderr, result)

print("\n".join(failures) if failures else "tools/check counts and tells as it should")
sys.exit(1 if failures else 0)
