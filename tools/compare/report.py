# SPDX-License-Identifier: Apache-2.0
"""What was measured, as rows with ratios, tables, a summary and JSON."""
import json
from dataclasses import asdict, dataclass, field
from typing import Optional

import cores
import profiles
from runs import median

FORMAT = "tutti-compare/4"
MEMORIES = ("ordinary", "registered")
PLACE = ("ranks", "transport", "collective", "bytes", "mode")
PEER, LIMIT = "peer", "limit"
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
    cores: str = cores.ONE  # all figures are of runs that met this kind of cores
    fewest: int = 0  # runs of this kind, of the contestant that has fewest
    most: int = 0  # runs of all kinds, of the contestant that has most
    apart: dict = field(default_factory=dict)  # why there is no ratio although all were measured, by (PEER or LIMIT, memory)

    @property
    def place(self):
        return self.ranks, self.transport, self.collective, self.bytes, self.mode

    @property
    def spread(self):
        return max((one.spread for one in [*self.tutti.values(), *([self.peer] if self.peer else [])]), default=1)

    @property
    def noisy(self):
        return self.spread > NOISY

    def ratio(self, memory):
        """To the best peer; None: there is none, no such memory, or the runs met different cores."""
        return self.tutti[memory].us / self.peer.us if self.peer and memory in self.tutti else None

    def from_limit(self, memory):
        return self.tutti[memory].us / self.limits[memory].us if memory in self.limits else None


def _yardsticks_of(place, memory, measured):
    """The names of the yardsticks that were measured, whether "own" is added, and the bytes that each rank moves."""
    ranks, transport, collective, size, _ = place
    if ranks != 2:
        return [], False, 0
    table = OVER_TCP if transport == "tcp" else REGISTERED if memory == "registered" else ORDINARY
    if transport == "shm" and (collective == "barrier" or size <= 64):
        return [name for name in ("line",) if (name, 8) in measured], False, 8
    names, share = table.get(collective, ((), 1))
    moved = max(size // share, 8)
    with_own = transport == "shm" and collective in WITH_OWN_BLOCK and ("own", moved) in measured
    return [name for name in names if (name, moved) in measured], with_own, moved


def _met_yardsticks(place, memory, yardsticks):
    """By name the runs of each kind of cores."""
    names, with_own, moved = _yardsticks_of(place, memory, yardsticks)
    return {name: yardsticks[name, moved] for name in [*names, *(["own"] if names and with_own else [])]}


def _limit_of(met, kind):
    """The best of these yardsticks, with "own" in addition; None: there is none, or one of them has no run of this kind."""
    if not met or any(kind not in kinds for kinds in met.values()):
        return None
    best = min((Figure.of(name, kinds[kind]) for name, kinds in met.items() if name != "own"), key=lambda one: one.us)
    if "own" not in met:
        return best
    return Figure.of(best.name + " and own", [a + b for a, b in zip(met[best.name][kind], met["own"][kind])])


def rows(results):
    """A row for each point that Tutti was measured at, in the order of measuring."""
    kinds = cores.Kinds.of(results)
    yardsticks = {key: kinds.divide(runs, results.yardstick_lines.get(key)) for key, runs in results.yardsticks.items()}
    made = []
    for place, times in results.points.items():
        lines = results.lines.get(place, {})
        met = {name: kinds.divide(runs, lines.get(name)) for name, runs in times.items()}
        if any(name.startswith("tutti") for name in met):
            made.append(_row_of(place, met, yardsticks, results, kinds))
    return made


def _memory(name):
    return "registered" if "registered" in name else "ordinary"


def _row_of(place, met, yardsticks, results, kinds):
    """Of runs that met one kind of cores: that of most contestants. `met`: by contestant the runs of each kind."""
    own = {name: runs for name, runs in met.items() if name.startswith("tutti")}
    others = {name: runs for name, runs in met.items() if name not in own}
    stand = {_memory(name): _met_yardsticks(place, _memory(name), yardsticks) for name in own}
    kind = kinds.choose(dict(list(own.items())[:1]), met, {name: runs for some in stand.values() for name, runs in some.items()})
    used = profiles.of_rounds(_profiles_of(results, place, kind, kinds))
    figures = {name: Figure.of(name, runs[kind], used.get(name)) for name, runs in met.items() if kind in runs}
    peers = sorted((figures[name] for name in others if name in figures), key=lambda one: one.us, reverse=True)
    tutti = {_memory(name): figures[name] for name in own if name in figures}
    limits = {memory: limit for memory in tutti if (limit := _limit_of(stand[memory], kind))}
    apart = {}
    for name, runs in own.items():
        memory = _memory(name)
        if others and (memory not in tutti or len(peers) < len(others)):
            apart[PEER, memory] = cores.apart({name: runs, **others})
        if stand[memory] and memory not in limits:
            apart[LIMIT, memory] = cores.apart({name: runs, **stand[memory]})
    return Row(*place, tutti, peers[-1] if peers and len(peers) == len(others) else None, limits,
               {one.name.split(",")[0]: one for one in peers},  # the fastest setting comes last and stays
               kind, min(len(runs.get(kind, [])) for runs in met.values()),
               max(len(runs) for runs in results.points[place].values()), apart)


def _profiles_of(results, place, kind, kinds):
    """By contestant those of its runs that met this kind of cores. A file has one of all of these."""
    lines, found = results.lines.get(place, {}), {}
    for name, some in results.profiles.get(place, {}).items():
        own = lines.get(name, [])
        kept = kinds.divide(some, own).get(kind) if len(some) == len(own) else some
        if kept:
            found[name] = kept
    return found


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


def cores_text(row):
    """ "0.12 us, 2 of 5": the kind of cores, and how many runs of it the contestant with the fewest has; "": of one kind"""
    return "" if row.cores == cores.ONE else f"{row.cores}, {row.fewest} of {row.most}"


def _not_comparable(row, what):
    """Why there is no ratio to the best peer or the limit; "": there is one, or there is none of these."""
    why = dict.fromkeys(why for (to, _), why in row.apart.items() if to == what)
    return f"not comparable: {' or '.join(why)}" if why else ""


def table(some):
    """Rows of one collective and mode as Markdown. Of two values the first is for ordinary memory, the second for
    registered memory. A ratio below 1 is in Tutti's favour. The column of cores is there if runs met different ones."""
    memories = [memory for memory in MEMORIES if any(memory in row.tutti for row in some)]
    with_cores = any(cores_text(row) for row in some)
    head = ["bytes", *(f"Tutti, {memory}, us" for memory in memories), "best peer, us", "limit, us", "Tutti / peer", "Tutti / limit",
            "spread", *(["cores"] if with_cores else [])]
    lines = ["| " + " | ".join(head) + " |", "| ---: " * len(head) + "|"]
    for row in sorted(some, key=lambda row: row.bytes):
        own = [time_text(row.tutti[memory].us) if memory in row.tutti else "" for memory in memories]
        limits = dict.fromkeys(_limit_text(row.limits[memory]) for memory in memories if memory in row.limits)
        ratios, far = ([f"{value:.2f}" for memory in memories if (value := of(memory)) is not None]
                       for of in (row.ratio, row.from_limit))
        peer = f"{time_text(row.peer.us)} ({row.peer.name})" if row.peer else _not_comparable(row, PEER) or "none"
        cells = [size_text(row.bytes), *own, peer, " and ".join(limits) or _not_comparable(row, LIMIT), " and ".join(ratios),
                 " and ".join(far), f"x{row.spread:.2f}" + (", noisy" if row.noisy else ""), *([cores_text(row)] if with_cores else [])]
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
    lines += [f"{noisy} of {len(all_rows)} points are noisy (spread above x{NOISY}) and not counted"] if noisy else []
    unlike = sum(bool(row.apart) for row in all_rows)
    return lines + ([f"{unlike} of {len(all_rows)} points are not comparable in all: contestants or limits met different cores"]
                    if unlike else [])


def _row(row):
    """Without what the points have."""
    def slim(figure):
        return {name: value for name, value in figure.items() if name != "profile"}
    told = {name: value for name, value in asdict(row).items() if name not in ("libraries", "apart")}
    told["not_comparable"] = [{"to": what, "memory": memory, "reason": why} for (what, memory), why in row.apart.items()]
    for kind in ("tutti", "limits"):
        told[kind] = {memory: slim(figure) for memory, figure in told[kind].items()}
    return {**told, "peer": told["peer"] and slim(told["peer"])}


def document(results, all_rows, about):
    """Everything, for JSON. A point's profiles are of the runs that its row is made of."""
    kinds, chosen = cores.Kinds.of(results), {row.place: row.cores for row in all_rows}
    return {
        "format": FORMAT,
        **about,
        "profile": list(profiles.NAMES),
        "points": [{**dict(zip(PLACE, place)), "us": times, "line": results.lines.get(place, {}),
                    "profile": profiles.written(_profiles_of(results, place, chosen.get(place, cores.ONE), kinds))}
                   for place, times in results.points.items()],
        "yardsticks": [{"name": name, "bytes": size, "us": times, "line": results.yardstick_lines.get((name, size), [])}
                       for (name, size), times in results.yardsticks.items()],
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
