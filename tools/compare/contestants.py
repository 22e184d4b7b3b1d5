# SPDX-License-Identifier: Apache-2.0
"""Who is compared, and how each is started.

A contestant is a library with the settings under which it is measured. A peer that has several useful settings is
several contestants; the best of them at a point is the peer's figure there. All elements are float32, so Open MPI's
vectorized operators, which saturate sums of 8 and 16 bits, take part.
"""
import os
from dataclasses import dataclass, field

from peers import environment_of, launcher

SPINS = ("not measured where ranks outnumber cores: its waiting ranks keep their cores, so 8 bytes take 12 ms; "
         "--full measures it")
UCX = ("--mca", "pml", "ucx", "--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any")
LOOPBACK = ("--mca", "pml", "ob1", "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include", "lo")


@dataclass(frozen=True)
class Contestant:
    name: str
    library: str
    transport: str
    settings: dict = field(default_factory=dict)  # environment
    options: tuple = ()  # of the library's launcher
    usual: bool = True  # False: only --full measures it
    not_crowded: str = ""  # why a usual run leaves it out where ranks outnumber cores


def contestants(transport):
    """All contestants over `transport`: "shm" or "tcp"."""
    if transport == "shm":
        return [
            Contestant("tutti", "tutti", "shm"),
            Contestant("tutti, registered", "tutti", "shm", {"COMPARE_MEMORY": "registered"}),
            Contestant("openmpi", "openmpi", "shm", options=("--mca", "pml", "ob1", "--mca", "btl", "self,vader")),
            Contestant("openmpi, ucx", "openmpi", "shm", options=UCX),
            Contestant("openmpi5", "openmpi5", "shm", options=("--mca", "pml", "ob1", "--mca", "btl", "self,sm")),
            Contestant("openmpi5, ucx", "openmpi5", "shm", options=UCX, usual=False),
            Contestant("mpich", "mpich", "shm", usual=False),
            Contestant("mpich5", "mpich5", "shm", not_crowded=SPINS),
            Contestant("intelmpi", "intelmpi", "shm", {"I_MPI_FABRICS": "shm"}),
        ]
    over_tcp = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "FI_PROVIDER": "tcp"}
    return [
        Contestant("tutti", "tutti", "tcp", {"TUTTI_TRANSPORT": "tcp"}),
        Contestant("openmpi", "openmpi", "tcp", options=LOOPBACK),
        Contestant("openmpi5", "openmpi5", "tcp", options=LOOPBACK),
        Contestant("mpich", "mpich", "tcp", over_tcp, usual=False),
        Contestant("mpich5", "mpich5", "tcp", over_tcp, usual=False),
        Contestant("mpich5, libfabric", "mpich5", "tcp", {**over_tcp, "MPIR_CVAR_CH4_NETMOD": "ofi"},
                   not_crowded=SPINS),
        # Without the last setting its collectives use shared memory all the same.
        Contestant("intelmpi", "intelmpi", "tcp", {"I_MPI_FABRICS": "ofi", "FI_PROVIDER": "tcp",
                                                   "I_MPI_COLL_INTRANODE": "pt2pt"}),
        Contestant("gloo, ring", "gloo", "tcp"),
        Contestant("gloo, bcube", "gloo", "tcp", {"COMPARE_ALGORITHM": "bcube"}, usual=False),
    ]


def command(contestant, ranks, arguments, programs, meeting):
    """The processes of one run: a list of (argv, environment). `meeting`: an empty folder. Throws Absent."""
    library = contestant.library
    program = [str(programs.of(library)), *arguments]
    environment = {**programs.environment, **environment_of(library, programs.peers), **contestant.settings}
    crowded = ranks > len(os.sched_getaffinity(0))
    if library == "tutti":
        return [([str(programs.build / "bin/tuttirun"), "-n", str(ranks), "--no-label", *program], environment)]
    if library == "gloo":
        environment.update(WORLD_SIZE=str(ranks), COMPARE_MEETING=str(meeting))
        return [(program, dict(environment, RANK=str(rank))) for rank in range(ranks)]
    start = [launcher(library, programs.peers), "-n", str(ranks)]
    if library in ("openmpi", "openmpi5"):
        for name in ("OMPI", "PRTE"):  # else it refuses to start as root
            environment.update({f"{name}_ALLOW_RUN_AS_ROOT": "1", f"{name}_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
        more_than_cores = ["--oversubscribe"] if library == "openmpi" else ["--map-by", ":OVERSUBSCRIBE"]
        yields = ["--mca", "mpi_yield_when_idle", "1"] if crowded else []
        return [([*start, "--bind-to", "none", *more_than_cores, *yields, *contestant.options, *program], environment)]
    if library == "intelmpi":
        environment.update(I_MPI_PIN="off", I_MPI_HYDRA_BOOTSTRAP="fork")
        environment.update({"I_MPI_THREAD_YIELD": "2"} if crowded else {})
        return [([*start, *program], environment)]
    return [([*start, "-bind-to", "none", *program], environment)]
