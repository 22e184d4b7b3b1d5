#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""command_line_test.py TUTTI_CONFORM PLUGIN_FOLDER SAMPLE_FOLDER: tutti-conform as its user types it, rightly and wrongly."""
import json
import pathlib
import subprocess
import sys
import tempfile

CONFORM, PLUGINS, SAMPLES = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
TEMPLATE, LINE = SAMPLES / "libtutti-template.so", SAMPLES / "libtutti-template-algorithm.so"
CASE = "matrix/all_reduce/ring/shm/float32/sum/n3/c100/root0/out/heap/aligned/block"
SMALL = ["--ranks", "2", "--collective", "all_reduce", "--algorithm", "ring", "--transport", "shm", "--level", "smoke"]
failures = 0


def conform(*arguments):
    run = subprocess.run([CONFORM, *map(str, arguments)], text=True, timeout=200, capture_output=True)
    return run.returncode, run.stdout, run.stderr


def expect(what, holds, seen=""):
    global failures
    if not holds:
        failures += 1
        print(f"FAILED: {what}\n{seen}")


def refused(*arguments, says):
    status, out, err = conform(*arguments)
    expect(f"{arguments} is refused with status 2 and says {says!r}", status == 2 and says in out + err, f"{status}\n{out}{err}")


def passes(*arguments, says=""):
    status, out, err = conform(*arguments)
    expect(f"{arguments} passes", status == 0 and says in out, f"{status}\n{out}{err}")
    expect(f"{arguments}: the last line counts", " passed (" in out.splitlines()[-1] and " not run" in out.splitlines()[-1], out)
    return out


refused("--transport", "carrier-pigeon", says="shm")
refused("--transport", "shm+pigeon", says='unknown value "pigeon"')
refused("--transport", "tcp+tcp", says="is not one transport that stays within a host and one that reaches other hosts")
refused("--algorithm", "quicksort", says="known are bruck, direct")
refused("--collective", "all_confuse", says="known are broadcast, reduce")
refused("--type", "float128", says="known are int8")
refused("--ranks", "0", says="expected 1 to 64, got 0")
refused("--ranks", "65", says="expected 1 to 64, got 65")
refused("--ranks", "many", says="--ranks")
refused("--level", "extreme", says="--level")
refused("--seed", "x", says="--seed")
refused("--plugin", "/no/such/file.so", says="cannot be loaded")
refused("--plugin", __file__, says="cannot be loaded")
refused("--netns", "no-such", says="there is no network namespace no-such-0")
refused("--reproduce", CASE, says="expected CASE@SEED")
refused("--reproduce", CASE + "@", says="expected CASE@SEED")
refused("--reproduce", CASE + "@zz", says="expected CASE@SEED")
refused("--case", "matrix/all_reduce/no", says="there is no case")
refused("--case", CASE.replace("/ring/", "/quicksort/"), says="quicksort")
refused("--case", CASE.replace("root0", "root3"), says="there is no case")
refused("--case", "*nothing-like-it*", says="matches")
refused("--frobnicate", says="--frobnicate")

out = passes("--case", CASE, says="prove no conformance")
expect("a seed is printed with the number of cases", "1 cases, about" in out and "seed 0x1" in out, out)
passes("--reproduce", CASE + "@1f")
passes(*SMALL, says="conforming, at this level")
listed = [conform("--list", *SMALL)[1] for _ in range(2)]
expect("--list is the same each time and has proofs, contracts and the matrix", listed[0] == listed[1] and all(
    f"\n{kind}/" in "\n" + listed[0] for kind in ("proof", "matrix")), listed[0])
expect("filters hold", all("/ring" in line and "all_reduce" in line for line in listed[0].splitlines()
                           if line.startswith(("matrix/", "proof/"))), listed[0])

# What is found enters the matrix; nothing in the suite knows its name.
for plugin, names in ((TEMPLATE, ["--transport", "template"]), (LINE, ["--algorithm", "line", "--transport", "shm"])):
    ids = conform("--plugin", plugin, "--level", "smoke", "--list", *names)[1]
    expect(f"{plugin.name} enters the matrix", f"/{names[1]}/" in ids, ids)
    out = passes("--plugin", plugin, "--level", "smoke", "--ranks", "3", *names, "--case", "matrix/*")

with tempfile.TemporaryDirectory() as folder:
    report = pathlib.Path(folder) / "report.json"
    passes("--case", CASE, "--json", report)
    result = json.loads(report.read_text())["results"][0]
    traffic = result["attestation"]["traffic"]
    expect("the attestation names algorithm, plan, plugins and bytes",
           result["attestation"]["algorithm"] == "ring" and int(str(result["attestation"]["plan_hash"]), 0) and
           {"algorithms", "shm"} <= set(result["attestation"]["plugins"]) and
           {row["transport"] for row in traffic} == {"shm"} and {row["rank"] for row in traffic} == {0, 1, 2}, result)
    sums = [sum(row[key] for row in traffic) for key in ("sent_bytes", "received_bytes")]
    expect("as many bytes are received as sent", sums[0] == sums[1] > 0, result)
print("0 failed" if failures == 0 else f"{failures} failed")
sys.exit(1 if failures else 0)
