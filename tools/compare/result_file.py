# SPDX-License-Identifier: Apache-2.0
"""A file of results that tools/compare-peers wrote, checked."""
import datetime
import json
import re
from dataclasses import dataclass

from checked_json import TEXT, fault, is_number, is_text, refuse, whole
from peers import LIBRARIES
import cores
import profiles
from report import FORMAT, rows
from runs import Results


@dataclass
class ResultFile:
    name: str  # of the file, without folder and ".json"
    about: dict  # everything but the figures
    rows: list
    met: str  # how the runs met near and far cores; "": nobody measured it

    @property
    def title(self):
        machine = self.about["machine"]
        return f"{machine['processor']}, {machine['cores']} cores, {self.about['date']}"

    @property
    def date(self):
        return self.about["date"]

    @property
    def short_title(self):
        """For the name of a file."""
        machine = self.about["machine"]
        return re.sub(r"\s*\(.*\)$", "", machine["processor"]) + f" {machine['cores']} cores"


def _is_date(value):
    try:
        return isinstance(value, str) and datetime.date.fromisoformat(value).isoformat() == value
    except ValueError:
        return False


def _are_times(value):
    return isinstance(value, list) and bool(value) and all(is_number(one) and one > 0 for one in value)


_are_texts = (lambda value: isinstance(value, dict) and all(is_text(one) for one in value.values()), "texts by name")
_times = (_are_times, "a list of times above 0, in us")
_are_lines = (lambda value: isinstance(value, list) and all(_are_times(one) and len(one) == 2 for one in value))
_place = {"ranks": (whole(2), "a whole number of at least 2"),
          "transport": (lambda value: value in ("shm", "tcp"), '"shm" or "tcp"'), "collective": TEXT}
WITHOUT_PROFILES, WITHOUT_LINES = "tutti-compare/2", "tutti-compare/3"  # are read as well
PROFILES = {"profile": (lambda value: value == list(profiles.NAMES), json.dumps(profiles.NAMES)),
            "points": [{"profile": (profiles.are_profiles, f"lists of {len(profiles.NAMES)} figures of at least 0, by contestant")}]}
LINES = {"points": [{"line": (lambda value: isinstance(value, dict) and all(map(_are_lines, value.values())),
                              "lists of pairs of times above 0, in us, by contestant")}],
         "yardsticks": [{"line": (_are_lines, "a list of pairs of times above 0, in us")}]}
ADDED = {WITHOUT_PROFILES: (), WITHOUT_LINES: (PROFILES,), FORMAT: (PROFILES, LINES)}
# What a file has.
SHAPE = {
    "date": (_is_date, "a date like 2026-11-25"),
    "machine": {"processor": TEXT, "cores": (whole(1), "a whole number of at least 1"), "kernel": TEXT, "system": TEXT,
                "virtual": (lambda value: isinstance(value, bool), "true or false")},
    "command": TEXT,
    "versions": _are_texts,
    "commit": (lambda value: value == "" or is_text(value), 'a commit, or ""'),
    "load_before": (lambda value: is_number(value) and value >= 0, "a number of at least 0"),
    "rounds": (whole(2), "at least 2, since one round has no spread"),
    "points": [{**_place, "bytes": (whole(0), "a whole number of at least 0"),
                "mode": (lambda value: value in ("constant", "rewritten"), '"constant" or "rewritten"'),
                "us": (lambda value: isinstance(value, dict) and bool(value) and all(map(_are_times, value.values())),
                       "lists of times above 0, in us, by contestant")}],
    "yardsticks": [{"name": TEXT, "bytes": (whole(1), "a whole number of at least 1"), "us": _times}],
    "absent": [{**_place, "contestant": TEXT, "reason": (lambda value: isinstance(value, str), "a text")}],
}


def _contradiction(told):
    """What no shape shows: (where, expected, came); None."""
    seen = set()
    for at, point in enumerate(told["points"]):
        place = (point["ranks"], point["transport"], point["collective"], point["bytes"], point["mode"])
        if place in seen:
            return f"points[{at}]", "each point once", "this one again: " + json.dumps(list(place))
        seen.add(place)
        for contestant in point["us"]:
            library = contestant.split(",")[0]
            if library not in ("tutti", *LIBRARIES):
                return f"points[{at}].us", f"contestants of tutti, {', '.join(LIBRARIES)}", json.dumps(contestant)
            if library not in told["versions"]:
                return "versions", f"one for {library}, which was measured", json.dumps(told["versions"])
        if line := point.get("line"):
            if {name: len(some) for name, some in line.items()} != {name: len(some) for name, some in point["us"].items()}:
                return f"points[{at}].line", "a pair for each time in us, or none at all", json.dumps(line)
    for at, one in enumerate(told["yardsticks"]):
        if (line := one.get("line")) and len(line) != len(one["us"]):
            return f"yardsticks[{at}].line", "a pair for each time in us, or none at all", json.dumps(line)
    if not any("tutti" in point["us"] for point in told["points"]):
        return "points", "at least one of tutti", f"{len(told['points'])} points of others"
    return None


def results_of(told, name, shown):
    """What was read from a file, which is called `name`, and in messages `shown`. Throws Refused."""
    kind = told.get("format") if isinstance(told, dict) else None
    if kind not in list(ADDED):
        refuse(shown, "format", json.dumps(FORMAT), json.dumps(kind) if kind else "nothing",
               "measure again with this tree's tools/compare-peers; a file of tutti-perf --tune has \"tutti_tuning\": 1 instead")
    faults = (fault(told, shape, "") for shape in (SHAPE, *ADDED[kind]))
    if found := next(filter(None, faults), None) or _contradiction(told):
        refuse(shown, *found, "measure with --rounds 3" if found[0] == "rounds" else
               "results are not edited: write the file anew with tools/compare-peers")
    results = Results()
    for point in told["points"]:
        place = (point["ranks"], point["transport"], point["collective"], point["bytes"], point["mode"])
        results.points[place] = point["us"]
        results.profiles[place] = profiles.read(point.get("profile", {}))
        results.lines[place] = point.get("line", {})
    for one in told["yardsticks"]:
        results.yardsticks[one["name"], one["bytes"]] = one["us"]
        results.yardstick_lines[one["name"], one["bytes"]] = one.get("line", [])
    about = {key: value for key, value in told.items() if key not in ("points", "yardsticks", "rows", "profile")}
    return ResultFile(name, about, rows(results), cores.sentence(results))
