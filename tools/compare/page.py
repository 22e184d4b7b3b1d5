# SPDX-License-Identifier: Apache-2.0
"""docs/performance.md: its prose, and at two marks in it what the result files say."""
import html
import re
import statistics
import textwrap

import goals
import peers_plot
import profiles
import reasons
from peers import shown_name
from plot import picture
from report import MEMORIES, NOISY, Tally, case_text, groups, size_text, table

SUMMARY, BEHIND, RESULTS = "<!-- measured: summary -->", "<!-- measured: behind -->", "<!-- measured: results -->"
MARKS = (SUMMARY, BEHIND, RESULTS)
IDLE = 0.5  # the load before, up to which a machine counts as idle
HOW_TO_READ = f"""\
Each machine has a summary, pictures and tables. A row is a size in bytes, of all ranks together. Times are medians
over the rounds. The best peer is the fastest setting of a peer at that size. The limit is a hand-written exchange, as
"What limits each" says. Where a cell has two values, the first is for ordinary memory, the second for registered
memory.

The spread is the slowest round divided by the fastest, of Tutti or of the best peer, whichever is larger. Of five
rounds or more the slowest and the fastest one are left out of it. A spread above x{NOISY} makes a point noisy: the
machine was not quiet. Noisy points are marked and do not count in the summaries. A limit whose own rounds differ by
more than x{NOISY} has its spread beside it and does not count either.

Where two ranks have a core each, a cache line there and back between them is measured right before and right after
each point. The host of a virtual machine gives a program cores near each other or far apart, and changes that at any
time. All figures of a row are of runs that met the same kind of cores. The column "cores" names it by the line's time,
with the number of such runs of the contestant that has fewest. Where contestants or the limit met no common kind, a
point is not comparable: it counts neither as met nor as missed."""

HOW_BEHIND = """\
Where Tutti is behind: sizes with the ratio to the best peer or to the limit, the farther one of constant and rewritten
input. Ratios in brackets are noisy. The profile is that of the farthest size, per call and rank, Tutti / best peer, or
Tutti's alone beside a limit. Sleeps are voluntary context switches. Yields are involuntary ones and those of
sched_yield. Faults are page faults. "Processor 31 of 60 us" is the time in user and kernel mode of a call of 60 us. With
rewritten input it includes the barrier before the call."""


def _wrapped(text, **how):
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False, **how)


def _anchor(title):
    """As GitHub names a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _by_ranks(some):
    return groups(some, lambda row: (row.ranks, row.transport))


def _picture_name(file, ranks, transport):
    return f"{file.name}-{ranks}-{transport}.svg"


def pictures(files):
    """The SVGs of the page: text by name. No picture where no peer took part."""
    made = {_picture_name(file, ranks, transport): picture(f"{ranks} ranks over {transport}, {file.title}", some)
            for file in files for (ranks, transport), some in _by_ranks(file.rows)}
    return {name: text for name, text in made.items() if text}


def peers_picture(files):
    """All peers, of the newest results of an idle machine: the text; "": there are none."""
    drawn = (peers_plot.picture(file.title, file.rows, file.about["versions"]) for file in files
             if file.about["load_before"] <= IDLE)
    return next((text for text in drawn if text), "")


def _verdicts(file):
    return goals.verdicts(file.rows, file.about["machine"]["cores"])


def _behind(file, why):
    """How many points miss each goal, and a line for each collective that misses one, with its reason."""
    found = _verdicts(file)
    apart = goals.not_comparable(file.rows, file.about["machine"]["cores"])
    if not found and not apart:
        return ""
    lines = [f"### Goals, {file.title}\n", goals.counts_table(found, apart)]
    missed = goals.behind(found)
    if not missed:
        return "\n".join([*lines, "No goal is missed.\n"])
    lines.append(_wrapped(HOW_BEHIND) + "\n")
    lines += ["| goal | at most | ranks | memory | collective | bytes: ratio | profile: Tutti / best peer | reason |",
              "| --- | ---: | --- | --- | --- | --- | --- | --- |"]
    missed.sort(key=lambda one: (goals.GOALS.index(one.goal), one.row.transport, one.row.ranks, one.memory))
    for (goal, ranks, transport, memory, collective), some in groups(
            missed, lambda one: (one.goal.name, one.row.ranks, one.row.transport, one.memory, one.row.collective)):
        lines.append(f"| {goal} | {some[0].goal.most:.2f} | {ranks} over {transport} | {memory} | {collective} | "
                     f"{_ratios(some)} | {_profile(some)} | {reasons.names(why, some)} |")
    return "\n".join([lines[0], lines[1], lines[2], "\n".join(lines[3:])]) + "\n"


def _profile(some):
    """Of the farthest point, if possible of one that is not noisy: "8K: sleeps 0.0 / 1.2, ..."; "": it has none."""
    worst = max(some, key=lambda one: (not one.noisy, one.ratio))
    text = profiles.beside(worst.tutti, worst.other)
    place = ", ".join([*([size_text(worst.row.bytes)] if worst.row.bytes else []),
                       *(["rewritten"] if worst.row.mode == "rewritten" else [])])
    return f"{place}: {text}" if text and place else text


def _ratios(some):
    """ "8: 1.41, 64: (1.20)" """
    told = []
    for size, same in groups(sorted(some, key=lambda one: one.row.bytes), lambda one: one.row.bytes):
        worst = max(same, key=lambda one: one.ratio)
        text = f"({worst.ratio:.2f})" if worst.noisy else f"{worst.ratio:.2f}"
        told.append(f"{size_text(size)}: {text}" if size else text)
    return ", ".join(told)


def _summary_line(file):
    """One sentence for ordinary memory, which is what the peers have too, and one for the limit."""
    tally = Tally.of(file.rows, "ordinary")
    said = f"Tutti is {tally.sentence()}." if tally.ratios else "no point has both a peer and a spread that counts."
    if tally.from_limit:
        said += f" The median is {statistics.median(tally.from_limit):.2f} times the limit."
    return _wrapped(f"- [{file.title}](#{_anchor(file.title)}): {said}", subsequent_indent="  ")


def _facts(file):
    about, machine = file.about, file.about["machine"]
    commit = f" ({about['commit']})" if about["commit"] else ""
    versions = [f"{shown_name(name)} {version}{commit if name == 'tutti' else ''}"
                for name, version in about["versions"].items()]
    busy = f" The machine was busy before (load {about['load_before']:.1f})." if about["load_before"] > IDLE else ""
    where = "virtual machine" if machine["virtual"] else "machine"
    met = _wrapped(file.met) + "\n\n" if file.met else ""
    return (_wrapped(f"Measured on {about['date']} on a {where} with {machine['cores']} cores of {machine['processor']}, "
                     f"{machine['system']}, {machine['kernel']}, in {about['rounds']} rounds.{busy}") + "\n\n" + _wrapped(f"{', '.join(versions)}.")
            + f"\n\n{met}    {about['command']}\n")


def _standing(file):
    """The table of where Tutti stands, a line for each number of ranks, transport and kind of memory."""
    lines = ["| ranks | memory | points | noisy | at most the best peer | worst | median of the limit |",
             "| --- | --- | ---: | ---: | ---: | --- | ---: |"]
    for (ranks, transport), some in _by_ranks(file.rows):
        for memory in (memory for memory in MEMORIES if any(memory in row.tutti for row in some)):
            tally = Tally.of(some, memory)
            ratio, worst = tally.ratios[-1] if tally.ratios else (None, None)
            far = f"{statistics.median(tally.from_limit):.2f}" if tally.from_limit else ""
            lines.append(f"| {ranks} over {transport} | {memory} | {len(some)} | {sum(row.noisy for row in some)} | "
                         f"{tally.within(1)} of {len(tally.ratios)} | " +
                         (f"{ratio:.2f}: {case_text(worst)}" if worst else "") + f" | {far} |")
    return "\n".join(lines) + "\n"


def _details(collective, some):
    """A fold: what one sees is how far Tutti is from the best peer, inside are the tables."""
    sentence = Tally.of(some, "ordinary").sentence()
    head = _wrapped(f"<summary>{html.escape(collective)}{': ' + sentence if sentence else ''}</summary>")
    parts = []
    for mode, rows in groups(some, lambda row: row.mode):
        how = "The input is constant." if mode == "constant" else "The input is rewritten before each call."
        parts.append(f"{how}\n\n{table(rows)}")
    return f"<details>\n{head}\n\n" + "\n".join(parts) + "\n</details>\n"


def _absent(file):
    """Who did not take part in what, and why; reasons that are equal together."""
    reasons = {}
    for one in file.about["absent"]:
        reasons.setdefault((one["contestant"], one["reason"]), []).append(
            f"{one['collective']} ({one['ranks']} over {one['transport']})")
    if not reasons:
        return ""
    return "Not measured:\n\n" + "\n".join(
        _wrapped(f"- {name}, {', '.join(places)}: {html.escape(reason)}", subsequent_indent="  ")
        for (name, reason), places in reasons.items()) + "\n"


def _section(file):
    parts = [f"### {file.title}\n", _facts(file)]
    tally = Tally.of(file.rows, "ordinary")
    if tally.ratios:
        parts.append(_wrapped(f"With ordinary memory Tutti is {tally.sentence()}.") + "\n")
    parts.append(_standing(file))
    drawn = pictures([file])
    for (ranks, transport), some in _by_ranks(file.rows):
        parts.append(f"#### {ranks} ranks over {transport}\n")
        if (name := _picture_name(file, ranks, transport)) in drawn:
            parts.append(f"![ratio to the best peer against size](performance/{name})\n")
        parts += [_details(collective, rows) for collective, rows in groups(some, lambda row: row.collective)]
    parts.append(_absent(file))
    return "\n".join(part for part in parts if part)


def page(prose, files):
    """The page's text. `prose` has each mark once. Its links are from a folder below the page's. Files: the newest first;
    none: the page is the prose. Throws reasons.BadReason."""
    prose = prose.replace("](../", "](")
    why = reasons.reasons_of(prose)
    summary = "\n".join(_summary_line(file) for file in files)
    behind = "\n".join(text for file in files if (text := _behind(file, why)))
    results = ""
    if files:
        results = "## Beside other libraries\n\n" + HOW_TO_READ + "\n\n" + "\n".join(_section(file) for file in files)
    if peers_picture(files):
        behind = f"![time of each library divided by Tutti's](pictures/{peers_plot.NAME})\n\n" + behind
    for mark, text in ((SUMMARY, summary), (BEHIND, behind), (RESULTS, results)):
        prose = prose.replace(mark + "\n\n", text.rstrip() + "\n\n" if text else "")
    return prose
