#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pages keep their form, and what they name exists.

  links       a relative link has a target, and its anchor is a heading there
  paths       a path of the tree in `code` exists; * stands for any name
  lines       prose has at most 120 columns, and a paragraph of docs/ at most five lines
  beginning   a page of docs/ begins with what its reader can do after it
  walks       in fenced text an indented line "FILE  FUNCTION  ..." is a call. FILE names the function, and so does the caller's
              file: that of the nearest line above which is indented less
  glossary    a term is defined once, in alphabetical order within its section
"""
import re
import sys
from pathlib import Path

source = Path(sys.argv[1])
ROOTS = ("core/", "plugins/", "net-tcp/", "net-ib/", "cuda-kernels/", "mpi-preload/", "conformance/", "tools/",
         "docs/", "cmake/")
faults = []


def pages_of(root):
    """All pages of the tree, relative to it, but for those of hidden folders and builds; the README first."""
    found = [p.relative_to(root) for p in root.rglob("*.md")]
    return sorted((str(p) for p in found if not any(part.startswith((".", "build")) for part in p.parts)), key=lambda p: (p.count("/") > 0, p))


def prose(page):
    """(line number, line) outside of fenced and indented code."""
    fenced, listed = False, False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            listed = bool(re.match(r"\s*([-*]|\d+\.) ", line)) or (listed and line.strip() != "")
            if listed or not line.startswith("    "):
                yield number, line


def anchors(page):
    """Headings as GitHub names them."""
    for _, line in prose(page):
        if line.startswith("#"):
            title = re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower())
            yield title.replace(" ", "-")


def check_targets(page):
    for number, line in prose(page):
        where = f"{page.relative_to(source)}:{number}"
        for target in re.findall(r"\]\(([^)\s]+)\)", line):
            if re.match(r"\w+:", target):
                continue
            name, _, anchor = target.partition("#")
            file = (page.parent / name) if name else page
            if not file.exists():
                faults.append(f"{where}: the link to {target} has no target")
            elif anchor and anchor not in anchors(file):
                faults.append(f"{where}: {target}: there is no such heading")
        for path in re.findall(r"`([\w./*-]+)`", line):
            if path.startswith(ROOTS) and not list(source.glob(path.rstrip("/"))):
                faults.append(f"{where}: there is no {path}")


def check_walks(page):
    """A walk through the code, as in docs/architecture.md; `callers` are the files of the lines above, by their indentation."""
    fenced, callers = False, []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        step = re.match(r"( +)([\w/-]+\.[ch]pp) +(~?\w+)(?:  |$)", line)
        if line.startswith("```"):
            fenced, callers = not fenced, []
        if not fenced or not step:
            continue
        indent, path, name = len(step[1]), step[2], step[3]
        callers = [(i, text) for i, text in callers if i < indent]
        where = f"{page.relative_to(source)}:{number}"
        if not (source / path).is_file():
            faults.append(f"{where}: there is no {path}")
            continue
        text = (source / path).read_text()
        if not re.search(rf"(?<!\w){re.escape(name)}\b", text):
            faults.append(f"{where}: {path} has no {name}")
        if callers and not re.search(rf"(?<!\w){re.escape(name)}\b", callers[-1][1]):
            faults.append(f"{where}: the file that should call {name} does not name it")
        callers.append((indent, text))


def check_form(page):
    lines, begin = 0, 0
    for number, line in prose(page):
        where = f"{page.relative_to(source)}:{number}"
        if len(line) > 120 and not line.startswith("|"):
            faults.append(f"{where}: {len(line)} columns, expected at most 120")
        plain = line.strip() and not line.startswith(("|", "#", "- ", "* ", "  ")) and not re.match(r"\d+\. ", line)
        lines, begin = (lines + 1, begin) if plain else (0, number + 1)
        if lines == 6 and page.parent == source / "docs":
            faults.append(f"{page.relative_to(source)}:{begin}: a paragraph of more than five lines")
    if page.parent == source / "docs" and not re.match(r"# .*\n\nAfter this page", page.read_text()):
        faults.append(f"{page.relative_to(source)}: begins with something else than \"After this page you ...\"")


def check_glossary(page):
    terms, section = set(), []
    for number, line in prose(page):
        if line.startswith("## "):
            section = []
        term = re.match(r"- \*\*(.+?)\*\*:", line)
        if not term:
            continue
        name = term[1].lower()
        if name in terms:
            faults.append(f"docs/glossary.md:{number}: {term[1]} is defined twice")
        if section and name < section[-1]:
            faults.append(f"docs/glossary.md:{number}: {term[1]} belongs before {section[-1]}")
        terms.add(name)
        section.append(name)
    if not terms:
        faults.append("docs/glossary.md: no terms found: is its form still what this test reads?")


def main():
    pages = [source / page for page in pages_of(source)]
    for page in pages:
        check_targets(page)
        check_walks(page)
        check_form(page)
    check_glossary(source / "docs" / "glossary.md")
    print("\n".join(faults) or f"{len(pages)} pages: links, paths, form and glossary hold")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
