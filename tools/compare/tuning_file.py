# SPDX-License-Identifier: Apache-2.0
"""A tuning file of tutti-perf --tune, checked: the times of algorithms at sizes of blocks."""
import datetime
import json
import re
import shlex
from dataclasses import dataclass
from pathlib import PurePath

from checked_json import TEXT, fault, is_number, is_text, refuse

MARK, FORMAT = "tutti_tuning", 1
# Those that tutti-perf --tune measures: blocks are equal, and one rank is enough.
COLLECTIVES = ("broadcast", "reduce", "all_reduce", "gather", "all_gather", "scatter", "reduce_scatter", "all_to_all",
               "barrier", "scan", "exclusive_scan")
ADVICE = "measurements are not edited: write the file anew with tutti-perf --tune"


@dataclass
class Point:
    """The times at one size, in us, the fastest first."""
    bytes: int  # of a block
    times: list  # (algorithm, us)

    @property
    def fastest(self):
        return self.times[0][0]


@dataclass
class TuningFile:
    name: str  # of the file, without folder and ".json"
    machine: str
    date: str  # with the time of day
    command: str
    host_of_rank: list
    transports: list
    collectives: dict  # by name its points, sizes rising

    @property
    def ranks(self):
        """ "4 ranks on 2 hosts" """
        ranks, hosts = len(self.host_of_rank), max(self.host_of_rank) + 1
        return f"{ranks} rank{'s' * (ranks > 1)} on {hosts} host{'s' * (hosts > 1)}"

    @property
    def title(self):
        return f"{self.ranks} over {'+'.join(self.transports) or 'no transport'}, {self.date[:10]}"

    @property
    def short_title(self):
        """For the name of a file: without trade marks and clock rates."""
        machine = re.sub(r"\((R|TM)\)|\s*\b(CPU|Processor)\b|\s*@.*", "", self.machine)
        return " ".join([machine, self.ranks.replace(" on ", " "), *self.transports])


def _is_date(value):
    try:
        form = "%Y-%m-%dT%H:%M:%SZ"
        return isinstance(value, str) and datetime.datetime.strptime(value, form).strftime(form) == value
    except ValueError:
        return False


def _is_name(value):
    return isinstance(value, str) and bool(re.fullmatch(r"[\w.:+-]+", value))


def _is_size(value):
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 64


def _are_names(value):
    return isinstance(value, list) and all(map(_is_name, value)) and len(set(value)) == len(value)


def _are_hosts(value):
    """Numbered in the order of their first ranks."""
    if not isinstance(value, list) or not value or not all(map(_is_size, value)):
        return False
    return all(host <= max(value[:rank], default=-1) + 1 for rank, host in enumerate(value))


def _are_points(value):
    return isinstance(value, dict) and bool(value)


# What a file on the page has. A job may choose by one without machine, date and command; a page has to say them.
SHAPE = {
    "machine": TEXT,
    "date": (_is_date, "a time like 2026-11-25T12:00:00Z"),
    "command": (lambda value: isinstance(value, list) and bool(value) and all(map(is_text, value)), "a list of words"),
    "host_of_rank": (_are_hosts, "for each rank its host's number, counted in the order of their first ranks"),
    "transports": (_are_names, "a list of names, each once"),
    "collectives": (_are_points, "an object with at least one collective"),
}
_us = (lambda value: is_number(value) and 1e-6 <= value <= 1e12, "microseconds from 1e-6 to 1e12")
_points = [{"block_bytes": (_is_size, "a whole number of at least 0"),
            "us": (lambda value: isinstance(value, dict) and bool(value), "an object of algorithms and microseconds")}]


def _fault_of(told):
    """The first thing that is wrong, as (where, expected, came); None."""
    if found := fault(told, SHAPE, ""):
        return found
    for key in told:
        if key not in (MARK, *SHAPE):
            return "the file", f"no keys but {', '.join((MARK, *SHAPE))}", json.dumps(key)
    for name, points in told["collectives"].items():
        where = f"collectives.{name}"
        if name not in COLLECTIVES:
            return "collectives", f"collectives of equal blocks ({', '.join(COLLECTIVES)})", json.dumps(name)
        if found := fault(points, _points, where):
            return found
        if not points:
            return where, "at least one size", "[]"
        for at, point in enumerate(points):
            if at and point["block_bytes"] <= points[at - 1]["block_bytes"]:
                return (f"{where}[{at}].block_bytes", f"more than {points[at - 1]['block_bytes']}, since sizes rise",
                        str(point["block_bytes"]))
            for algorithm, time in point["us"].items():
                if not _is_name(algorithm):
                    return f"{where}[{at}].us", "names of algorithms", json.dumps(algorithm)
                if found := fault(time, _us, f"{where}[{at}].us.{algorithm}"):
                    return found
    return None


def is_tuning(told):
    return isinstance(told, dict) and MARK in told


def _command_text(words):
    """The program without its folder, which is nobody's business."""
    return shlex.join([PurePath(words[0]).name, *words[1:]])


def tuning_of(told, name, shown):
    """What was read from a file, which is called `name`, and in messages `shown`. Throws Refused."""
    if told[MARK] != FORMAT or isinstance(told[MARK], bool):
        refuse(shown, MARK, str(FORMAT), json.dumps(told[MARK]), "measure again with this tree's tutti-perf --tune")
    if found := _fault_of(told):
        refuse(shown, *found, ADVICE)
    collectives = {}
    for collective in sorted(told["collectives"], key=COLLECTIVES.index):
        collectives[collective] = [
            Point(point["block_bytes"], sorted(point["us"].items(), key=lambda pair: (pair[1], pair[0])))
            for point in told["collectives"][collective]]
    return TuningFile(name, told["machine"], told["date"], _command_text(told["command"]), told["host_of_rank"],
                      sorted(told["transports"]), collectives)
