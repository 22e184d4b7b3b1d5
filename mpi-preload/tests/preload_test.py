#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: preload_test.py LAUNCHER LIBRARIES ABI PROGRAM TOOLS     One test of the MPI preload.

LAUNCHER starts ranks of the MPI library for which PROGRAM was compiled, LIBRARIES is the folder of libtutti-mpi-*.so,
ABI is openmpi or mpich, TOOLS is the folder of tutti-info. What is expected depends on the program's name.
"""
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LAUNCHER, LIBRARIES, ABI, PROGRAM = sys.argv[1], Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
TOOLS = Path(sys.argv[5])
OTHER = {"openmpi": "mpich", "mpich": "openmpi"}[ABI]
# Open MPI starts no job of root's, nor more ranks than cores, unless it is told that this is meant.
AS_ANYBODY = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
              "OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
HANGS = 90


def command(library="libtutti-mpi.so", ranks=3, before=(), arguments=(), **settings):
    settings["LD_PRELOAD"] = LIBRARIES / library
    words = [f"{name}={value}" for name, value in settings.items()]
    return [LAUNCHER, "-n", str(ranks), "env", *words, *before, PROGRAM, *arguments]


def run(*arguments, **settings):
    done = subprocess.run(command(*arguments, **settings), capture_output=True, text=True,
                          timeout=HANGS, env={**os.environ, **AS_ANYBODY})
    return done.returncode, done.stdout + done.stderr


def expect(true, what, told):
    if not true:
        sys.exit(f"expected {what}; the job said:\n{told}")


def is_served():
    """Every call is served, with any number of ranks, by either file."""
    for ranks, library in ((3, "libtutti-mpi.so"), (1, f"libtutti-mpi-{ABI}.so")):
        code, told = run(library, ranks, TUTTI_MPI_REQUIRE=1)
        expect(code == 0 and "passed" in told, f"status 0 and \"passed\" of {ranks} ranks, got status {code}", told)
        rows = re.findall(r"tutti-mpi: ([\d,]+) of ([\d,]+) (MPI_\w+) served(.*)", told)
        expect(rows, "a count for each function", told)
        expect(all(served == calls and not rest for served, calls, _, rest in rows), "all calls to be served", told)
        expect("warn" not in told, "no warning", told)


def falls_through():
    code, told = run()
    expect(code == 0 and "passed" in told, f"status 0, got {code}", told)
    row = "tutti-mpi: 0 of 3 MPI_Allreduce served; not: 3 (an intercommunicator)"
    expect(row in told, f'"{row}"', told)
    if ABI == "openmpi":
        refused_by_mpi()
    code, told = run(TUTTI_MPI_REPORT=0)
    expect(code == 0 and "served" not in told, "no counts", told)
    code, told = run(TUTTI_MPI_REQUIRE=1)
    error = r"rank \d of .*: MPI_Allreduce is not served by Tutti: an intercommunicator. TUTTI_MPI_REQUIRE=1"
    expect(code != 0 and re.search(f"tutti-mpi: {error}", told), f"an error that names the call, got {code}", told)
    for name, value, error in (("TUTTI_MPI_REQUIRE", "yes", "expected 0 or 1"),
                               ("TUTTI_MPI_REQUIRE", "", "expected 0 or 1"),
                               ("TUTTI_MPI_REQIRE", "1", "expected TUTTI_MPI_REQUIRE or TUTTI_MPI_REPORT")):
        code, told = run(ranks=1, **{name: value})
        expect(code != 0 and f'tutti-mpi: the setting "{name}={value}": {error}' in told,
               f"an error for {name}={value}, got status {code}", told)
    if (LIBRARIES / f"libtutti-mpi-{OTHER}.so").exists():
        code, told = run(f"libtutti-mpi-{OTHER}.so")
        expect(code != 0 and "tutti-mpi: the program uses" in told and f"libtutti-mpi-{ABI}.so" in told,
               f"an error that names the file for this MPI library, got status {code}", told)


def refused_by_mpi():
    code, told = run(arguments=["refused"])
    expect(code == 0 and "passed" in told, f"status 0, got {code}", told)
    for row in ("0 of 9 MPI_Allreduce served; not: 3 (arguments that MPI refuses), 3 (an intercommunicator), "
                "3 (MPI does not define the operator for the type)",
                "0 of 3 MPI_Bcast served; not: 3 (arguments that MPI refuses)"):
        expect(f"tutti-mpi: {row}" in told, f'"{row}"', told)
    code, told = run(arguments=["refused"], TUTTI_MPI_REQUIRE=1)
    error = "MPI_Allreduce, type MPI_FLOAT, operator MPI_BAND is not served by Tutti"
    expect(code != 0 and error in told, f'"{error}", got status {code}', told)


def loses_a_rank():
    code, told = run()
    expect(code != 0, "a status other than 0", told)
    # A launcher that learns of the lost rank ends the others. So it learns of it when they have said what they know.
    watch = 'trap "" USR1; "$1" 2>>"$0" && exit; until grep -q MPI_Allreduce: "$0"; do sleep 0.1; done; exit 1'
    with tempfile.NamedTemporaryFile("r") as errors:
        code, told = run(before=["sh", "-c", watch, errors.name])
        told += errors.read()
    expect(code != 0, "a status other than 0", told)
    expect(re.search(r"tutti-mpi: MPI_Allreduce: .*rank 1", told), "Tutti's error, which names rank 1", told)


def is_counted():
    code, told = run()
    expect(code == 0 and "passed" in told, f"status 0, got {code}", told)
    rows = {"MPI_Neighbor_allgather": "a neighborhood collective",
            "MPI_Ineighbor_allgather": "a neighborhood collective",
            "MPI_Allreduce_init": "a persistent collective"}
    for function, reason in rows.items():
        row = f"tutti-mpi: 0 of 3 {function} served; not: 3 ({reason})"
        expect(row in told, f'"{row}"', told)
    code, told = run(TUTTI_MPI_REQUIRE=1)
    error = "MPI_Neighbor_allgather is not served by Tutti: a neighborhood collective. TUTTI_MPI_REQUIRE=1"
    expect(code != 0 and error in told, f'"{error}", got status {code}', told)


def is_late():
    """The verdict while the job hangs, its error at the deadline, and the trace of a job that ends."""
    verdict = r"rank 1 has not entered all_reduce #\d+"
    with tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(command(TUTTI_TIMEOUT=15), stdout=subprocess.PIPE, stderr=errors, text=True,
                              env={**os.environ, **AS_ANYBODY}) as job:
            process = next(line.split()[1] for line in job.stdout if line.startswith("process "))
            told = ""
            while job.poll() is None and not re.search(verdict, told):
                told = subprocess.run([TOOLS / "tutti-info", "--hang", process], capture_output=True, text=True).stdout
            expect('communicator "MPI_COMM_WORLD" of 3 ranks' in told, "the communicator's name", told)
            code = job.wait(HANGS)
        errors.seek(0)
        told = errors.read()
    expect(code != 0 and re.search(r"tutti-mpi: MPI_Allreduce: .*rank 1", told),
           f"an error that names rank 1, got status {code}", told)
    with tempfile.TemporaryDirectory() as folder:
        code, told = run(arguments=["ends"], TUTTI_TRACE=folder)
        expect(code == 0, f"status 0, got {code}", told)
        told = subprocess.run([TOOLS / "tutti-trace", folder], capture_output=True, text=True).stdout
        expect("MPI_COMM_WORLD" in told and "all_reduce" in told, "a summary of the calls", told)


CASES = {"fall_through": falls_through, "lost_rank": loses_a_rank, "counted": is_counted, "late_rank": is_late}
CASES.get(re.sub(r"_(openmpi|mpich)$", "", PROGRAM.name), is_served)()
print("passed")
