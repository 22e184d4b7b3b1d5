# SPDX-License-Identifier: Apache-2.0
"""The part of a page that a program writes: between `<!-- begin: WHAT -->` and `<!-- end -->`."""


def split(page, what):
    """The page's text before the part, the part, and the rest. The marks belong to neither the part nor its surroundings."""
    begin, end = f"<!-- begin: {what} -->\n", "<!-- end -->\n"
    head, _, rest = page.read_text().partition(begin)
    part, found, tail = rest.partition(end)
    if not found:
        raise SystemExit(f"{page} has no place for the tables: expected {begin}...\n{end}")
    return head, part, tail


def write(page, what, text):
    head, _, tail = split(page, what)
    page.write_text(f"{head}<!-- begin: {what} -->\n\n{text}\n<!-- end -->\n{tail}")


def differences(page, what, text):
    """What the page and the program have each for itself, a sentence each; [] where they are equal."""
    part = split(page, what)[1]
    if part.strip() == text.strip():
        return []
    known, now = part.splitlines(), text.splitlines()
    return ([f"the page has, the program has not: {line}" for line in known if line and line not in now] +
            [f"the program has, the page has not: {line}" for line in now if line and line not in known])
