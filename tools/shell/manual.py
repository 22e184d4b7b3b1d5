#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""manual.py HELP2MAN PROGRAM NAME VERSION SUMMARY OUTPUT: writes a program's man page from its --help, and that of its subcommands."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HELP2MAN, PROGRAM, NAME, VERSION, SUMMARY, OUTPUT = sys.argv[1:]
COLUMN = 30  # where CLI11 begins the descriptions of options


def help_of(*subcommands):
    done = subprocess.run([PROGRAM, *subcommands, "--help"], text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode:
        sys.exit(f"manual.py: {' '.join([PROGRAM, *subcommands])} --help ended with status {done.returncode}, expected 0:\n{done.stdout}")
    return done.stdout.replace(PROGRAM, NAME)


def tidy(text):
    """As help2man reads it: "-h, --help", and two spaces at least before a description."""
    lines = []
    for line in text.splitlines():
        line = re.sub(r"^  (-\w),(--)", r"  \1, \2", line)
        at = COLUMN + line.startswith("  -") * (line[4:6] == ", ")
        if line.startswith("  ") and len(line) > at and line[at - 1] == " " and line[at - 2 : at + 1].strip() == line[at - 2] + " " + line[at]:
            line = f"{line[:at]} {line[at:]}"
        lines.append(line)
    return "\n".join(lines)


def subcommands(text):
    listed = re.search(r"^Subcommands:\n((?:  .*\n?)+)", text, re.MULTILINE)
    return re.findall(r"^  (\w[\w-]*)", listed[1], re.MULTILINE) if listed else []


text = help_of()
parts = [tidy(text)]
for name in subcommands(text):
    more = help_of(name)
    # Its options and arguments; what stands before and after them is in the program's own help.
    begin = re.search(r"^(Positionals|Options):", more, re.MULTILINE)
    if begin:
        listed = [line for line in more[begin.start():].splitlines() if line.startswith("  ") and not line.startswith("  -h,--help")]
        if listed:
            parts.append("\n".join([f"Arguments and options of {name}:", tidy("\n".join(listed))]))

with tempfile.TemporaryDirectory() as folder:
    stand_in = pathlib.Path(folder) / NAME
    (pathlib.Path(folder) / "help").write_text("\n\n".join(parts) + "\n")
    stand_in.write_text('#!/bin/sh\nexec cat "$(dirname "$0")/help"\n')
    stand_in.chmod(0o755)
    done = subprocess.run([HELP2MAN, "--no-info", f"--name={SUMMARY}", f"--version-string={VERSION}", f"--source=Tutti {VERSION}",
                           f"--output={OUTPUT}", str(stand_in)], env={**os.environ, "LC_ALL": "C"})
    sys.exit(done.returncode)
