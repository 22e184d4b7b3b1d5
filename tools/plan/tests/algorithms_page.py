#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""algorithms_page.py check|write TUTTI_PLAN docs/algorithms.md

The page lists exactly the algorithms that there are: its tables are those of `tutti-plan algorithms --markdown`, and each
algorithm has a row with its source and cost. `write` puts the tables in."""
import re
import subprocess
import sys
from pathlib import Path

import page_part

mode, program, page = sys.argv[1], sys.argv[2], Path(sys.argv[3])
done = subprocess.run([program, "algorithms", "--markdown"], capture_output=True, text=True, timeout=50)
if "is TUTTI_PLUGIN_PATH right?" in done.stderr:
    print("the algorithms plugin is not there")
    sys.exit(77)
if done.returncode:
    sys.exit(f"tutti-plan algorithms --markdown: status {done.returncode}: {done.stderr}")
what = "tutti-plan algorithms --markdown"
if mode == "write":
    page_part.write(page, what, done.stdout)
    sys.exit(0)

faults = page_part.differences(page, what, done.stdout)
if faults:
    faults.append(f"{page}: its tables differ from the program's: algorithms_page.py write TUTTI_PLAN PAGE")
head = page_part.split(page, what)[0]
there = set(re.findall(r"^\| `(\w+)` \|", done.stdout.split("\n### ")[0], re.M))
costs = head.split("## Sources and costs")[-1].split("\n## ")[0]
described = set(re.findall(r"^\| `(\w+)`", costs, re.M))
faults += [f"{page}: \"Sources and costs\" has no row for {name}" for name in sorted(there - described)]
faults += [f"{page}: \"Sources and costs\" has a row for {name}, which does not exist" for name in sorted(described - there)]
print("\n".join(faults) or f"{len(there)} algorithms, all on the page")
sys.exit(1 if faults or not there else 0)
