# SPDX-License-Identifier: Apache-2.0
"""Builds mutants of one plugin: a copy of the sources, and the compiler's commands of a build folder."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path


class NotCompiled(Exception):
    """The compiler refuses the mutant."""


class Workshop:
    """`target` is the plugin's library in the build folder, such as lib/tutti/libtutti-shm.so."""

    def __init__(self, sources, build, target, folder):
        self.sources = Path(sources).resolve()
        self.folder = Path(folder).resolve()
        self.copy = self.folder / "sources"
        self.objects = self.folder / "objects"
        skipped = shutil.ignore_patterns(".git", "build*", "install")
        shutil.copytree(self.sources, self.copy, ignore=skipped, dirs_exist_ok=True)
        self.objects.mkdir(exist_ok=True)
        listed = subprocess.run(["ninja", "-C", build, "-t", "commands", target], capture_output=True, text=True, check=True)
        self.compile = {}  # source file in the tree: command
        self.link = None
        for line in listed.stdout.splitlines():
            command = self.here(line)
            if " -c " in line:
                source = re.search(r" -c (\S+)", line)[1]
                self.compile[os.path.relpath(source, self.sources)] = command
            elif "-shared" in line:
                self.link = command.removeprefix(": && ").removesuffix(" && :")
        self.library = self.objects / target
        self.library.parent.mkdir(parents=True, exist_ok=True)
        if not self.compile or not self.link:
            raise RuntimeError(f"{target}: no command of {build} compiles and links it")

    def here(self, command):
        command = command.replace(f"{self.sources}/", f"{self.copy}/")
        # What a mutant is warned of is not what it is asked.
        return re.sub(r"^\S*ccache ", "", command).replace(" -Werror", "")

    def flags(self, source):
        """Those that a parser of the source needs."""
        words = shlex.split(self.compile[source].replace(f"{self.copy}/", f"{self.sources}/"))
        return [w for w in words if w.startswith(("-D", "-I", "-std=", "-isystem"))]

    def object_of(self, source):
        return self.objects / re.search(r" -o (\S+)", self.compile[source])[1]

    def run(self, command):
        done = subprocess.run(command, shell=True, cwd=self.objects, capture_output=True, text=True)
        if done.returncode:
            raise NotCompiled(done.stderr.splitlines()[0] if done.stderr else command)

    def compile_one(self, source):
        self.object_of(source).parent.mkdir(parents=True, exist_ok=True)
        self.run(self.compile[source])

    def digest(self, source):
        """Of the code, without what only tells where it came from."""
        bare = f"{self.object_of(source)}.bare"
        subprocess.run(["objcopy", "--strip-debug", str(self.object_of(source)), bare], check=True)
        return hashlib.sha256(Path(bare).read_bytes()).hexdigest()

    def build_original(self):
        self.originals = {}
        for source in self.compile:
            self.compile_one(source)
            self.originals[source] = self.digest(source)
            shutil.copy(self.object_of(source), f"{self.object_of(source)}.original")
        self.run(self.link)

    def build(self, mutation, users):
        """The mutant's library; `users` are the sources that include the file. False: its code equals the original's.
        Throws NotCompiled."""
        file = self.copy / mutation.file
        content = file.read_bytes()
        file.write_bytes(content[: mutation.begin] + mutation.after.encode() + content[mutation.end :])
        try:
            for source in users:
                self.compile_one(source)
            changed = any(self.digest(source) != self.originals[source] for source in users)
            if changed:
                self.run(self.link)
            return changed
        finally:
            file.write_bytes(content)
            for source in users:
                shutil.copy(f"{self.object_of(source)}.original", self.object_of(source))
