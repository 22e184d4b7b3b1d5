# SPDX-License-Identifier: Apache-2.0
"""Tutti and the machine's limit beside the best peer, as an SVG: a panel for each collective, ratio against size."""
import math
from xml.sax.saxutils import escape

from report import MEMORIES, NOISY, groups, size_text, time_text

WIDTH, HEIGHT, COLUMNS, LEFT, TOP, GAP_X, GAP_Y = 330, 200, 3, 56, 110, 60, 76
LINES = [*MEMORIES, "limit"]
STYLE = """<style>
  text { font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2933; font-size: 12px; }
  .title { font-size: 20px; font-weight: 600; } .head { font-size: 14px; font-weight: 600; } .note { fill: #6b7785; }
  .paper { fill: #ffffff; } .panel { fill: #f4f6f9; } .grid { stroke: #d9dfe7; } .peer { stroke: #b33a55; stroke-width: 1.5; }
  .line { fill: none; stroke-width: 2; } .noisy { fill: #ffffff; stroke-width: 1.5; }
  .ordinary { stroke: #2f6fb5; } .registered { stroke: #2c8453; } .limit { stroke: #5d6b79; stroke-dasharray: 4 3; }
  circle.ordinary { fill: #2f6fb5; } circle.registered { fill: #2c8453; } circle.limit { fill: #5d6b79; stroke-dasharray: none; }
  circle.noisy { fill: #ffffff; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6eaef; } .note { fill: #97a3b0; } .paper, circle.noisy { fill: #14181d; } .panel { fill: #1c222a; }
    .grid { stroke: #303944; } .peer { stroke: #ee8ba2; }
    .ordinary { stroke: #78b0f0; } .registered { stroke: #74cf9c; } .limit { stroke: #a8b4c0; }
    circle.ordinary:not(.noisy) { fill: #78b0f0; } circle.registered:not(.noisy) { fill: #74cf9c; }
    circle.limit { fill: #a8b4c0; }
  }
</style>
"""


def text(css, x, y, anchor, words):
    return f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>\n'


def _lines(some):
    """(size, ratio to the best peer, noisy, what the point says) of each line that has points."""
    found = {name: [] for name in LINES}
    for row in sorted(some, key=lambda row: row.bytes):
        for memory, figure in row.tutti.items():
            said = (f"{size_text(row.bytes)}: {time_text(figure.us)} us, {row.peer.name} {time_text(row.peer.us)} us: "
                    f"{row.ratio(memory):.2f} of the best peer")
            found[memory].append((row.bytes, row.ratio(memory), row.noisy, said))
        if "ordinary" in row.limits:
            limit = row.limits["ordinary"]
            said = (f"{size_text(row.bytes)}: {limit.name} {time_text(limit.us)} us: {limit.us / row.peer.us:.2f} of the best "
                    "peer")
            found["limit"].append((row.bytes, limit.us / row.peer.us, limit.spread > NOISY, said))
    return {name: points for name, points in found.items() if points}


def _power_text(power):
    return str(1 << power) if power >= 0 else f"1/{1 << -power}"


def panel(x, y, head, lines):
    """`lines`: by CSS class (size, ratio, noisy, what the point says). Both axes are powers of two; the panel is as high as its values need."""
    sizes = [math.log2(size) for points in lines.values() for size, *_ in points]
    ratios = [math.log2(ratio) for points in lines.values() for _, ratio, *_ in points]
    low, high = min(math.floor(min(ratios)), -1), max(math.ceil(max(ratios)), 1)
    first, last = min(sizes), max(max(sizes), min(sizes) + 1)

    def across(size):
        return x + 12 + (WIDTH - 24) * (math.log2(size) - first) / (last - first)

    def up(power):
        return y + HEIGHT * (high - power) / (high - low)

    svg = f'<rect class="panel" x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>\n'
    svg += text("head", x, y - 10, "start", head)
    for power in range(math.ceil(first), math.floor(last) + 1, max(1, math.ceil((last - first) / 6))):
        svg += f'<path class="grid" d="M{across(2 ** power):.1f} {y}v{HEIGHT}"/>\n'
        svg += text("note", across(2 ** power), y + HEIGHT + 17, "middle", size_text(1 << power))
    for power in range(low, high + 1, max(1, math.ceil((high - low) / 8))):
        svg += f'<path class="grid" d="M{x} {up(power):.1f}h{WIDTH}"/>\n'
        svg += text("note", x - 7, up(power) + 4, "end", _power_text(power))
    svg += f'<path class="peer" d="M{x} {up(0):.1f}h{WIDTH}"/>\n'
    for name, points in lines.items():
        places = [(across(size), up(math.log2(ratio))) for size, ratio, *_ in points]
        svg += f'<path class="line {name}" d="M' + "L".join(f"{a:.1f} {b:.1f}" for a, b in places) + '"/>\n'
        for (a, b), (_, _, noisy, said) in zip(places, points):
            css = f"{name} noisy" if noisy else name
            svg += f'<circle class="{css}" cx="{a:.1f}" cy="{b:.1f}" r="3.5"><title>{escape(said)}</title></circle>\n'
    return svg


def picture(title, some):
    """Rows of one number of ranks and transport; "": no peer took part, or nothing but barriers was measured. Input is
    constant, or of the only mode that was measured."""
    modes = [row.mode for row in some]
    mode = "constant" if "constant" in modes else modes[0]
    drawn = [row for row in some if row.mode == mode and row.peer and row.bytes > 0]
    panels = [(collective, _lines(part)) for collective, part in groups(drawn, lambda row: row.collective)]
    if not panels:
        return ""
    columns = min(COLUMNS, len(panels))
    width = max(LEFT + columns * (WIDTH + GAP_X), 740, 48 + 12 * len(title))
    height = TOP + math.ceil(len(panels) / columns) * (HEIGHT + GAP_Y)
    body = text("title", 24, 38, "start", title)
    body += '<path class="peer" d="M24 64h18"/>' + text("", 48, 68, "start", "best peer = 1")
    x = 150
    for name in (name for name in LINES if any(name in lines for _, lines in panels)):
        words = "limit for ordinary memory" if name == "limit" else f"Tutti, {name} memory"
        body += f'<path class="line {name}" d="M{x} 64h18"/>' + text("", x + 24, 68, "start", words)
        x += 190
    for at, (collective, lines) in enumerate(panels):
        body += panel(LEFT + at % columns * (WIDTH + GAP_X), TOP + at // columns * (HEIGHT + GAP_Y), collective, lines)
    body += text("note", LEFT, height - 20, "start",
                  f"time divided by the best peer's, against bytes; input {mode}; hollow points are noisy")
    return document(title, width, height, body)


def document(title, width, height, body, style=STYLE):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img">\n<title>{escape(title)}</title>\n{style}<rect class="paper" width="100%" height="100%"/>\n{body}</svg>\n')
