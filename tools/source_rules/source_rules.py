#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: source_rules.py SOURCE      The rules for sources: core, plugins, Python packages, programs.

  locale      nothing obeys the locale (setlocale, std::locale::global) of the application, or that a plugin sets in a
              program: neither what ranks say to each other, nor what a setting means, nor what a program prints. No
              numbers through streams, no strtod, std::stoi, sscanf, isalnum, toupper, printf of %f and their like;
              core/base/include/tutti/base/text.hpp, core/base/wire.hpp, tools/texts/texts.hpp
              and fmt are there instead.

  names       a type's name is defined once in the core: one name, one concept. That holds for classes, enumerations and
              aliases, nested ones as well. The core is one library, whose linker keeps one of two inline functions, or
              destructors, of one name, and says nothing. An alias may be repeated within its file, as a trait of several
              types, and may give a type its own last name in another scope. A type of a public header is the
              application's view of a concept: only within one namespace must its name be another.

Tests, benchmarks, examples, comments, and the programs of tools/compare, which use other libraries, are free of both.
"""
import re
import sys
from pathlib import Path

FOLDERS = ("core", "plugins", "net-tcp", "net-ib", "cuda-kernels", "mpi-preload", "tools")
FREE = {"tests", "benches", "examples", "fuzz", "programs"}
LOCALE = re.compile(r"\b(?:strto(?:d|f|ld|l|ll|ul|ull|imax|umax)|ato(?:i|l|ll|f)|sto(?:i|l|ll|ul|ull|f|d|ld)|v?f?s?scanf"
                    r"|is(?:alnum|alpha|blank|cntrl|digit|graph|lower|print|punct|space|upper|xdigit)|to(?:upper|lower)"
                    r"|[io]?stringstream)\b(?=\s*[({<,);]|\s+\w)"
                    r"|\bifstream\b.*>>"
                    r"|\"[^\"]*%[-+#0]*(?:\d+|\*)?(?:\.(?:\d+|\*)?)?[lL]?[aefgAEFG]\b")
NAMESPACE = re.compile(r"(?:inline )?namespace ?([\w:]*) ?\{$")
TYPE = re.compile(r"\s*(?:template <.*> )?(?:class|struct|union|enum(?: class| struct)?) (?:alignas\(\w+\) |\[\[\w+\]\] )?"
                  r"(?:\w+::)*(\w+)(?: final)?(?: ?:[^:;][^;{]*)?(?: ?\{.*)?$")
ALIAS = re.compile(r"\s*(?:template <.*> )?using (\w+) =(?!.*\b\1;$)")
SHARED = {"type"}  # what a trait yields, as in the standard library
COMMENT = re.compile(r"//.*$|^\s*/?\*.*$")


def sources(root):
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".cpp", ".hpp", ".h", ".c", ".cu", ".cuh") and not FREE & set(path.relative_to(root).parts):
                yield path


def types(path):
    """The types that a file defines: their line, name, name with namespaces ("" where the linker does not see it), and
    whether it is an alias. Namespaces are not indented."""
    spaces = []
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        if space := NAMESPACE.match(line):
            spaces.append(space[1])
        elif line.startswith("}  // namespace") and spaces:
            spaces.pop()
        line = COMMENT.sub("", line).rstrip()
        found = TYPE.match(line)
        if found or (alias := ALIAS.match(line)):
            name = (found or alias)[1]
            seen = found and "" not in spaces and not line.startswith(" ")
            yield number, name, "::".join(spaces + [name]) if seen else "", not found


def names(root):
    """The faults against the second rule."""
    seen, faults = {}, []
    for path in sources(root):
        for number, name, full, alias in types(path) if path.is_relative_to(root / "core") else ():
            mine = file, _, _ = path.relative_to(root), number, alias
            keys = {("full", full)} if full else set()
            if not file.is_relative_to("core/include") and name not in SHARED:
                keys.add(("private", name))
            others = [seen.setdefault(key, mine) for key in sorted(keys)]
            if other := next((o for o in others if o != mine and not (alias and o[2] and o[0] == file)), None):
                faults.append(f"{file}:{number}: names: {name} is a type of {other[0]}:{other[1]}, too\n"
                              "    give one of them another name, or define once what is one concept")
    return faults


def check(root):
    """The faults of a tree."""
    return names(root) + [f"{path.relative_to(root)}:{number}: locale: {line.strip()}\n"
            "    use tutti/sdk/text.hpp, base/wire.hpp, texts/texts.hpp or fmt"
            for path in sources(root) for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
            if LOCALE.search(COMMENT.sub("", line))]


def main():
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        sys.exit(__doc__.splitlines()[0])
    root = Path(sys.argv[1])
    if not any(True for _ in sources(root)):
        sys.exit(f"source_rules: {root} has no sources of {', '.join(FOLDERS)}: is it the top of the tree?")
    faults = check(root)
    print("\n".join(faults + [f"{len(faults)} times a rule is broken" if faults else "all sources keep the rules"]))
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
