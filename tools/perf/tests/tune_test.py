#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tune_test.py TUTTIRUN TUTTI_PERF TUTTI_INFO: a job measures its algorithms, later jobs choose by rank 0's file, and ranks
that have another file are told so."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

RUN, PERF, INFO = sys.argv[1:4]
failures = []
BASE = {name: value for name, value in os.environ.items() if name not in ("TUTTI_TUNING", "TUTTI_ALGO")}


def run(*arguments, ranks=0, **environment):
    job = [RUN, "-n", ranks, "--no-label"] if ranks else []
    return subprocess.run([str(word) for word in [*job, *arguments]], capture_output=True, text=True, timeout=100,
                          env={**BASE, **{name: str(value) for name, value in environment.items()}})


def expect(what, condition, result):
    if not condition:
        failures.append(f"{what}: status {result.returncode}\n{result.stdout}{result.stderr}")
    return condition


def tune(file, **environment):
    """The table's rows, as words; [] after a failure."""
    result = run(PERF, "all_reduce", "--tune", file, "-J", file.with_suffix(".judged"), "-b", 8, "-e", "4K", "-f", 512, "-n", 1,
                 "-w", 0, ranks=2, **environment)
    rows = [line.split() for line in result.stdout.splitlines() if line.startswith("  ")]
    good = expect("--tune", result.returncode == 0 and len(rows) == 2 and "% of 2 points, within 30 % at" in result.stdout, result)
    return rows if good else []


def test_job(folder):
    file, changed = folder / "tuning.json", folder / "changed.json"
    rows = tune(file)
    if not rows:
        return
    written = json.loads(file.read_text())
    points = written["collectives"]["all_reduce"]
    sound = (written["tutti_tuning"], written["host_of_rank"], [p["block_bytes"] for p in points]) == (1, [0, 0], [8, 4096])
    if not sound or len(written["transports"]) != 1:
        failures.append(f"the file: {written}")
    judged = json.loads(file.with_suffix(".judged").read_text())
    verdict, verdicts = judged["judgement"], judged["judgement"]["rows"]
    if (verdict["points"], len(verdicts), judged["host_of_rank"]) != (2, 2, [0, 0]):
        failures.append(f"the judgement: {judged}")
    for row, point, of in zip(rows, points, verdicts):
        if not {"ring", "direct", "doubling"} <= set(point["us"]) or min(point["us"].values()) <= 0 or point["us"] != of["us"]:
            failures.append(f"{of} does not have the times of {point}")
        # Times decide, whatever they are: the choice's against that of another algorithm.
        slower = of["chosen_us"] > of["rival_us"]
        ratio = of["chosen_us"] / of["rival_us"] if slower else 1
        winner = of["rival"] if slower else of["chosen"]
        if of["rival"] == of["chosen"] or abs(of["ratio"] - ratio) > 1e-9 or [row[3], row[5]] != [winner, of["chosen"]]:
            failures.append(f"{row} is not what {of} says")
        within = 100 * sum(each["ratio"] <= 1.1 for each in verdicts) / 2
        if verdict["percent_within_1.1"] != within:
            failures.append(f"{within} % are within 10 %: {verdict}")
    # Whatever was measured: now ring is the fastest.
    default, other = rows[0][5], "ring"
    if default == other:
        failures.append(f"{default} is chosen without a file: the test needs another algorithm than that")
    for point in points:
        point["us"][other] = 0.001
    changed.write_text(json.dumps(written))
    rows = tune(folder / "again.json", TUTTI_TUNING=changed)
    if [row[5] for row in rows] != [other, other]:
        failures.append(f"calls are not served by the algorithm of the file: {rows}")
    result = run(INFO, "--explain", "all_reduce", 64, ranks=2, TUTTI_TUNING=changed)
    chosen = [line.split() for line in result.stdout.splitlines() if "chosen: the lowest measured time" in line]
    expect("--explain has the measured time", len(chosen) == 1 and chosen[0][0] == other and chosen[0][2] == "0.001", result)
    result = run(INFO, "--explain", "all_reduce", 64, ranks=3, TUTTI_TUNING=changed)
    expect("--explain of other ranks", "measured with 2 ranks on 1 host" in result.stdout and
           "this communicator has 3 ranks on 1 host" in result.stdout and "lowest predicted time" in result.stdout, result)
    # Rank 0's file serves all ranks: one that chose without it would call another algorithm.
    first_alone = "test \"$RANK\" != 0 || export TUTTI_TUNING=$FILE; exec \"$0\" \"$@\""
    for command, words in (((PERF, "all_reduce", "-b", 8, "-e", 64, "-n", 5), "# Out of bounds values : 0 OK"),
                           ((INFO, "--explain", "all_reduce", 64), "chosen: the lowest measured time")):
        result = run("sh", "-c", first_alone, *command, ranks=2, FILE=changed, TUTTI_CHECK=1)
        expect("rank 0's file", result.returncode == 0 and words in result.stdout, result)
    # Another rank has the same one, or none.
    only_one = "test \"$RANK\" = 0 || export TUTTI_TUNING=$FILE; exec \"$0\" \"$@\""
    for first, said in (("", "no file"), (file, '"a file with digest ')):
        given = {"TUTTI_TUNING": first} if first else {}
        result = run("sh", "-c", only_one, INFO, "--topology", ranks=2, FILE=changed, **given)
        expect("ranks that disagree", result.returncode != 0 and "the ranks disagree about tuning (TUTTI_TUNING): rank 0 has " + said
               in result.stderr and 'rank 1 has "a file with digest ' in result.stderr, result)
    result = run("sh", "-c", only_one, INFO, "--topology", ranks=2, FILE=folder / "none.json")
    # The launcher ends the job when the first rank ends: either rank's words may be missing.
    expect("a rank without the file", result.returncode != 0 and "none.json\": cannot be read: No such file" in result.stderr, result)
    changed.write_text(changed.read_text().replace("\"ring\"", "\"rings\""))
    result = run(INFO, "--topology", ranks=2, TUTTI_TUNING=changed)
    expect("a wrong file", result.returncode != 0 and "there is no algorithm \"rings\"" in result.stderr and
           "write the file again with tutti-perf --tune" in result.stderr, result)


def test_command_line(folder):
    file = folder / "refused.json"
    for arguments, words in (((PERF, "all_reduce", "--threads", 2, "--plot", folder / "p"), "excludes --tune"),
                             ((PERF, "all_reduce", "--threads", 2, "-d", "all"), "name one instead of all"),
                             ((PERF, "sendrecv", "--threads", 2), "has no choice of algorithms by size"),
                             ((PERF, "all_reduce", "--threads", 1), "one rank has no choice of algorithms")):
        result = run(*arguments, "-b", 8, "--tune", file)
        expect(f"{arguments} --tune should be refused", result.returncode == 2 and words in result.stderr, result)
    result = run(PERF, "all_reduce", "--threads", 2, "-b", 8, "--tune", file, TUTTI_ALGO="all_reduce:ring")
    expect("TUTTI_ALGO", result.returncode == 2 and "TUTTI_ALGO is set" in result.stderr, result)
    result = run(PERF, "all", "--threads", 3, "-b", 1, "-n", 1, "-w", 0, "--tune", file)
    expect("too small for an element: the barrier alone", result.returncode == 0 and "% of 1 points, " in result.stdout and
           list(json.loads(file.read_text())["collectives"]) == ["barrier"], result)


with tempfile.TemporaryDirectory() as place:
    test_job(pathlib.Path(place))
    test_command_line(pathlib.Path(place))
print("\n".join(failures) or "all as expected")
sys.exit(bool(failures))
