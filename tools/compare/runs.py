# SPDX-License-Identifier: Apache-2.0
"""Running the measuring programs, in turn, and gathering what they print."""
import json
import os
import signal
import subprocess
import tempfile
import time

from contestants import command
from cores import Kinds
from peers import Absent

STRIKES = 2  # collectives that fail before a contestant is left out of a part


def run(processes, limit):
    """Runs (argv, environment) pairs side by side: (the lines of JSON that they print, None or why not all came). No
    process of theirs is left."""
    started = []
    why = None
    with tempfile.TemporaryDirectory(prefix="compare-run-") as folder:
        files = [[open(os.path.join(folder, f"{kind}{at}"), "w+") for kind in "oe"] for at in range(len(processes))]
        try:
            for (argv, environment), (out, errors) in zip(processes, files):
                started.append(subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=errors,
                                                start_new_session=True))
            deadline = time.monotonic() + limit
            for one in started:
                one.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            why = f"did not end within {limit:.0f} s"
        except FileNotFoundError as missing:
            why = f"{missing.filename} is not there"
        finally:
            for one in started:
                try:
                    os.killpg(one.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                one.wait()
        texts = [[_text(file) for file in pair] for pair in files]
    lines = [json.loads(line) for out, _ in texts for line in out.splitlines() if line.startswith("{") and line.endswith("}")]
    return lines, why or _failure(started, texts)


def _text(file):
    with file:
        file.seek(0)
        return file.read()


def _failure(started, texts):
    """Why one of the processes failed, in its own words if it has any; None."""
    for one, (_, errors) in zip(started, texts):
        if one.returncode:
            words = [line for line in errors.splitlines() if any(letter.isalpha() for letter in line)]
            own = [line for line in words if "compare: " in line]
            return f"ended with status {one.returncode}" + (f": {(own or words)[0][:200]}" if words else "")
    return None


class Results:
    """Times by (ranks, transport, collective, bytes, mode) and contestant: a list of each run's median. A contestant that
    gave nothing has a reason."""

    def __init__(self):
        self.points = {}
        self.profiles = {}  # by the same, and contestant: a list of each run's profile
        self.lines = {}  # by the same: a list of each run's line times, before and after
        self.yardsticks = {}  # by (name, bytes)
        self.yardstick_lines = {}
        self.reasons = {}  # by (ranks, transport, collective, contestant)

    def add(self, place, contestant, median, profile=None, line=None):
        self.points.setdefault(place, {}).setdefault(contestant, []).append(median)
        if profile:
            self.profiles.setdefault(place, {}).setdefault(contestant, []).append(profile)
        if line:
            self.lines.setdefault(place, {}).setdefault(contestant, []).append(line)

    def add_yardstick(self, name, size, median, line=None):
        self.yardsticks.setdefault((name, size), []).append(median)
        if line:
            self.yardstick_lines.setdefault((name, size), []).append(line)


def median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def measure_all(plan, field, programs, say):
    """Every round measures each part by each contestant in turn. `field`: the contestants by transport. Returns the results
    and the number of rounds."""
    results, begin, longest, turn = Results(), time.monotonic(), 0, 0
    while _is_another(plan, turn, time.monotonic() - begin, longest):
        turn, start = turn + 1, time.monotonic()
        if any(part.ranks == 2 for part in plan.parts):
            say(f"round {turn}: the machine's limits")
            _measure_limits(plan, programs, results, say if turn == 1 else lambda _: None)
        for part in plan.parts:
            say(f"round {turn}, {time.monotonic() - begin:.0f} s: {part.ranks} ranks over {part.transport}, "
                f"{len(part.collectives)} collectives, {part.sizes[0]} to {part.sizes[-1]} bytes")
            for contestant in field[part.transport]:
                _measure(plan, part, contestant, programs, results)
        longest = max(longest, time.monotonic() - start)
        say(f"round {turn} took {time.monotonic() - start:.0f} s")
    return results, turn


def _is_another(plan, done, seconds, longest):
    """Is there time for another round? Two are needed for a spread."""
    if plan.rounds:
        return done < plan.rounds
    return done < 2 or seconds + longest <= plan.minutes * 60


def _measure_limits(plan, programs, results, say):
    two = {size for part in plan.parts if part.ranks == 2 for size in part.sizes if size} or {8}
    halves = {max(size // 2, 8) for size in two}  # what each of two ranks gets from the other
    lists = [",".join(str(size) for size in sorted(sizes)) for sizes in (two, two | halves)]
    try:
        argv = [str(programs.of("limits")), *lists, str(max(1, plan.milliseconds // 2))]
        with tempfile.TemporaryDirectory(prefix="compare-") as folder:
            lines, why = run([(argv, {**programs.environment, **line_setting(2, folder, results)})], 290)
    except Absent as absent:
        lines, why = [], str(absent)
    if why:
        say(f"the machine's limits are not all measured: {why}")
    for line in lines:
        results.add_yardstick(line["yardstick"], line["bytes"], median(line["us"]), line.get("line_us"))


def line_setting(ranks, folder, results):
    """Makes two ranks that have a core each measure how near these are, and wait for the kind that most runs met until now:
    programs/line.h."""
    if ranks != 2 or len(os.sched_getaffinity(0)) < 2:
        return {}
    wanted = Kinds.of(results).most_met(results)
    return {"COMPARE_LINE": os.path.join(folder, "line"), **({"COMPARE_LINE_WANTED": "%g,%g" % wanted} if wanted else {})}


def arguments_of(part, collectives, milliseconds):
    return [",".join(collectives), ",".join(map(str, part.sizes)), ",".join(part.modes), str(milliseconds)]


def _measure(plan, part, contestant, programs, results):
    """A program measures all collectives of the part. If one fails, the next program continues behind it."""
    def key(collective):
        return part.ranks, part.transport, collective, contestant.name

    left = [one for one in part.collectives if key(one) not in results.reasons]
    if contestant.not_crowded and plan.usual and part.ranks > len(os.sched_getaffinity(0)):
        results.reasons.update({key(one): contestant.not_crowded for one in left})
        return
    strikes = 0
    while left:
        # A program limits the time of each point itself; this limit is for launchers.
        points = len(left) * len(part.sizes) * len(part.modes)
        limit = 90 + points * plan.milliseconds / 100 + sum(part.sizes) * part.ranks * len(left) / 20e6
        try:
            with tempfile.TemporaryDirectory(prefix="compare-") as meeting:
                arguments = arguments_of(part, left, plan.milliseconds)
                setting = line_setting(part.ranks, meeting, results)
                lines, why = run([(argv, {**environment, **setting}) for argv, environment in
                                  command(contestant, part.ranks, arguments, programs, meeting)], limit)
        except Absent as absent:
            lines, why = [], str(absent)
        _keep(part, contestant, lines, results, key)
        done = {line["done"] for line in lines if "done" in line}
        left = [one for one in left if one not in done]
        if not left:
            return
        strikes += 1
        results.reasons[key(left.pop(0))] = why or "printed no times"
        if strikes == STRIKES:
            results.reasons.update({key(one): f"left out after {STRIKES} failures" for one in left})
            return


def _keep(part, contestant, lines, results, key):
    for line in lines:
        if line.get("none"):
            results.reasons[key(line["collective"])] = "has no such collective for this number of ranks"
        elif "us" in line:
            place = (part.ranks, part.transport, line["collective"], line["bytes"], line["mode"])
            results.add(place, contestant.name, median(line["us"]), line.get("profile"), line.get("line_us"))
