#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_lists.py write|check TUTTI_CONFORM TEMPLATE.so TEMPLATE_ALGORITHM.so SIMULATED_DEVICE.so FOLDER

The must-pass lists of a version, from what tutti-conform --list offers at the level quick:
  contract cases that the template, which offers nothing optional, passes: everybody can
  the proof, for an algorithm
  of the matrix, for a transport: with each collective every type, operator, number of ranks, way of placing, memory, alignment and of
  calling that the suite tries with every transport here; for an algorithm, which may be for one collective or for certain
  numbers of ranks only: each way of calling; for a device with each collective every type, operator, number of ranks, way of
  placing, alignment and of calling, and the ranks as processes and as threads

`check` holds a kept list to the suite: each line must still be met by a case. Lines are added with `write` until the version is
released, and never changed afterwards."""
import json
import pathlib
import subprocess
import sys
import tempfile
from fnmatch import fnmatchcase

MODE, CONFORM, *PLUGINS, FOLDER = sys.argv[1:]
FOLDER = pathlib.Path(FOLDER)
TRANSPORTS, ALGORITHMS = ["shm", "tcp", "template"], ["bruck", "direct", "doubling", "halving", "line", "neighbour", "pat", "ring", "swing", "tree"]
FIELDS = {"collective": 1, "algorithm": 2, "transport": 3, "type": 4, "op": 5, "ranks": 6, "place": 9, "memory": 10, "align": 11, "calls": 12, "device": 13, "as": 14}
HEADER = """# What {a} {kind} must pass to be called conforming to 1.0: made by make_lists.py and kept. Each line is a pattern of case ids: * stands
# for anything, {{{kind}}} for the {kind}'s name. Of the cases that a line matches one at least must pass, none may fail, and none that is marked
# must-pass may be left out.
"""


def conform(*arguments):
    return subprocess.run([CONFORM, *(word for plugin in PLUGINS for word in ("--plugin", plugin)), *arguments], capture_output=True, text=True, timeout=250)


def listed(kind, name):
    done = conform("--level", "quick", f"--{kind}", name, "--list")
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    return [line.split()[0] for line in done.stdout.splitlines()[:-1]]


def named(case, kind, name):
    """The case's id with the subject's name taken out; None for cases about others or mixes."""
    parts = case.split("/")
    at = FIELDS[kind] if parts[0] == "matrix" else 2
    if len(parts) <= at or parts[at] != name or (parts[0] == "contract" and parts[1] != kind) or (parts[0] == "proof" and kind != "algorithm"):
        return None
    if parts[0] == "matrix" and len(parts) == 16 and kind != "device":
        return None
    parts[at] = "{" + kind + "}"
    return "/".join(parts)


def patterns(case, kind):
    """What a case of the matrix stands for: its collective with each of its other coordinates alone."""
    parts = case.split("/")
    if parts[0] == "proof":
        yield "proof/*/" + parts[2]
    if parts[0] != "matrix" or len(parts) != (16 if kind == "device" else 13):
        return
    for field in {"transport": ("type", "op", "ranks", "place", "memory", "align", "calls"), "algorithm": ("calls",),
                  "device": ("type", "op", "ranks", "place", "align", "calls", "as")}[kind]:
        kept = {FIELDS[kind], FIELDS[field]} | (set() if kind == "algorithm" else {FIELDS["collective"]})
        yield "/".join(part if i == 0 or i in kept else "*" for i, part in enumerate(parts))


def contract_passed(kind, name):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        conform("--level", "quick", f"--{kind}", name, "--case", f"contract/{kind}/{name}/*", "--json", file.name)
        return {named(r["id"], kind, name) for r in json.load(file)["results"] if r["verdict"] == "pass"}


def make(kind, names, template):
    offered = [{case for case in (named(case, kind, name) for case in listed(kind, name)) if case} for name in names]
    contract = set.intersection(*offered) & contract_passed(kind, template)
    matrix = set.intersection(*({pattern for case in cases for pattern in patterns(case, kind)} for cases in offered))
    contract -= {"contract/device/{device}/peers"}  # who has one device has no peers
    return sorted(contract) + sorted(matrix)


failed = 0
for kind, names, template, a in (("transport", TRANSPORTS, "template", "a"), ("algorithm", ALGORITHMS, "line", "an"), ("device", ["simulated"], "simulated", "a")):
    path = FOLDER / f"{kind}.txt"
    if MODE == "write":
        path.write_text(HEADER.format(kind=kind, a=a) + "".join(line + "\n" for line in make(kind, names, template)))
        continue
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    for name in names:
        cases = listed(kind, name)
        for line in lines:
            pattern = line.replace("{" + kind + "}", name)
            if not any(fnmatchcase(case, pattern) for case in cases):
                failed += 1
                print(f"{path.name}: no case of {kind} {name} matches {line}")
    print(f"{path.name}: {len(lines)} lines")
    failed += len(lines) < 10
sys.exit(1 if failed else 0)
