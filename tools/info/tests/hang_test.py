#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hang_test.py TUTTI_INFO HANG_RANK: jobs of real processes that hang in every way there is, and what tutti-info --hang
makes of their flight records."""
import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time

INFO, RANK = sys.argv[1], sys.argv[2]
PATIENCE = 60 * float(os.environ.get("TUTTI_TEST_TIME_SCALE") or 1)  # seconds
SITE = r" \(at hang::carry_out\+0x[0-9a-f]+\)"
failures = []


class Job:
    """Ranks that do what `words` tell each; None: the rank is never started."""

    def __init__(self, words, **environment):
        self.folder = tempfile.TemporaryDirectory()
        self.records = pathlib.Path(self.folder.name) / "records"
        meeting = pathlib.Path(self.folder.name) / "meeting"
        meeting.mkdir()
        self.environment = {**os.environ, "TUTTI_RECORDER_DIR": str(self.records), "TUTTI_LOG": "error",
                            "TUTTI_CONNECT_TIMEOUT": "600",
                            **{key: value for key, value in environment.items() if not isinstance(value, list)}}
        self.errors = open(pathlib.Path(self.folder.name) / "errors", "w+")
        self.ranks = {}
        for rank, rank_words in enumerate(words):
            if rank_words is None:
                continue
            own = {key: value[rank] for key, value in environment.items() if isinstance(value, list)}
            self.ranks[rank] = subprocess.Popen([RANK, f"file:{meeting}", str(rank), str(len(words)), *rank_words.split()],
                                                env={**self.environment, **own}, stdout=subprocess.PIPE,
                                                stderr=self.errors, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.ranks.values():
            process.kill()
            process.wait()
            process.stdout.close()
        self.errors.close()
        self.folder.cleanup()

    def await_ready(self):
        for rank, process in self.ranks.items():
            line = process.stdout.readline()
            if line != "ready\n":
                self.errors.seek(0)
                failures.append(f"rank {rank} is not ready: {self.errors.read()}")

    def info(self, *arguments):
        return subprocess.run([INFO, "--hang", *arguments], capture_output=True, text=True, timeout=PATIENCE,
                              env=self.environment)

    def expect(self, name, finding, culprits, words, status=3, target=None, sites=None):
        """Looks until the verdict is as expected: ranks need a moment until they wait. `sites`: a pattern of the verdict with
        its call sites, which `words` are without."""
        target = target or [str(self.records)]
        until = time.monotonic() + PATIENCE
        while True:
            result = self.info("--json", *target)
            report = json.loads(result.stdout) if result.stdout.startswith("{") else {"communicators": []}
            first = report["communicators"][0] if report["communicators"] else {}
            good = (result.returncode == status and first.get("finding") == finding and first.get("culprits") == culprits
                    and all(word in re.sub(SITE, "", first.get("verdict", "")) for word in words)
                    and (not sites or re.search(sites, first["verdict"])))
            text = self.info(*target)
            good = good and text.returncode == status and f"rank {min(self.ranks)} " in text.stdout
            if good or time.monotonic() > until:
                break
            time.sleep(0.1)
        if good:
            print(f"{name}: {first['verdict']}", flush=True)
            return
        failures.append(f"{name}: expected {finding} {culprits} {words}, status {status}\n{result.returncode} "
                        f"{first.get('finding')} {first.get('culprits')} {first.get('verdict')}\n{result.stderr}\n"
                        f"as text: {text.returncode} {text.stdout} {text.stderr}")
        print("FAILED", failures[-1], flush=True)


# The last: two pretend hosts.
SHM_AND_TCP = {"shm": {}, "tcp": {"TUTTI_TRANSPORT": "tcp"}, "shm and tcp": {"TUTTI_HOST_ID": ["a", "a", "b", "b"]}}
for transport, environment in SHM_AND_TCP.items():
    with Job(["barrier all_reduce all_reduce"] * 2 + ["barrier all_reduce idle"] + ["barrier all_reduce all_reduce"],
             **environment) as job:
        job.await_ready()
        job.expect(f"a rank that does not come, {transport}", "missing", [2],
                   ["rank 2 has not entered all_reduce #2", "its last was all_reduce #1", "s ago", "ranks 0, 1 and 3 wait",
                    "step", "for it"])
        os.kill(job.ranks[2].pid, signal.SIGSTOP)
        job.expect(f"a rank that is stopped, {transport}", "stopped", [2],
                   ["rank 2", "is stopped", "its last was all_reduce #1", "kill -CONT"])

with Job(["all_reduce all_reduce", "all_reduce all_reduce", "all_reduce idle"]) as job:
    job.await_ready()
    job.expect("a process by its number", "missing", [2], ["rank 2 has not entered all_reduce #1"],
               target=[str(job.ranks[0].pid)], sites=f"ranks 0 and 1 wait in all_reduce #1{SITE}, step")
    # All dead at once: nobody is left to tell.
    for process in job.ranks.values():
        os.kill(process.pid, signal.SIGSTOP)
    for process in job.ranks.values():
        process.kill()
        process.wait()
    job.expect("all ranks dead", "dead", [0, 1, 2], ["are dead", "it was in all_reduce #1"])

with Job(["all_reduce idle"] * 3) as job:
    job.await_ready()
    job.ranks[1].kill()
    job.ranks[1].wait()
    job.expect("a rank that died while the others compute", "dead", [1], ["rank 1", "is dead", "its last was all_reduce #0"])

# Used before, so that nothing but the deadline would find it.
with Job(["all_reduce barrier all_reduce", "all_reduce barrier barrier"], TUTTI_TIMEOUT="600") as job:
    job.await_ready()
    job.expect("another collective", "mismatch", [0, 1],
               ["rank 0 called all_reduce(1000 x float32, max) as operation #2", "rank 1 called barrier()"])

with Job(["all_reduce:5 all_reduce:77", "all_reduce:5 idle"]) as job:
    job.await_ready()
    job.expect("a call with a tag", "missing", [1],
               ["rank 1 has not entered all_reduce #1, tag 77", "its last was all_reduce #0, tag 5",
                "rank 0 waits in all_reduce #1, tag 77"])
    text, report = job.info(str(job.records)).stdout, json.loads(job.info("--json", str(job.records)).stdout)
    ranks = report["communicators"][0]["ranks"]
    if "all_reduce(1000 x float32, max, tag 77)" not in text or [rank["last"]["tag"] for rank in ranks] != [77, 5]:
        failures.append(f"the tags of a rank's last calls: {text} {ranks}")

    def of_version_3(record):
        """The same record as the version before tags wrote it."""
        old = bytearray(record)
        (at, size), (transfers,) = struct.unpack_from("=II", old, 40), struct.unpack_from("=I", old, 48)
        for i in range(256):
            old[at + i * 64:at + i * 64 + 64] = record[at + i * size:at + i * size + 64]
        struct.pack_into("=I", old, 8, 3)
        struct.pack_into("=I", old, 44, 64)
        value = 0xCBF29CE484222325
        for byte in old[:header_bytes(record) - 8]:
            value = (value ^ byte) * 0x100000001B3 & (1 << 64) - 1
        struct.pack_into("=Q", old, header_bytes(record) - 8, value)
        return bytes(old)

    def header_bytes(record):
        return struct.unpack_from("=I", record, 12)[0]

    for path in job.records.glob("*.flight"):
        path.with_name("old" + path.name).write_bytes(of_version_3(path.read_bytes()))
        path.rename(path.with_suffix(".new"))
    job.expect("records of the version before tags", "missing", [1],
               ["rank 1 has not entered all_reduce #1", "its last was all_reduce #0", "rank 0 waits in all_reduce #1, step"])

with Job(["exact:5 float16:77", "exact:5 idle"]) as job:
    job.await_ready()
    job.expect("calls with an order and a wire format", "missing", [1], ["rank 1 has not entered all_reduce #1, tag 77"])

    def check_orders_and_wires(what, texts, facts):
        text, report = job.info(str(job.records)).stdout, json.loads(job.info("--json", str(job.records)).stdout)
        lasts = [rank["last"] for rank in report["communicators"][0]["ranks"]]
        if not all(f"all_reduce(1000 x float32, sum{words})" in text for words in texts) or \
                [(last["order"], last["wire"], last["tag"]) for last in lasts] != facts:
            failures.append(f"{what}: {text} {lasts}")

    check_orders_and_wires("the order and wire format of a rank's last calls", [", wire float16, tag 77", ", exact order, tag 5"],
                           [("default", "float16", 77), ("exact", "plain", 5)])
    for path in job.records.glob("*.flight"):
        path.with_name("old" + path.name).write_bytes(of_version_3(path.read_bytes()))
        path.rename(path.with_suffix(".new"))
    check_orders_and_wires("... of version 3", ["", ", exact order"], [("default", "plain", 0), ("exact", "plain", 0)])

with Job(["buckets:2", "buckets:1"]) as job:
    job.await_ready()
    job.expect("a gradient bucket that a rank does not start", "missing", [1], [", tag 2", "its last was all_reduce", ", tag 1"])

with Job(["all_reduce barrier all_reduce:7", "all_reduce barrier barrier"], TUTTI_TIMEOUT="600") as job:
    job.await_ready()
    job.expect("a call with a tag and another collective", "mismatch", [0, 1],
               ["rank 0 called all_reduce(1000 x float32, max, tag 7) as operation #2", "rank 1 called barrier()"])

with Job(["barrier fails", "barrier idle"], TUTTI_TIMEOUT="5") as job:
    job.await_ready()
    job.expect("a rank that ended with an error", "failed", [0],
               ["rank 0 has ended with an error; rank 0 first: rank 1", "has not entered operation #1"])

with Job(["all_reduce", "all_reduce"], TUTTI_TRANSPORT="chaos", TUTTI_CHAOS_OVER="tcp",
         TUTTI_CHAOS="stop:rank=1") as job:
    job.await_ready()
    job.expect("a transport that does nothing any more", "stuck", [0, 1],
               ["all ranks are in all_reduce #0", "and nothing moves"])

with Job(["loop"] * 3) as job:
    job.await_ready()
    job.expect("ranks that work", "none", [], ["no hang"], status=0)

with Job(["barrier idle"] * 2) as job:
    job.await_ready()
    job.expect("ranks that wait for nothing", "none", [], ["no hang: no rank waits", "barrier #0"], status=0)

with Job(["barrier receive:1", "barrier idle"]) as job:
    job.await_ready()
    job.expect("a receive without its send", "missing", [1],
               ["rank 0 waits to receive 4000 bytes with tag 7 from rank 1 over shm", "send has not come"], sites=f"over shm{SITE}, since")

CROSSED = ["others a.all_reduce b.all_reduce a.all_reduce", "others a.all_reduce b.all_reduce b.all_reduce"]
ORDER = "use the communicators in the same order on every rank"
with Job(CROSSED) as job:
    job.await_ready()
    job.expect("two communicators in different order", "cycle", [0, 1],
               ["rank 0 waits in all_reduce #1 of hanging.1:0 for rank 1, which waits in all_reduce #1 of hanging.2:0 for rank 0, since",
                ORDER], sites=f"all_reduce #1 of hanging.1:0{SITE} for rank 1, which waits in all_reduce #1 of hanging.2:0{SITE} for")
    sites = [rank["site"] for one in json.loads(job.info("--json", str(job.records)).stdout)["communicators"][:2]
             for rank in one["ranks"] if "site" in rank]
    if len(sites) != 2 or not all(site.startswith("hang::carry_out+0x") for site in sites):
        failures.append(f"the two ranks that wait say where: {sites}")
    job.expect("... by the process that waits in the second", "cycle", [0, 1], [ORDER], target=[str(job.ranks[1].pid)])
    report = json.loads(job.info("--json", str(job.records)).stdout)
    verdicts = {one["name"]: one["finding"] for one in report["communicators"]}
    if [one["finding"] for one in report["communicators"]][:2] != ["cycle", "cycle"] or verdicts.get("hanging") != "none":
        failures.append(f"both communicators of the cycle come first, and the third one has no part: {verdicts}")
    text = job.info(str(job.records)).stdout
    if text.count(ORDER) != 1 or "has not entered" in text:
        failures.append(f"a cycle is told once, and nobody is blamed beside it: {text}")

with Job(["others a.all_reduce", "others p.all_reduce", "others a.all_reduce"]) as job:
    job.await_ready()
    job.expect("ranks of a part", "cycle", [1, 2],
               ["rank 1 waits in all_reduce #0 of hanging.3:1 for rank 2, which waits in all_reduce #0 of hanging.1:0 for "
                "rank 1 (ranks of hanging)", ORDER])

with Job(["others receive:1", "others a.all_reduce"]) as job:
    job.await_ready()
    job.expect("a receive and a collective", "cycle", [0, 1],
               ["rank 0 waits in a receive with tag 7 of hanging for rank 1, which waits in all_reduce #0 of hanging.1:0 for rank 0",
                ORDER])

with Job(["others receive_any", "others a.all_reduce", "others a.all_reduce"]) as job:
    job.await_ready()
    job.expect("a receive from any rank, while all others wait for it", "cycle", [0, 1],
               ["rank 0 waits in a receive from any rank with any tag of hanging for rank 1, which waits in all_reduce #0 of "
                "hanging.1:0 for rank 0", ORDER])

with Job(["others receive_any", "others a.all_reduce", "others idle"]) as job:
    job.await_ready()
    job.expect("... while one does not", "missing", [0, 2], ["ranks 0 and 2 have not entered all_reduce #0"])
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:  # the receive counts as a wait, too, once it has lasted for a second
        report = json.loads(job.info("--json", str(job.records)).stdout)
        if {one["name"]: one["finding"] for one in report["communicators"]}.get("hanging") == "missing":
            break
    job.expect("... also once the receive has lasted", "missing", [0, 2], ["ranks 0 and 2 have not entered all_reduce #0"])

with Job(["receive:1", "receive:0"]) as job:
    job.await_ready()
    job.expect("two receives first", "cycle", [0, 1],
               ["rank 0 waits in a receive with tag 7 of hanging for rank 1, which waits in a receive", "tutti_exchange"])

with Job(["others +a.all_reduce idle", "others +b.all_reduce idle"]) as job:
    job.await_ready()
    job.expect("in threads of the ranks", "cycle", [0, 1],
               ["rank 0 waits in all_reduce #0 of hanging.1:0 for rank 1, which waits in all_reduce #0 of hanging.2:0", ORDER])

with Job(["others a.all_reduce", "others b.all_reduce", "others +p.all_reduce idle"]) as job:
    job.await_ready()
    job.expect("three ranks, not all of which are in the cycle", "cycle", [0, 1],
               ["rank 0 waits in all_reduce #0 of hanging.1:0 for rank 1, which waits in all_reduce #0 of hanging.2:0", ORDER])

# A rank that another one waits for and that computes is no cycle, whatever was before.
with Job(["others a.all_reduce b.all_reduce a.all_reduce", "others a.all_reduce b.all_reduce idle"]) as job:
    job.await_ready()
    job.expect("no cycle", "missing", [1], ["rank 1 has not entered all_reduce #1"])

# Jobs that share a folder, one of which has ended.
with Job(["all_reduce all_reduce", "all_reduce idle"]) as ended:
    ended.await_ready()
    ended.expect("a job to be killed", "missing", [1], ["rank 1 has not entered all_reduce #1"])
    for process in ended.ranks.values():
        process.kill()
        process.wait()
    with Job(["barrier idle", "barrier idle"], TUTTI_RECORDER_DIR=str(ended.records)) as idle, \
            Job(CROSSED, TUTTI_RECORDER_DIR=str(ended.records)) as job:
        idle.await_ready()
        job.await_ready()
        job.expect("beside other jobs", "cycle", [0, 1], [ORDER], target=[str(ended.records)])
        report = json.loads(job.info("--json", "--all", str(ended.records)).stdout)
        shown = [(one["name"], one["finding"], one["ended"]) for one in report["communicators"]]
        if [one[1:] for one in shown[:2]] != [("cycle", False)] * 2 or shown[-1] != ("hanging", "dead", True) or \
                [ended for _, _, ended in shown].count(True) != 1:
            failures.append(f"trouble first, job by job, and what has ended last: {shown}")
        text = job.info("--all", str(ended.records)).stdout
        heads = [line for line in text.splitlines() if line.startswith("== job of hang_rank")]
        if len(heads) != 3 or not heads[-1].endswith(", ended") or not heads[0].endswith(
                f"processes {', '.join(str(pid) for pid in sorted(p.pid for p in job.ranks.values()))}"):
            failures.append(f"each job has a heading: {text}")

with Job(["barrier idle", None, "barrier idle"]) as job:
    job.expect("a rank that does not arrive", "absent", [1],
               ["rank 1 has not arrived", "\"hanging\"", "ranks 0 and 2 wait"])
    os.kill(job.ranks[2].pid, signal.SIGSTOP)
    job.expect("... while another is stopped", "stopped", [2], ["rank 2", "is stopped", "meeting the other ranks"])

# Two hosts with folders of their own: what is not seen is said.
with tempfile.TemporaryDirectory() as other, Job(["all_reduce all_reduce", "all_reduce all_reduce", "all_reduce idle"],
                                                 ) as job:
    job.await_ready()
    job.expect("all records", "missing", [2], ["rank 2 has not entered"])
    for path in list(job.records.iterdir()):
        if f"-{job.ranks[2].pid}-" in path.name:
            path.rename(pathlib.Path(other) / path.name)
    job.expect("a rank of another host", "missing", [2], ["no record of rank 2", "give those of the other hosts too"])
    job.expect("both folders", "missing", [2], ["rank 2 has not entered"], target=[str(job.records), other])

# Files of all kinds beside a good one.
with Job(["barrier idle"]) as job:
    job.await_ready()
    good = next(job.records.glob("*.flight"))
    content = good.read_bytes()

    def bad(name, data):
        (job.records / f"{name}.flight").write_bytes(data)

    bad("empty", b"")
    bad("garbage", os.urandom(len(content)))
    bad("cut", content[: len(content) // 2])
    bad("header", content[:64])
    bad("damaged", content[:100] + bytes([content[100] ^ 0xff]) + content[101:])
    bad("version", content[:8] + b"\x63\0\0\0" + content[12:])
    bad("huge", content + bytes(2 << 20))
    (job.records / "link.flight").symlink_to(good)
    os.mkfifo(job.records / "fifo.flight")
    others = os.getuid() == 0
    if others:
        bad("foreign", content)
        os.chown(job.records / "foreign.flight", 65534, 65534)
    # Not refused, but nothing in it may lead astray: numbers, offsets and text of the changing part are noise.
    bad("noise", content[:256] + os.urandom(len(content) - 256))
    result = job.info("--json", str(job.records))
    report = json.loads(result.stdout)
    expected = {"empty": "less than a header", "garbage": "no flight record", "cut": "cut off", "header": "less than a header",
                "damaged": "damaged", "version": "version 99", "huge": "no flight record has more", "link": "symbolic link",
                "fifo": "not a regular file", "noise": "damaged"}
    if others:
        expected["foreign"] = "belongs to user 65534"
    for name, words in expected.items():
        if not any(f"/{name}.flight: " in line and words in line for line in report["refused"]):
            failures.append(f"{name}.flight should be refused with \"{words}\": {report['refused']}")
    if len(report["refused"]) != len(expected) or len(report["communicators"]) != 1:
        failures.append(f"only the bad ones are refused: {result.stdout}")
    # Noise in the rings of a sound file.
    rings = int.from_bytes(content[40:44], sys.byteorder)  # operations_offset
    for trial in range(20):
        bad("noise", content[:rings] + os.urandom(len(content) - rings))
        result = job.info(str(job.records))
        if result.returncode not in (0, 3):
            failures.append(f"noise: {result.returncode} {result.stderr}")

for arguments, status, words in [(["/no/such/folder"], 1, "expected the number of a process or a folder"),
                                 (["99999999999999999999"], 1, "--hang 99999999999999999999: expected the number of a process"),
                                 (["--topology"], 2, "cannot be combined")]:
    result = subprocess.run([INFO, "--hang", *arguments], capture_output=True, text=True, timeout=PATIENCE)
    if result.returncode != status or words not in result.stderr:
        failures.append(f"--hang {arguments}: {result.returncode} {result.stderr}")
with tempfile.TemporaryDirectory() as folder:
    result = subprocess.run([INFO, "--hang", folder], capture_output=True, text=True, timeout=PATIENCE)
    if result.returncode != 1 or "No flight records" not in result.stdout:
        failures.append(f"an empty folder: {result.returncode} {result.stdout}")
    result = subprocess.run([INFO, "--hang", str(os.getpid())], capture_output=True, text=True, timeout=PATIENCE,
                            env={**os.environ, "TUTTI_RECORDER_DIR": folder})
    if result.returncode != 1 or f"No flight records of process {os.getpid()} in {folder}" not in result.stdout:
        failures.append(f"a process without records: {result.returncode} {result.stdout}")

print("\n".join(failures) if failures else "every verdict is as it should be")
sys.exit(1 if failures else 0)
