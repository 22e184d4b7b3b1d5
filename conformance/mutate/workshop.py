# SPDX-License-Identifier: Apache-2.0
"""Builds mutants of one plugin: a copy of its sources, compiled and linked by one call of the compiler."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

# The commands of the build folder, made cheaper: most of a mutant's time is its compilation.
CHEAPER = {"-O3": "-O1", "-O2": "-O1", "-g": "", "-Werror": "", "-DFMT_HEADER_ONLY=1": ""}


class NotCompiled(Exception):
    """The compiler refuses the mutant."""


class Workshop:
    """`target` is the plugin's library in the build folder, such as lib/tutti/libtutti-shm.so."""

    def __init__(self, sources, build, target, folder):
        self.sources = Path(sources).resolve()
        self.folder = Path(folder).resolve()
        self.copy = self.folder / "sources"
        shutil.copytree(self.sources, self.copy, ignore=shutil.ignore_patterns(".git", "build*", "install"))
        self.library = self.folder / target
        self.library.parent.mkdir(parents=True)
        listed = subprocess.run(["ninja", "-C", build, "-t", "commands", target], capture_output=True, text=True, check=True)
        compiled = [shlex.split(line) for line in listed.stdout.splitlines() if " -c " in line]
        linked = [shlex.split(line) for line in listed.stdout.splitlines() if " -shared " in line]
        if not compiled or not linked:
            raise RuntimeError(f"{target}: no command of {build} compiles and links it")
        self.compiler = next(word for word in compiled[0] if not word.endswith("ccache"))
        self.unit = self.write_unit([words[words.index("-c") + 1] for words in compiled])
        self.flags = self.compiler_flags(compiled[0])
        needs = [word for word in linked[0] if word.startswith("-l") or word.startswith("-Wl,--version") or ".so" in word]
        needs = [word for word in needs if Path(word).name != Path(target).name]
        if "-DFMT_HEADER_ONLY=1" in compiled[0]:
            needs.append("-lfmt")
        self.command = [self.compiler, *self.flags, "-w", "-shared", "-o", str(self.library), str(self.unit), *needs]
        self.files = self.own_files()  # that the unit is made of, from the root of the tree

    def write_unit(self, sources):
        """All sources in one, whether the build folder joins them or not."""
        lines = []
        for source in sources:
            text = Path(source).read_text() if Path(source).suffix == ".cxx" else f'#include "{source}"\n'
            lines.append(text.replace(f"{self.sources}/", f"{self.copy}/"))
        unit = self.folder / "unit.cpp"
        unit.write_text("".join(lines))
        return unit

    def compiler_flags(self, words):
        flags, skip = [], False
        for word in words[words.index(self.compiler) + 1 : words.index("-c")]:
            if skip or word in ("-MD", "-MT", "-MF", "-o"):
                skip = not skip and word != "-MD"
                continue
            flags += [CHEAPER.get(word, word).replace(f"{self.sources}/", f"{self.copy}/")]
        return [flag for flag in flags if flag]

    def own_files(self):
        made = subprocess.run([self.compiler, *self.flags, "-MM", str(self.unit)], capture_output=True, text=True, check=True)
        names = [Path(word) for word in made.stdout.replace("\\\n", " ").split()[1:]]
        return sorted(str(name.relative_to(self.copy)) for name in names if name.is_relative_to(self.copy))

    def parser_flags(self):
        return [flag for flag in self.flags if flag.startswith(("-D", "-I", "-std=", "-isystem"))]

    def warm(self):
        """The system's headers, compiled in advance."""
        includes = set()
        for file in self.files:
            includes |= set(re.findall(r"^#include (<(?!tutti/)[^>]+>)", (self.copy / file).read_text(), re.M))
        header = self.folder / "system.hpp"
        header.write_text("".join(f"#if __has_include({name})\n#include {name}\n#endif\n" for name in sorted(includes)))
        command = [self.compiler, *self.flags, "-w", "-x", "c++-header", str(header), "-o", f"{header}.gch"]
        if subprocess.run(command, capture_output=True).returncode == 0:
            self.command[1:1] = ["-include", str(header)]

    def compile(self):
        done = subprocess.run(self.command, cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            raise NotCompiled(next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[:200]))
        return self.library.read_bytes()

    def build_original(self):
        """Throws NotCompiled."""
        self.warm()
        self.original = self.compile()

    def build(self, mutation):
        """The mutant's library. False: its code equals the original's. Throws NotCompiled."""
        file = self.copy / mutation.file
        content = file.read_bytes()
        file.write_bytes(mutation.applied(content))
        try:
            return self.compile() != self.original
        finally:
            file.write_bytes(content)

    def restore(self):
        self.library.write_bytes(self.original)


def library_of(build, plugin):
    """From the build folder."""
    for folder in ("tutti", "tutti-samples"):
        name = f"lib/{folder}/libtutti-{plugin}.so"
        if os.path.exists(f"{build}/{name}"):
            return name
    raise FileNotFoundError(f"{build}/lib holds no libtutti-{plugin}.so: build it first")


def sources_of(build):
    for line in (Path(build) / "CMakeCache.txt").read_text().splitlines():
        if line.startswith("CMAKE_HOME_DIRECTORY:"):
            return Path(line.split("=", 1)[1])
    raise FileNotFoundError(f"{build}/CMakeCache.txt does not tell where the sources are")
