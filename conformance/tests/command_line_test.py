#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""command_line_test.py TUTTI_CONFORM PLUGIN_FOLDER SAMPLE_FOLDER: tutti-conform as its user types it, rightly and wrongly."""
import json
import pathlib
import subprocess
import sys
import tempfile

import expectations
from expectations import end, expect

CONFORM, PLUGINS, SAMPLES = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
TEMPLATE, LINE = SAMPLES / "libtutti-template.so", SAMPLES / "libtutti-template-algorithm.so"
CASE = "matrix/all_reduce/ring/shm/float32/sum/n3/c100/root0/out/heap/aligned/block"
SMALL = ["--ranks", "2", "--collective", "all_reduce", "--algorithm", "ring", "--transport", "shm", "--level", "smoke"]


def conform(*arguments):
    run = subprocess.run([CONFORM, *map(str, arguments)], text=True, timeout=200, capture_output=True)
    return run.returncode, run.stdout, run.stderr


def refused(*arguments, says):
    expectations.refused([CONFORM, *arguments], says)


def passes(*arguments, says=""):
    status, out, err = conform(*arguments)
    expect(f"{arguments} passes", status == 0 and says in out, f"{status}\n{out}{err}")
    expect(f"{arguments}: the last line counts", " passed (" in out.splitlines()[-1] and " not run" in out.splitlines()[-1], out)
    return out


refused("--transport", "carrier-pigeon", says="shm")
refused("--transport", "shm+mapped", says='there is no transport "mapped"')
refused("--transport", "shm+pigeon", says='unknown value "pigeon"')
refused("--transport", "tcp+tcp", says="is not one transport that stays within a host and one that reaches other hosts")
status, out, err = conform("--transport", "mapped", "--device", "host", "--level", "smoke", "--case", "matrix/*")
expect("without a device nothing is mapped, and that does not conform",
       status == 1 and "no device whose memory other processes can map" in out + err, out + err)
refused("--algorithm", "quicksort", says="known are bruck, canonical_direct")
refused("--collective", "all_confuse", says="known are broadcast, reduce")
refused("--type", "float128", says="known are int8")
refused("--ranks", "0", says="expected 1 to 64, got 0")
refused("--ranks", "65", says="expected 1 to 64, got 65")
refused("--ranks", "many", says="--ranks")
refused("--ranks", "-1", says="expected 1 to 64, got -1")
refused("--ranks", "9999999999999", says="expected 1 to 64, got 9999999999999")
refused("--type", "float3", says='did you mean "float32"?')
refused("--transport", "tpc", says='did you mean "tcp"?')
refused("--level", "standrad", says='known are smoke, quick, standard, full; did you mean "standard"?')
refused("--level", says="--level: expected one value")
refused("--seed", "x", says="--seed: expected a whole number")
refused("--seed", "-1", says="--seed: expected a whole number")
refused("--patience", "0", says="--patience: expected a number from 1 to 100, got 0")
for share in ("0/3", "4/3", "3", "a/b", "1/99999"):
    refused("--share", share, says=f'expected K/N, the K-th of N shares, with K from 1 to N and N at most 10000, got "{share}"')
refused("muntants", says='there is no command "muntants"; known are mutants, schedule-mutants, soak, fuzz, contract, verify-report; did you mean "mutants"?')
refused("soak", "--minutes", "0", says="--minutes: expected a number from 0.01 to 1000000, got 0")
refused("soak", "--minuts", "1", says='there is no option "--minuts"; did you mean "--minutes"?')
refused("mutants", "serves-strangres-first", says='did you mean "serves-strangers-first"?')
refused("verify-report", "/no/such/folder", says="is no folder")
refused("verify-report", "a", "b", says="one word too many")
refused("--json", "/no/such/folder/x.json", says="cannot be written: No such file or directory")
refused("--plugin", "/no/such/file.so", says="cannot be loaded: there is no such file")
refused("--plugin", PLUGINS, says="is a folder")
refused("--plugin", "", says="is no file's name")
refused("--plugin", __file__, says="it is not a shared library")
refused("--netns", "no-such", says="there is no network namespace no-such-0")
refused("--reproduce", CASE, says="expected CASE@SEED")
refused("--reproduce", CASE + "@", says="expected CASE@SEED")
refused("--reproduce", CASE + "@zz", says="expected CASE@SEED")
refused("--case", "matrix/all_reduce/no", says="there is no case")
refused("--case", "contract/transport/shm/no", says="one that begins alike is contract/transport/shm/")
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

# Shares of one seed are all cases, each once.
whole = conform("--list", *SMALL)[1].splitlines()[:-1]
shares = [conform("--list", *SMALL, "--share", f"{k}/3")[1].splitlines()[:-1] for k in (1, 2, 3)]
expect("three shares are the whole", sorted(sum(shares, [])) == sorted(whole) and all(shares), shares)
passes(*SMALL, "--share", "2/3", says="the share 2/3 of all, they prove no conformance")

# A found plugin enters the matrix; nothing in the suite knows its name.
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
end()
