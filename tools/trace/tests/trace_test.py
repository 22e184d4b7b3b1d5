#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""trace_test.py TUTTI_TRACE TUTTIRUN TRACED_RANK: a job's traces name the rank that is late and hold every call; what is
whole of damaged and foreign files is used; clocks of two hosts are aligned; refusals say what is wrong."""
import collections
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

TRACE, RUN, RANK = sys.argv[1:4]
RANKS, CALLS, LATE = 4, 12, 2
HEADER, RECORD = 256, 64
SERVICE, CLOCK, PEER_CLOCK = 1, 6, 7
failures = []


def expect(what, condition, said=""):
    if not condition:
        failures.append(f"{what}\n{said}")


def tool(*arguments):
    result = subprocess.run([TRACE, *map(str, arguments)], capture_output=True, text=True, timeout=100)
    return result.returncode, result.stdout + result.stderr


def job(folder, *words, ranks=RANKS, late=str(LATE), calls=CALLS):
    return subprocess.run([RUN, "-n", str(ranks), RANK, late, str(calls), *words], capture_output=True, text=True, timeout=100,
                          env={**os.environ, "TUTTI_TRACE": str(folder), "TUTTI_TRANSPORT": "shm"})


def files(folder):
    return sorted(pathlib.Path(folder).glob("*.tutti-trace"), key=lambda p: int(p.stem.rsplit("-", 1)[1]))


def checksum(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return value


def test_straggler(folder, work):
    perfetto, picture = work / "job.json", work / "job.svg"
    status, said = tool(folder, "--perfetto", perfetto, "--svg", picture)
    expect("tutti-trace should read a whole job", status == 0 and "note:" not in said, said)
    expect("the late rank should be named", f"straggler: rank {LATE}:" in said, said)
    waited = re.search(r"waited ([\d.]+) (ms|s) for it, ([\d.]+) (ms|s) of that before it called", said)
    expect("others waited for it before it called", waited, said)
    if waited:  # three ranks, 12 calls, 20 ms
        total = float(waited[3]) * (1000 if waited[4] == "s" else 1)
        expect(f"{total} ms of waiting is not about 720", 500 < total < 5000, said)
    expect("the slowest link should be told", re.search(r"slowest link: rank \d to rank \d over shm", said), said)
    expect("the top call should be the all_reduce",
           re.search(rf"{CALLS} +\S+ \S+ +\S+ \S+ +all_reduce\(100000 x float32, max\) by \w+ over shm", said), said)
    check_perfetto(json.loads(perfetto.read_text()))
    root = xml.etree.ElementTree.parse(picture).getroot()
    texts = "".join(root.itertext())
    expect("the drawing should mark the late rank", f"rank {LATE} (late)" in texts and root.tag.endswith("svg"), texts)
    tool(folder, "--svg", picture, "--from", "20", "--to", "60")
    expect("a part should be drawn", "60 ms" in picture.read_text())


def check_perfetto(document):
    names = collections.Counter()
    processes = set()
    for event in document["traceEvents"]:
        if event["ph"] == "X":
            expect("an event has a duration and a time", event["dur"] >= 0 and event["ts"] >= 0, str(event))
            names[event["pid"], event["cat"], event["name"]] += 1
            processes.add(event["pid"])
    expect(f"{len(processes)} processes, expected {RANKS}", len(processes) == RANKS)
    for process in processes:
        calls = [(name, n) for (pid, category, name), n in names.items() if pid == process and category == "call"]
        expect(f"each call once, got {calls}",
               sorted(calls) == [("all_reduce(100000 x float32, max)", CALLS), ("barrier()", 1)])
        transfers = sum(n for (pid, category, _), n in names.items() if pid == process and category == "transfer")
        expect(f"a send and a receive, got {transfers}", transfers == 2)
        expect("steps are there", any(category == "step" for (pid, category, _) in names if pid == process))
    arrows = collections.Counter(event["ph"] for event in document["traceEvents"] if event["ph"] in "sf")
    expect(f"each message has both its ends: {arrows}", arrows["s"] == arrows["f"] > 0)


def test_damage(folder, work):
    damaged = work / "damaged"
    shutil.copytree(folder, damaged)
    first, second, third, fourth = files(damaged)
    first.write_bytes(first.read_bytes()[:-RECORD * 2 - 20])
    header = bytearray(second.read_bytes())
    header[28] ^= 255
    second.write_bytes(header)
    third.write_bytes(third.read_bytes()[:100])
    hole = bytearray(fourth.read_bytes())
    hole[HEADER + 40 * RECORD:HEADER + 50 * RECORD] = bytes(10 * RECORD)
    fourth.write_bytes(hole)
    (damaged / "letter.tutti-trace").write_text("Dear ranks, " * 100)
    (damaged / "empty.tutti-trace").write_text("")
    (damaged / "notes.txt").write_text("not looked at")
    status, said = tool(damaged, "--perfetto", work / "damaged.json", "--svg", work / "damaged.svg")
    expect("what is whole should be used", status == 0, said)
    for words in ("rank 0 (", "its last record is cut short", "it has no end: the rank died", f"{second}: its header is damaged",
                  f"{third}: it ends after 100 bytes, inside its header", "rank 3 (", "10 damaged records are left out",
                  "letter.tutti-trace: this is no trace", "empty.tutti-trace: it ends after 0 bytes",
                  "no usable trace of 2 of 4 ranks (1, 2)"):
        expect(f"damage should be told: {words}", words in said, said)
    json.loads((work / "damaged.json").read_text())
    header = bytearray((files(folder)[0]).read_bytes())
    for path in damaged.glob("*.tutti-trace"):
        path.unlink()
    header[8:12] = struct.pack("<I", 9)
    (damaged / "a-0.tutti-trace").write_bytes(header)
    status, said = tool(damaged)
    expect("another version should be refused", status == 1 and "its format is 9, this program reads 2" in said, said)


def test_noise(folder, work):
    """Whatever stands in the records, nothing crashes."""
    noise = work / "noise"
    for seed in range(20):
        shutil.rmtree(noise, ignore_errors=True)
        shutil.copytree(folder, noise)
        path = files(noise)[seed % RANKS]
        data = bytearray(path.read_bytes())
        state = seed + 1
        for _ in range(60):
            state = (state * 6364136223846793005 + 1442695040888963407) & (1 << 64) - 1
            data[HEADER + (state >> 33) % (len(data) - HEADER)] = (state >> 24) & 255
        path.write_bytes(data)
        status, said = tool(noise, "--perfetto", work / "noise.json", "--svg", work / "noise.svg")
        expect(f"noise {seed} should not stop it", status == 0, said[:2000])
        if status == 0:
            json.loads((work / "noise.json").read_text())
            xml.etree.ElementTree.parse(work / "noise.svg")


def test_names_of_any_bytes(folder, work):
    """What a file calls an algorithm reaches the terminal and the pictures as printable text only."""
    odd = work / "odd"
    shutil.copytree(folder, odd)
    path = files(odd)[0]
    data = bytearray(path.read_bytes())
    services = [at for at in range(HEADER, len(data), RECORD) if struct.unpack_from("<I", data, at)[0] == SERVICE]
    expect("there should be a service to spoil", services)
    for at in services:
        data[at + 8:at + 12] = b"\xff\x1b\xc3<"
    path.write_bytes(data)
    status, said = tool(odd, "--perfetto", work / "odd.json", "--svg", work / "odd.svg")
    expect("odd names should not stop it", status == 0, said)
    json.loads((work / "odd.json").read_text())
    picture = (work / "odd.svg").read_text(encoding="ascii")
    xml.etree.ElementTree.fromstring(picture)
    expect("the odd name should be shown", "???" in picture or "???" in said, said)


def move_clock(path, clock, shift, stamps):
    """The same trace as if its host had another clock, `shift` ns ahead."""
    data = bytearray(path.read_bytes())
    data[40:48] = struct.pack("<Q", clock)
    data[HEADER - 8:HEADER] = struct.pack("<Q", checksum(data[:HEADER - 8]))
    for at in range(HEADER, len(data), RECORD):
        kind, _, ns = struct.unpack_from("<IIQ", data, at)
        if kind == CLOCK:
            struct.pack_into("<Q", data, at + 8, ns + shift)
    for stamp in stamps:
        data[HEADER:HEADER] = struct.pack("<IIQQQQQQQ", PEER_CLOCK, *stamp, 0, 0, 0)
    path.write_bytes(data)


def test_tags(folder, work):
    """Tags of calls are in the picture's tips, in Perfetto's arguments and beside the longest call; without one there is nothing."""
    tagged, perfetto, picture = work / "tagged", work / "tagged.json", work / "tagged.svg"
    tagged.mkdir()
    result = job(tagged, "tags", ranks=2, late="none", calls=3)
    expect("the job with tags should run", result.returncode == 0, result.stderr)
    status, said = tool(tagged, "--perfetto", perfetto, "--svg", picture)
    expect("the longest call should have its tag", status == 0 and re.search(r"\(longest: #([012]), tag ([123])\)", said), said)
    expect("the barrier has none", re.search(r"barrier\(\) by .* \(longest: #3\)", said), said)
    calls = [event for event in json.loads(perfetto.read_text())["traceEvents"] if event.get("cat") == "call"]
    found = sorted((event["args"]["sequence"], event["args"].get("tag")) for event in calls)
    expect(f"each call with its tag: {found}", found == [(0, 3)] * 2 + [(1, 2)] * 2 + [(2, 1)] * 2 + [(3, None)] * 2)
    expect("calls of one shape are one row", re.search(r"\n +3 +\S+ \S+ +\S+ \S+ +all_reduce\(", said), said)
    expect("the plain job has no tag", "tag" not in tool(folder)[1].replace("tag 3", ""))
    expect("tips should have tags", re.search(r"<title>#0, tag 3 all_reduce\(", picture.read_text()), picture.read_text())


def test_clocks(folder, work):
    hosts = work / "hosts"
    shutil.copytree(folder, hosts)
    far, shift, half = files(hosts)[LATE], 5_000_000_000, 30_000
    here = struct.unpack_from("<Q", files(hosts)[0].read_bytes(), 40)[0]
    move_clock(far, 77, shift, [])
    status, said = tool(hosts)
    expect("clocks that cannot be aligned should be told",
           status == 0 and "cannot be aligned" in said and "do not compare" in said, said)
    shutil.rmtree(hosts)
    shutil.copytree(folder, hosts)
    now = 1_000_000_000
    # Each stamp has been 30 us on its way.
    move_clock(far, 77, shift, [(0, here, now + shift, now, now + shift + half)])
    near = files(hosts)[0]
    move_clock(near, here, 0, [(LATE, 77, now, now + shift, now + half)])
    status, said = tool(hosts)
    expect("clocks of two hosts should be aligned",
           status == 0 and "2 hosts; times of different hosts agree within 30.0 us" in said, said)
    expect("the late rank of another host should be named", f"straggler: rank {LATE}:" in said, said)


def test_refusals(folder, work):
    for arguments, status, words in (
            ([work / "nowhere"], 1, "No such file or directory"),
            ([work], 1, "no file *.tutti-trace that can be used"),
            ([folder, "--communicator", "moon"], 1, 'no communicator is called "moon"'),
            ([folder, "--svg", work / "no" / "such.svg"], 1, "such.svg: cannot be written: No such file"),
            ([folder, "--from", "9", "--to", "8"], 2, "expected more than --from"),
            ([folder, "--bogus"], 2, "--bogus"),
            ([], 2, "FOLDER is required")):
        got, said = tool(*arguments)
        expect(f"{arguments}: expected {status} and {words}, got {got}", got == status and words in said, said)
    result = job(work / "absent", ranks=2)
    expect("a job without its folder should be refused",
           result.returncode != 0 and f'TUTTI_TRACE="{work}/absent": No such file or directory' in result.stderr,
           result.stderr)


with tempfile.TemporaryDirectory() as name:
    work = pathlib.Path(name)
    folder = work / "traces"
    folder.mkdir()
    result = job(folder)
    expect("the job should run", result.returncode == 0, result.stderr)
    expect("each rank should write a file", len(files(folder)) == RANKS, str(list(folder.iterdir())))
    if not failures:
        for test in (test_straggler, test_damage, test_noise, test_names_of_any_bytes, test_tags, test_clocks, test_refusals):
            test(folder, work)
for failure in failures:
    print(failure)
sys.exit(1 if failures else 0)
