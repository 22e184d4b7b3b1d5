#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nccl_net_test.py TUTTI_CONFORM LIB: tutti-conform --nccl-net with the samples, with broken plugins and with what is none."""
import hashlib
import json
import os
import pathlib
import re
import sys
import tempfile

import expectations
from expectations import end, expect, refused

CONFORM, LIB = sys.argv[1], pathlib.Path(sys.argv[2])
SAMPLES, BROKEN = LIB / "nccl", LIB / "tutti-mutants"
FAULTY = BROKEN / "libnccl-net-faulty.so"
MUTANTS = expectations.run([CONFORM, "mutants", "--list"], 200)[1]


def conform(network, *arguments, fault="none"):
    return expectations.run([CONFORM, "--nccl-net", network, *arguments], 200, {**os.environ, "TUTTI_MUTANT": fault})


def named(out):
    """The clause that the page of a run names first."""
    found = re.search(r"^  broken    ([\w.-]+):", out, re.M)
    return found[1] if found else None


# The plugin's own table, and a collective over it.
for sample in ("sample8", "sample11"):
    network = SAMPLES / f"libnccl-net-{sample}.so"
    status, out = conform(network, "--case", f"contract/nccl/{sample}/*")
    expect(f"{sample} keeps NCCL's contract", status == 0 and "0 failed" in out, out)
with tempfile.TemporaryDirectory() as folder:
    report, file = pathlib.Path(folder) / "report.json", (SAMPLES / "libnccl-net-sample8.so").resolve()
    status, out = conform(file, "--case", "contract/nccl/sample8/loads", "--json", report)
    plugins = [p for p in json.loads(report.read_text())["manifest"]["plugins"] if p["path"] == str(file)]
    expect("the report has the file's name, version and digest", [(p["id"], p["version"], p["sha256"]) for p in plugins] == [
        ("sample", "ncclNetPlugin_v8", hashlib.sha256(file.read_bytes()).hexdigest())], plugins)
status, out = conform(SAMPLES / "libnccl-net-sample8.so", "--level", "smoke", "--list")
for kind in ("contract/nccl/sample8/groups", "contract/transport/nccl:sample8/", "matrix/"):
    expect(f"the level has {kind}", f"\n{kind}" in out, out)
status, out = conform("sample8", "--list")
expect("a name that the loader does not find is refused", status == 2 and "libnccl-net-NAME.so in LD_LIBRARY_PATH" in out, out)

# Broken ones: the vendor reads the clause. `tutti-conform mutants` has them all, with every case.
for fault, case in (("nameless", "properties"), ("long-handle", "listens"), ("deregmr-fails", "registers"), ("null-is-an-error", "sends-first"),
                    ("request-reused", "order"), ("irecv-done-early", "sizes"), ("size-too-small", "sizes"), ("group-has-one-size", "groups"),
                    ("reordered", "order"), ("flush-ignored", "flush"), ("leaks-descriptor", "closes")):
    clause = re.search(rf"^nccl-{fault} +(nccl\.[a-z-]+)", MUTANTS, re.M)[1]
    status, out = conform(FAULTY, "--case", f"contract/nccl/faulty/{case}", fault=f"nccl-{fault}")
    expect(f"{fault} is called a breach of {clause}", status == 1 and named(out) == clause, out)
status, out = conform(FAULTY, "--case", "contract/nccl/faulty/*", fault="nccl-tags-ignored")
expect("of all cases one fails, and names the clause", status == 1 and named(out) == "nccl.tags" and ", 1 failed," in out, out)
again = rf"--nccl-net '{re.escape(str(FAULTY.resolve()))}'( --patience [\d.]+)? --reproduce 'contract/nccl/faulty/groups@1'"
expect("the line that reproduces it has the option", re.search(again, out), out)

status, out = expectations.run([CONFORM, "--nccl-net", FAULTY], 200, {**os.environ, "TUTTI_NCCL_NET_VERSION": "11"})
expect("a version that the plugin has not is refused", status == 2 and "no ncclNetPlugin_v11 to" in out and "exports ncclNetPlugin_v8" in out, out)

for version in ("abc", "8x", "5", "13", "-8"):
    status, out = expectations.run([CONFORM, "--nccl-net", FAULTY], 200, {**os.environ, "TUTTI_NCCL_NET_VERSION": version})
    expect(f"version {version} is refused", status == 2 and f'"{version}", expected a version of 6 to 12' in out, out)

# What is none. Each refusal names the file, what was found and what is expected.
for file, says in ((BROKEN / "libnccl-net-version5.so", "it exports ncclNetPlugin_v5"),
                   (BROKEN / "libnccl-net-version13.so", "it exports ncclNetPlugin_v13"),
                   (LIB / "tutti" / "libtutti-nccl-net.so", "it exports none of any version"),
                   (pathlib.Path(__file__), "cannot be loaded"),
                   (LIB, "is a folder"),
                   (LIB / "libnccl-net-nowhere.so", "there is no such file"),
                   ("", "neither a file nor a name")):
    refused([CONFORM, "--nccl-net", file], says)
    refused([CONFORM, "--nccl-net", file], str(file))
for fault, says in (("nccl-init-fails", "init returned 2, expected 0 (ncclSuccess): the driver of eth9 is too old"),
                    ("nccl-no-adapter", "devices reports 0 adapters")):
    status, out = conform(FAULTY, fault=fault)
    expect(f"{fault} is refused", status == 2 and says in out and str(FAULTY) in out and "ncclNetPlugin_v6" in out, out)
end()
