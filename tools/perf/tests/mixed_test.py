#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mixed_test.py TUTTIRUN TUTTI_PERF: four ranks on two pretended hosts, over shm inside and tcp between, are no slower than over
the slower one of these alone, also with more ranks than cores. Times are compared with each other, in one run, three tries."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

RUN, PERF = sys.argv[1:3]
MOST = 2  # times as long as over the slower transport alone
SIZES = ("8", "64K")


def time_of(folder, size, **environment):
    """Microseconds of an all_reduce."""
    report = pathlib.Path(folder) / "report.json"
    place = "[ -z \"$PRETENDED\" ] || export TUTTI_HOST_ID=h$((RANK / 2)); exec \"$0\" \"$@\""
    done = subprocess.run([RUN, "-n", "4", "--no-label", "sh", "-c", place, PERF, "all_reduce", "-b", size, "-e", size, "-n", "50", "-w",
                           "5", "-c", "0", "-J", str(report)], capture_output=True, text=True, timeout=100,
                          env={**os.environ, **environment})
    if done.returncode != 0:
        raise SystemExit(f"tutti-perf ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    (row,) = json.loads(report.read_text())["rows"]
    return min(row["out_of_place"]["time_us"], row["in_place"]["time_us"])


with tempfile.TemporaryDirectory() as place:
    for size in SIZES:
        tries = []
        for _ in range(3):
            alone = max(time_of(place, size, TUTTI_TRANSPORT=name) for name in ("shm", "tcp"))
            tries.append(time_of(place, size, PRETENDED="1") / alone)
            if tries[-1] <= MOST:
                break
        print(f"all_reduce of {size}: mixed takes {tries[-1]:.2f} times as long as the slower transport alone")
        if min(tries) > MOST:
            sys.exit(f"expected at most {MOST} in one of three tries, got {tries}")
