#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""dependency_test.py SOURCE_DIR: the dependency law over every source file of the workspace.

  plugins (plugins/*, net-*, cuda-kernels)  <tutti/plugin/...>, <tutti/sdk/...>, their own files, system libraries, and
                                            <tutti/trace.h>, the records of tracer/1
                                            (conformance/mutants/plugin is one as well)
  plugins/nccl-serve                        what plugins may use, and <tutti/registry.h>: it is loaded by NCCL and loads plugins
  plugins/sdk                               <tutti/plugin/...>, <tutti/sized.hpp>, <tutti/base/...>, <tutti/net/...> and its own
                                            files
  core                                      its own files, and nothing of plugins or of plugins/sdk; its crates in one order:
                                            each may include those above it in the list CRATES; of bootstrap and schedule
                                            others include what lies in include/, tests any file
  core/base/include, core/net/include       <tutti/plugin/...>, and net what base has: plugins use them by way of the SDK
  core/schedule                             <tutti/plugin/...>, <tutti/schedule.h>
  core/gradients                            the core's public headers, "kernels/codec.hpp" and its own files; its tests
                                            core/tests/harness too
  tools, conformance                        the core's public headers; tools <tutti/sdk/text.hpp>, by which they read numbers as
                                            core and plugins do; tools/python/src/algorithms.cpp, which makes a plugin of an
                                            algorithm in Python, <tutti/sdk/algorithm.hpp> as well
  conformance/contract/nccl                 <tutti/sdk/nccl_net.hpp> and <tutti/sdk/nccl_net_calls.hpp> as well
  tests of plugins                          may use <tutti/schedule.h> as well
  tests of any member                       may use <tutti/sdk/time_scale.hpp> and, of core/tests, the virtual clock
                                            "harness/virtual_time/virtual_time.hpp" and the threads without memory of
                                            "harness/scarce_memory.hpp", which include nothing
  conformance                               the library of tools that runs schedules, "simulation/simulation.hpp"; that library's test
                                            the schedules written by hand of core/schedule/tests, which need <tutti/schedule.h> alone
and nobody names a file of another member. What each crate of the core includes stands in docs/architecture.md, as it is.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1]).resolve()
SOURCES = {".c", ".h", ".cc", ".cpp", ".hpp", ".cu", ".cuh", ".inc"}
PUBLIC = ["tutti/tutti.h", "tutti/memory.h", "tutti/reports.h", "tutti/tutti.hpp", "tutti/calls.hpp",
          "tutti/unequal_calls.hpp", "tutti/elements.hpp",
          "tutti/operators.hpp", "tutti/float8.hpp", "tutti/mpi.h", "tutti/mpi.hpp", "tutti/schedule.h",
          "tutti/registry.h", "tutti/sized.hpp",
          "tutti/flight_record.h", "tutti/trace.h", "tutti/gradients.h", "tutti/gradients.hpp", "tutti/topology.hpp"]
ABI, SDK = "tutti/plugin/", "tutti/sdk/"
PYTHON_ALGORITHMS = pathlib.Path("tools/python/src/algorithms.cpp")
TIME_SCALE = "tutti/sdk/time_scale.hpp"
NCCL_NET = "tutti/sdk/nccl_net"  # the tables of NCCL's network plugins, which the suite calls as nccl-net does
EXACT_SUM = "tutti/sdk/exact_sum.hpp"  # one test compares the host's exact sums and those for devices
TEXT = "tutti/sdk/text.hpp"
TRACE = "tutti/trace.h"
CODEC = "kernels/codec.hpp"
FOR_ALL_TESTS = {"harness/virtual_time/virtual_time.hpp", "harness/scarce_memory.hpp"}
SIMULATION, BY_HAND = "simulation/simulation.hpp", "schedule_builder.hpp"
BASE, NET = "tutti/base/", "tutti/net/"  # of core and plugins alike
# The crates of the core. Each may include those above it.
CRATES = ["base", "net", "schedule", "registry", "kernels", "topology", "record", "bootstrap", "engine", "stream", "src"]
# The folders of crates that have any, in order likewise.
FOLDERS = {"engine": ["fabric", "choose", "plan", "check", "p2p", "host"], "src": ["comm", "api"]}
# Libraries within core that use only a part of core/include, besides the ABI.
LIBRARIES = {"schedule": ["tutti/schedule.h"], "gradients": PUBLIC}
WITH_A_FACE = ["bootstrap", "schedule"]  # crates whose folder include/ is for others, and src/ is not


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
        return [ABI, SDK, BASE, NET, "tutti/sized.hpp"]
    if name == "plugins/nccl-serve":
        return [ABI, SDK, "tutti/registry.h"]
    if name.startswith(("plugins/", "net-", "cuda")):
        is_test = "tests" in file.relative_to(ROOT / member).parts or file.stem.endswith("_test")
        return [ABI, SDK, TRACE] + (["tutti/schedule.h"] if is_test else [])
    if file.relative_to(ROOT).parts[:3] == ("conformance", "mutants", "plugin"):
        return [ABI, SDK]
    if file.relative_to(ROOT) == PYTHON_ALGORITHMS:
        return [ABI, "tutti/sdk/algorithm.hpp"] + PUBLIC
    if name == "tools":
        return [ABI, TEXT] + PUBLIC + for_tests(file)
    if file.is_relative_to(ROOT / "core/base/include") or file.is_relative_to(ROOT / "core/net/include"):
        return [ABI, BASE, NET]
    if file.is_relative_to(ROOT / "conformance/contract/nccl"):
        return [ABI, NCCL_NET] + PUBLIC
    return [ABI] + PUBLIC + ([BASE, NET] if name == "core" else []) + for_tests(file)


def for_tests(file):
    return [TIME_SCALE, EXACT_SUM] if "tests" in file.relative_to(ROOT).parts else []


def crate(file):
    """The crate or library of the core that a file belongs to, or None."""
    parts = file.relative_to(ROOT).parts
    return parts[1] if parts[0] == "core" and len(parts) > 2 and parts[1] in CRATES + list(LIBRARIES) else None


def judge_in_core(file, form, target):
    """What is wrong with an include by a file of the core, or None."""
    mine = crate(file)
    tests = bool({"tests", "fuzz", "benches"} & set(file.relative_to(ROOT / "core").parts))
    if form == "<":
        if mine in LIBRARIES and target.startswith("tutti/"):
            prefixes = [ABI] + LIBRARIES[mine] + for_tests(file)
            return None if any(target.startswith(p) for p in prefixes) else f"allowed are {', '.join(prefixes)}"
        shared = {BASE: "base", NET: "net"}.get(target[:target.find("/", len("tutti/")) + 1])
        if shared and mine in CRATES and not tests:
            USES[mine].add(shared)
        return f"core/{mine} stands above core/{shared}" if mine == "base" and shared == "net" else None
    folders = [file.parent, ROOT / "core"] + [ROOT / "core" / name / "include" for name in WITH_A_FACE] + [ROOT / "core/src"]
    found = next((path for path in ((f / target).resolve() for f in folders) if path.is_file()), None)
    theirs = crate(found) if found else None
    if not theirs or tests or (mine, target) == ("gradients", CODEC):
        return None
    if mine in CRATES and theirs in CRATES:
        USES[mine].add(theirs)
    if theirs == mine:
        order = FOLDERS.get(mine, [])
        here, there = (path.relative_to(ROOT / "core" / mine).parts[0] for path in (file, found))
        return (f"core/{mine}/{here} stands above {there}, which is for those below it"
                if here in order and there in order and order.index(there) > order.index(here) else None)
    if theirs in WITH_A_FACE and not found.is_relative_to(ROOT / "core" / theirs / "include"):
        return f"only core/{theirs}/include is for others"
    if mine in CRATES and theirs in CRATES and CRATES.index(theirs) > CRATES.index(mine):
        return f"core/{mine} stands above core/{theirs}, which is for those below it"
    return f"core/{mine} stands by itself" if mine in LIBRARIES or theirs not in CRATES else None


def own_file(member, file, target):
    """Does a quoted include name a file of the same member, beside the including one or below one of its folders?"""
    home = ROOT / member
    beside = (file.parent / target).resolve()
    if beside.is_file() or ".." in target:
        return beside.is_file() and beside.is_relative_to(home)
    return any(str(path).endswith(f"/{target}") for path in NAMED[member].get(pathlib.Path(target).name, ()))


def judge(member, file, form, target):
    """What is wrong with one include, or None."""
    if form == '"' and target in FOR_ALL_TESTS and for_tests(file):
        return None
    if form == '"' and (str(member), target) == ("conformance", SIMULATION):
        return None
    if form == '"' and target == BY_HAND and file.is_relative_to(ROOT / "tools/simulation/tests"):
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


def check_picture():
    """The table of crates in docs/architecture.md: what each includes, of those above it."""
    page = (ROOT / "docs/architecture.md").read_text()
    drawn = re.search(r"```text\ncrate +includes.*\n((?:.+\n)+?)```", page)
    expected = [[name] + [other for other in CRATES if other in USES[name] and other != name] for name in CRATES]
    if not drawn or [line.split() for line in drawn[1].splitlines()] != expected:
        errors.append("docs/architecture.md: the picture of the crates is not what they include, which is:\n"
                      + "\n".join(f"{name:11} {' '.join(others)}".rstrip() for name, *others in expected))


def check_sizes():
    """The table of crates in core/README.md says how many lines each has at most, without tests, benchmarks and fuzz targets."""
    rows = dict(re.findall(r"^\| \[`(\w+)/`\].*\| ([\d,]+) \|$", (ROOT / "core/README.md").read_text(), re.MULTILINE))
    for name in CRATES:
        lines = sum(len(file.read_text().splitlines()) for file in (ROOT / "core" / name).rglob("*")
                    if file.suffix in SOURCES and not {"tests", "benches", "fuzz"} & set(file.relative_to(ROOT).parts))
        most = int(rows.get(name, "0").replace(",", ""))
        if not most - 100 <= lines <= most:
            errors.append(f"core/README.md: {name} has {lines} lines, and the table of crates says at most {most}: make it smaller, "
                          f"or let the table say {-(-lines // 10) * 10}, and why in the commit")


errors, files = [], 0
USES = {name: set() for name in CRATES}
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
                                 or (str(member) == "core" and judge_in_core(file, include[1], include[2])))
            if wrong:
                errors.append(f"{relative}:{number}: {include[0].strip()}: against the dependency law: {wrong}")
if (ROOT / "docs").is_dir():  # what the pages say of the crates; a copy of some sources has none
    check_picture()
    check_sizes()
if files == 0:
    errors.append(f"no source files below {ROOT}")
print("\n".join(errors) if errors else f"{files} files of {len(every_member)} members keep the dependency law")
sys.exit(1 if errors else 0)
