#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""keep.py pack LIBRARY TEXT    writes a library as text: base64 of its xz form
keep.py unpack TEXT LIBRARY  writes the library back"""
import base64
import lzma
import pathlib
import sys
import textwrap


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in ("pack", "unpack"):
        raise SystemExit(__doc__)
    source, target = pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    if sys.argv[1] == "pack":
        text = base64.b64encode(lzma.compress(source.read_bytes(), preset=9 | lzma.PRESET_EXTREME)).decode()
        target.write_text("\n".join(textwrap.wrap(text, 120)) + "\n")
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(lzma.decompress(base64.b64decode(source.read_text())))


main()
