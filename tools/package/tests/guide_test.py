#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the documents show is true: code is compiled, commands are run, against the installed Tutti.

docs/plugin-guide.md, docs/applications.md and README.md are played from top to bottom, in one folder and as in one shell: a block
begins where the one before it ended, with its folder and its variables.

  ```cpp FILE, ```c FILE, ```cmake FILE, ```python FILE   becomes that file
  ```sh, ```sh installed                  is run; failing is an error. The latter finds Tutti as in /usr
  ```sh pip                               is left to wheel_test.py
  ```text                                 right after a ```sh block: each line is one of what that printed; "..." is any line, or the rest of one
  ```cpp, ```c without a file             is compiled alone; so are those of the other documents
"""
import os
import pathlib
import re
import sys

import installed
from installed import run

home, prefix = installed.fresh("guide"), installed.prefix()
LANGUAGES = {"c": (installed.cache("CMAKE_C_COMPILER"), ["-std=c11", "-x", "c"]),
             "cpp": (installed.cache("CMAKE_CXX_COMPILER"), ["-std=c++20", "-x", "c++"])}


def blocks(document):
    """(line, language, file, text) of each fenced block."""
    text = (installed.SOURCE / document).read_text()
    for found in re.finditer(r"^```(\w+)(?: +(\S+))?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield text.count("\n", 0, found.start()) + 1, found[1], found[2], found[3]


def compile_alone(where, language, text):
    compiler, flags = LANGUAGES[language]
    source = home / f"snippet.{language}"
    source.write_text(text)
    print(f"{where}: compiled")
    run(compiler, *flags, "-Wall", "-Wextra", "-Werror", f"-I{installed.prefix() / 'include'}", "-fsyntax-only", source)


def as_in_usr():
    """Settings by which a compiler, the loader and Python find what is installed."""
    libraries = str(installed.library_folder())
    return {"CPATH": str(prefix / "include"), "LIBRARY_PATH": libraries, "LD_LIBRARY_PATH": libraries,
            "PYTHONPATH": str(prefix / "lib/python3/dist-packages"), "OMP_NUM_THREADS": "1"}


def play(document, **more):
    launcher = " ".join(installed.launcher())
    settings = {"TUTTI": str(installed.prefix()), "CC": LANGUAGES["c"][0], "CXX": LANGUAGES["cpp"][0], "CMAKE_GENERATOR": "Ninja"}
    settings.update(more)
    own_python = str(pathlib.Path(sys.executable).parent)  # for which the package's extension was made
    if launcher:
        settings.update(CMAKE_C_COMPILER_LAUNCHER=launcher, CMAKE_CXX_COMPILER_LAUNCHER=launcher)
        if os.path.isdir("/usr/lib/ccache"):
            own_python = f"/usr/lib/ccache:{own_python}"
    settings["PATH"] = f"{installed.prefix() / 'bin'}:{own_python}:{os.environ['PATH']}"
    shell = home.parent / "shell"  # what the block before left behind
    shell.write_text("")
    printed, number = None, 0
    for line, language, file, text in blocks(document):
        where = f"{document}:{line}"
        if language == "text":
            for wanted in text.splitlines() if printed is not None else []:
                # "..." stands for lines, or for the rest of one.
                begin = wanted.strip().removesuffix("...")
                if not any(line == begin or (begin != wanted.strip() and line.startswith(begin)) for line in printed):
                    raise SystemExit(f"{where}: the commands before it do not print \"{wanted}\", but:\n" + "\n".join(printed))
            printed = None
            continue
        printed = None
        if language == "sh" and file == "pip":
            print(f"{where}: left out: wheel_test.py types it")
        elif language == "sh":
            print(f"{where}: run")
            typed = f'. {shell}\n{text}\n{{ export -p; printf "cd %q\\n" "$PWD"; }} >{shell}'
            told = run("bash", "-euo", "pipefail", "-c", typed, cwd=home, timeout=200, **settings)
            printed = [part.strip() for part in told.splitlines()]
            number += 1
        elif file:
            path = home / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif language in LANGUAGES:
            compile_alone(where, language, text)
    if number == 0:
        raise SystemExit(f"{document} has no commands to run: is its form still what this test reads?")


play("docs/plugin-guide.md")
play("docs/applications.md")
for folder in ("tools", "core"):  # README's example and its data
    (home / folder).symlink_to(installed.SOURCE / folder)
if list(prefix.rglob("tutti/_core*.so")):
    play("README.md", **as_in_usr())
else:
    print("README.md: left out: the Python package is not here")
for other in ("README.md", "plugins/sdk/README.md", "docs/architecture.md", "docs/abi.md"):
    for line, language, _, text in blocks(other):
        if language in LANGUAGES:
            compile_alone(f"{other}:{line}", language, text)
