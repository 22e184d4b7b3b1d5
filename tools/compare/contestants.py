# SPDX-License-Identifier: Apache-2.0
"""Who is compared, and how each is built and started.

A contestant is a library with the settings under which it is measured. A peer that has several useful settings is several
contestants; the best of them at a point is the peer's figure there.
"""
import ctypes
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGES = {"openmpi": ["openmpi-bin", "libopenmpi-dev"], "mpich": ["mpich", "libmpich-dev"], "gloo": ["libgloo-dev"]}


class Absent(Exception):
    """A contestant cannot take part; the text says why."""


@dataclass(frozen=True)
class Contestant:
    name: str
    library: str
    transport: str
    settings: dict = field(default_factory=dict)  # environment
    options: tuple = ()  # of the library's launcher


def contestants(transport):
    """All contestants over `transport`: "shm" or "tcp"."""
    if transport == "shm":
        return [
            Contestant("tutti", "tutti", "shm"),
            Contestant("tutti, registered", "tutti", "shm", {"COMPARE_MEMORY": "registered"}),
            Contestant("openmpi", "openmpi", "shm", options=("--mca", "pml", "ob1", "--mca", "btl", "self,vader")),
            Contestant("openmpi, ucx", "openmpi", "shm", options=("--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls",
                                                                  "any", "--mca", "opal_common_ucx_devices", "any")),
            Contestant("mpich", "mpich", "shm"),
        ]
    return [
        Contestant("tutti", "tutti", "tcp", {"TUTTI_TRANSPORT": "tcp"}),
        Contestant("openmpi", "openmpi", "tcp",
                   options=("--mca", "pml", "ob1", "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo")),
        Contestant("mpich", "mpich", "tcp", {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "FI_PROVIDER": "tcp"}),
        Contestant("gloo, ring", "gloo", "tcp"),
        Contestant("gloo, bcube", "gloo", "tcp", {"COMPARE_ALGORITHM": "bcube"}),
    ]


def _compile(command, what):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Absent(f"{what} cannot be compiled: {(done.stderr.strip() or done.stdout.strip()).splitlines()[0]}")


class Programs:
    """The measuring programs, compiled into `folder` when they are first asked for."""

    def __init__(self, folder, build):
        self.folder, self.build = Path(folder), Path(build)
        self.made = {}

    def of(self, library):
        """The program of a library, or of "limits". Throws Absent."""
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
        done = subprocess.run([self.of(library), "--version"], capture_output=True, text=True)
        found = re.search(r"\d+(\.\d+)+\S*\b", done.stdout)
        if done.returncode or not found:
            raise Absent(f"{library}: expected a version like 4.1.4, got status {done.returncode} and "
                         f'"{(done.stdout + done.stderr).strip()[:200]}"')
        return found[0]

    def _make(self, library):
        self.folder.mkdir(parents=True, exist_ok=True)
        source, program, loop = HERE / "programs", self.folder / library, self.folder / "loop.o"
        if not loop.exists():
            _compile(["gcc", "-O3", "-c", source / "loop.c", "-o", loop], "the measuring loop")
        if library == "tutti":
            libraries = self.build / "lib"
            if not (libraries / "libtutti.so").exists():
                raise Absent(f"{libraries}/libtutti.so is not there: build Tutti first (cmake --build {self.build})")
            _compile(["gcc", "-O3", "-I", HERE.parent.parent / "core/include", source / "tutti.c", loop, "-o", program,
                      f"-L{libraries}", "-ltutti", f"-Wl,-rpath,{libraries}"], "the program for Tutti")
        elif library in ("openmpi", "mpich"):
            compiler = f"mpicc.{library}"
            if not shutil.which(compiler):
                raise Absent(f"{compiler} is not installed: apt-get install {' '.join(PACKAGES[library])}")
            _compile([compiler, "-O3", source / "mpi.c", loop, "-o", program], f"the program for {library}")
        elif library == "gloo":
            if not Path("/usr/include/gloo/context.h").exists():
                raise Absent(f"Gloo is not installed: apt-get install {' '.join(PACKAGES['gloo'])}")
            _compile(["g++", "-std=c++17", "-O3", source / "gloo.cpp", loop, "-o", program, "-lgloo", "-lpthread"],
                     "the program for Gloo")
        else:
            _compile(["g++", "-std=c++20", "-O3", "-march=native", source / "limits.cpp", loop, "-o", program],
                     "the program for the limits")
        return program


def ucx_version():
    """Of UCX, which carries Open MPI's and MPICH's messages under some settings; "": it is not installed."""
    try:
        say = ctypes.CDLL("libucp.so.0").ucp_get_version_string
    except (OSError, AttributeError):
        return ""
    say.restype = ctypes.c_char_p
    return say().decode()


def command(contestant, ranks, arguments, programs, meeting):
    """The processes of one run: a list of (argv, environment). `meeting`: an empty folder. Throws Absent."""
    program = [str(programs.of(contestant.library)), *arguments]
    environment = dict(os.environ, **contestant.settings)
    cores = len(os.sched_getaffinity(0))
    if contestant.library == "tutti":
        return [([str(programs.build / "bin/tuttirun"), "-n", str(ranks), "--no-label", *program], environment)]
    if contestant.library == "openmpi":
        environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        crowded = ["--oversubscribe"] if ranks > cores else []
        return [(["mpirun.openmpi", "-n", str(ranks), "--bind-to", "none", *crowded, *contestant.options, *program],
                 environment)]
    if contestant.library == "mpich":
        return [(["mpiexec.mpich", "-n", str(ranks), "-bind-to", "none", *program], environment)]
    environment.update(WORLD_SIZE=str(ranks), COMPARE_MEETING=str(meeting))
    return [(program, dict(environment, RANK=str(rank))) for rank in range(ranks)]
