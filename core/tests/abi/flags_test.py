#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""flags_test.py LOCK DOCUMENT: every flags field of the ABI is in the document's table of flags, with its width and its
constants, and the constants keep to the rule: one bit each, in the bits that a receiver must understand (0 to 31), unless the
table says that a receiver may ignore it (32 to 63)."""
import pathlib
import re
import sys

IGNORABLE = " (may be ignored)"


def rows_of(text):
    """{field: (bits, [constant with its note])} of the table of flags fields."""
    rows = {}
    for line in text.partition("| flags field |")[2].splitlines()[2:]:
        if not line.startswith("|"):
            break
        field, bits, constants = [cell.strip() for cell in line.strip("|").split("|")][:3]
        rows[field.strip("`")] = (int(bits), [] if constants == "none" else constants.split(", "))
    return rows


def main():
    lock, document = (pathlib.Path(argument).read_text() for argument in sys.argv[1:])
    rows = rows_of(document)
    fields = {name: 8 * int(size) for name, size in re.findall(r"^(\w+\.flags) \d+ (\d+) uint\d+_t$", lock, flags=re.M)}
    values = {name: int(value) for name, value in re.findall(r"^constant (TUTTI_\w+) (\d+)$", lock, flags=re.M)}
    problems = [f"{field}: it is not in the table of flags" for field in fields.keys() - rows.keys()]
    for field, (bits, constants) in rows.items():
        if fields.get(field, bits) != bits or (field.endswith(".flags") and field not in fields):
            problems.append(f"{field}: the table says {bits} bits, the headers say {fields.get(field, 'that it is not there')}")
        if bits not in (16, 32, 64):
            problems.append(f"{field}: flags have 16, 32 or 64 bits, not {bits}")
        for constant in constants:
            name = constant.removesuffix(IGNORABLE).strip("`")
            value, first = values.get(name), 32 if constant.endswith(IGNORABLE) else 0
            if value is None:
                problems.append(f"{field}: there is no constant {name}")
            elif value & (value - 1) or not 1 << first <= value < 1 << min(bits, first + 32):
                problems.append(f"{field}: {name} is {value:#x}, expected one of the bits {first} to {min(bits, first + 32) - 1}")
    print("\n".join(sorted(problems)) or f"{len(rows)} flags fields")
    return 1 if problems else 0


sys.exit(main())
