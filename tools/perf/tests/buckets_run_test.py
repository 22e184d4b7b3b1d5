#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""buckets_run_test.py TUTTIRUN TUTTI_PERF MODELS [DAMAGE_LIBRARY]: tutti-perf buckets in each of its ways: the form of its table
and of its JSON, right results, damaged ones that it notices, refusals, and that the models are what their generator makes. Times
are not judged."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

RUN, PERF = sys.argv[1:3]
MODELS = pathlib.Path(sys.argv[3])
DAMAGE = pathlib.Path(sys.argv[4]).resolve() if len(sys.argv) > 4 else None
WIRES = ["plain", "float16", "bfloat16", "float8"]
ROW = re.compile(r" *(\w+) +(caller|thread) +(\d+) +[\d.]+ +[\d.e+]+ +([\d.]+|N/A) +[\d.]+ +[\d.e+]+ +-?[\d.e+]+ +-?[\d.e+]+ "
                 r"+(-?[\d.]+|N/A) +(\d+|N/A)")
# 12 parameters that fill buckets of 64 KiB unevenly, one of them larger than a bucket.
SMALL = "\n".join(["# small", "name,shape,dtype,ready_us", *(f"layer{i}.weight,{size}x3,float32,{(12 - i) * 100}"
                                                              for i, size in enumerate([1, 7000, 50, 3000, 3000, 1, 9000, 64, 8, 2000, 5, 333]))]) + "\n"
failures = []


def run(*arguments, ranks=0, **environment):
    job = [RUN, "-n", ranks, "--no-label"] if ranks else []
    return subprocess.run([str(word) for word in (*job, PERF, "buckets", *arguments)], capture_output=True, text=True, timeout=100,
                          env={**os.environ, **environment})


def expect(what, condition, result=None):
    if not condition:
        failures.append(what + (f": status {result.returncode}\n{result.stdout}{result.stderr}" if result else ""))


def rows_of(result):
    """What stands in the table: wire, advance, buckets, speed, hidden, wrong; [] when it is no table."""
    lines = [line for line in result.stdout.splitlines() if line and not line.startswith("#")]
    found = [ROW.fullmatch(line) for line in lines]
    return [row.groups() for row in found] if all(found) else []


def test_ways(folder, small):
    """Every wire format with and without the thread, by one rank, threads and processes."""
    path = folder / "rows.json"
    few = (small, "--compute", 2, "-n", 2, "-w", 1, "--bucket-bytes", "64K", "--first-bucket-bytes", "16K")
    ways = [(wire, advance) for advance in ("caller", "thread") for wire in WIRES]
    for what, more, processes, nranks in (("one rank", (), 0, 1), ("threads", ("--threads", 3), 0, 3), ("processes", ("--feedback",), 2, 2),
                                          ("views", ("--views",), 2, 2)):
        result = run(*few, *more, "-J", path, ranks=processes)
        rows = rows_of(result)
        expect(what, result.returncode == 0 and [row[:2] for row in rows] == ways, result)
        expect(f"{what}: right results", all(row[5] == "0" for row in rows) and "# Out of bounds values : 0 OK" in result.stdout, result)
        report = json.loads(path.read_text())
        expect(f"{what}: JSON", report["complete"] and report["wrong"] == 0 and report["model"]["parameters"] == 12
               and report["nranks"] == len(report["ranks"]) == nranks, result)
        expect(f"{what}: JSON has the rows", [(row["wire"], row["advanced_by"]) for row in report["rows"]] == ways, result)
        for row in report["rows"]:
            sums = row["exposed_us"] - (row["step_us"] - row["compute_us"])
            sound = row["alone_us"] > 0 and row["step_us"] >= row["compute_us"] == 2000 and abs(sums) < 1e-6 and row["wait_us"] > 0
            expect(f"{what}: a row of the JSON: {row}", sound and row["buckets"] >= 4 and row["wrong"] == 0)
        sent = {row["wire"]: row["sent_bytes"] for row in report["rows"] if row["advanced_by"] == "caller"}
        if nranks == 1:
            expect(f"{what} sends nothing: {sent}", set(sent.values()) == {0})
        else:
            expect(f"{what}: formats are smaller: {sent}", sent["float8"] < sent["float16"] == sent["bfloat16"] < sent["plain"])


def test_hosts(small):
    """Over TCP between pretended hosts, whose links have a rate: that needs root and iproute2."""
    if os.geteuid() or not shutil.which("ip") or subprocess.run(["ip", "netns", "list"], capture_output=True).returncode:
        print("without pretended hosts: they need root and iproute2")
        return
    result = subprocess.run([RUN, "-n", "2", "--no-label", "--hosts-as-netns", "2", PERF, "buckets", small, "--compute", "2", "-n", "2",
                             "-w", "1"], capture_output=True, text=True, timeout=100, env={**os.environ, "NETNS_RATE": "1gbit"})
    rows = rows_of(result)
    expect("hosts", result.returncode == 0 and len(rows) == 8 and all(row[5] == "0" for row in rows) and "transports: tcp" in result.stdout,
           result)


def test_choices(folder, small):
    result = run(small, "--threads", 2, "--compute", 0, "-n", 1, "-w", 0, "-c", 0, "--wire", "float8", "--advance", "thread")
    rows = rows_of(result)
    expect("one way, not computing", result.returncode == 0 and [row[:2] + row[3:] for row in rows] ==
           [("float8", "thread", "N/A", "N/A", "N/A")], result)
    mixed = folder / "mixed.csv"
    mixed.write_text("name,shape,dtype,ready_us\na,100,bfloat16,20\nb,100x2,float32,10\nc,5,float64,20\nd,3,float16,30\n")
    for more in ((), ("--views",), ("--declared-order",)):
        result = run(mixed, "--threads", 2, "-n", 1, "-w", 0, "--advance", "caller", *more)
        expect("several types", result.returncode == 0 and [row[:1] + row[5:] for row in rows_of(result)] == [("plain", "0")], result)
    # An installed model, found beside the program.
    result = run("resnet50", "--compute", 1, "-n", 1, "-w", 0, "--wire", "plain", "--advance", "caller", "-c", 0)
    expect("resnet50", result.returncode == 0 and len(rows_of(result)) == 1 and "model: resnet50 parameters: 161 MiB: 97.5" in result.stdout,
           result)


def test_refusals(folder, small):
    broken = folder / "broken.csv"
    broken.write_text(SMALL.replace("layer3.weight,3000x3", "layer3.weight,3000by3"))
    mixed = folder / "mixed.csv"
    for arguments, words in ((("resnet51",), 'model "resnet51": known are gpt2, resnet50 (in '),
                             ((), "MODEL is required"),
                             ((folder / "none.csv",), "none.csv: cannot be read: No such file"),
                             ((broken,), 'broken.csv line 6: shape "3000by3": expected whole numbers of at least 1 with x between them'),
                             ((small, "--wire", "fp16"), "--wire fp16: known are plain, float16, bfloat16, float8, all"),
                             ((mixed, "--wire", "float8"), "--wire float8: wire formats are for float32, but "),
                             ((small, "--advance", "nobody"), "--advance nobody: known are caller, thread, both"),
                             ((small, "--feedback", "--wire", "plain"), "--feedback: plain loses nothing"),
                             ((small, "-J", "/no/such/folder/file"), "cannot be written"),
                             ((mixed, "--threads", 250), "in which the mean of more than 249 ranks cannot be checked; there are 250")):
        result = run(*arguments)
        expect(f"{arguments} should be refused with {words}", result.returncode == 2 and words in result.stderr, result)
    result = subprocess.run([PERF, "all_reduce", "buckets", small], capture_output=True, text=True, timeout=100)
    expect("a collective and buckets", result.returncode == 2 and "buckets and all_reduce: expected one of them" in result.stderr, result)
    other = folder / "other.csv"
    other.write_text(SMALL.replace("7000x3", "7001x3"))
    path = folder / "failed.json"
    choose = f'[ "$RANK" = 0 ] || set -- "{other}" -J "{path}"; exec "{PERF}" buckets "$@"'
    result = subprocess.run([RUN, "-n", "2", "--no-label", "sh", "-c", choose, "sh", small, "-J", path], capture_output=True, text=True,
                            timeout=100)
    expect("ranks with different models", result.returncode != 0 and "the ranks disagree: number of bytes is" in result.stderr, result)


def test_models(folder):
    subprocess.run([sys.executable, "-B", str(MODELS / "make_models.py"), str(folder)], check=True, timeout=100)
    for name in ("resnet50.csv", "gpt2.csv"):
        expect(f"{name} is what make_models.py makes", (folder / name).read_text() == (MODELS / name).read_text())


def test_damage(folder, small):
    # LD_PRELOAD separates by spaces, which the build folder's path may have.
    os.symlink(DAMAGE, folder / "damage.so")
    result = run(small, "--threads", 2, "--compute", 1, "-n", 1, "-w", 0, "--wire", "plain", "--advance", "caller",
                 LD_PRELOAD=str(folder / "damage.so"), TUTTI_PERF_DAMAGE="gradient")
    expect("damage is noticed", result.returncode == 1 and re.search(
        r"rank 1: buckets, wire plain, advanced by the caller, before timing: layer0.weight: index 0: expected -?1, got -?[01]\.\d+; "
        r"1 of 3 elements are wrong", result.stderr) and "# Out of bounds values : 4 FAILED" in result.stdout, result)


with tempfile.TemporaryDirectory() as place:
    here = pathlib.Path(place)
    (here / "small.csv").write_text(SMALL)
    test_ways(here, here / "small.csv")
    test_hosts(here / "small.csv")
    test_choices(here, here / "small.csv")
    test_refusals(here, here / "small.csv")
    (here / "models").mkdir()
    test_models(here / "models")
    if DAMAGE:
        test_damage(here, here / "small.csv")
print("\n".join(failures) or "all as expected")
sys.exit(bool(failures))
