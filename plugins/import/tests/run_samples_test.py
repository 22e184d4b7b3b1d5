#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run_samples_test.py TUTTI_PERF SAMPLES: every sample is carried out by ranks that are threads, out of place and in place, with
several types and operators and odd sizes, and its results are compared with those of the reference."""
import json
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

PERF, SAMPLES = sys.argv[1:3]
NAMES = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter", "alltoall": "all_to_all"}
ROOTS = {"sample-broadcast": 1, "sample-scatter": 2}
REDUCING = ("all_reduce", "reduce_scatter", "reduce")


def described(file):
    """The name, the collective and the number of ranks of a plan."""
    if file.suffix == ".json":
        plan = json.loads(file.read_text())
        name, collective, ranks = plan["name"], plan["collective"], len(plan["gpus"])
    else:
        plan = xml.etree.ElementTree.parse(file).getroot()
        name, collective, ranks = plan.get("name"), plan.get("coll"), int(plan.get("ngpus"))
    return name, NAMES.get(collective, collective), ranks


files = sorted(path for path in pathlib.Path(SAMPLES).iterdir() if path.suffix in (".xml", ".json"))
if len(files) < 12:
    sys.exit(f"{SAMPLES} has {len(files)} samples, expected 12 at least")
for path in files:
    name, collective, ranks = described(path)
    for dtype, op in (("float", "sum"), ("int8", "max"), ("half", "avg")) if collective in REDUCING else (("double", "sum"), ("int8", "sum")):
        # Sizes from a byte on, most of which neither the ranks nor the pieces divide.
        command = [PERF, collective, "--threads", str(ranks), "-b", "8", "-e", "150000", "-f", "11", "-n", "2", "-w", "1", "-d", dtype,
                   "-o", op, "-r", str(ROOTS.get(name, 0))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100,
                              env={**os.environ, "TUTTI_IMPORT": str(path), "TUTTI_ALGO": f"{collective}:{name}", "TUTTI_VERIFY": "1"})
        if done.returncode != 0 or not re.search(r"Out of bounds values : 0 OK", done.stdout):
            sys.exit(f"$ TUTTI_IMPORT={path} TUTTI_ALGO={collective}:{name} {' '.join(command)}\n{done.stdout}{done.stderr}"
                     f"status {done.returncode}, expected 0 and no wrong values")
print(f"{len(files)} samples gave the reference's results")
