#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fuzz_command_test.py TUTTI_CONFORM MUTANTS: the command fuzz as its user types it, and a broken transport that it must find."""
import os
import pathlib
import re
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tests"))
import expectations
from expectations import end, expect, run

CONFORM, MUTANTS = map(lambda path: str(pathlib.Path(path).resolve()), sys.argv[1:3])
PLANTED = {"TUTTI_MUTANT": "drops-last-byte", "TUTTI_MUTANT_OVER": "shm"}
HEALTHY = {"TUTTI_MUTANT_OVER": "shm"}


def fuzz(*arguments, environment=None):
    return run([CONFORM, "fuzz", *arguments], 400, {**os.environ, **(environment or {})})


def refused(*arguments, says):
    expectations.refused([CONFORM, "fuzz", *arguments], says)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    refused("--only", "mixd", says='--only: unknown value "mixd"; known are mixed')
    refused("--only", "mixd", says='did you mean "mixed"?')
    refused("--seconds", "0", says="--seconds: expected a number from 1 to 1000000, got 0")
    refused("--jobs", "65", says="--jobs: expected a number from 0 to 64, got 65")
    refused("--times", "x", says="--times: expected a number from 1 to 1000000, got x")
    refused("--program", "x", says="--program: expected a whole number")
    refused("--program", "1", "--replay", "file", says="give one")
    refused("--replay", "no-such", says="--replay: no-such cannot be read")
    refused("--ranks", "17", says="--ranks is 17, expected 1 to 16")
    refused("--transport", "mapped", says="--transport mapped: it needs a device")
    refused("--only", "pause", "--seconds", "2", says="no theme is left")
    refused("--print", says="--print: give the program, by --program or --replay")
    refused("--second", "2", says='did you mean "--seconds"?')
    pathlib.Path("bad").write_text("program ranks=1 process=0 host=0\n1 dance\n")
    refused("--replay", "bad", says='line 2: there is no kind of event "dance"')
    pathlib.Path("bad").write_text("program ranks=1 process=0 host=0\n1 destroy comm=1\n")
    refused("--replay", "bad", says="a communicator is made before it is used")

    text = [fuzz("--program", 7, "--print")[1] for _ in range(2)]
    expect("a seed is a program", text[0] == text[1] and text[0].startswith("program seed=7 "), text[0])
    status, out = fuzz("--program", 7, "--only", "mixed", "--transport", "shm")
    expect("one program runs and is counted", status == 0 and re.search(r"^1 programs, \d+ calls, 0 findings, seed 0x7$", out, re.M), out)

    # The last byte of every message does not arrive: found, made small, and had again from the file.
    mutant = ["--plugin", MUTANTS, "--transport", "mutant", "--ranks", 3, "--only", "mixed"]
    status, out = fuzz(*mutant, "--seconds", 60, environment=PLANTED)
    expect("the broken transport is found, by a result or by a checksum",
           status == 1 and "FOUND" in out and ("wrong: rank" in out or "their checksum is wrong" in out), out)
    file = re.search(r"again: tutti-conform fuzz --replay (\S+)", out)
    expect("the smallest program is named", file is not None, out)
    if file:
        small = pathlib.Path(file[1]).read_text()
        expect("it is printed, too", small in out, out)
        expect("it is small", len([line for line in small.splitlines() if line[0].isdigit()]) <= 3, small)
        again = [*mutant[:2], "--replay", file[1]]
        expect("it fails again", fuzz(*again, environment=PLANTED)[0] == 1)
        expect("without the fault it does not", fuzz(*again, environment=HEALTHY)[0] == 0)
end()
