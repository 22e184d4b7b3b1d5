#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""typed_test.py SOURCE BUILD: the commands of a page work as they stand, one block after another in one shell.

Commands are the lines of indented code, or those after a "$ " where a block has such; what stands below them is what they
print, shortened, and is not compared. Each page is typed in a fresh folder whose `build` is the whole build.
docs/plugin-guide.md and docs/applications.md, which need an installed Tutti, are typed by the test package.guide, and
docs/packages.md by tools/package/tests/fresh-root.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE, BUILD = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
PAGES = ("README.md", "core/examples/README.md")
ELSEWHERE = {
    "tools/quickstart": "builds everything anew; started by hand",
    "tools/check": "runs this test",
    "cmake --build build": "was done before this test",
    "build/bin/tutti-conform --plugin ./libtutti-mine.so": "is for a plugin of the reader's; typed by package.vendor",
    "build/bin/tutti-conform --mutants": "is the test conformance.mutants",
}


def commands(page):
    """(line, command) of the page's indented code."""
    block, fenced = [], False
    for number, line in enumerate((SOURCE / page).read_text().splitlines() + [""], 1):
        fenced ^= line.startswith("```")
        if line.startswith("    ") and not fenced:
            block.append((number, line[4:]))
            continue
        prompted = [(where, text[2:]) for where, text in block if text.startswith("$ ")]
        yield from prompted or block
        block = []


def type_page(page, folder):
    (folder / "build").symlink_to(BUILD)
    script, typed, left_out = [], 0, set()
    for number, command in commands(page):
        bare = command.partition("  ")[0]  # without the remark
        if bare in ELSEWHERE:
            left_out.add(bare)
            continue
        script += [f"echo {page}:{number}", command]
        typed += 1
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TUTTI_")}
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", "\n".join(script)], cwd=folder, env=environment, text=True,
                          timeout=400, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode or typed == 0:
        sys.exit(f"{done.stdout}\n{page}: {typed} commands typed, the last ended with status {done.returncode}, expected 0")
    print(f"{page}: {typed} commands typed, {len(left_out)} left out")
    return left_out


left = set()
for page in PAGES:
    with tempfile.TemporaryDirectory() as folder:
        left |= type_page(page, pathlib.Path(folder))
if left != set(ELSEWHERE):
    sys.exit(f"no page has these any more, so this test need not leave them out: {sorted(set(ELSEWHERE) - left)}")
