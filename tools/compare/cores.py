# SPDX-License-Identifier: Apache-2.0
"""Kinds of cores. The host of a virtual machine runs its cores on two threads of one core, on cores that share a cache, or on
cores far from each other, and changes that at any time. A run of a contestant at a point, and of a yardstick, has two line
times: of a cache line there and back between its two ranks, right before and right after (programs/line.h). Groups of line
times are kinds of cores. Runs are compared with runs of the same kind only."""
import bisect
import math
from dataclasses import dataclass
from statistics import median

ONE, CHANGED = "one kind", "changed"  # nobody measured line times, or all are alike; another kind after the run than before
MOST_US = 1e6  # above all line times

# A boundary between kinds lies where few line times are: within this factor to both sides of it at most a tenth of the line
# times on its smaller side. A kind has at least 2 % of all line times.
FACTOR, FEW, LEAST = 1.15, 0.1, 0.02


def _boundaries(logs, least):
    """Where sorted logarithms fall into groups of at least so many, ascending."""
    step, best, at = math.log(FACTOR), (FEW, 0), None
    for eighth in range(1, int((logs[-1] - logs[0]) / step * 8) + 1 if logs else 0):
        log = logs[0] + step * eighth / 8
        below = bisect.bisect(logs, log)
        smaller = min(below, len(logs) - below)
        if smaller >= least:
            near = bisect.bisect(logs, log + step) - bisect.bisect_left(logs, log - step)
            empty = min(log - logs[below - 1], logs[below] - log)
            if (worth := (near / smaller, -empty)) < best:
                best, at = worth, log
    if at is None:
        return []
    below = bisect.bisect(logs, at)
    return [*_boundaries(logs[:below], least), at, *_boundaries(logs[below:], least)]


@dataclass
class Kinds:
    """Named by the median of their line times, as "0.12 us", the nearest cores first; the boundaries lie between them."""
    names: list
    boundaries: list

    @classmethod
    def of_times(cls, times):
        logs = sorted(map(math.log, times))
        found = _boundaries(logs, max(1, LEAST * len(logs)))
        places = [0, *(bisect.bisect(logs, log) for log in found), len(logs)]
        names = [f"{math.exp(median(logs[first:last])):.2g} us" for first, last in zip(places, places[1:]) if last > first]
        return cls(names, [math.exp(log) for log in found])

    @classmethod
    def of(cls, results):
        return cls.of_times([time for line in _lines_of(results) for time in line])

    def kind(self, line):
        """Of a run with these line times."""
        first, *others = (bisect.bisect(self.boundaries, time) for time in line)
        return self.names[first] if all(one == first for one in others) else CHANGED

    def most_met(self, results):
        """The line times, from and to, of the kind that most runs met until now; None: all are of one kind."""
        if not self.boundaries:
            return None
        found = [self.kind(line) for line in _lines_of(results)]
        at = max(range(len(self.names)), key=lambda at: found.count(self.names[at]))
        edges = [0, *self.boundaries, MOST_US]
        return edges[at], edges[at + 1]

    def divide(self, runs, lines):
        """The runs of each kind that has some. `lines`: theirs, or nothing."""
        if not self.boundaries or not lines:
            return {ONE: runs}
        found = {}
        for run, line in zip(runs, lines):
            found.setdefault(self.kind(line), []).append(run)
        found.pop(CHANGED, None)
        return found

    def choose(self, *tiers):
        """The kind in which most of the first tier have runs, then most of the next one; then the one in which the scarcest
        has most; then the nearest. A tier: by name the runs of each kind."""
        def worth(kind):
            runs = [len(kinds[kind]) for tier in tiers for kinds in tier.values() if kind in kinds]
            return [sum(kind in kinds for kinds in tier.values()) for tier in tiers] + [min(runs, default=0)]
        return max((ONE, *self.names), key=worth)


def _lines_of(results):
    lines = [line for by_contestant in results.lines.values() for some in by_contestant.values() for line in some]
    return lines + [line for some in results.yardstick_lines.values() for line in some]


def apart(met):
    """Why these cannot be compared: "tutti: 0.12 us; openmpi: 0.4 us". `met`: by name the runs of each kind."""
    all_kinds, found = {kind for kinds in met.values() for kind in kinds}, {}
    for name, kinds in met.items():
        if len(kinds) < len(all_kinds) or not kinds:
            found.setdefault(" and ".join(sorted(kinds)) or CHANGED, []).append(name)
    return "; ".join(f"{' and '.join(names)}: {what}" for what, names in found.items())


def sentence(results):
    """Which cores the runs met; "": nobody measured line times."""
    kinds, lines = Kinds.of(results), _lines_of(results)
    if not lines:
        return ""
    found = [kinds.kind(line) for line in lines]
    shares = [f"{100 * found.count(kind) / len(found):.0f} % {kind}" for kind in (*kinds.names, CHANGED) if kind in found]
    return f"A cache line between two ranks took, there and back, of all runs: {', '.join(shares)}."
