#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Where the loader looks for the libraries of built and installed files.

  loader_path.py FOLDER...   fails where a file below has a RUNPATH with a part that is empty or relative: the loader begins
                             both at the folder in which the program is started, which may hold anybody's code.
"""
import pathlib
import re
import subprocess
import sys


def problems(path):
    """The sentences about one file, which need not be a program or a library."""
    if path.is_symlink() or not path.is_file():
        return []
    with path.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            return []
    told = subprocess.run(["readelf", "--wide", "--dynamic", path], check=True, capture_output=True, text=True).stdout
    result = []
    for kind, value in re.findall(r"\((RPATH|RUNPATH)\).*\[(.*)\]", told):
        relative = [part for part in value.split(":") if not re.match(r"/|\$ORIGIN(/|$)", part)]
        if relative:
            result.append(f"{path}: {kind} is [{value}], of which \"{relative[0]}\" depends on the folder in which the program is "
                          "started; expected parts that begin with / or $ORIGIN")
    return result


def problems_below(*folders):
    return [problem for folder in folders for path in sorted(pathlib.Path(folder).rglob("*")) for problem in problems(path)]


if __name__ == "__main__":
    found = problems_below(*sys.argv[1:])
    sys.exit("\n".join(found) if found else 0)
