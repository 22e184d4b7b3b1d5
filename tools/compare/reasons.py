# SPDX-License-Identifier: Apache-2.0
"""Why goals are missed: a table in the prose of docs/performance.md, and which of its lines a point belongs to.

The table follows the mark. A line holds for the points that all of its columns allow; "all" allows everything.

| reason | goals | ranks | over | memory | collectives | bytes | why |
"""
import re
from dataclasses import dataclass

from report import size_text

MARK = "<!-- reasons -->"
COLUMNS = ("reason", "goals", "ranks", "over", "memory", "collectives", "bytes", "why")
UNITS = {"": 0, "K": 10, "M": 20, "G": 30}


class BadReason(Exception):
    """A line that cannot be read; the text says what was expected and what came."""


@dataclass
class Reason:
    name: str
    allowed: dict  # by column a set of words, or None: all
    sizes: tuple  # first and last

    def holds(self, verdict):
        row = verdict.row
        values = {"goals": verdict.goal.name, "ranks": str(row.ranks), "over": row.transport, "memory": verdict.memory,
                  "collectives": row.collective}
        return (all(allowed is None or values[column] in allowed for column, allowed in self.allowed.items())
                and self.sizes[0] <= row.bytes <= self.sizes[1])


def _size(text, line):
    found = re.fullmatch(r"(\d+)([KMG]?)", text)
    if not found:
        raise BadReason(f'expected bytes like 8, 64K or "8 to 64K", got "{text}" in "{line}"')
    return int(found[1]) << UNITS[found[2]]


def _sizes(text, line):
    if text == "all":
        return 0, 1 << 62
    first, is_range, last = text.partition(" to ")
    return _size(first, line), _size(last if is_range else first, line)


def _reason(line):
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    if len(cells) != len(COLUMNS) or not all(cells):
        raise BadReason(f'expected {len(COLUMNS)} cells ({", ".join(COLUMNS)}), got "{line}"')
    named = dict(zip(COLUMNS, cells))
    allowed = {column: None if named[column] == "all" else {word.strip() for word in named[column].split(",")}
               for column in ("goals", "ranks", "over", "memory", "collectives")}
    return Reason(named["reason"], allowed, _sizes(named["bytes"], line))


def reasons_of(prose):
    """In the table's order; []: there is no mark. Throws BadReason."""
    _, is_there, rest = prose.partition(f"\n\n{MARK}\n\n")
    if not is_there:
        return []
    table = rest.partition("\n\n")[0].splitlines()
    head = "| " + " | ".join(COLUMNS) + " |"
    if not table or table[0] != head:
        raise BadReason(f'expected the table\'s head "{head}" after "{MARK}", got "{table[0] if table else ""}"')
    return [_reason(line) for line in table[2:]]


def names(reasons, verdicts):
    """The name of the first line that holds for each point, "no reason given" for the others: "slow (8, 64K), other (4M)",
    without sizes where it is one."""
    found = {}
    for verdict in sorted(verdicts, key=lambda one: one.row.bytes):
        name = next((one.name for one in reasons if one.holds(verdict)), "no reason given")
        found.setdefault(name, {})[size_text(verdict.row.bytes)] = True
    if len(found) <= 1:
        return "".join(found)
    return ", ".join(f"{name} ({', '.join(sizes)})" for name, sizes in found.items())
