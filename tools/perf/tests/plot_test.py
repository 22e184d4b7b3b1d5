#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plot_test.py TUTTI_PERF: the picture of a run has every row and every peer's, at the right places, and files of peers that
cannot be used are refused before anything is measured."""
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

PERF = sys.argv[1]
SVG = "{http://www.w3.org/2000/svg}"
failures = []


def expect(what, condition, said=""):
    if not condition:
        failures.append(f"{what}\n{said}")


def run(*arguments):
    result = subprocess.run([PERF, *map(str, arguments)], capture_output=True, text=True, timeout=100)
    return result.returncode, result.stdout + result.stderr


def circles(root, colour):
    return [(float(c.get("cx")), float(c.get("cy")), c[0].text) for c in root.iter(SVG + "circle") if c.get("class") == colour]


def test_picture(folder):
    csv, report, picture = folder / "other.csv", folder / "own.json", folder / "plot.svg"
    csv.write_text("# of another library\ncollective,size,time_us\nall_reduce,64,10\nall_reduce,4096,100\nbroadcast,64,1\n")
    status, said = run("all_reduce", "--threads", "2", "-b", "64", "-e", "16K", "-f", "4", "-n", "2", "-J", report)
    expect("a run with -J", status == 0, said)
    status, said = run("all_reduce", "--threads", "2", "-b", "64", "-e", "16K", "-f", "4", "-n", "2", "--plot", picture,
                       "--peer", f"Other <2>={csv}", "--peer", f"before={report}")
    expect("a run with --plot", status == 0, said)
    root = xml.etree.ElementTree.parse(picture).getroot()
    texts = [text for text in root.itertext() if text.strip()]
    for words in ("2 ranks over shm", "all_reduce: time", "all_reduce: bus bandwidth", "Tutti", "Other <2>", "before", "16K"):
        expect(f"the picture says {words}", words in texts, str(texts))
    if failures:
        return
    own, other, before = (circles(root, f"s{i}") for i in range(3))
    expect("five sizes in two panels", len(own) == len(before) == 10, f"{own}\n{before}")
    expect("two of the peer's, not its broadcast", len(other) == 4, str(other))
    # Six doublings between the peer's sizes of eight on the axis; a decade of time, and of its rate 6.4.
    span = own[4][0] - own[0][0]
    expect("sizes are on a logarithmic axis", abs((other[1][0] - other[0][0]) / span - 6 / 8) < 0.01, f"{own}\n{other}")
    expect("more time is higher up", other[1][1] < other[0][1], str(other))
    expect("bus bandwidth is computed as Tutti's", "64: 0.0064" in other[2][2] and "4K: 0.04096" in other[3][2], str(other))
    times = {row["size"]: row["out_of_place"]["time_us"] for row in json.loads(report.read_text())["rows"]}
    drawn = {text: math.isclose(float(text.split(": ")[1]), times[size], rel_tol=1e-4)
             for size, (_, _, text) in zip(sorted(times), before)}
    expect("a peer's rows are drawn as measured", all(drawn.values()), f"{drawn}\n{times}")
    status, said = run("all", "--threads", "2", "-b", "64", "-n", "1", "-w", "0", "--plot", picture)
    expect("all collectives, with a single size", status == 0 and "all_gather: time" in picture.read_text(), said)
    xml.etree.ElementTree.parse(picture)


def test_refusals(folder):
    def refused(peer, words, status=1):
        got, said = run("all_reduce", "--threads", "2", "-b", "64", "--plot", folder / "no.svg", "--peer", peer)
        expect(f"--peer {peer}: expected {status} and {words}, got {got}", got == status and words in said and
               "#wrong" not in said, said)

    def written(name, text):
        (folder / name).write_text(text)
        return f"x={folder / name}"

    refused("gloo", "expected NAME=FILE")
    refused(f"x={folder}/absent.csv", "No such file")
    refused(written("columns.csv", "bytes,us\n1,2\n"), "line 1: expected the columns size and time_us")
    refused(written("word.csv", "size,time_us\n64,fast\n"), 'line 2: "fast" is no number')
    refused(written("short.csv", "size,time_us\n64\n"), "line 2: it has fewer columns")
    refused(written("zero.csv", "size,time_us\n64,0\n"), "line 2: size and time_us must be more than 0")
    refused(written("empty.csv", "size,time_us\n"), "it holds no measurement")
    refused(written("other.json", '{"rows": 7}'), "it is not what tutti-perf -J writes")
    got, said = run("all_reduce", "--threads", "2", "-b", "64", "--plot", folder / "no" / "such.svg")
    expect("a picture that cannot be written", got == 2 and "--plot" in said and "cannot be written" in said, said)


with tempfile.TemporaryDirectory() as name:
    test_picture(pathlib.Path(name))
    test_refusals(pathlib.Path(name))
for failure in failures:
    print(failure)
sys.exit(1 if failures else 0)
