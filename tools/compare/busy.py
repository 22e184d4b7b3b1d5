# SPDX-License-Identifier: Apache-2.0
"""Foreign programs on the first cores: the median and the 99th percentile of 8 bytes with and without them."""
import contextlib
import subprocess
import tempfile

from contestants import command
from peers import Absent
from report import time_text
from runs import median, run

FORMAT = "tutti-compare-busy/1"
LIBRARIES = ("tutti", "openmpi", "openmpi5", "gloo")
RANKS = (2, 4)
MOST = 3  # times the quiet 99th percentile: the goal
COLLECTIVE, BYTES, ROUNDS, MILLISECONDS = "all_reduce", 8, 5, 1000


@contextlib.contextmanager
def programs_beside(number, programs):
    """`number` busy programs, the i-th on the i-th core, as long as the block lasts. Throws Absent."""
    started = []
    try:
        for core in range(number):
            started.append(subprocess.Popen([programs.of("busy"), str(core)]))
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


def measure_busy(plan, field, programs, say):
    """A dict for each contestant and number of ranks; its "quiet" and "busy" have the p50 and p99 of each round."""
    told = {}
    for turn in range(plan.rounds or ROUNDS):
        for ranks in plan.ranks or RANKS:
            say(f"round {turn + 1}: {ranks} ranks, without and with {plan.busy} busy programs")
            for contestant in [one for some in field.values() for one in some]:
                if contestant.library not in LIBRARIES or "registered" in contestant.name:
                    continue
                place = ranks, contestant.transport, contestant.name
                one = told.setdefault(place, {"quiet": {}, "busy": {}, "reason": ""})
                for kind in ("quiet", "busy"):
                    if not one["reason"]:
                        _measure(plan, ranks, contestant, programs, kind, one)
    return [{"ranks": ranks, "transport": transport, "contestant": name, **one}
            for (ranks, transport, name), one in told.items()]


def _measure(plan, ranks, contestant, programs, kind, one):
    arguments = [COLLECTIVE, str(BYTES), "latency", str(plan.milliseconds if plan.rounds else MILLISECONDS)]
    try:
        with tempfile.TemporaryDirectory(prefix="compare-") as meeting, \
                programs_beside(plan.busy if kind == "busy" else 0, programs):
            lines, why = run(command(contestant, ranks, arguments, programs, meeting), 90)
    except Absent as absent:
        lines, why = [], str(absent)
    for line in lines:
        for percentile in ("p50", "p99"):
            if percentile in line:
                one[kind].setdefault(percentile, []).append(line[percentile])
    if why:
        one["reason"] = f"{kind}: {why}"


def table(told, number):
    """Markdown. Each figure is the median over the rounds."""
    lines = [f"| ranks | contestant | p50, us | p99, us | p50 with {number} busy | p99 with {number} busy | "
             "p99 busy / quiet |", "| --- | --- | ---: | ---: | ---: | ---: | ---: |"]
    for one in told:
        figures = [median(one[kind][percentile]) if one[kind].get(percentile) else None
                   for kind in ("quiet", "busy") for percentile in ("p50", "p99")]
        ratio = f"{figures[3] / figures[1]:.2f}" if figures[1] and figures[3] else one["reason"]
        lines.append(f"| {one['ranks']} over {one['transport']} | {one['contestant']} | " +
                     " | ".join(time_text(us) if us else "" for us in figures) + f" | {ratio} |")
    return "\n".join(lines) + "\n"


def verdict(told):
    """A line for each measurement of Tutti: the goal, met or missed."""
    lines = []
    for one in told:
        if one["contestant"] == "tutti" and one["quiet"].get("p99") and one["busy"].get("p99"):
            ratio = median(one["busy"]["p99"]) / median(one["quiet"]["p99"])
            lines.append(f"{one['ranks']} ranks over {one['transport']}: p99 of {BYTES} bytes is {ratio:.2f} times the quiet "
                         f"one: the goal of at most {MOST} is {'met' if ratio <= MOST else 'missed'}")
    return lines
