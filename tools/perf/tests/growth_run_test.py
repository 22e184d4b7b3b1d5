#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""growth_run_test.py TUTTI_PERF: tutti-perf growth with small jobs: the form of its table and of its JSON, and what it says of sizes
that it cannot measure. Times are not judged."""
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile

PERF = sys.argv[1]
CELL = re.compile(r"-?[\d.]+(e[+-]?\d+)?|N/A|-?nan")
COLUMNS = 13
failures = []


def run(*arguments, limit_files=None, **environment):
    def lower():
        if limit_files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit_files, limit_files))
    clean = {name: value for name, value in os.environ.items() if name not in ("WORLD_SIZE", "TUTTI_WORLD_SIZE")}
    return subprocess.run([PERF, "growth", *map(str, arguments)], capture_output=True, text=True, timeout=100, preexec_fn=lower,
                          env={**clean, **environment})


def expect(what, condition, result=None):
    if not condition:
        failures.append(what + (f": status {result.returncode}\n{result.stdout}{result.stderr}" if result else ""))


def rows_of(result):
    """The numbers of ranks in the table, and how many lines of exponents; wrong lines are None."""
    rows, exponents = [], 0
    for line in result.stdout.splitlines():
        words = line.removeprefix("# exponent").split()
        if not line.startswith("#"):
            rows.append(int(words[0]) if len(words) == COLUMNS + 1 and all(map(CELL.fullmatch, words)) else None)
        elif line.startswith("# exponent"):
            exponents += 1 if len(words) == COLUMNS and all(map(CELL.fullmatch, words)) else 100
    return rows, exponents


def test_table(folder):
    path = folder / "growth.json"
    result = run("--ranks", "4,2,8", "-n", 2, "--splits", 3, "--limit", 90, "-J", path)
    expect("the table", result.returncode == 0 and rows_of(result) == ([2, 4, 8, 2, 4, 8], 2), result)
    report = json.loads(path.read_text())
    expect("JSON", report["complete"] and report["left_out"] == [] and report["config"]["ranks"] == [2, 4, 8], result)
    expect("JSON has the rows", [(row["as"], row["nranks"]) for row in report["rows"]] ==
           [(way, n) for way in ("threads", "processes") for n in (2, 4, 8)], result)
    for row in report["rows"]:
        expect(f"rounds of {row['nranks']} {row['as']}", 1 <= len(row["rounds"]) <= 2)
        for cost in (row["median"], *row["rounds"]):
            times = [value for name, value in cost.items() if name.endswith(("_ms", "_us"))]
            sound = len(times) == 8 and min(times) > 0 and cost["job_memory_kib"] > 0 and cost["most_descriptors_of_a_process"] > 3
            expect(f"a row of the JSON: {row['as']} {row['nranks']} {cost}", sound and cost["threads"] >= 0)
    expect("exponents", set(report["exponents"]) == {"threads", "processes"}
           and all(set(of) == set(report["rows"][0]["median"]) for of in report["exponents"].values()), result)


def test_left_out(folder):
    path = folder / "left_out.json"
    result = run("--ranks", "2,4", "--as", "threads", "-J", path, TUTTI_TRANSPORT="nonsense")
    expect("a job that fails", result.returncode == 1 and "# 2 ranks as threads are left out: rank " in result.stdout
           and "nonsense" in result.stdout and "# 4 ranks as threads are left out: 2 ranks failed already" in result.stdout, result)
    report = json.loads(path.read_text())
    expect("JSON of a job that fails", not report["complete"] and [out["nranks"] for out in report["left_out"]] == [2, 4]
           and "nonsense" in report["error"], result)
    result = run("--ranks", "2,512", "--as", "threads", "-n", 1, limit_files=100)
    expect("too few descriptors", result.returncode == 1 and rows_of(result)[0] == [2] and re.search(
        r"# 512 ranks as threads are left out: a process would need about \d+ descriptors, but its hard limit is 100: raise it", result.stdout),
        result)
    for way in ("threads", "processes"):
        # So many splits take more than a minute on any machine.
        result = run("--ranks", "2", "--as", way, "--splits", 100000, "--limit", "0.1")
        expect(f"the limit of {way}", result.returncode == 1 and re.search(
            rf"# 2 ranks as {way} are left out: stopped after 0.1 s in [a-z ]+: give more time with --limit", result.stdout), result)


def test_refusals():
    for arguments, words in ((("--ranks", "0"), "--ranks 0: expected whole numbers from 2 to 4096"),
                             (("--as", "fibers"), "--as fibers: known are threads, processes, both"),
                             (("-J", "/no/such/folder/file"), "cannot be written")):
        result = run(*arguments)
        expect(f"{arguments} should be refused with {words}", result.returncode == 2 and words in result.stderr, result)
    result = run("--ranks", "2", WORLD_SIZE="2")
    expect("a launcher", result.returncode == 2 and "growth starts its ranks itself, but WORLD_SIZE tells of 2 processes" in result.stderr, result)
    result = subprocess.run([PERF, "all_reduce", "growth"], capture_output=True, text=True, timeout=100)
    expect("a collective and growth", result.returncode == 2 and "growth and all_reduce: expected one of them" in result.stderr, result)


with tempfile.TemporaryDirectory() as place:
    test_table(pathlib.Path(place))
    test_left_out(pathlib.Path(place))
test_refusals()
print("\n".join(failures) or "all as expected")
sys.exit(bool(failures))
