# SPDX-License-Identifier: Apache-2.0
"""What was measured, as rows with ratios, tables, a summary and JSON."""
import json
from dataclasses import asdict, dataclass, field
from typing import Optional

import profiles
from runs import median

FORMAT = "tutti-compare/3"
MEMORIES = ("ordinary", "registered")
NOISY = 1.5  # a spread above this: the machine was not quiet
NEAR = 1.1  # times the best peer

# Which yardsticks bound a collective of two ranks, the best of them counting, and which share of the total each rank moves.
# In these two a rank also copies its own block, which the yardstick "own" measures.
WITH_OWN_BLOCK = ("all_gather", "all_to_all")
ORDINARY = {"all_reduce": (("staged", "direct"), 1), "all_gather": (("staged_copy", "fetch_direct"), 2),
            "all_to_all": (("staged_copy", "fetch_direct"), 2), "broadcast": (("staged_one", "fetch_one_direct"), 1),
            "send_receive": (("staged_copy", "fetch_direct"), 1)}
REGISTERED = {"all_reduce": (("mapped",), 1), "all_gather": (("fetch",), 2), "all_to_all": (("fetch",), 2),
              "broadcast": (("fetch_one",), 1), "send_receive": (("fetch",), 1)}
OVER_TCP = {"all_reduce": (("sockets",), 1), "all_gather": (("sockets",), 2), "all_to_all": (("sockets",), 2),
            "send_receive": (("sockets",), 1)}


@dataclass
class Figure:
    """What one contestant, or one yardstick, took: the median over the rounds."""
    name: str
    us: float
    spread: float  # slowest round / fastest round; of five rounds or more without the slowest and the fastest one
    profile: Optional[dict] = None  # profiles.py

    @classmethod
    def of(cls, name, rounds, profile=None):
        kept = sorted(rounds)[1:-1] if len(rounds) >= 5 else rounds
        return cls(name, median(rounds), max(kept) / min(kept), profile)


@dataclass
class Row:
    """One size of one collective: Tutti beside the best peer and the machine's limits."""
    ranks: int
    transport: str
    collective: str
    bytes: int
    mode: str
    tutti: dict  # Figure by the kind of memory, "ordinary" or "registered"
    peer: Optional[Figure]  # the best one
    limits: dict  # Figure by the kind of memory, where there is a yardstick
    libraries: dict = field(default_factory=dict)  # Figure of each peer's fastest setting, by library

    @property
    def spread(self):
        return max(one.spread for one in [*self.tutti.values(), *([self.peer] if self.peer else [])])

    @property
    def noisy(self):
        return self.spread > NOISY

    def ratio(self, memory):
        """To the best peer; None: there is none, or no such memory."""
        return self.tutti[memory].us / self.peer.us if self.peer and memory in self.tutti else None

    def from_limit(self, memory):
        return self.tutti[memory].us / self.limits[memory].us if memory in self.limits else None


def _limit_of(place, memory, yardsticks):
    ranks, transport, collective, size, _ = place
    if ranks != 2:
        return None
    table = OVER_TCP if transport == "tcp" else REGISTERED if memory == "registered" else ORDINARY
    if transport == "shm" and (collective == "barrier" or size <= 64):
        names, moved = ("line",), 8
    elif collective in table:
        names, share = table[collective]
        moved = max(size // share, 8)
    else:
        return None
    found = [Figure.of(name, yardsticks[name, moved]) for name in names if (name, moved) in yardsticks]
    best = min(found, key=lambda one: one.us, default=None)
    own = yardsticks.get(("own", moved))
    if best and own and transport == "shm" and collective in WITH_OWN_BLOCK and best.name != "line":
        return Figure.of(best.name + " and own", [a + b for a, b in zip(yardsticks[best.name, moved], own)])
    return best


def rows(results):
    """A row for each point that Tutti has a figure for, in the order of measuring."""
    made = []
    for place, times in results.points.items():
        used = profiles.of_rounds(results.profiles.get(place, {}))
        figures = [Figure.of(name, rounds, used.get(name)) for name, rounds in times.items()]
        peers = [one for one in figures if not one.name.startswith("tutti")]
        tutti = {"registered" if "registered" in one.name else "ordinary": one for one in figures if one not in peers}
        limits = {memory: limit for memory in tutti if (limit := _limit_of(place, memory, results.yardsticks))}
        libraries = {}
        for one in sorted(peers, key=lambda one: one.us, reverse=True):  # the fastest comes last and stays
            libraries[one.name.split(",")[0]] = one
        if tutti:
            made.append(Row(*place, tutti, min(peers, key=lambda one: one.us, default=None), limits, libraries))
    return made


def groups(all_rows, key):
    """(key, its rows), in the order in which the keys first come."""
    found = {}
    for row in all_rows:
        found.setdefault(key(row), []).append(row)
    return list(found.items())


def size_text(size):
    for unit, shift in (("G", 30), ("M", 20), ("K", 10)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return str(size)


def case_text(row):
    """ "all_reduce of 64K, constant" """
    return row.collective + (f" of {size_text(row.bytes)}" if row.bytes else "") + f", {row.mode}"


def time_text(us):
    return f"{us:,.0f}" if us >= 100 else f"{us:.3g}"


def _limit_text(limit):
    unsure = f", x{limit.spread:.2f}" if limit.spread > NOISY else ""
    return f"{time_text(limit.us)} ({limit.name}{unsure})"


def table(some):
    """Rows of one collective and mode as Markdown. Of two values the first is for ordinary memory, the second for
    registered memory. A ratio below 1 is in Tutti's favour."""
    memories = [memory for memory in MEMORIES if any(memory in row.tutti for row in some)]
    lines = ["| bytes | " + " | ".join(f"Tutti, {memory}, us" for memory in memories) +
             " | best peer, us | limit, us | Tutti / peer | Tutti / limit | spread |", "| ---: " * (6 + len(memories)) + "|"]
    for row in sorted(some, key=lambda row: row.bytes):
        own = [time_text(row.tutti[memory].us) if memory in row.tutti else "" for memory in memories]
        peer = f"{time_text(row.peer.us)} ({row.peer.name})" if row.peer else "none"
        limits = dict.fromkeys(_limit_text(row.limits[memory]) for memory in memories if memory in row.limits)
        ratios, far = ([f"{value:.2f}" for memory in memories if (value := of(memory)) is not None]
                       for of in (row.ratio, row.from_limit))
        cells = [size_text(row.bytes), *own, peer, " and ".join(limits), " and ".join(ratios), " and ".join(far),
                 f"x{row.spread:.2f}" + (", noisy" if row.noisy else "")]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def tables(all_rows):
    """All of it as Markdown, a heading and a table for each collective and mode."""
    return "\n".join(f"### {collective}, {ranks} ranks over {transport}, input {mode}\n\n{table(some)}"
                     for (ranks, transport, collective, mode), some in
                     groups(all_rows, lambda row: (row.ranks, row.transport, row.collective, row.mode)))


@dataclass
class Tally:
    """Where Tutti with one kind of memory stands at the points that are not noisy."""
    ratios: list  # to the best peer, with their rows, ascending
    from_limit: list  # ratios to the limit, where that is not noisy either, ascending

    @classmethod
    def of(cls, some, memory):
        quiet = [row for row in some if not row.noisy]
        ratios = [(ratio, row) for row in quiet if (ratio := row.ratio(memory)) is not None]
        return cls(sorted(ratios, key=lambda pair: pair[0]),
                   sorted(row.from_limit(memory) for row in quiet if memory in row.limits and row.limits[memory].spread <= NOISY))

    def within(self, most):
        return sum(ratio <= most for ratio, _ in self.ratios)

    def sentence(self):
        """ "at most 1.00 times the best peer in 11 of 13 points, ..."; "": no points."""
        if not self.ratios:
            return ""
        points, worst = len(self.ratios), self.ratios[-1][0]
        if worst <= 1:
            return f"at most {worst:.2f} times the best peer in {points} of {points} points"
        near = f", at most {NEAR:.2f} times in {self.within(NEAR)}" if self.within(1) < self.within(NEAR) < points else ""
        return (f"at most 1.00 times the best peer in {self.within(1)} of {points} points{near}, "
                f"at most {worst:.2f} times in all")


def summary(all_rows):
    """A line for each number of ranks, transport and kind of memory: how near Tutti is to the best peer, and the worst point."""
    lines = []
    for (ranks, transport), some in groups(all_rows, lambda row: (row.ranks, row.transport)):
        for memory in MEMORIES:
            tally = Tally.of(some, memory)
            if tally.ratios:
                ratio, worst = tally.ratios[-1]
                lines.append(f"{ranks} ranks over {transport}, {memory} memory: {tally.sentence()}; the worst is "
                             f"{case_text(worst)}: {ratio:.2f} of {worst.peer.name}")
    noisy = sum(row.noisy for row in all_rows)
    return lines + ([f"{noisy} of {len(all_rows)} points are noisy (spread above x{NOISY}) and not counted"] if noisy else [])


def _row(row):
    """Without what the points have."""
    def slim(figure):
        return {name: value for name, value in figure.items() if name != "profile"}
    told = {name: value for name, value in asdict(row).items() if name != "libraries"}
    for kind in ("tutti", "limits"):
        told[kind] = {memory: slim(figure) for memory, figure in told[kind].items()}
    return {**told, "peer": told["peer"] and slim(told["peer"])}


def document(results, all_rows, about):
    """Everything, for JSON."""
    return {
        "format": FORMAT,
        **about,
        "profile": list(profiles.NAMES),
        "points": [{"ranks": r, "transport": t, "collective": c, "bytes": b, "mode": m, "us": times,
                    "profile": profiles.written(results.profiles.get((r, t, c, b, m), {}))}
                   for (r, t, c, b, m), times in results.points.items()],
        "yardsticks": [{"name": name, "bytes": size, "us": times} for (name, size), times in results.yardsticks.items()],
        "absent": [{"ranks": r, "transport": t, "collective": c, "contestant": name, "reason": why}
                   for (r, t, c, name), why in results.reasons.items()],
        "rows": [_row(row) for row in all_rows],
    }


def written(told):
    """The document as text: an element of a list on a line of its own, so that two results can be compared line by line.
    Numbers have four digits, as those of the programs."""
    fields = []
    for name, value in json.loads(json.dumps(told), parse_float=lambda text: float(f"{float(text):.4g}")).items():
        text = json.dumps(value)
        if isinstance(value, list) and value:
            text = "[\n  " + ",\n  ".join(json.dumps(one) for one in value) + "\n ]"
        fields.append(f" {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(fields) + "\n}\n"
