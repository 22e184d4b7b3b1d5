#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""dependency_test.py SOURCE_DIR: the dependency law over every source file of the workspace.

  plugins (plugins/*, net-*, cuda-kernels)  <tutti/plugin/...>, <tutti/sdk/...>, their own files, system libraries
                                            (conformance/mutants/plugin is one as well)
  plugins/sdk                               <tutti/plugin/...> and its own files
  core                                      its own files, and never a plugin's header or the SDK, but for bootstrap's
  core/schedule                             <tutti/plugin/...>, <tutti/schedule.h> and its own files: nothing of core/src;
                                            of its files the rest of core includes "schedule/..." only, tests any
  core/simulation                           the same and <tutti/simulation.hpp>
  core/gradients                            the core's public headers and its own files; its tests core/tests/harness too
  core/bootstrap                            <tutti/plugin/...>, <tutti/sdk/basic_tls.hpp>, <tutti/sdk/basic_stream.hpp> and
                                            <tutti/sdk/file_descriptor.hpp>, by which control and data connections treat
                                            sockets and certificates alike, <tutti/sdk/text.hpp>, <tutti/sdk/name_list.hpp>,
                                            <tutti/sdk/system_text.hpp>, <tutti/sdk/host_identity.hpp> and
                                            <tutti/sdk/unnamed_file.hpp>, by which core and plugins read numbers and lists of
                                            names, name errors, tell hosts apart and make memory files alike, and its own files;
                                            otherwise as core/schedule
  tools, conformance                        the core's public headers; tools <tutti/sdk/text.hpp>, by which they read numbers as
                                            core and plugins do; tools/python/src/algorithms.cpp, which makes a plugin of an
                                            algorithm in Python, <tutti/sdk/algorithm.hpp> as well
  tests of plugins                          may use <tutti/schedule.h> as well
  tests of any member                       may use <tutti/sdk/time_scale.hpp> and, of core/tests, the virtual clock
                                            "harness/virtual_time/virtual_time.hpp", which include nothing
and nobody names a file of another member.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1]).resolve()
SOURCES = {".c", ".h", ".cc", ".cpp", ".hpp", ".cu", ".cuh", ".inc"}
PUBLIC = ["tutti/tutti.h", "tutti/memory.h", "tutti/reports.h", "tutti/tutti.hpp", "tutti/calls.hpp",
          "tutti/unequal_calls.hpp", "tutti/elements.hpp",
          "tutti/operators.hpp", "tutti/float8.hpp", "tutti/mpi.h", "tutti/mpi.hpp", "tutti/schedule.h",
          "tutti/simulation.hpp", "tutti/registry.h",
          "tutti/flight_record.h", "tutti/trace.h", "tutti/gradients.h", "tutti/gradients.hpp", "tutti/topology.hpp"]
ABI, SDK = "tutti/plugin/", "tutti/sdk/"
PYTHON_ALGORITHMS = pathlib.Path("tools/python/src/algorithms.cpp")
TIME_SCALE = "tutti/sdk/time_scale.hpp"
TEXT = "tutti/sdk/text.hpp"
VIRTUAL_TIME = "harness/virtual_time/virtual_time.hpp"
OF_THE_SDK = ["tutti/sdk/basic_tls.hpp", "tutti/sdk/basic_stream.hpp", "tutti/sdk/file_descriptor.hpp", "tutti/sdk/system_text.hpp",
              TEXT, "tutti/sdk/name_list.hpp", "tutti/sdk/host_identity.hpp", "tutti/sdk/unnamed_file.hpp"]
LIBRARIES = {"bootstrap": OF_THE_SDK, "schedule": ["tutti/schedule.h"],
             "simulation": ["tutti/schedule.h", "tutti/simulation.hpp"], "gradients": PUBLIC}  # within core: what they may include of core/include besides the ABI


def members():
    """Folders that are members: those with a CMakeLists.txt at depth one, and below plugins/ at depth two."""
    found = []
    for path in sorted(ROOT.glob("*/CMakeLists.txt")) + sorted(ROOT.glob("plugins/*/CMakeLists.txt")):
        folder = path.parent.relative_to(ROOT)
        if not str(folder).startswith("build") and str(folder) != "plugins":
            found.append(folder)
    return found


def allowed(member, file):
    """The <tutti/...> headers that a file may include, as prefixes."""
    name = str(member)
    if name == "plugins/sdk":
        return [ABI, SDK]
    if name.startswith(("plugins/", "net-", "cuda")):
        is_test = "tests" in file.relative_to(ROOT / member).parts or file.stem.endswith("_test")
        return [ABI, SDK, "tutti/schedule.h"] if is_test else [ABI, SDK]
    if file.relative_to(ROOT).parts[:3] == ("conformance", "mutants", "plugin"):
        return [ABI, SDK]
    if file.relative_to(ROOT) == PYTHON_ALGORITHMS:
        return [ABI, "tutti/sdk/algorithm.hpp"] + PUBLIC
    if name == "tools":
        return [ABI, TEXT] + PUBLIC + for_tests(file)
    return [ABI] + PUBLIC + (OF_THE_SDK if library(file) == "bootstrap" else []) + for_tests(file)


def for_tests(file):
    return [TIME_SCALE] if "tests" in file.relative_to(ROOT).parts else []


def library(file):
    """The library within core that a file belongs to, or None."""
    parts = file.relative_to(ROOT).parts
    return parts[1] if parts[0] == "core" and len(parts) > 2 and parts[1] in LIBRARIES else None


def judge_library(file, form, target):
    """What is wrong with an include of a file of a library within core, or of one into it; or None."""
    mine = library(file)
    if mine and form == "<" and target.startswith("tutti/"):
        prefixes = [ABI] + LIBRARIES[mine] + for_tests(file)
        return None if any(target.startswith(p) for p in prefixes) else f"allowed are {', '.join(prefixes)}"
    if form != '"':
        return None
    folders = [file.parent] + [ROOT / "core" / name / "include" for name in LIBRARIES] + [ROOT / "core/src"]
    found = next((path for path in ((f / target).resolve() for f in folders) if path.is_file()), None)
    if found is None:
        return None
    theirs = library(found)
    if mine and theirs != mine:
        return f"core/{mine} stands by itself"
    inner = theirs and not found.is_relative_to(ROOT / "core" / theirs / "include")
    tests = {"tests", "fuzz", "benches"} & set(file.relative_to(ROOT).parts)
    return f"only core/{theirs}/include is for others" if inner and theirs != mine and not tests else None


def own_file(member, file, target):
    """Does a quoted include name a file of the same member, beside the including one or below one of its folders?"""
    home = ROOT / member
    beside = (file.parent / target).resolve()
    if beside.is_file() or ".." in target:
        return beside.is_file() and beside.is_relative_to(home)
    return any(str(path).endswith(f"/{target}") for path in NAMED[member].get(pathlib.Path(target).name, ()))


def judge(member, file, form, target):
    """What is wrong with one include, or None."""
    if form == '"' and target == VIRTUAL_TIME and for_tests(file):
        return None
    if form == '"':
        # A generated file is found in no member.
        known = any(pathlib.Path(target).name in named for named in NAMED.values())
        return "a file of another member" if known and not own_file(member, file, target) else None
    if target.startswith("tutti/"):
        prefixes = allowed(member, file)
        return None if any(target.startswith(prefix) for prefix in prefixes) else f"allowed are {', '.join(prefixes)}"
    if ".." in target or "/src/" in target:
        return "a path into another folder"
    return None


errors, files = [], 0
every_member = members()
NAMED = {member: {} for member in every_member}  # of each member: its paths by their last part
for member, named in NAMED.items():
    for path in (ROOT / member).rglob("*"):
        named.setdefault(path.name, []).append(path)
for member in every_member:
    inner = [other for other in every_member if other != member and str(other).startswith(f"{member}/")]
    for file in sorted((ROOT / member).rglob("*")):
        relative = file.relative_to(ROOT)
        if file.suffix not in SOURCES or any(relative.is_relative_to(other) for other in inner):
            continue
        files += 1
        for number, line in enumerate(file.read_text().splitlines(), 1):
            include = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
            wrong = include and (judge(member, file, include[1], include[2])
                                 or (str(member) == "core" and judge_library(file, include[1], include[2])))
            if wrong:
                errors.append(f"{relative}:{number}: {include[0].strip()}: against the dependency law: {wrong}")
if files == 0:
    errors.append(f"no source files below {ROOT}")
print("\n".join(errors) if errors else f"{files} files of {len(every_member)} members keep the dependency law")
sys.exit(1 if errors else 0)
