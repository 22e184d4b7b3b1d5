#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""launchers_test.py CASE BUILD: build/tests/launched_job, unmodified, by a launcher; or, for torchrun's restart with fewer ranks
and for Kubernetes, by the environment that they give. Skipped, with status 77 and the reason, where the launcher is absent."""
import importlib.util
import os
import pathlib
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time

CASE, BUILD = sys.argv[1], pathlib.Path(sys.argv[2])
JOB, HOME = str(BUILD / "tests/launched_job"), pathlib.Path(__file__).resolve().parent.parent
PMIX = BUILD / "lib/tutti/libtutti-meeting-pmix.so"
LAUNCHERS = re.compile("^(TUTTI_|OMPI_|PMI|SLURM_|RANK$|WORLD_SIZE$|LOCAL_|MASTER_|TORCHELASTIC_|JOB_COMPLETION_INDEX$)")
CLEAN = {key: value for key, value in os.environ.items() if not LAUNCHERS.match(key)}
GOOD = "4 ranks, mean 1.50"


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def need(plugin):
    if not plugin.exists():
        skip(f"{plugin.name} is not built: install libpmix-dev, and configure again")


def need_program(packages, *names):
    for name in names:
        if path := shutil.which(name):
            return path
    skip(f"{names[0]} was not found: install {packages}")


def run(what, *command, status=0, words=(GOOD,), lacking=(), **variables):
    done = subprocess.run([str(part) for part in command], env=CLEAN | variables, text=True, timeout=120,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode == 77:
        skip(done.stdout.strip().splitlines()[-1].removeprefix("skipped: "))
    wrong = [word for word in words if word not in done.stdout] + [word for word in lacking if word in done.stdout]
    if (done.returncode == 0) != (status == 0) or wrong:
        sys.exit(f"{what}: {' '.join(map(str, command))} ended with status {done.returncode}, and {wrong} is missing in, or too "
                 f"much for, what it printed:\n{done.stdout}")
    print(f"ok: {what}")


def mpirun():
    need(PMIX)
    orterun = [need_program("openmpi-bin", "orterun", "mpirun.openmpi"), "-n", "4"]
    # Of root's, and more ranks than cores.
    meant = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    # There is a secret: the launcher carries it.
    run("mpirun", *orterun, JOB, lacking=["TUTTI_SECRET"], **meant)
    run("a PMIx launcher that sets nothing else", *orterun, "env", "-u", "OMPI_COMM_WORLD_RANK", "-u",
        "OMPI_COMM_WORLD_SIZE", JOB, **meant)
    run("a rank that ends with status 3 ends the job", *orterun, JOB, "2", status=1, words=[], **meant)
    run("a rank that cannot take part is named by the others", *orterun, "sh", "-c",
        f'[ $PMIX_RANK = 1 ] && export TUTTI_TRANSPORT=nonesuch; "{JOB}" || sleep 0.5',
        words=["rank 1 could not make its communicator", "nonesuch"], **meant)
    run("a rank that never makes its communicator", *orterun, "sh", "-c",
        f'[ $PMIX_RANK = 1 ] && exec sleep 5; exec "{JOB}"', status=1,
        words=["meeting pmix", "of 4 has waited for the others for ", " s. PMIx does not tell who is missing"], TUTTI_CONNECT_TIMEOUT="2", **meant)
    run("an address that is set is used", *orterun, JOB, words=[GOOD, "there is no TUTTI_SECRET"], MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(free_port()), **meant)
    run("a server that is gone", JOB, status=1, words=["PMIX_NAMESPACE=gone does not answer"], PMIX_NAMESPACE="gone",
        PMIX_RANK="0")
    with tempfile.NamedTemporaryFile() as told:  # a launcher that was stopped passes nothing on any more
        rank = (f'[ $PMIX_RANK = 1 ] && exec sleep 5; kill -STOP $PPID; timeout -k 1 30 "{JOB}" >{told.name} 2>&1; '
                'kill -KILL $PPID')
        run("a server that is stopped", "sh", "-c", f"{orterun[0]} -n 2 sh -c '{rank}'; cat {told.name}; exit 1", status=1,
            words=["has not answered for ", " s. Is the launcher stopped?"], TUTTI_CONNECT_TIMEOUT="2", **meant)


def hydra():
    hydra = [need_program("mpich", "mpiexec.hydra"), "-n", "4"]
    run("mpiexec of MPICH", *hydra, JOB, lacking=["TUTTI_SECRET"])
    run("a rank that never makes its communicator", *hydra, "sh", "-c",
        f'[ $PMI_RANK = 1 ] && exec sleep 5; exec "{JOB}"', status=1,
        words=["meeting pmi1", "cmd=barrier_in", "by the deadline"], TUTTI_CONNECT_TIMEOUT="2")


def slurm():
    kinds = ["none", "pmi2"] + ["pmix"] * PMIX.exists()
    script = [f'srun --mpi={kind} -n 4 "$1" && echo by {kind}' for kind in kinds]
    # The others' calls fail when a rank ends, so the step ends.
    script += [f'if srun --mpi={kind} -n 4 "$1" 2; then echo it did not fail by {kind}; fi' for kind in kinds]
    run(f"srun by {', '.join(kinds)}", HOME / "one-node-slurm", "bash", "-ec", "\n".join(script), "slurm", JOB,
        words=[GOOD] + [f"by {kind}" for kind in kinds], lacking=["it did not fail"])


def free_port():
    """A port below 65000 that nobody uses, nor the one behind it, on which rank 0 listens beside torchrun's store."""
    while True:
        with socket.socket() as found, socket.socket() as behind:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
            try:
                behind.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            if port < 65000:
                return port


def start_ranks(number, arguments=(), **variables):
    """The ranks of one host, by variables whose values have {rank} in them: what they print and their statuses."""
    ranks = [subprocess.Popen([JOB, *arguments], env=CLEAN | {key: value.format(rank=rank) for key, value in variables.items()},
                              text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
             for rank in range(number)]
    deadline = time.monotonic() + 100
    printed = [rank.communicate(timeout=deadline - time.monotonic())[0] for rank in ranks]
    return printed, [rank.returncode for rank in ranks]


def torchrun():
    if importlib.util.find_spec("torch") is None:
        skip(f"{sys.executable} has no module torch: tools/torch-environment makes an interpreter that has, and configure again")
    # torch 1.13 wants to be told of ranks that it redirects, and has no use for them: there is no rank 9.
    run_module = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "-r", "9:1", "-t", "9:1", "--no_python",
                  "--nproc_per_node", "4"]
    run("torchrun", *run_module, "--master_port", free_port(), JOB)
    run("an elastic torchrun that starts the ranks anew", *run_module, "--nnodes", "1:1", "--max_restarts", "1", "--rdzv_backend",
        "c10d", "--rdzv_endpoint", f"127.0.0.1:{free_port()}", "sh", "-c",
        f'[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exec "{JOB}" 2; exec "{JOB}"', words=["rank 2 died", GOOD])


def torchrun_restart():
    """An elastic torchrun starts all ranks anew when one has ended, by the same store and port."""
    port = free_port()
    variables = dict(RANK="{rank}", WORLD_SIZE="4", LOCAL_RANK="{rank}", LOCAL_WORLD_SIZE="4", MASTER_ADDR="127.0.0.1",
                     MASTER_PORT=str(port), TORCHELASTIC_RUN_ID="run", TORCHELASTIC_USE_AGENT_STORE="True")
    with socket.socket() as store:
        store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        store.bind(("127.0.0.1", port))
        store.listen()
        printed, statuses = start_ranks(4, ["2"], TORCHELASTIC_RESTART_COUNT="0", **variables)
        if statuses != [1, 1, 3, 1] or not any("rank 2" in text for text in printed):
            sys.exit(f"the ranks of the first start end with {statuses}, expected [1, 1, 3, 1] and rank 2 named: {printed}")
        print("ok: a lost rank ends the others, so that torchrun starts them anew")
        # Fewer ranks are left.
        variables.update(WORLD_SIZE="3", LOCAL_WORLD_SIZE="3")
        printed, statuses = start_ranks(3, TORCHELASTIC_RESTART_COUNT="1", **variables)
    if statuses != [0, 0, 0] or "3 ranks, mean 1.00" not in printed[0]:
        sys.exit(f"the ranks of the second start end with {statuses}: {printed}")
    print("ok: three ranks at the second start")


def kubernetes():
    """What the manifest sets, and what Kubernetes adds to it."""
    text = (HOME / "kubernetes-job.yaml").read_text()
    found = dict(re.findall(r'- name: (\w+).*\n +value: "([^"]*)"', text))
    number = int(found["WORLD_SIZE"])
    for key in ("completions", "parallelism"):
        if f"{key}: {number}\n" not in text:
            sys.exit(f"kubernetes-job.yaml has WORLD_SIZE={number}, and {key} is another number")
    if found["MASTER_ADDR"] != "tutti-0.tutti" or text.count("name: tutti\n") < 3:
        sys.exit(f"kubernetes-job.yaml: MASTER_ADDR is {found['MASTER_ADDR']}, expected the first pod of the job and its service")
    found.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), TUTTI_SECRET=secrets.token_hex(32))
    printed, statuses = start_ranks(number, JOB_COMPLETION_INDEX="{rank}", **found)
    if statuses != [0] * number or "".join(printed).strip() != GOOD:
        sys.exit(f"the ranks end with {statuses}, expected 0, and print: {printed}")
    print("ok: four pods of an Indexed Job")


CASES = {case.__name__: case for case in (mpirun, hydra, slurm, torchrun, torchrun_restart, kubernetes)}
CASES[CASE]()
