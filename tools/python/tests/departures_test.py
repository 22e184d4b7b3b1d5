# SPDX-License-Identifier: Apache-2.0
"""A rank goes, in every way, at every moment, with one communicator or several: 48 cells.

In each cell three processes meet and rank 1 goes. Ranks 0 and 2 must each get an exception of tutti that names it from
every one of their communicators, and end in bounded time. `python3 -B departures_test.py cell SIGKILL idle 3` runs one
cell and prints what the ranks said.
"""

import array
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

RANKS, GOES = 3, 1
SCALE = float(os.environ.get("TUTTI_TEST_TIME_SCALE") or 1)
TIMEOUT = 4 * SCALE  # the communicators', by which a stopped rank is found
BOUND = 20 * SCALE  # from the departure to the last survivor's end
PAUSE = 0.5 * SCALE  # after which the others wait, or the rank has gone
AT_A_TIME = 3

# How rank 1 goes, the exception that the others get, and the exit status of rank 1. None: the test ends it.
DEPARTURES = {"exception": ("Aborted", 1), "sys.exit": ("PeerFailed", 3), "return": ("PeerFailed", 0),
              "os._exit": ("PeerFailed", 4), "SIGKILL": ("PeerFailed", -signal.SIGKILL), "SIGSTOP": ("Timeout", None),
              "abort": ("Aborted", 0), "close": ("PeerFailed", 0)}
# The others call after it has gone; they wait in a call for it; it goes before its first collective.
MOMENTS = ("idle", "in flight", "first use")
# The world; or the world and two parts of it, ranks 0 and 1, and ranks 1 and 2.
COMMUNICATORS = (1, 3)
CELLS = [(departure, moment, communicators) for departure in DEPARTURES for moment in MOMENTS
         for communicators in COMMUNICATORS]


# ---- A rank, in a process of its own.

left_open = []  # until the interpreter's end: a function drops its own in an order that depends on the version of Python


def mark(folder, name):
    (pathlib.Path(folder) / name).touch()


def await_mark(folder, name, pause):
    """Waits for another rank's mark, and then so many seconds for what follows it."""
    late = time.monotonic() + BOUND
    while not (pathlib.Path(folder) / name).exists():
        if time.monotonic() > late:
            sys.exit(f"no rank has come to the mark {name}")
        time.sleep(0.01)
    time.sleep(pause)


def depart(departure, comms):
    if departure == "exception":
        raise ValueError("bad page 7")
    if departure == "sys.exit":
        sys.exit(3)
    if departure == "os._exit":
        os._exit(4)
    if departure in ("SIGKILL", "SIGSTOP"):
        os.kill(os.getpid(), getattr(signal, departure))
    for comm in comms:
        try:
            if departure == "abort":
                comm.abort("enough")
            elif departure == "close":
                comm.close()
        except tutti.Error as error:
            print(error, file=sys.stderr)


def verdict_of(comm, call):
    """Makes a call that cannot succeed and prints how it ended: the exception, or the result that it must not have."""
    began = time.monotonic()
    data = array.array("q", [comm.rank + 1])
    try:
        call(comm, data)
        kind, text = "OK", f"the result is {data[0]}"
    except tutti.Error as error:
        kind, text = type(error).__name__, str(error)
    print(json.dumps({"comm": comm.name, "kind": kind, "text": text, "seconds": time.monotonic() - began}), flush=True)


def live(folder, rank, departure, moment, communicators):
    world = tutti.Communicator("file:" + folder, rank, RANKS, timeout=TIMEOUT, connect_timeout=2 * TIMEOUT)
    comms = [world]
    if communicators == 3:
        parts = [world.split(0 if rank in pair else None, name=name) for name, pair in (("front", (0, 1)), ("back", (1, 2)))]
        comms = [part for part in parts if part] + comms
    left_open.extend(comms)
    if moment != "first use":
        for comm in comms:
            data = array.array("q", [1])
            comm.all_reduce(data)
            assert data[0] == comm.nranks, data
    if rank == GOES:
        for other in range(RANKS):
            if other != GOES:
                await_mark(folder, f"ready-{other}", 0 if moment == "first use" else PAUSE)
        mark(folder, "goes")
        return depart(departure, comms)
    if moment != "in flight":
        mark(folder, f"ready-{rank}")
        if moment == "idle":
            await_mark(folder, "goes", PAUSE)
    else:
        data = [array.array("q", [1]) for _ in comms]
        requests = [comm.start.all_reduce(one) for comm, one in zip(comms, data)]
        mark(folder, f"ready-{rank}")
        for comm, request in zip(comms, requests):
            verdict_of(comm, lambda *_: request.wait())
    for comm in comms:
        verdict_of(comm, lambda one, data: one.all_reduce(data))


# ---- The judge.

def run_cell(departure, moment, communicators):
    """(exit status, lines of output, errors) of each rank, None as status where it did not end; and the seconds it took."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = [subprocess.Popen([sys.executable, "-B", __file__, "rank", folder, str(rank), departure, moment,
                                   str(communicators)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                 for rank in range(RANKS)]
        while not (pathlib.Path(folder) / "goes").exists() and ranks[GOES].poll() is None:
            time.sleep(0.02)
        went = time.monotonic()
        ended, outputs = [None] * RANKS, [None] * RANKS
        for rank in sorted(range(RANKS), key=lambda one: one == GOES):
            if rank == GOES and departure == "SIGSTOP":
                ranks[rank].kill()
            try:
                outputs[rank] = ranks[rank].communicate(timeout=max(0.1, went + BOUND - time.monotonic()))
                ended[rank] = ranks[rank].returncode
            except subprocess.TimeoutExpired:
                ranks[rank].kill()
                outputs[rank] = ranks[rank].communicate()
        seconds = time.monotonic() - went
    return [(status, out.splitlines(), err) for status, (out, err) in zip(ended, outputs)], seconds


def faults_of(departure, moment, communicators, ranks):
    """The faults of a cell, a sentence each."""
    error, goers_status = DEPARTURES[departure]
    for rank, (status, lines, err) in enumerate(ranks):
        expected = goers_status if rank == GOES else 0
        if status is None:
            yield f"rank {rank} has not ended {BOUND} s after the departure; it had said {lines} {err}"
        elif expected is not None and status != expected:
            yield f"rank {rank} ended with status {status}, expected {expected}: {err}"
        if rank == GOES:
            continue
        calls = (2 if moment == "in flight" else 1) * (1 if communicators == 1 else 2)
        if len(lines) != calls:
            yield f"rank {rank} has the outcome of {len(lines)} calls, expected {calls}: {lines} {err}"
        for verdict in map(json.loads, lines):
            goer = f"rank {0 if verdict['comm'] == 'back' else GOES}"
            said = f"rank {rank}, in {verdict['comm']}, after {verdict['seconds']:.1f} s: {verdict['kind']}: {verdict['text']}"
            if verdict["kind"] != error:
                yield f"{said}\n    expected {error}, since {goer} has gone"
            elif not re.search(rf"(?<!seen by )\b{goer}\b", verdict["text"]):
                yield f"{said}\n    expected it to name {goer}"


class Departures(unittest.TestCase):
    def test_every_cell(self):
        with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
            results = list(pool.map(lambda cell: run_cell(*cell), CELLS))
        for (departure, moment, communicators), (ranks, seconds) in zip(CELLS, results):
            with self.subTest(departure=departure, moment=moment, communicators=communicators):
                if faults := list(faults_of(departure, moment, communicators, ranks)):
                    self.fail(f"after {seconds:.1f} s:\n" + "\n".join(faults))


if __name__ == "__main__":
    import tutti
    if sys.argv[1:2] == ["rank"]:
        live(sys.argv[2], int(sys.argv[3]), *sys.argv[4:6], int(sys.argv[6]))
    elif sys.argv[1:2] == ["cell"]:
        said, lasted = run_cell(*sys.argv[2:4], int(sys.argv[4]))
        print(json.dumps(said, indent=1), f"\n{lasted:.1f} s")
        sys.exit("\n".join(faults_of(*sys.argv[2:4], int(sys.argv[4]), said)))
    else:
        unittest.main()
