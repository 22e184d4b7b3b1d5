# SPDX-License-Identifier: Apache-2.0
"""The command line of tools/performance-page."""
import argparse
import difflib
import re
import sys
from pathlib import Path

import algorithms_part
import peers_plot
from checked_json import Refused, load
from page import IDLE, MARKS, page, peers_picture, pictures
from reasons import BadReason
from result_file import results_of
from tuning_file import TuningFile, is_tuning, tuning_of

ROOT = Path(__file__).resolve().parent.parent.parent
MOST_LINES = 40  # of differences that --check prints


def read(path, shown):
    """The file of results, or the tuning file. Throws Refused."""
    told = load(path, shown)
    return (tuning_of if is_tuning(told) else results_of)(told, re.sub(r"\.json$", "", path.name), shown)


class Place:
    """Where everything is: the page DOCS/performance.md, DOCS/algorithms.md with a part for tuning files, and in
    DOCS/performance the first one's prose, and the results, tuning files and pictures of both."""

    def __init__(self, docs):
        self.docs = docs
        self.page, self.folder = docs / "performance.md", docs / "performance"
        self.peers = docs / "pictures" / peers_plot.NAME
        self.prose, self.algorithms = self.folder / "prose.md", docs / "algorithms.md"

    def shown(self, path):
        """As messages name it: from the folder above DOCS."""
        return str(path.relative_to(self.docs.parent))

    def prose_text(self):
        try:
            text = self.prose.read_text()
        except OSError as why:
            raise Refused(f"{self.shown(self.prose)} cannot be read: {why.strerror}; it holds the page's prose") from None
        for mark in MARKS:
            if text.count(f"\n\n{mark}\n\n") != 1:
                raise Refused(f'{self.shown(self.prose)}: expected the line "{mark}" once, between empty lines, got it '
                              f"{text.count(mark)} times; put it where the results belong")
        return text

    def algorithms_text(self, files):
        """The page of algorithms with what these tuning files say."""
        try:
            around = algorithms_part.split(self.algorithms.read_text())
        except OSError as why:
            raise Refused(f"{self.shown(self.algorithms)} cannot be read: {why.strerror}; it has a part for tuning files") from None
        if around is None:
            raise Refused(f'{self.shown(self.algorithms)}: expected the line "{algorithms_part.BEGIN.strip()}" once, and after it '
                          f'"{algorithms_part.END.strip()}" before another part begins; put them where the measured times belong')
        return algorithms_part.part(files).join(around)

    def wanted(self):
        """All that is written: text by path. Throws Refused."""
        files = [read(path, self.shown(path)) for path in sorted(self.folder.glob("*.json"))]
        files.sort(key=lambda file: file.date, reverse=True)
        tunings = [file for file in files if isinstance(file, TuningFile)]
        results = [file for file in files if file not in tunings]
        texts = {**pictures(results), **algorithms_part.pictures(tunings)}
        drawn = peers_picture(results)
        return {self.page: self.page_text(results), self.algorithms: self.algorithms_text(tunings),
                **({self.peers: drawn} if drawn else {}), **{self.folder / name: text for name, text in texts.items()}}

    def page_text(self, results):
        try:
            return page(self.prose_text(), results)
        except BadReason as why:
            raise Refused(f"{self.shown(self.prose)}: {why}; correct the table of reasons") from None

    def left_over(self, wanted):
        """Pictures of results that are gone."""
        return [path for path in [*sorted(self.folder.glob("*.svg")), self.peers] if path not in wanted and path.exists()]


def differences(place):
    """What is not up to date, a line each."""
    wanted = place.wanted()
    lines = [f"{place.shown(path)}: no result file has this picture" for path in place.left_over(wanted)]
    for path, text in wanted.items():
        if not path.exists():
            lines.append(f"{place.shown(path)} is not there")
            continue
        known = path.read_text()
        if known == text:
            continue
        lines.append(f"{place.shown(path)} is not what its sources give (-: the file, +: expected):")
        if path in (place.page, place.algorithms):
            lines += list(difflib.unified_diff(known.splitlines(), text.splitlines(), n=0, lineterm=""))[2:]
    return lines


def check(place):
    lines = differences(place)
    if not lines:
        print("the pages and their pictures are up to date")
        return 0
    print("\n".join(lines[:MOST_LINES]))
    if len(lines) > MOST_LINES:
        print(f"and {len(lines) - MOST_LINES} more lines")
    print(f"these are written from what {place.shown(place.folder)} holds, {place.shown(place.algorithms)} between its marks only: "
          "change that and run tools/performance-page")
    return 1


def write(place):
    wanted = place.wanted()
    for path in place.left_over(wanted):
        path.unlink()
        print(f"removed {place.shown(path)}")
    for path, text in wanted.items():
        if not path.exists() or path.read_text() != text:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            print(f"wrote {place.shown(path)}")
    return 0


def _slug(words):
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def add(place, path):
    """The copy is named by date and machine, that of a tuning file by its ranks too."""
    file = read(path, str(path))
    target = place.folder / f"{file.date[:10]}-{_slug(file.short_title)}.json"
    text = path.read_text()
    if target.exists() and target.read_text() != text:
        raise Refused(f"{place.shown(target)} is there already, with other figures of this machine and day; remove it, or copy "
                      f"{path} to {place.shown(place.folder)} under a name of your own and run tools/performance-page")
    target.write_text(text)
    print(f"wrote {place.shown(target)}")
    if not isinstance(file, TuningFile) and file.about["load_before"] > IDLE:
        print(f"{place.shown(place.peers)} is not drawn from these: the load before was {file.about['load_before']}, expected at "
              f"most {IDLE}; measure again when the machine is idle")


def main(arguments):
    parser = argparse.ArgumentParser(
        prog="performance-page", description="Writes docs/performance.md, a part of docs/algorithms.md and their pictures "
        "from what docs/performance holds: prose, results of tools/compare-peers, and tuning files of tutti-perf --tune. "
        "docs/pictures/peers.svg is drawn from the newest results of an idle machine.")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true",
                      help="write nothing; status 1 and the differences if a page is not up to date")
    what.add_argument("--add", type=Path, metavar="FILE",
                      help="first copy these results, such as build/compare/compare.json, or this tuning file to docs/performance")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", metavar="FOLDER", help="the folder of the pages (docs)")
    options = parser.parse_args(arguments)
    place = Place(options.docs.resolve())
    try:
        if options.check:
            return check(place)
        if options.add:
            add(place, options.add)
        return write(place)
    except Refused as why:
        print(f"performance-page: {why}", file=sys.stderr)
    except OSError as why:
        print(f"performance-page: {why.filename}: {why.strerror}", file=sys.stderr)
    return 1
