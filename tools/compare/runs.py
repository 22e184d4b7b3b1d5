# SPDX-License-Identifier: Apache-2.0
"""Running the measuring programs, in turn, and gathering what they print."""
import json
import os
import signal
import subprocess
import tempfile
import time

from contestants import Absent, command


def run(processes, limit):
    """Runs (argv, environment) pairs side by side; the lines of JSON that they print. Throws Absent: the reason why there
    are none, or not all. No process of theirs is left."""
    started = []
    try:
        for argv, environment in processes:
            started.append(subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE, text=True, start_new_session=True))
        deadline = time.monotonic() + limit
        outputs = [one.communicate(timeout=max(0.1, deadline - time.monotonic())) for one in started]
    except subprocess.TimeoutExpired:
        raise Absent(f"did not end within {limit:.0f} s") from None
    except FileNotFoundError as missing:
        raise Absent(f"{missing.filename} is not there") from None
    finally:
        for one in started:
            try:
                os.killpg(one.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            one.wait()
            one.stdout.close()
            one.stderr.close()
    for one, (_, errors) in zip(started, outputs):
        if one.returncode:
            words = [line for line in errors.splitlines() if any(letter.isalpha() for letter in line)]
            raise Absent(f"ended with status {one.returncode}" + (f": {words[0][:200]}" if words else ""))
    return [json.loads(line) for out, _ in outputs for line in out.splitlines() if line.startswith("{")]


class Results:
    """Times by (ranks, transport, collective, bytes, mode) and contestant: a list of each run's median. A contestant that
    gave nothing has a reason."""

    def __init__(self):
        self.points = {}
        self.yardsticks = {}  # by (name, bytes)
        self.reasons = {}  # by (ranks, transport, collective, contestant)

    def add(self, place, contestant, median):
        self.points.setdefault(place, {}).setdefault(contestant, []).append(median)

    def add_yardstick(self, name, size, median):
        self.yardsticks.setdefault((name, size), []).append(median)


def median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def measure_all(plan, field, programs, say):
    """Every round measures each collective by each contestant in turn. `field`: the contestants by transport."""
    results = Results()
    for turn in range(plan.rounds):
        _measure_limits(plan, programs, results, say if turn == 0 else lambda _: None)
        for ranks in plan.ranks:
            for transport in plan.transports:
                for collective in plan.collectives:
                    for mode in plan.modes:
                        say(f"round {turn + 1} of {plan.rounds}: {ranks} ranks over {transport}, {collective}, {mode}")
                        for contestant in field[transport]:
                            _measure(plan, ranks, collective, mode, contestant, programs, results)
    return results


def _measure_limits(plan, programs, results, say):
    halves = {max(size // 2, 8) for size in plan.sizes}  # what each of two ranks fetches
    sizes = ",".join(str(size) for size in sorted({*plan.sizes, *halves}))
    try:
        lines = run([([str(programs.of("limits")), sizes, str(plan.milliseconds)], dict(os.environ))], 290)
    except Absent as why:
        say(f"the machine's limits are not measured: {why}")
        return
    for line in lines:
        results.add_yardstick(line["yardstick"], line["bytes"], median(line["us"]))


def _measure(plan, ranks, collective, mode, contestant, programs, results):
    key = (ranks, contestant.transport, collective, contestant.name)
    if key in results.reasons:  # it will not do in another round either
        return
    sizes = [0] if collective == "barrier" else plan.sizes
    arguments = [collective, ",".join(str(size) for size in sizes), mode, str(plan.milliseconds)]
    limit = 20 + 10 * ranks + len(sizes) * plan.milliseconds / 1000 * 20
    try:
        with tempfile.TemporaryDirectory(prefix="compare-") as meeting:
            lines = run(command(contestant, ranks, arguments, programs, meeting), limit)
    except Absent as why:
        results.reasons[key] = str(why)
        return
    for line in lines:
        if line.get("none"):
            results.reasons[key] = "has no such collective for this number of ranks"
            continue
        place = (ranks, contestant.transport, collective, line["bytes"], line["mode"])
        results.add(place, contestant.name, median(line["us"]))
