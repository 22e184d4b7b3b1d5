#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""headers_test.py C_COMPILER CXX_COMPILER INCLUDE_DIR [HEADER...]: each public header (or only these) compiles alone in each
language it is for, and each includes nothing but headers of the standard library and of Tutti. The exceptions, for programs
that use another library as well, are not compiled here: core/tests/mpi does it where that library is."""
import pathlib
import re
import subprocess
import sys

CC, CXX, ROOT, CHOSEN = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]), sys.argv[4:]
STRICT = ["-Wall", "-Wextra", "-Werror"]
C_STANDARD_HEADERS = {"stddef.h", "stdint.h"}
OF_OTHERS = {"tutti/mpi.h": {"mpi.h", "stdio.h", "string.h"}, "tutti/mpi.hpp": set()}  # header: what else it includes
LANGUAGES = {
    "c": [CC, "-std=c11", "-x", "c", "-pedantic", "-Wpadded"],
    "c++": [CXX, "-std=c++20", "-x", "c++", "-pedantic", "-Wpadded"],
    # C++ headers have classes of the standard library in them, whose padding is theirs.
    "c++ only": [CXX, "-std=c++20", "-x", "c++"],
}


def languages_of(header):
    return ["c", "c++"] if header.suffix == ".h" and is_c(header) else ["c++ only"]


def is_c(header):
    return "(C++)" not in header.read_text().split("#pragma once")[0] and "#pragma once" not in header.read_text()


def compile_alone(header, language):
    name = header.relative_to(ROOT)
    command = LANGUAGES[language] + STRICT + ["-fsyntax-only", f"-I{ROOT}", "-"]
    result = subprocess.run(command, input=f"#include <{name}>\n", capture_output=True, text=True)
    return [f"{name} does not compile alone ({' '.join(command)}):\n{result.stderr}"] if result.returncode else []


def foreign_includes(header):
    errors = []
    for form, target in re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', header.read_text(), flags=re.M):
        standard = form == "<" and ((re.fullmatch(r"[a-z_]+", target) and not is_c(header)) or target in C_STANDARD_HEADERS)
        ours = (form == "<" and target.startswith("tutti/") and (ROOT / target).is_file()) or (
            form == '"' and (header.parent / target).is_file())
        if not standard and not ours and target not in OF_OTHERS.get(str(header.relative_to(ROOT)), ()):
            errors.append(f"{header.relative_to(ROOT)} includes {form}{target}: neither a standard nor a Tutti header")
    return errors


headers = sorted(path for path in ROOT.rglob("*") if path.suffix in (".h", ".hpp"))
expected = {"tutti/tutti.h", "tutti/tutti.hpp", "tutti/schedule.h", "tutti/registry.h", "tutti/plugin/types.h"}
missing = expected - {str(path.relative_to(ROOT)) for path in headers}
errors = [f"{name} is missing below {ROOT}" for name in missing]
for header in headers:
    if header.parent.name == "plugin" and not (header.suffix == ".h" and is_c(header)):
        errors.append(f"{header.relative_to(ROOT)} is not a C header: the plugin ABI is pure C")
    errors += foreign_includes(header)
    name = str(header.relative_to(ROOT))
    for language in languages_of(header) if name not in OF_OTHERS and (not CHOSEN or name in CHOSEN) else []:
        errors += compile_alone(header, language)
print("\n".join(errors) if errors else f"{len(headers) - len(OF_OTHERS)} headers compile alone")
sys.exit(1 if errors else 0)
