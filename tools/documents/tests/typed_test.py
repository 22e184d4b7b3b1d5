#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""typed_test.py SOURCE BUILD [--all] [PAGE...]: the commands of the pages work as they stand.

Every line of indented code, and of ```sh, is a command; in a block with lines that begin with "$ " only these are, and the
others are what they print, shortened. A page is typed from top to bottom in one shell, in a fresh folder whose `build` is
the whole build, with the build's programs in PATH. A command that several pages have is typed once.

A command that is not typed here is named below, with the test that runs it. --all also types those that take minutes.
"""
import importlib.util
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

from documents_test import pages_of

SOURCE, BUILD = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
ALL = "--all" in sys.argv
ONLY = [argument for argument in sys.argv[3:] if argument != "--all"]

# The blocks ```sh of these pages are played by package.guide; ```sh with a name, on any page, by that test, fresh-root or wheel_test.py.
PLAYED = ("docs/plugin-guide.md", "docs/applications.md")
ELSEWHERE = {  # how a command begins: what runs it
    r"tools/quickstart": "builds everything anew; started by hand",
    r"tools/debian-packages": "tools/package/tests/fresh-root, and tools/check --full",
    r"cmake --build build": "was done before this test",
    r"tools/wheel": "tools/package/tests/wheel_test.py",
    r"pip install": "tools/package/tests/wheel_test.py",
    r"(python3 -m tutti\.run|build/bin/tuttirun|mpiexec) -n 4 (python3 )?program\.py": "jax_programs_test and python_mpi_test: a program of the reader's",
    r"python3 -m torch\.distributed\.flight_recorder": "torch_recorder_test",
    r"tools/torch-environment": "torch_environment_test has its options; the whole brings a gigabyte",
    r"cmake --preset release -DPython3_EXECUTABLE=": "python_choice_test has the choice; it would configure this build anew",
    r"source build/torch": "the folder of tools/torch-environment",
    r"\S*tutti-conform .*libtutti-mine.so": "package.vendor and package.guide: a plugin of the reader's",
    r"tutti-conform (--plugin line_sum\S+ --algorithm line-sum --report|verify-report (line_sum|mine)_report)": "conform_runner_test, conform_report_test",
    r"\S*tutti-conform (--)?mutants": "conformance.mutants",
    r"\S*tutti-conform (soak|fuzz --seconds|fuzz --only|fuzz --replay)": "conform.soak and conform.fuzz, and tools/check --full",
    r"\S*tutti-conform --level full --share": "a night; conform_runner_test has the shares",
    r"\S*tutti-conform --transport ib": "rdma_vm: needs adapters",
    r"\S*tutti-conform verify-report FOLDER \[": "conform_report_test",
    r"conformance/mutate/mutate": "conform.mutate",
    r"python3 -B tools/documents/tests/training_pictures": "documents.training_pictures",
    r"tuttirun .*gdb": "gdb, which is none of tools/packages",
    r"tutti-info --hang": "info.hang",
    r"build/tests/limits": "tools/check --full",
    r"tools/compare-peers": "compare.peers; the whole takes hours",
    r"tools/performance-page( --add .*)?$": "compare.page_program: it writes into the tree",
    r"net-ib/tests/rdma-": "rdma_vm",
    r"(cp -r plugins/template/transport|cmake -S \. -B build -DCMAKE_PREFIX_PATH=<)": "package.vendor",
    r"(tools/gpu-check|/tmp/bundle/gpu-check)": "a machine with a GPU",
    r"tools/launchers/one-node-slurm": "launched.slurm",
    r"(tools/netns/hosts.sh|ip netns|.*tuttirun .*--hosts-as-netns)": "netns.*: root, and one set of names for the whole host",
    r"(spack|mkdir ~/tutti-spack|cp tools/package/recipes/spack)": "nobody: tools/package/recipes/README.md says so",
}
LONG = (  # minutes, gigabytes, or a machine of one's own
    r"build/bin/tutti-conform$",
    r"\S*tutti-plan verify all all",
    r"\S*tutti-plan simulate .*-n 65536",
    r"\S*tutti-plan tune",
    r"\S*tutti-perf scan --threads 8",
    r"tuttirun .*tutti-perf all_reduce -b 8 -e 128M",
    r"tutti-doctor passport$",
    r"python3 -m tutti.run .*digits_ddp",
)
LONG_PAGES = ("docs/performance.md", "docs/performance/prose.md", "docs/pictures/README.md")
NEEDS = {  # how a command begins: what it needs, and whether that is there
    r"(chrt .*tools/torch/compare|tools/torch/compare|torchrun|.*digits_ddp|.*gloo.py)": ("torch", any((BUILD / "python/tutti/torch").glob("_core_*.so"))),
    r".*(tutti\.run|gloo=)": ("the Python package, or numpy", (BUILD / "python/tutti").is_dir() and bool(importlib.util.find_spec("numpy"))),
    r"(mpicc|mpirun|.*/tmp/(mpi|gloo))": ("Open MPI", bool(shutil.which("mpicc") and shutil.which("mpirun"))),
    r"chrt": ("a real-time priority", os.geteuid() == 0),
}
PLACEHOLDERS = {  # what the reader puts in
    "plugins/chaos/README.md": {"PROGRAM": "build/bin/softmax"},
    "tools/run/README.md": {"PROGRAM ARGUMENTS...": "build/bin/softmax"},
    "tools/trace/README.md": {"FOLDER": "traces", "MS --to MS": "0 --to 1000"},
    "tools/doctor/README.md": {"A.json B.json": "today.json today.json"},
    "docs/tracing.md": {"/tmp/traces": "traces"},
    "docs/pictures/README.md": {"/tmp/": "./"},
    "docs/performance.md": {"/tmp/": "./"},
    "conformance/README.md": {"CASE@SEED": "proof/broadcast/ring@1", "verify-report FOLDER": "verify-report report"},
    "conformance/report/README.md": {"FILE --junit FILE --html FILE ...": "a --junit b --html c --case proof/broadcast/ring",
                                     "--report FOLDER ...": "--report report --case proof/broadcast/ring",
                                     "--waivers FILE ...": "--waivers none.json --case proof/broadcast/ring"},
}
BEFORE = {  # what the page takes for granted
    "tools/trace/README.md": "mkdir traces; TUTTI_TRACE=traces build/bin/tuttirun -n 2 build/bin/softmax",
    "docs/pictures/README.md": "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PYTHONPATH=build/python",
    "docs/performance.md": "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PYTHONPATH=build/python",
    "conformance/report/README.md": """echo '{"schema": "tutti.conformance-waivers/1", "waivers": []}' >none.json""",
    "conformance/README.md": "tutti-conform --report report --case proof/broadcast/ring",
}
# Status 1 says that something was found: the machine's business, or a part of a submission.
MAY_FIND = r"(tuttirun -n 4 )?tutti-doctor( --json)?$|\S*tutti-conform verify-report report"


def commands(page):
    """(line, command) of the page's indented code and of its blocks ```sh. Lines that end with a backslash go on."""
    block, fence = [], None
    for number, line in enumerate((SOURCE / page).read_text().splitlines() + [""], 1):
        if line.startswith("```"):
            fence = line[3:].strip() if fence is None else None
        typed = line if fence == "sh" and page not in PLAYED else line[4:] if fence is None and line.startswith("    ") else None
        if typed is not None and not line.startswith("```"):
            if block and block[-1][1].endswith("\\"):
                block[-1] = (block[-1][0], block[-1][1] + "\n" + typed)
            else:
                block.append((number, typed))
        elif block and (line.strip() or fence is None):
            prompted = [(where, text[2:]) for where, text in block if text.startswith("$ ")]
            yield from prompted or block
            block = []


def starts(patterns, command):
    return [pattern for pattern in patterns if re.match(pattern, command)]


def to_type(page, known):
    """The commands of a page that are typed here, as a shell takes them, and those that are left out, with the reason."""
    typed, left = [], []
    for number, command in commands(page):
        bare = re.split(r"\s+#", command)[0].rstrip()  # without the remark
        missing = [NEEDS[pattern][0] for pattern in starts(NEEDS, bare) if not NEEDS[pattern][1]]
        if not bare or bare in known:
            continue
        if found := starts(ELSEWHERE, bare):
            left.append((number, bare, ELSEWHERE[found[0]]))
            seen.update(found)
        elif not ALL and (starts(LONG, bare) or page in LONG_PAGES):
            left.append((number, bare, "--all"))
        elif missing:
            left.append((number, bare, f"{missing[0]} is not here"))
        else:
            if not bare.startswith(("export", "cd", "mkdir", "source")):
                known.add(bare)
            for placeholder, value in PLACEHOLDERS.get(page, {}).items():
                bare = bare.replace(placeholder, value)
            if re.match(MAY_FIND, bare):
                bare += " || [ $? = 1 ]"
            typed.append((number, bare))
    return typed, left


def type_page(page, typed, folder):
    for name in ("build", "tools", "core", "conformance", "plugins"):
        (folder / name).symlink_to(BUILD if name == "build" else SOURCE / name)
    (folder / "docs/pictures").mkdir(parents=True)
    (folder / "bin").mkdir()
    # What belongs to the interpreter that the Python package is built for. Not links: they would lead out of an environment.
    for name in ("python3", "torchrun"):
        program = pathlib.Path(sys.executable) if name == "python3" else pathlib.Path(sys.executable).with_name(name)
        if program.exists() and not (BUILD / "bin" / name).exists():
            (folder / "bin" / name).write_text(f'#!/bin/sh\nexec {shlex.quote(str(program))} "$@"\n')
            (folder / "bin" / name).chmod(0o755)
    script = [BEFORE.get(page, "")]
    for number, command in typed:
        script += [f"echo {shlex.quote(f'{page}:{number}: {command}')}", command]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TUTTI_")}
    environment["PATH"] = f"{folder / 'bin'}:{BUILD / 'bin'}:{environment['PATH']}"
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", "\n".join(script)], cwd=folder, env=environment, text=True,
                          timeout=(3600 if ALL else 400) * float(os.environ.get("TUTTI_TEST_TIME_SCALE") or 1),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.exit(f"{done.stdout[-6000:]}\n{page}: the last of these commands ended with status {done.returncode}, expected 0")


known, seen, count = set(), set(), 0
for page in ONLY or pages_of(SOURCE):
    typed, left = to_type(page, known)
    with tempfile.TemporaryDirectory() as folder:
        if typed:
            type_page(page, typed, pathlib.Path(folder))
    count += len(typed)
    if typed or left:
        print(f"{page}: {len(typed)} commands typed", *(f"  {number}: {command.splitlines()[0]}: {why}" for number, command, why in left),
              sep="\n", flush=True)
if count == 0:
    sys.exit("no commands were found: is the pages' form still what this test reads?")
if not ONLY and seen != set(ELSEWHERE):
    sys.exit(f"no page has these any more, so this test need not leave them out: {sorted(set(ELSEWHERE) - seen)}")
