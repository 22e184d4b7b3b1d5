#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs into a fresh folder, moves the prefix, and finds no path of the build in what is left there."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import installed
import loader_path

if installed.NOTE.is_file():  # of a run that was cut short
    shutil.rmtree(installed.folder(), ignore_errors=True)
folder = pathlib.Path(tempfile.mkdtemp(prefix="tutti-package-")).resolve()
installed.NOTE.parent.mkdir(exist_ok=True)
installed.NOTE.write_text(str(folder))
first = folder / "first"
done = subprocess.run([installed.CMAKE, "--install", installed.BUILD, "--prefix", first], text=True,
                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
if done.returncode:
    sys.exit(f"{done.stdout}\ncmake --install failed: is everything built?")
first.rename(folder / "prefix")

files = [path for path in installed.prefix().rglob("*") if path.is_file() and not path.is_symlink()]
names = {path.name for path in files}
for name in ("tutti.h", "tutti.hpp", "mpi.h", "mpi.hpp", "libtutti-meeting-pmi1.so", "one-node-slurm", "entry.h", "transport.hpp", "TuttiConfig.cmake", "TuttiConfigVersion.cmake",
             "plugin.map", "tutti.pc", "tutti-sdk.pc", "tutti-abi.pc", "libtutti-algorithms.so", "tuttirun", "tutti-info", "tutti-doctor", "tutti-conform", "report-1.schema.json", "transport.txt"):
    installed.expect(f"{name} is installed", name in names)
gone = [str(path) for path in (installed.SOURCE, installed.BUILD, first)]
for path in files:
    if path.read_bytes()[:4] == b"\x7fELF":
        text = "\n".join(re.findall(r"(?:RPATH|RUNPATH|NEEDED).*", subprocess.check_output(["readelf", "-d", path], text=True)))
    else:
        text = path.read_text(errors="replace")
    found = [name for name in gone if name in text]
    if found:
        sys.exit(f"{path} names {found[0]}: the package works in one place only\n{text[:2000]}")
relative = loader_path.problems_below(installed.prefix())
installed.expect("no file has the current folder in its search path for libraries", not relative, "\n".join(relative))
print(f"ok: none of {len(files)} files names the build, the source or the first prefix")
