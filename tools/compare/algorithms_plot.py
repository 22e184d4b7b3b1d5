# SPDX-License-Identifier: Apache-2.0
"""The algorithms of a collective as an SVG: time against block size, both logarithmic, the fastest ones circled."""
import math
from xml.sax.saxutils import escape

from report import size_text, time_text

WIDTH, LEFT, TOP, BOTTOM, LABELS, LABEL_HEIGHT = 620, 104, 100, 62, 210, 19
COLOURS = (  # of a light and of a dark background
    ("#2f6fb5", "#78b0f0"), ("#b86a10", "#f0ae5c"), ("#2c8453", "#74cf9c"), ("#7247ab", "#bb98ee"), ("#b33a55", "#ee8ba2"),
    ("#5d6b79", "#a8b4c0"), ("#0f8b8d", "#5cc9cb"), ("#a3318c", "#dd85cb"), ("#8a6d1d", "#d1b45f"), ("#16307a", "#a9b9ff"),
    ("#d4401f", "#ff8a6b"), ("#5a8f00", "#b4e05a"))


def _colours(of):
    return "".join(f" .s{at} {{ stroke: {pair[of]}; }} circle.s{at} {{ fill: {pair[of]}; }}" for at, pair in enumerate(COLOURS))


STYLE = f"""<style>
  text {{ font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2933; font-size: 12px; }}
  .title {{ font-size: 20px; font-weight: 600; }} .note {{ fill: #6b7785; }} .label {{ font-size: 13px; }}
  .paper {{ fill: #ffffff; }} .panel {{ fill: #f4f6f9; }} .grid {{ stroke: #d9dfe7; }}
  .line {{ fill: none; stroke-width: 2; }} .again {{ stroke-dasharray: 6 4; }} .pointer {{ fill: none; stroke-width: 1; }}
  .best {{ fill: none; stroke: #1f2933; stroke-width: 1.5; }}
 {_colours(0)}
  @media (prefers-color-scheme: dark) {{
    text {{ fill: #e6eaef; }} .note {{ fill: #97a3b0; }} .paper {{ fill: #14181d; }} .panel {{ fill: #1c222a; }}
    .grid {{ stroke: #303944; }} .best {{ stroke: #e6eaef; }}
   {_colours(1)}
  }}
</style>
"""


def _text(css, x, y, anchor, words):
    return f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>\n'


def _size(size):
    return size_text(size) if size else "no data"


class _Panel:
    """Where sizes and times are in the picture. No data has its place below the smallest size."""

    def __init__(self, points):
        sizes = [math.log2(point.bytes) for point in points if point.bytes]
        self.first, self.last = min(sizes, default=0), max(sizes, default=0)
        self.nothing = self.first - 1
        if any(point.bytes == 0 for point in points):
            self.first -= 1
            self.last = max(sizes, default=self.first)
        times = [us for point in points for _, us in point.times]
        self.marks = self._marks_of(min(times), max(times))
        lines = len({name for point in points for name, _ in point.times})
        self.height = max(340, 36 * lines)

    @staticmethod
    def _marks_of(least, most):
        """Times at the axis: 1, 2 and 5 times powers of ten, or only the powers where these are many. All times are between
        the first and the last mark."""
        low, high = math.floor(math.log10(least)) - 1, math.ceil(math.log10(most)) + 1
        digits = (1, 2, 5) if math.log10(most / least) <= 3.5 else (1,)
        marks = [digit * 10.0 ** power for power in range(low, high + 1) for digit in digits]
        below = max(at for at, mark in enumerate(marks) if mark <= least)
        above = min(at for at, mark in enumerate(marks) if mark >= most)
        return marks[below:max(above, below + 1) + 1]

    def across(self, size):
        place = math.log2(size) if size else self.nothing
        share = (place - self.first) / (self.last - self.first) if self.last > self.first else 0.5
        return LEFT + 14 + (WIDTH - 28) * share

    def up(self, us):
        low, high = math.log(self.marks[0]), math.log(self.marks[-1])
        return TOP + self.height * (high - math.log(us)) / (high - low)

    def axes(self, points):
        svg = f'<rect class="panel" x="{LEFT}" y="{TOP}" width="{WIDTH}" height="{self.height}" rx="6"/>\n'
        sizes = [point.bytes for point in points if point.bytes]
        powers = range(math.ceil(math.log2(sizes[0])), math.floor(math.log2(sizes[-1])) + 1) if sizes else ()
        marks = [1 << power for power in powers][::max(1, math.ceil((self.last - self.first) / 10))]
        marks = marks or sorted({*sizes[:1], *sizes[-1:]})  # no power of two between two sizes
        for size in marks + [0] * (len(sizes) < len(points)):
            svg += f'<path class="grid" d="M{self.across(size):.1f} {TOP}v{self.height}"/>\n'
            svg += _text("note", self.across(size), TOP + self.height + 18, "middle", _size(size))
        for us in self.marks:
            svg += f'<path class="grid" d="M{LEFT} {self.up(us):.1f}h{WIDTH}"/>\n'
            svg += _text("note", LEFT - 8, self.up(us) + 4, "end", f"{time_text(us)} us")
        return svg


def _spread(wanted, low, high):
    """Places near the wanted ones, in their order, LABEL_HEIGHT apart and within low and high, which have room for all."""
    order = sorted(range(len(wanted)), key=lambda at: wanted[at])
    places, floor = [0.0] * len(wanted), low
    for at in order:
        places[at] = floor = max(wanted[at], floor)
        floor += LABEL_HEIGHT
    ceiling = high
    for at in reversed(order):
        places[at] = ceiling = min(places[at], ceiling)
        ceiling -= LABEL_HEIGHT
    return places


def _lines(points, panel):
    """The line of each algorithm, in the order of names, with its points and its label at the right."""
    names = sorted({name for point in points for name, _ in point.times})
    found = {name: [(point.bytes, us) for point in points for other, us in point.times if other == name] for name in names}
    ends = [panel.up(found[name][-1][1]) for name in names]
    labels = _spread(ends, TOP + LABEL_HEIGHT / 2, TOP + panel.height - LABEL_HEIGHT / 2)
    svg = ""
    for at, name in enumerate(names):
        css = f"s{at % len(COLOURS)}"
        again = " again" if at >= len(COLOURS) else ""
        places = [(panel.across(size), panel.up(us)) for size, us in found[name]]
        right, y = LEFT + WIDTH + 26, labels[at]
        svg += f'<path class="pointer {css}" d="M{places[-1][0]:.1f} {places[-1][1]:.1f}L{LEFT + WIDTH + 6} {y:.1f}"/>\n'
        svg += f'<path class="line {css}{again}" d="M{LEFT + WIDTH + 6} {y:.1f}H{right}"/>\n'
        svg += f'<path class="line {css}{again}" d="M' + "L".join(f"{a:.1f} {b:.1f}" for a, b in places) + '"/>\n'
        svg += _text("label", right + 6, y + 4.5, "start", name)
        for (a, b), (size, us) in zip(places, found[name]):
            said = escape(f"{_size(size)}: {name} {time_text(us)} us")
            svg += f'<circle class="{css}" cx="{a:.1f}" cy="{b:.1f}" r="3"><title>{said}</title></circle>\n'
    return svg


def _winners(points, panel):
    svg = ""
    for point in points:
        (name, us), *others = point.times
        said = f"{_size(point.bytes)}: {name} is the fastest, {time_text(us)} us"
        if others:
            said += f"; {others[0][0]} takes {others[0][1] / us:.2f} times as long"
        svg += (f'<circle class="best" cx="{panel.across(point.bytes):.1f}" cy="{panel.up(us):.1f}" r="6.5">'
                f"<title>{escape(said)}</title></circle>\n")
    return svg


def picture(title, points):
    """Points of one collective, sizes rising."""
    panel = _Panel(points)
    width, height = max(LEFT + WIDTH + LABELS, 48 + 12 * len(title)), TOP + panel.height + BOTTOM
    body = _text("title", 24, 38, "start", title)
    body += '<circle class="best" cx="33" cy="68" r="6.5"/>' + _text("", 48, 72, "start", "the fastest at this size")
    body += panel.axes(points) + _lines(points, panel) + _winners(points, panel)
    body += _text("note", LEFT, height - 18, "start", "microseconds against bytes of a block, both logarithmic")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img">\n<title>{escape(title)}</title>\n{STYLE}<rect class="paper" width="100%" height="100%"/>\n{body}</svg>\n')
