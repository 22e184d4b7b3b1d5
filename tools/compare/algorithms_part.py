# SPDX-License-Identifier: Apache-2.0
"""The part of docs/algorithms.md between two marks: what tuning files say."""
import re
import textwrap

from algorithms_plot import picture
from report import NEAR, groups, size_text

BEGIN, END = "<!-- begin: tools/performance-page -->\n", "<!-- end -->\n"
HOW_TO_READ = f"""\
`tutti-perf --tune` timed each algorithm on the ranks below. A circle is the fastest one at its size. A size is that of
a block, in bytes; only sizes with a point were measured. A time is the median of its rounds.

A row of a table is a range of measured sizes with one fastest algorithm. The last column has the time of the second one
divided by that of the fastest, from the smallest to the largest in the range. A ratio below {NEAR} may be chance."""


def _plain(text):
    """Text that means nothing to Markdown, for a cell."""
    return re.sub(r"([\\`*_\[\]<>&|#])", r"\\\1", text)


def _code(text):
    """Code for a cell. One with backticks needs longer ones around it."""
    text = text.replace("|", "\\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _picture_name(file, collective):
    return f"{file.name}-{collective}.svg"


def pictures(files):
    """The SVGs of the part: text by name."""
    return {_picture_name(file, collective): picture(f"{collective}, {file.title}", points)
            for file in files for collective, points in file.collectives.items()}


def _facts(file):
    """The machine and how the ranks were placed."""
    hosts, placed = file.host_of_rank, ""
    each = hosts.count(0)
    if hosts == [rank // each for rank in range(each * (max(hosts) + 1))]:
        placed = f", {each} on each, one host after the other" if max(hosts) > 0 else ""
    else:
        placed = "; the host of each rank: " + ", ".join(map(str, hosts))
    rows = [("machine", _plain(file.machine)), ("date", file.date), ("ranks", file.ranks + placed),
            ("transports", ", ".join(map(_code, file.transports)) or "none"), ("command", _code(file.command))]
    return "| measured | |\n| --- | --- |\n" + "".join(f"| {name} | {value} |\n" for name, value in rows)


def _range_text(numbers, text):
    low, high = text(min(numbers)), text(max(numbers))
    return low if low == high else f"{low} to {high}"


def _table(points):
    """Neighbouring sizes with the same fastest algorithm share a row."""
    lines = ["| block | fastest | second | second / fastest |", "| --- | --- | --- | --- |"]
    runs = []
    for point in points:
        if runs and runs[-1][0].fastest == point.fastest:
            runs[-1].append(point)
        else:
            runs.append([point])
    for run in runs:
        raced = [point for point in run if len(point.times) > 1]
        seconds = [_code(name) for name, _ in groups(raced, lambda point: point.times[1][0])]
        ratios = [point.times[1][1] / point.times[0][1] for point in raced]
        size = _range_text([point.bytes for point in run], lambda size: size_text(size) if size else "no data")
        lines.append(f"| {size} | {_code(run[0].fastest)} | {', '.join(seconds) or 'none'} | "
                     f"{_range_text(ratios, '{:.2f}'.format) if ratios else ''} |")
    return "\n".join(lines) + "\n"


def _section(file):
    parts = [f"### {file.title}\n", _facts(file)]
    for collective, points in file.collectives.items():
        image = f"![time against block size](performance/{_picture_name(file, collective)})"
        parts += [f"#### {collective}, {file.ranks}\n",
                  textwrap.fill(image, 120, break_long_words=False, break_on_hyphens=False) + "\n", _table(points)]
    return "\n".join(parts)


def part(files):
    """What is between the marks. Files: the newest first; none: nothing."""
    if not files:
        return ""
    return "\n" + "\n".join(["## Algorithms measured\n", HOW_TO_READ + "\n", *map(_section, files)]) + "\n"


def split(text):
    """The page up to the first mark, and from the last one; None: the marks are not there. Another part that begins before
    the end is not ours to overwrite."""
    head, _, rest = text.partition(BEGIN)
    old, end, tail = rest.partition(END)
    return None if not end or BEGIN in rest or "<!-- begin" in old else (head + BEGIN, END + tail)
