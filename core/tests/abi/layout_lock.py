#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The layout lock: compares what the layout program prints with the committed core/abi/layout.txt, and the drafts' stamps
in the headers with the hash of their lines.

  layout_lock.py check  PROGRAM LOCK HEADER...            fails when a locked line changed or went, or a line is not locked yet
  layout_lock.py stamps PROGRAM LOCK HEADER...            fails when a stamp in a header is not the hash of its interface
  layout_lock.py update PROGRAM LOCK HEADER... [--new-draft]   adds new lines; with --new-draft lines of draft interfaces may change
"""
import pathlib
import re
import subprocess
import sys

from abi_headers import DRAFTS, STABLE, Headers

HEAD = [
    "# The locked layout of the ABI (64-bit, little-endian and big-endian alike). Lines may be added, never changed or removed;",
    "# the size of a struct that begins with struct_size may grow. docs/abi.md says how. Written by `ninja abi-layout-update`.",
]


def key_of(line):
    """What a line is about: everything but offset, size, type, value."""
    words = line.split(" ")
    return " ".join(words[:2]) if words[0] == "constant" or words[1] in ("size", "mandatory") else words[0]


def struct_of(line):
    return re.split(r"[ .]", line)[0]


def fnv1a(text):
    value = 0x811C9DC5
    for byte in text.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def layout_of(program):
    result = subprocess.run([program], capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(f"the layout program refuses the headers:\n{result.stderr}")
    return result.stdout.splitlines()


def locked_lines(lock):
    path = pathlib.Path(lock)
    return [line for line in path.read_text().splitlines() if not line.startswith("#")] if path.exists() else []


def stamps(headers, lines):
    """{stamp name: FNV-1a-32 of the layout lines of the interface's table and of every struct that it uses}"""
    result = {}
    for stamp, table in DRAFTS.items():
        structs = set(headers.reachable(table))
        result[stamp] = fnv1a("\n".join(line for line in lines if struct_of(line) in structs))
    return result


def draft_structs(headers):
    def reached(tables):
        return {struct for table in tables for struct in headers.reachable(table) if table in headers.structs}
    return reached(DRAFTS.values()) - reached(STABLE)


def grows(headers, line, now):
    """Is this the size line of a growing struct that became larger?"""
    struct, word, size = (line.split(" ") + ["", ""])[:3]
    fields = headers.structs.get(struct, [])
    return word == "size" and bool(fields) and fields[0][0] == "struct_size" and int(now.split(" ")[2]) > int(size)


def differences(headers, locked, lines):
    """(changed: [(locked, now or None)], added: [line])"""
    now = {key_of(line): line for line in lines}
    locked_keys = {key_of(line): line for line in locked}
    changed = [(line, now.get(key)) for key, line in locked_keys.items()
               if now.get(key) != line and not (key in now and grows(headers, line, now[key]))]
    added = [line for key, line in now.items() if key not in locked_keys or (
        locked_keys[key] != line and grows(headers, locked_keys[key], line))]
    return changed, added


def check(headers, lock, lines):
    changed, added = differences(headers, locked_lines(lock), lines)
    for old, new in changed:
        print(f"locked line changed:\n  locked  {old}\n  now     {new or '(gone)'}")
        if struct_of(old) in draft_structs(headers):
            print("  This interface is a draft: if the change is meant, run `ninja abi-layout-new-draft`, then set its new stamp.")
        else:
            print("  This can never be: append a field to a sized struct, or define a new revision (docs/abi.md).")
    for line in added:
        print(f"not locked yet: {line}\n  Run `ninja abi-layout-update` and commit {pathlib.Path(lock).name}.")
    return 1 if changed or added else 0


def check_stamps(headers, paths, lines):
    texts = [(path, pathlib.Path(path).read_text()) for path in paths]
    failed = 0
    for stamp, value in stamps(headers, lines).items():
        found = [(path, m[1]) for path, text in texts for m in [re.search(rf"#define {stamp} (0x[0-9a-f]{{8}})u", text)] if m]
        if not found:
            print(f"no header defines {stamp} in the form `#define {stamp} 0x%08xu`")
            failed = 1
        elif int(found[0][1], 16) != value:
            print(f"{found[0][0]}: {stamp} is {found[0][1]}u, but its interface hashes to another value. Put:\n"
                  f"#define {stamp} 0x{value:08x}u")
            failed = 1
    return failed


def update(headers, lock, lines, new_draft):
    locked = locked_lines(lock)
    changed, added = differences(headers, locked, lines)
    forbidden = [pair for pair in changed if not (new_draft and struct_of(pair[0]) in draft_structs(headers))]
    if forbidden:
        check(headers, lock, lines)
        return 1
    pathlib.Path(lock).write_text("\n".join(HEAD + lines) + "\n")
    print(f"{lock}: {len(added)} lines added, {len(changed)} changed")
    return 0


def main():
    arguments = [a for a in sys.argv[1:] if a != "--new-draft"]
    mode, program, lock, paths = arguments[0], arguments[1], arguments[2], arguments[3:]
    headers, lines = Headers(paths), layout_of(program)
    if mode == "check":
        return check(headers, lock, lines)
    if mode == "stamps":
        return check_stamps(headers, paths, lines)
    if mode == "update":
        return update(headers, lock, lines, "--new-draft" in sys.argv)
    raise SystemExit(__doc__)


sys.exit(main())
