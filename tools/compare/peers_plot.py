# SPDX-License-Identifier: Apache-2.0
"""All peers beside Tutti, as one SVG: for some collectives a panel with the time of each peer divided by Tutti's."""
import math

from peers import LIBRARIES, shown_name
from plot import COLUMNS, GAP_X, GAP_Y, HEIGHT, LEFT, STYLE, TOP, WIDTH, document, panel, text
from report import NOISY, size_text, time_text

NAME = "peers.svg"
PANELS = ((2, "shm", "all_reduce"), (2, "shm", "broadcast"), (2, "shm", "all_gather"), (2, "shm", "all_to_all"),
          (4, "shm", "all_reduce"), (2, "tcp", "all_reduce"))
COLOURS = {"openmpi": ("#b33a55", "#ee8ba2"), "openmpi5": ("#c77a1b", "#f2b567"), "mpich": ("#7a5ab5", "#bba4ec"),
           "mpich5": ("#5b4a8a", "#9d8ad8"), "intelmpi": ("#2f6fb5", "#78b0f0"), "gloo": ("#6f7d1f", "#c3d06b")}
LEGEND_WIDTH = 158


def _style():
    def lines(shade, own, paper):
        """Tutti's line, the peers', and their points; hollow ones come last and win."""
        peers = "".join(f".{name} {{ stroke: {pair[shade]}; }} circle.{name} {{ fill: {pair[shade]}; }} "
                        for name, pair in COLOURS.items())
        return f".peer {{ stroke: {own}; stroke-width: 2; }} {peers}circle.noisy {{ fill: {paper}; }}"
    light, dark = lines(0, "#1f2933", "#ffffff"), lines(1, "#e6eaef", "#14181d")
    return STYLE.replace("</style>", f"  {light}\n  @media (prefers-color-scheme: dark) {{ {dark} }}\n</style>")


def _lines(rows, versions):
    """Of one panel: Tutti with registered memory, and each peer, in the order of LIBRARIES."""
    found = {name: [] for name in ("registered", *LIBRARIES)}
    for row in sorted(rows, key=lambda row: row.bytes):
        own = row.tutti.get("ordinary")
        for name, figure in {**row.libraries, "registered": row.tutti.get("registered")}.items():
            if own and figure:
                said = (f"{size_text(row.bytes)}: {_legend(name, versions)} {time_text(figure.us)} us, "
                        f"Tutti {time_text(own.us)} us: {figure.us / own.us:.2f} of Tutti's time")
                found[name].append((row.bytes, figure.us / own.us, max(figure.spread, own.spread) > NOISY, said))
    return {name: points for name, points in found.items() if points}


def _legend(name, versions):
    return "Tutti, registered" if name == "registered" else f"{shown_name(name)} {versions.get(name, '')}".strip()


def picture(title, rows, versions):
    """The text; "": no peer took part in any of the panels. Input is constant."""
    panels = []
    for ranks, transport, collective in PANELS:
        some = [row for row in rows if (row.ranks, row.transport, row.collective, row.mode) ==
                (ranks, transport, collective, "constant") and row.bytes > 0]
        lines = _lines(some, versions)
        if any(name in LIBRARIES for name in lines):
            panels.append((f"{collective}, {ranks} ranks over {transport}", lines))
    if not panels:
        return ""
    columns = min(COLUMNS, len(panels))
    names = [name for name in ("registered", *LIBRARIES) if any(name in lines for _, lines in panels)]
    width = max(LEFT + columns * (WIDTH + GAP_X), 48 + LEGEND_WIDTH * (len(names) + 1), 48 + 12 * len(title))
    height = TOP + math.ceil(len(panels) / columns) * (HEIGHT + GAP_Y)
    body = text("title", 24, 38, "start", title)
    body += '<path class="peer" d="M24 64h18"/>' + text("", 48, 68, "start", "Tutti = 1")
    for at, name in enumerate(names, 1):
        x = 24 + at * LEGEND_WIDTH
        body += f'<path class="line {name}" d="M{x} 64h18"/>' + text("", x + 24, 68, "start", _legend(name, versions))
    for at, (head, lines) in enumerate(panels):
        body += panel(LEFT + at % columns * (WIDTH + GAP_X), TOP + at // columns * (HEIGHT + GAP_Y), head, lines)
    body += text("note", LEFT, height - 20, "start", "time divided by Tutti's with ordinary memory, against bytes: above 1 "
                 "Tutti is faster; each peer with its fastest setting; hollow points are noisy")
    return document(title, width, height, body, _style())
