#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""training_pictures.py check|write PROGRAMS [NAME...]

The pictures of docs/pictures/training/ are what the programs do: each program's second step on four ranks, traced, and drawn by
`tutti-trace --sequence`. A sequence has no times, so that every run gives the same picture, to the byte. `write` makes them.
And the bytes of docs/training.md's first table are those that each program computes by the formulas."""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

mode, programs, root = sys.argv[1], Path(sys.argv[2]), Path(__file__).resolve().parents[3]
RANKS = 4
NAMES = ["data_parallel", "tensor_parallel", "zero", "zero3", "mixture_of_experts", "pipeline", "mesh"]
FOLDER = root / "docs/pictures/training"


PAGE = (root / "docs/training.md").read_text()


def run(*command, **environment):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=100, env={**os.environ, **environment})
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def picture(name, folder):
    """The picture as the program draws it now; and its bytes are compared with the page."""
    traces = Path(folder, name)
    traces.mkdir()
    said = run(programs / "tuttirun", "-n", RANKS, programs / name, "--epochs", 1, TUTTI_TRACE=str(traces))
    computed = re.search(r"by the formulas +(\d+)", said)
    row = re.search(rf"^\|.*\[`{name}`\].*\| ([\d,]+) \|$", PAGE, re.MULTILINE)
    if not computed or not row or int(row[1].replace(",", "")) != int(computed[1]):
        faults.append(f"docs/training.md: its row of {name} has {row[1] if row else 'no number'}, the program {computed and computed[1]} bytes")
    run(programs / "tutti-trace", traces, "--sequence", traces / "step.svg", "--barrier", 1)
    return (traces / "step.svg").read_text()


faults = []
with tempfile.TemporaryDirectory() as folder:
    for name in sys.argv[3:] or NAMES:
        drawn, kept = picture(name, folder), FOLDER / f"{name}.svg"
        if mode == "write":
            FOLDER.mkdir(exist_ok=True)
            kept.write_text(drawn)
        elif not kept.exists() or kept.read_text() != drawn:
            known, now = kept.read_text().splitlines() if kept.exists() else [], drawn.splitlines()
            faults += [f"{name}: the picture has, the program has not: {line}" for line in known if line not in now]
            faults += [f"{name}: the program has, the picture has not: {line}" for line in now if line not in known]
            faults.append(f"{kept}: it is not what the program does: training_pictures.py write PROGRAMS {name}")
others = {path.name for path in FOLDER.iterdir()} - {f"{name}.svg" for name in NAMES}
if others:
    faults.append(f"{FOLDER}: no program has these pictures: {sorted(others)}")
print("\n".join(faults) or f"{len(NAMES)} pictures are what the programs do")
sys.exit(bool(faults))
