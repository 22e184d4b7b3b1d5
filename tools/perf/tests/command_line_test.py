#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""command_line_test.py TUTTI_PERF [DAMAGE_LIBRARY]: exit status and words of tutti-perf, the form of its rows and of its JSON, and
that it notices damaged results."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

PERF = sys.argv[1]
DAMAGE = sys.argv[2] if len(sys.argv) > 2 else None
failures = []


def run(*arguments, **environment):
    return subprocess.run([PERF, *arguments], capture_output=True, text=True, timeout=100, env={**os.environ, **environment})


def expect(what, condition, result):
    if not condition:
        failures.append(f"{what}: status {result.returncode}\n{result.stdout}{result.stderr}")


def expect_refusal(arguments, words):
    result = run(*arguments)
    expect(f"{arguments} should be refused with \"{words}\"", result.returncode == 2 and words in result.stderr, result)


expect_refusal(["all_reduce", "--bogus"], "--bogus")
expect_refusal(["everything"], "known are all_reduce")
expect_refusal(["all_reduce", "-o", "mulsum"], "known are sum, prod, min, max, avg")
expect_refusal(["all_reduce", "-d", "f8e6m1"], "known are int8")
expect_refusal(["all_reduce", "-b", "1Q"], "-b 1Q")
expect_refusal(["broadcast", "--threads", "2", "-r", "2"], "there are 2 ranks")
expect_refusal(["sendrecv", "--threads", "1"], "needs at least 2 ranks")
expect_refusal(["all_reduce", "--threads", "2", "-J", "/no/such/folder/file"], "cannot be written")
result = run("all_reduce", "--threads", "1", "-b", "8", "--device", "nonesuch")
expect("a device that is not there", result.returncode == 1 and "--device nonesuch: there is no such device" in result.stderr, result)
expect("help", run("--help").returncode == 0, run("--help"))

expect_refusal(["all_reduce", "-t", "2", "-g", "0"], "--ngpus")
expect_refusal(["all_reduce", "-t", "2", "--threads", "2"], "--threads")
expect_refusal(["all_reduce", "-t", "2000", "-g", "2000"], "4000000 ranks")
with open("/dev/full", "w") as full:
    for arguments in (["--help"], ["--version"], ["all_reduce", "--threads", "2", "-b", "8", "-n", "1"]):
        result = subprocess.run([PERF, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=100)
        expect(f"{arguments} into a full disk", result.returncode == 1 and "standard output cannot be written" in result.stderr, result)
result = run("all_reduce", "-g", "3", "-t", "1", "-b", "64", "-n", "2")
expect("-g and -t are ranks as threads", result.returncode == 0 and "# nRanks 3 " in result.stdout, result)
result = run("all_reduce", "-g", "2", "-b", "64", "-n", "2", WORLD_SIZE="2", RANK="0")
expect("-g above 1 under a launcher is refused", result.returncode == 2 and "start 4 processes" in result.stderr, result)

ROW = re.compile(r" {0,11}\d+  [ \d]{12}  +\w+  +\w+  +-?\d+(  +[\d.e+]+  +[\d.]+  +[\d.]+  +(\d+|N/A)|(  +N/A){4}){2}")
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "rows.json"
    result = run("all_reduce", "--threads", "3", "-b", "8", "-e", "8K", "-f", "32", "-n", "3", "-J", str(path), "--latency")
    expect("a run", result.returncode == 0, result)
    rows = [line for line in result.stdout.splitlines() if line and not line.startswith("#")]
    expect("three rows in nccl-tests' form", len(rows) == 3 and all(ROW.fullmatch(row) for row in rows), result)
    for words in ("# Out of bounds values : 0 OK", "# Avg bus bandwidth    : ", "(elements)", "# latency (us)", "#  Rank   2 Pid "):
        expect(f"the text has \"{words}\"", words in result.stdout, result)
    report = json.loads(path.read_text())
    expect("JSON says who", report["nranks"] == 3 and len(report["ranks"]) == 3 and report["complete"], result)
    sizes = [row["size"] for row in report["rows"]]
    expect("JSON has the rows", sizes == [8, 256, 8192], result)
    for row in report["rows"]:
        for side in (row["out_of_place"], row["in_place"]):
            latency = side["latency_us"]
            sound = side["wrong"] == 0 and side["time_us"] > 0 and len(side["rank_time_us"]) == 3
            expect("JSON rows are sound", sound and 0 < latency["min"] <= latency["p50"] <= latency["p99"], result)

expect_refusal(["all_reduce", "--exact", "-d", "int32"], "not sum of int32")
expect_refusal(["all_reduce", "--exact", "-o", "prod"], "not prod of float")
expect_refusal(["broadcast", "--exact"], "broadcast reduces nothing")
expect_refusal(["all_reduce", "--exact", "--tune", "/tmp/no_such_file"], "--exact")
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / "exact.json"
    result = run("all", "--threads", "3", "-b", "4K", "-n", "2", "-w", "1", "-d", "half", "--exact", "-J", str(path))
    expect("exact sums", result.returncode == 0, result)
    for row in json.loads(path.read_text())["rows"]:
        side = row["out_of_place"]
        compared = side.get("exact_ratio", 0) > 0 and side["free_us"] > 0
        expect(f"{row['collective']} is compared with the free order if it reduces", compared == (row["redop"] != "none"), result)
    ratios = re.findall(r"^# exact: \d+\.\d\d times the free order's time, in-place \d+\.\d\d times$", result.stdout, re.M)
    expect("a line for each row that reduces", len(ratios) == 6, result)

result = run("barrier", "--threads", "2", "-n", "3", "-c", "0")
expect("a barrier row", result.returncode == 0 and any(ROW.fullmatch(line) for line in result.stdout.splitlines()), result)

for name in ("scan", "exscan", "all_to_all_v", "gather_v"):
    blocks = ("--blocks", "skewed") if name.endswith("_v") else ()
    result = run(name, "--threads", "3", "-b", "12", "-e", "12K", "-f", "1024", "-n", "2", *blocks)
    expect(f"{name} is right", result.returncode == 0 and "# Out of bounds values : 0 OK" in result.stdout, result)

SAMPLES = pathlib.Path(PERF).parent.parent / "lib" / "tutti-samples"
if SAMPLES.exists():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rows.json"
        result = run("all_reduce", "--threads", "2", "-b", "1K", "-n", "2", "--device", "simulated", "-J", str(path),
                     TUTTI_PLUGIN_PATH=str(SAMPLES), TUTTI_SIMULATED_DEVICES="1")
        expect("a run on a device", result.returncode == 0 and "# Device simulated (of 1)" in result.stdout
               and "each byte of the buffers once" in result.stdout, result)
        report = json.loads(path.read_text())
        row = report["rows"][0]
        # Two inputs and two outputs of 1 KiB.
        bound = 4 * 1024 / report["device"]["copy_GBps_moved"] / 1e3
        expect("JSON has the device and the bound", report["device"]["devices"] == 1 and abs(row["bound_us"] / bound - 1) < 1e-9
               and row["out_of_place"]["wrong"] == 0, result)

# LD_PRELOAD separates by spaces, which the build folder's path may have.
plain = tempfile.TemporaryDirectory()
if DAMAGE:
    os.symlink(DAMAGE, f"{plain.name}/damage.so")
    DAMAGE = f"{plain.name}/damage.so"
    for damage, words in [("output", r"rank 1: all_reduce float sum of 64 bytes, out of place, before timing: output: index 15: expected"),
                          ("input", r"rank 1: .*input, which must not change,: index 0: expected"),
                          ("guard", r"rank 1: .*guard behind the buffers")]:
        result = run("all_reduce", "--threads", "2", "-b", "64", "-e", "64", "-n", "2", LD_PRELOAD=DAMAGE, TUTTI_PERF_DAMAGE=damage)
        expect(f"damaged {damage} is noticed", result.returncode == 1 and re.search(words, result.stderr) is not None
               and re.search(r"# Out of bounds values : \d+ FAILED", result.stdout) is not None, result)
    result = run("all_reduce", "--threads", "2", "-b", "64", "-e", "64", LD_PRELOAD=DAMAGE, TUTTI_PERF_DAMAGE="error")
    expect("a failed call ends the run", result.returncode == 1 and "rank 1: all_reduce: " in result.stderr, result)

print("\n".join(failures) if failures else "all as expected")
sys.exit(1 if failures else 0)
