#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""order_page.py check|write TUTTI_PLAN ROOT

The table of docs/order.md, what the canonical order costs, is what tutti-plan says: of all algorithms the one that is
simulated fastest, and of those that `verify` finds in the canonical order. `write` puts the table in."""
import json
import subprocess
import sys
from pathlib import Path

import page_part

mode, program, root = sys.argv[1], sys.argv[2], Path(sys.argv[3])
page, what = root / "docs/order.md", "order_page.py"
NETWORKS = [
    ("16 hosts of 1", ["--network", root / "tools/plan/networks/ethernet.json", "-n", 16], ["--hosts", ",".join("1" * 16)]),
    ("3 hosts of 5", ["--topology", root / "tools/info/topologies/three_hosts.json"], ["--hosts", "5,5,5"]),
    ("8 hosts of 8", ["--network", root / "tools/plan/networks/islands.json", "-n", 64], ["--hosts", ",".join("8" * 8)]),
]
COLLECTIVES = ["all_reduce", "reduce", "reduce_scatter", "scan", "exclusive_scan"]
NOTHING = 1.02  # times as long: no row of its own
SIZES = ["8", "64K", "4M"]


def plan(*arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=100)
    if "is TUTTI_PLUGIN_PATH right?" in done.stderr:
        print("the algorithms plugin is not there")
        sys.exit(77)
    if done.returncode:
        sys.exit(f"tutti-plan {arguments}: status {done.returncode}: {done.stderr}")
    return done.stdout


def time_of(seconds):
    return f"{seconds * 1e6:.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"


def cost(run):
    """Steps and blocks per rank, and the time."""
    ranks = run["ranks"]
    blocks = run["bytes"] / run["block_bytes"] / ranks
    return f"{run['steps'] / ranks:.0f} steps, {blocks:.2f} blocks, {time_of(run['seconds'])}"


def table():
    rows, alike, all_of_them = [], 0, 0
    for name, network, ranks in NETWORKS:
        for collective in COLLECTIVES:
            trials = json.loads(plan("tune", collective, *network, "--sizes", ",".join(SIZES), "--json"))["trials"]
            trials = [trial for trial in trials if "seconds" in trial]  # not those that an algorithm refuses
            ordered = {algorithm for algorithm in {trial["algorithm"] for trial in trials}
                       if "TUTTI_ORDER=canonical" in plan("verify", collective, algorithm, *ranks)}
            for size, of_bytes in zip(SIZES, sorted({trial["block_bytes"] for trial in trials})):
                here = sorted((trial["seconds"], trial["algorithm"]) for trial in trials if trial["block_bytes"] == of_bytes)
                free, canonical = here[0], next(trial for trial in here if trial[1] in ordered)
                all_of_them += 1
                if canonical[0] <= NOTHING * free[0]:
                    alike += 1
                    continue
                runs = [json.loads(plan("simulate", collective, algorithm, *network, "--size", size, "--json"))
                        for _, algorithm in (free, canonical)]
                rows.append(f"| {name} | {collective} | {size} | `{free[1]}`: {cost(runs[0])} | "
                            f"`{canonical[1]}`: {cost(runs[1])} | "
                            f"{runs[1]['seconds'] / runs[0]['seconds']:.2f} |")
    return (f"In {alike} of {all_of_them} cases the order costs nothing, or less than 2 %. The others:\n\n"
            "| ranks | collective | block | free order | canonical order | times as long |\n"
            "| --- | --- | --- | --- | --- | --- |\n" + "\n".join(rows) + "\n")


text = table()
if mode == "write":
    page_part.write(page, what, text)
    sys.exit(0)
faults = page_part.differences(page, what, text)
if faults:
    faults.append(f"{page}: its table differs from the program's: order_page.py write TUTTI_PLAN ROOT")
print("\n".join(faults) or "the table is on the page")
sys.exit(bool(faults))
