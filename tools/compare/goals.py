# SPDX-License-Identifier: Apache-2.0
"""The goals, as ratios of times measured in one run, and the points that miss them."""
from collections import Counter
from dataclasses import dataclass
from typing import Callable

from report import LIMIT, NOISY, PEER, Figure, Row, size_text, time_text

LARGE, BULK = 64 << 10, 1 << 20  # bytes, from which on a goal holds


@dataclass(frozen=True)
class Goal:
    name: str
    text: str
    most: float  # times the best peer, or the limit
    limit: bool  # False: beside the best peer
    memories: tuple
    holds: Callable  # for (row, crowded)? crowded: more ranks than cores


ORDINARY, BOTH = ("ordinary",), ("ordinary", "registered")
GOALS = (
    Goal("peer", "below 64 KiB at most the best peer's time", 1.0, False, ORDINARY,
         lambda row, crowded: not crowded and row.bytes < LARGE),
    Goal("peer-large", "from 64 KiB at most 0.8 of the best peer's time", 0.8, False, ORDINARY,
         lambda row, crowded: not crowded and row.bytes >= LARGE),
    Goal("crowded", "more ranks than cores: at most 0.8 of the best peer's time", 0.8, False, ORDINARY,
         lambda row, crowded: crowded),
    Goal("line", "8 bytes and barriers: at most 1.3 of a cache line there and back", 1.3, True, BOTH,
         lambda row, crowded: row.transport == "shm" and row.bytes <= 8),
    Goal("ordinary", "ordinary memory: at most 1.15 of the better of the staged and direct limits", 1.15, True,
         ORDINARY,
         lambda row, crowded: row.transport == "shm" and row.bytes > 64),
    Goal("registered", "registered memory: at most 1.3 of the mapped limit", 1.3, True, ("registered",),
         lambda row, crowded: row.transport == "shm" and row.bytes > 64),
    Goal("tcp-small", "8 bytes over TCP: at most 1.2 of raw sockets", 1.2, True, ORDINARY,
         lambda row, crowded: row.transport == "tcp" and row.bytes == 8),
    Goal("tcp-bulk", "TCP from 1 MiB: at least 0.95 of the speed of raw sockets", 1 / 0.95, True, ORDINARY,
         lambda row, crowded: row.transport == "tcp" and row.bytes >= BULK),
)


@dataclass
class Verdict:
    """One goal at one point."""
    goal: Goal
    row: Row
    memory: str
    tutti: Figure
    other: Figure  # the best peer, or the limit

    @property
    def ratio(self):
        return self.tutti.us / self.other.us

    @property
    def met(self):
        return self.ratio <= self.goal.most

    @property
    def spread(self):
        return max(self.tutti.spread, self.other.spread)

    @property
    def noisy(self):
        return self.spread > NOISY


def _places(all_rows, number):
    """Each goal at each point and kind of memory for which it holds, on this number of cores."""
    return [(goal, row, memory) for goal in GOALS for row in all_rows if goal.holds(row, row.ranks > number)
            for memory in goal.memories]


def verdicts(all_rows, cores):
    """Each goal at each point for which it has both figures, of runs that met the same kind of cores."""
    found = []
    for goal, row, memory in _places(all_rows, cores):
        other = row.limits.get(memory) if goal.limit else row.peer
        if memory in row.tutti and other:
            found.append(Verdict(goal, row, memory, row.tutti[memory], other))
    return found


def not_comparable(all_rows, cores):
    """By goal how many points it has whose runs met different cores: these count neither as met nor as missed."""
    return Counter(goal.name for goal, row, memory in _places(all_rows, cores)
                   if (LIMIT if goal.limit else PEER, memory) in row.apart)


def behind(found):
    """Those that miss their goal, the farthest first."""
    return sorted((one for one in found if not one.met), key=lambda one: one.goal.most / one.ratio)


def counts(found, apart):
    """By goal with at least one point: (goal, points, met, missed, how many of the missed are noisy, not comparable).
    `apart`: the points by goal that are not comparable; they are in addition to the others."""
    told = []
    for goal in GOALS:
        some = [one for one in found if one.goal is goal]
        missed = [one for one in some if not one.met]
        if some or apart[goal.name]:
            told.append((goal, len(some), len(some) - len(missed), len(missed), sum(one.noisy for one in missed), apart[goal.name]))
    return told


def counts_table(found, apart):
    """Points that are not comparable, since contestants met different cores, have a column of their own."""
    lines = ["| goal | of a point | points | met | missed | missed, noisy | not comparable |",
             "| --- | --- | ---: | ---: | ---: | ---: | ---: |"]
    lines += [f"| {goal.name} | {goal.text} | " + " | ".join(map(str, figures)) + " |" for goal, *figures in counts(found, apart)]
    return "\n".join(lines) + "\n"


def behind_table(found):
    """A line for each point that misses a goal, as Markdown."""
    missed = behind(found)
    if not missed:
        return f"No goal is missed at {len(found)} points.\n" if found else "No point has a goal.\n"
    lines = ["| goal | ranks | memory | collective | bytes | input | Tutti, us | best peer or limit, us | ratio | "
             "goal at most | spread |", "| --- | --- | --- | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |"]
    for one in missed:
        row = one.row
        lines.append(f"| {one.goal.name} | {row.ranks} over {row.transport} | {one.memory} | {row.collective} | "
                     f"{size_text(row.bytes)} | {row.mode} | {time_text(one.tutti.us)} | {time_text(one.other.us)} "
                     f"({one.other.name}) | {one.ratio:.2f} | {one.goal.most:.2f} | x{one.spread:.2f}"
                     f"{', noisy' if one.noisy else ''} |")
    return "\n".join(lines) + "\n"


def report(found, apart):
    """Both tables, with headings."""
    return ("### Goals\n\n" + counts_table(found, apart) + "\n### Where Tutti is behind\n\n" + behind_table(found))


def document(found, apart):
    """For JSON."""
    return {
        "goals": [{"goal": goal.name, "text": goal.text, "most": goal.most, "points": points, "met": met,
                   "missed": missed, "missed_noisy": noisy, "not_comparable": unlike}
                  for goal, points, met, missed, noisy, unlike in counts(found, apart)],
        "behind": [{"goal": one.goal.name, "ranks": one.row.ranks, "transport": one.row.transport, "memory": one.memory,
                    "collective": one.row.collective, "bytes": one.row.bytes, "mode": one.row.mode,
                    "tutti_us": one.tutti.us, "other": one.other.name, "other_us": one.other.us, "ratio": one.ratio,
                    "most": one.goal.most, "noisy": one.noisy} for one in behind(found)],
    }
