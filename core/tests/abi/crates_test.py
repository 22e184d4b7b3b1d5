#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""crates_test.py NAME=LIBRARY...: the crates of the core in their order, each with its static library. None needs a symbol that only
one below it has: a declaration may name what no include shows."""
import subprocess
import sys

crates = [argument.split("=", 1) for argument in sys.argv[1:]]
if not crates:
    sys.exit(__doc__)


def symbols(library, *options):
    listed = subprocess.run(["nm", "-P", *options, library], check=True, capture_output=True, text=True).stdout
    return {line.split()[0] for line in listed.splitlines() if line and not line.endswith(":")}


home = {}  # of each symbol: the first crate that has it
for place, (name, library) in enumerate(crates):
    for symbol in symbols(library, "--defined-only", "--extern-only"):
        home.setdefault(symbol, place)
if not home:
    sys.exit("the libraries define nothing")
errors = []
for place, (name, library) in enumerate(crates):
    for symbol in sorted(symbols(library, "--undefined-only")):
        if home.get(symbol, place) > place:
            shown = subprocess.run(["c++filt", symbol], capture_output=True, text=True).stdout.strip()
            errors.append(f"{name} needs {shown} of {crates[home[symbol]][0]}, which stands below it")
print("\n".join(errors) if errors else f"{len(home)} symbols of {len(crates)} crates keep the order")
sys.exit(1 if errors else 0)
