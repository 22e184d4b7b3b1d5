# SPDX-License-Identifier: Apache-2.0
"""check.py ROOT --gate | --quick | --soak | --full: what tools/check does once the packages are there."""
import datetime
import os
import pathlib
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import commands
import machine
import record
import results
import verdict
from commands import minutes

# What all parts together may take, in seconds: some times what they take on an idle machine.
LONGEST = {"--gate": 80 * 60, "--quick": 80 * 60, "--soak": 5 * 3600, "--full": 10 * 3600}

# The sanitized parts leave out the tools, which are small programs over the same library; the checks of the ABI's text, which no
# build changes; and tests that count or limit what a sanitizer itself uses.
LIBRARY = ("core;plugins/sdk;plugins/algorithms;plugins/shm;plugins/cuda-ipc;plugins/template;plugins/checksum;plugins/trace;plugins/chaos;"
           "plugins/simulated-device;plugins/toys;plugins/meetings;plugins/nccl-net;net-tcp;plugins/nccl-serve;"
           "plugins/import")
SANITIZED = ["-E", r"^(abi\.|call_cost_test|call_cost_traced_test|starved_rank_test)"]
# As in a release (cmake/TuttiWorkspace.cmake): the files of a folder are compiled as one. The debug build goes file by file.
TOGETHER = ["-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=0"]
# One compilation of the CUDA kernels, which newer GPUs translate when they load it; the full check compiles for each architecture.
ONE_GPU = "-DCMAKE_CUDA_ARCHITECTURES=75"
# Elsewhere, tests that see something of the place: its path, its user, its environment; not the launchers that only root starts
# and the one that takes Python's torch.
OF_THE_PLACE = ["-R", r"^(package\.install|package\.remove|python_|info\.|doctor\.|job_|example_cheat|tuttirun|registry_test|documents$|shell\.|"
                r"conform\.command_line|perf\.command_line|bootstrap_test$|launched\.(mpirun|hydra|torchrun_restart|kubernetes))"]


class Check:
    def __init__(self, root, mode):
        self.root, self.mode = root, mode
        self.build = root / "build"
        self.begun = time.monotonic()
        self.commands = commands.Commands(LONGEST[mode])
        self.jobs = os.cpu_count() or 1
        self.passed = 0
        self.skipped = 0
        self.skips = []
        self.failures = []  # (name, reason, log)
        self.flaky = []     # entries of the record
        self.near = []      # lines
        self.parts = []     # entries of the record
        self.seed = secrets.randbelow(2**31)
        self.steal = machine.Steal()
        self.earlier = record.earlier_flaky(self.build / "check-runs.jsonl")
        self.place = None   # of the part elsewhere

    # ---- what happened

    def failure(self, name, reason, log):
        self.failures.append((name, reason, str(log)))
        print(f"FAILED {name}: {reason} ({log})", flush=True)

    def broken(self, name, log):
        """Something that is no test failed: the time is over, or the log's first error says why, or its last line."""
        lines = commands.last_lines(log, 80)
        print("\n".join(lines))
        last = lines[-1] if lines else "it printed nothing"
        errors = [line for line in pathlib.Path(log).read_text(errors="replace").splitlines()
                  if re.search(r"(^|[: ])(fatal )?[Ee]rror[: ]|^FAILED: ", line)]
        self.failure(name, last if last == self.commands.time_is_over() or not errors else errors[0], self.root / log)

    # ---- parts

    def measure(self, name, sanitized=False):
        """The time scale for what comes now; the caller's, if it names one."""
        given = os.environ.get(results.SCALE)
        if given:
            return {"scale": round(float(given) * (machine.SANITIZER_SCALE if sanitized else 1), 1)}
        loop, sleep = machine.measure()
        scale = machine.scale_of(loop, sleep, sanitized)
        print(f"{name}: time scale {scale} (loop {loop:.2f} s, sleep {sleep * 1000:.1f} ms, load {machine.load()})", flush=True)
        return {"scale": scale, "loop_s": round(loop, 3), "sleep_ms": round(sleep * 1000, 2), "load": machine.load()}

    def part(self, name, preset, configure, select, tree=None, tester=(), jobs=None):
        """Configures, builds, tests and counts a tree. The command `tester` starts ctest."""
        tree = tree or self.root
        folder = "build" if preset == "release" else f"build-{preset}"
        mine = self.root / folder
        mine.mkdir(exist_ok=True)
        log, tests = mine / f"check-{name}.log", mine / f"check-{name}-tests.log"
        junit = tree / folder / f"check-{name}.xml"
        for file in (log, tests):
            file.write_text("")
        junit.unlink(missing_ok=True)
        shutil.rmtree(mine / f"check-{name}-failed", ignore_errors=True)
        print(f"== {name} ({log.relative_to(self.root)})", flush=True)
        begun = time.monotonic()
        entry = {"part": name}
        self.parts.append(entry)
        # The compiler cache then serves a copy in another folder, too.
        cache = {"CCACHE_BASEDIR": str(tree), "CCACHE_NOHASHDIR": "1"}
        if self.commands.run(name, log, ["cmake", "--preset", preset, "-S", tree, "-DTUTTI_BUILD_TESTS=ON", "-DTUTTI_WERROR=ON",
                                         *configure], cache):
            self.broken(f"{name}: configuring", log)
        elif self.commands.run(name, log, ["cmake", "--build", tree / folder, "-j", self.jobs], cache):
            self.broken(f"{name}: building", log)
        else:
            entry["built_s"] = round(time.monotonic() - begun)
            print(f"{name}: built after {minutes(entry['built_s'])}", flush=True)
            if tester and self.place:
                subprocess.run(["chown", "-R", "nobody:", str(self.place)], check=False)
            entry.update(self.measure(name, sanitized="san" in preset))
            limits = results.stretch(tree / folder, entry["scale"])
            environment = {**cache, results.SCALE: str(entry["scale"])}
            before = len(self.failures)
            # In half cores, and one core more, for tests that wait beside the others: see cmake/TuttiTestTiers.cmake.
            status = self.commands.run(name, tests, [
                *tester, "ctest", "--test-dir", tree / folder, "--output-on-failure", "--no-tests=error", "--timeout", round(300 * entry["scale"]), "-j",
                jobs or 2 * self.jobs + 2, "--test-output-size-passed", 1000000, "--test-output-size-failed", 1000000,
                "--output-junit", junit, *select], environment)
            self.count(name, junit, tests, tree / folder, mine / f"check-{name}-failed", limits, environment, tester, entry)
            if status and len(self.failures) == before and not entry.get("flaky"):
                self.broken(f"{name}: running the tests", tests)
        entry["s"] = round(time.monotonic() - begun)
        print(f"{name}: {minutes(entry['s'])}", flush=True)

    def count(self, name, junit, log, folder, kept, limits, environment, tester, entry):
        """Counts what ctest did, and judges what failed."""
        if not junit.is_file():
            return
        found = results.read(junit, log.read_text(errors="replace"), kept)
        failed = flaky = 0
        for test in found.failed:
            if self.is_flaky(name, test, folder, environment, tester):
                flaky += 1
                continue
            if failed < 3:
                print("\n".join(commands.last_lines(test.log, 60)))
            failed += 1
            self.failure(f"{name}: {test.test}", test.reason, test.log)
        self.passed += found.passed
        self.skipped += found.skips()
        self.skips += [f"{name}: {what}: {reason}" for what, reason, _ in found.skipped]
        self.near += [f"{name}: {test}: {took:.0f} s of {most:.0f} s" for test, took, most in results.near_limit(found.seconds, limits)]
        entry.update(passed=found.passed, failed=failed, flaky=flaky, skipped=found.skips(), seconds=found.seconds)
        print(f"{name}: {found.passed} passed, {failed} failed" + (f", {flaky} flaky" if flaky else "") +
              f", {found.skips()} skipped", flush=True)

    def is_flaky(self, part, test, folder, environment, tester):
        """Runs a failed test of the gate again, alone, twice; true if it passed both times. The other parts judge at once."""
        if self.mode not in ("--gate", "--quick"):
            return False
        why = verdict.why_not_again(test.ending, test.output)
        if why:
            print(f"{part}: {test.test} is not run again: {why}", flush=True)
            return False
        print(f"{part}: {test.test} failed ({test.reason}); twice more, alone", flush=True)
        pattern = "^" + re.sub(r"([.+*?()\[\]\\^$])", r"\\\1", test.test) + "$"
        again = folder / f"check-{part}-again.log"
        again.write_text("")
        if self.commands.run(part, again, [*tester, "ctest", "--test-dir", folder, "--output-on-failure", "--no-tests=error",
                                           "--timeout", round(300 * float(environment[results.SCALE])), "-R", pattern, "--repeat", "until-fail:2", "-j", 1], environment):
            return False
        self.flaky.append({"test": test.test, "part": part, "commit": record.commit_of(self.root),
                           "seed": verdict.seed_of(test.output), "reason": test.reason, "log": test.log,
                           "load": machine.load(), "steal": self.steal.percent()})
        print(f"FLAKY {part}: {test.test}: {test.reason} ({test.log})\n{test.output.rstrip()}", flush=True)
        return True

    def elsewhere(self, select, members):
        """A release part in a folder called tutti below one with spaces. Root builds it, with root's compiler cache; the user
        nobody tests it, with a PATH that names no folder of root's."""
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="check of "))
        try:
            self.place.chmod(0o755)
            tree = self.place / "tutti"
            subprocess.run([self.root / "tools/copy-tree", tree], check=True)
            home = self.place / "home"
            home.mkdir()
            tester = ()
            path = os.environ["PATH"]
            if os.geteuid() == 0:
                os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
                user = pwd.getpwnam("nobody")
                tester = ("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "env", "-u",
                          "XDG_RUNTIME_DIR", f"HOME={home}")
            try:
                self.part("elsewhere", "release", [members, "-DTUTTI_BUILD_BENCHES=OFF"], select, tree, tester)
            finally:
                os.environ["PATH"] = path
        finally:
            shutil.rmtree(self.place, ignore_errors=True)
            self.place = None

    def step(self, name, *command):
        """A command that counts as one test; true if it succeeded."""
        log = self.build / f"check-{name}.log"
        log.write_text("")
        print(f"== {name} ({log.relative_to(self.root)})", flush=True)
        begun = time.monotonic()
        entry = {"part": name, **self.measure(name), "command": " ".join(map(str, command))}
        self.parts.append(entry)
        status = self.commands.run(name, log, command, {results.SCALE: str(entry["scale"])})
        if status:
            self.broken(name, log)
        else:
            self.passed += 1
            print("\n".join(commands.last_lines(log, 12)))
        entry.update(passed=int(not status), failed=int(bool(status)), s=round(time.monotonic() - begun))
        print(f"{name}: {minutes(entry['s'])}", flush=True)
        return not status

    def skip(self, what, reason):
        self.skips.append(f"{what}: {reason}")
        self.skipped += 1

    def can(self, what, *command):
        """Whether this machine can do it, by the first line of a command that says so; else it is skipped."""
        told = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd=self.root)
        if told.returncode == 0:
            return True
        said = (told.stdout + told.stderr).strip().splitlines()
        self.skip(what, said[-1].removeprefix("SKIPPED: ").removeprefix("skipped: ") if said else "it says no reason")
        return False

    def python(self):
        """The interpreter that build/ was configured with."""
        found = re.search(r"^TUTTI_PYTHON:INTERNAL=(.*)$", (self.build / "CMakeCache.txt").read_text(), re.MULTILINE)
        return found[1] if found else sys.executable

    # ---- the commands

    def gate(self, select):
        # No benchmarks, nothing that only the soak tier uses, and no CUDA kernels where no GPU can run them.
        members = ["-UTUTTI_MEMBERS"] if machine.has_gpu() else [f"-DTUTTI_MEMBERS={LIBRARY};net-ib;tools;mpi-preload;conformance"]
        # No test of the gate judges by the clock, so there may be more of them at a time than the cores can serve.
        self.part("release", "release", [ONE_GPU, "-DTUTTI_BUILD_BENCHES=OFF", "-DTUTTI_BUILD_SOAK_TESTS=OFF", *members], select,
                  jobs=4 * self.jobs)

    def soak(self):
        seed = self.seed
        print(f"seed {seed}", flush=True)
        # No test fetches anything: the virtual machine's kernel comes before them.
        self.can("virtual machine", "net-ib/tests/rdma-vm", "--check")
        everything = [ONE_GPU, "-DTUTTI_BUILD_BENCHES=ON", "-DTUTTI_BUILD_SOAK_TESTS=ON", "-UTUTTI_MEMBERS"]
        torch = self.root / "build-torch"
        if self.step("torch", "tools/torch-environment", torch):
            everything.append(f"-DPython3_EXECUTABLE={torch}/bin/python3")
        self.part("release", "release", everything, ["-L", "soak"])
        self.step("survival", "build/tests/survival", "--kills", 40, "--stops", 5, "--pairs", 10, "--seed", seed)
        self.step("random", "build/bin/tutti-conform", "fuzz", "--seconds", 120, "--seed", seed)
        self.step("differential", "core/tests/mpi/differential", "build", 5000)
        self.elsewhere(OF_THE_PLACE, f"-DTUTTI_MEMBERS={LIBRARY};tools;conformance")
        self.part("minimal", "minimal", [], ["-LE", "soak"])
        self.part("asan-ubsan", "asan-ubsan", [f"-DTUTTI_MEMBERS={LIBRARY}", *TOGETHER], SANITIZED)
        self.part("tsan", "tsan", [f"-DTUTTI_MEMBERS={LIBRARY}", "-DTUTTI_BUILD_ONE_THREAD_TESTS=OFF", *TOGETHER], SANITIZED)
        self.step("wheel", sys.executable, "-B", "tools/package/tests/wheel_test.py", ".")

    def full(self):
        seed = self.seed
        print(f"seed {seed}", flush=True)
        thrice = ["--repeat", "until-fail:3"]
        whole = ["-UTUTTI_MEMBERS", "-UCMAKE_UNITY_BUILD", "-UTUTTI_BUILD_ONE_THREAD_TESTS"]
        self.part("release", "release", ["-UCMAKE_CUDA_ARCHITECTURES", "-UTUTTI_MEMBERS", "-DTUTTI_BUILD_BENCHES=ON", "-DTUTTI_BUILD_SOAK_TESTS=ON"], thrice)
        self.elsewhere(thrice, "-UTUTTI_MEMBERS")
        self.part("asan-ubsan", "asan-ubsan", whole, thrice)
        self.part("tsan", "tsan", whole, thrice)
        self.step("limits", "build/tests/limits", *"--processes 2 --processes 8 --processes 64 --threads 2 --threads 64 --threads 512".split())
        self.step("survival", "build/tests/survival", "--kills", 200, "--stops", 30, "--pairs", 200, "--seed", seed)
        self.step("canonical-order", "build/tests/comm_operator_tests", "--gtest_also_run_disabled_tests",
                  "--gtest_filter=*EveryNumberOfRanks")
        self.step("exact-sums", "build/tests/exact_sums_test", "--gtest_also_run_disabled_tests",
                  "--gtest_filter=*EveryNumberOfRanks")
        # Every transport alone, mixed, and with chaos's faults put in.
        self.step("conformance", "build/bin/tutti-conform", "--level", "standard", "--html", "build/check-conformance.html")
        self.step("schedule-mutants", "build/bin/tutti-conform", "schedule-mutants", "--level", "full")
        self.step("soak", "build/bin/tutti-conform", "soak", "--minutes", 10)
        self.step("differential", "core/tests/mpi/differential", "build", 100000)
        self.step("sweep", "tools/perf/sweep", "build")
        self.step("random", "build/bin/tutti-conform", "fuzz", "--seconds", 600, "--seed", seed)
        self.step("memcheck", "tools/memcheck")
        self.step("documents", self.python(), "-B", "tools/documents/tests/typed_test.py", ".", "build", "--all")
        if self.can("verbs", "net-ib/tests/rdma-vm", "--check"):
            self.step("verbs", "net-ib/tests/rdma-jobs", "build", "long")
        self.step("debian-packages", "tools/debian-packages", "--tarball", "--jobs", self.jobs)
        self.step("lintian", "sh", "-c", "lintian --allow-root --fail-on error,warning build-packages/packages/*.deb")
        if self.can("fresh-root", "tools/package/tests/fresh-root", "--check"):
            self.step("fresh-root", "tools/package/tests/fresh-root", "build-packages/packages")
            self.step("fresh-tree", "tools/package/tests/fresh-root", "--tree")
        self.step("fuzz", "tools/fuzz", 60)
        self.part("debug", "debug", [], thrice)

    def run(self):
        os.chdir(self.root)
        if self.mode == "--quick":
            self.gate(["-LE", "soak|long"])
        elif self.mode == "--gate":
            self.gate(["-LE", "soak"])
        elif self.mode == "--soak":
            self.soak()
        else:
            self.full()
        for reason in verdict.too_flaky([entry["test"] for entry in self.flaky], self.earlier):
            self.failure("flaky tests", reason, self.build / "check-runs.jsonl")
        print(f"all parts: {minutes(time.monotonic() - self.begun)}")

    def finish(self):
        """Whatever happens, the last lines tell how it ended."""
        def listed(title, lines):
            if lines:
                print(f"\n{title}:\n" + "\n".join(f"  {line}" for line in lines))
        listed("skipped", self.skips)
        listed("near their limits", self.near)
        listed("flaky", [f"{entry['part']}: {entry['test']}: {entry['reason']} ({entry['log']})" for entry in self.flaky])
        if len(self.failures) > 1:
            listed("failed", [name for name, _, _ in self.failures])
        if self.failures:
            name, reason, log = self.failures[0]
            print(f"\nfirst failure: {name}\n  {reason}\n  log: {log}")
        counts = f"{self.passed} passed, {len(self.failures)} failed" + (f", {len(self.flaky)} flaky" if self.flaky else "") + (
            f", {self.skipped} skipped" if self.skipped else "")
        print(counts)
        entry = {"time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "mode": self.mode[2:],
                 "commit": record.commit_of(self.root), "processor": machine.processor(), "cores": self.jobs,
                 "seed": self.seed, "steal": self.steal.percent(), "s": round(time.monotonic() - self.begun),
                 "counts": counts, "parts": self.parts, "skipped": self.skips, "near": self.near, "flaky": self.flaky,
                 "failures": [{"name": name, "reason": reason, "log": log} for name, reason, log in self.failures]}
        record.append(self.build / "check-runs.jsonl",
                      {key: entry[key] for key in ("time", "mode", "commit", "counts", "s", "flaky")})
        if self.mode in ("--soak", "--full"):
            record.write(self.build / "check-record.json", entry)
            scales = [part["scale"] for part in self.parts if "scale" in part]
            print(f"{entry['mode']} of {entry['commit']} on {entry['cores']} cores of {entry['processor']}, scale "
                  f"{max(scales, default=1)}, steal {entry['steal']} %, seed {entry['seed']}: {counts} in {minutes(entry['s'])}")
        sys.stdout.flush()


def main():
    root, mode = pathlib.Path(sys.argv[1]), sys.argv[2]
    given = os.environ.get(results.SCALE) or "1"
    if not re.fullmatch(r"\d{1,3}(\.\d+)?", given) or float(given) < 1:
        sys.exit(f"check: {results.SCALE}={given}: expected a number of at least 1, or nothing, so that it is measured")
    # Sanitizers: findings end the test, so that it fails.
    os.environ["UBSAN_OPTIONS"] = "halt_on_error=1:print_stacktrace=1"
    # Not detect_stack_use_after_return: its frames are not aligned for the 64-byte vectors of the kernels.
    os.environ.setdefault("ASAN_OPTIONS", "detect_stack_use_after_return=0")
    os.environ.setdefault("TSAN_OPTIONS", "second_deadlock_stack=1")
    check = Check(root, mode)

    def interrupted(*_):
        raise KeyboardInterrupt
    signal.signal(signal.SIGTERM, interrupted)
    try:
        check.run()
    except KeyboardInterrupt:
        check.commands.end()
        print("check: interrupted")
        check.finish()
        sys.exit(130)
    check.finish()
    sys.exit(1 if check.failures else 0)


if __name__ == "__main__":
    main()
