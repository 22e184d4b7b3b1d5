# SPDX-License-Identifier: Apache-2.0
"""The command line of tools/compare-peers."""
import argparse
import datetime
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from contestants import PACKAGES, Absent, Programs, contestants, ucx_version
from machine import machine
from plot import picture
from report import document, groups, rows, summary, tables, written
from runs import measure_all

COLLECTIVES = ["broadcast", "reduce", "all_reduce", "gather", "all_gather", "scatter", "reduce_scatter", "all_to_all",
               "barrier"]
ROOT = Path(__file__).resolve().parent.parent.parent


def size(text):
    units = {"K": 10, "M": 20, "G": 30}
    try:
        value = int(text.rstrip("KMG")) << units.get(text[-1:], 0)
    except ValueError:
        raise argparse.ArgumentTypeError(f'expected bytes like 8, 64K or 256M, not "{text}"') from None
    if value < 8:
        raise argparse.ArgumentTypeError(f"expected at least 8 bytes, not {text}")
    return value


def whole(least):
    def number(text):
        if not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f'expected a whole number of at least {least}, not "{text}"')
        return int(text)
    return number


def several(kind):
    return lambda text: [kind(one) for one in text.split(",")]


def one_of(choices):
    def choose(text):
        if text not in choices:
            raise argparse.ArgumentTypeError(f'"{text}" is not among {", ".join(choices)}')
        return text
    return choose


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="compare-peers", description="Measures Tutti beside Open MPI, MPICH and Gloo, in turn, with processes pinned alike. "
        "Installs those from Debian's packages when they are absent (needs root or sudo).")
    parser.add_argument("-b", type=size, default=8, metavar="SIZE", help="smallest total size in bytes (8)")
    parser.add_argument("-e", type=size, default=256 << 20, metavar="SIZE", help="largest total size (256M)")
    parser.add_argument("-f", type=whole(2), default=4, metavar="FACTOR", help="from one size to the next (4)")
    parser.add_argument("--ranks", type=several(whole(2)), default=[2, 4, 8], metavar="N,...", help="numbers of ranks (2,4,8)")
    parser.add_argument("--transports", type=several(one_of(["shm", "tcp"])), default=["shm", "tcp"], metavar="T,...",
                        help="shm, tcp (both)")
    parser.add_argument("--collectives", type=several(one_of(COLLECTIVES)), default=COLLECTIVES, metavar="C,...",
                        help="by Tutti's names (all nine)")
    parser.add_argument("--modes", type=several(one_of(["constant", "rewritten"])), default=["constant", "rewritten"],
                        metavar="M,...", help="constant input, or input rewritten before each call (both)")
    parser.add_argument("--libraries", type=several(one_of(list(PACKAGES))), default=list(PACKAGES), metavar="L,...",
                        help="the peers: openmpi, mpich, gloo (all)")
    parser.add_argument("--rounds", type=whole(1), default=3, help="how often everything is measured, in turn (3)")
    parser.add_argument("--milliseconds", type=whole(1), default=40, help="for one point of one contestant in a round (40)")
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="Tutti's build folder (build)")
    parser.add_argument("--no-install", action="store_true", help="leave out what is not installed")
    parser.add_argument("-o", type=Path, default=None, metavar="FOLDER", help="where the results go (BUILD/compare)")
    options = parser.parse_args(arguments)
    if options.e < options.b:
        parser.error(f"-e {options.e} is below -b {options.b}")
    options.sizes = []
    at = options.b
    while at <= options.e:
        options.sizes.append(at)
        at *= options.f
    options.build = options.build.resolve()
    options.o = (options.o or options.build / "compare").resolve()
    return options


def install(libraries):
    """What is missing is said and left out: a comparison with fewer peers is still one."""
    wanted = [package for library in libraries for package in PACKAGES[library]]
    with tempfile.NamedTemporaryFile("w", suffix=".packages") as listed:
        listed.write("\n".join(wanted) + "\n")
        listed.flush()
        subprocess.run([ROOT / "tools/install-packages", listed.name], check=False)


def command_line(arguments):
    """As it was typed, without the options that name folders of this machine and change nothing that is measured."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--build")
    parser.add_argument("-o")
    parser.add_argument("--no-install", action="store_true")
    return shlex.join(["tools/compare-peers", *parser.parse_known_args(arguments)[1]])


def commit(folder):
    """Of the tree that `folder` is in; "-dirty" behind it: with changes. "": of none."""
    told = subprocess.run(["git", "-C", folder, "describe", "--always", "--dirty", "--exclude", "*"], capture_output=True,
                          text=True)
    return told.stdout.strip()


def about(arguments, plan):
    """What a reader of the figures has to know beside them; report.document() adds the figures."""
    return {"date": datetime.date.today().isoformat(), "machine": machine(), "command": command_line(arguments),
            "rounds": plan.rounds, "commit": commit(plan.build), "load_before": round(os.getloadavg()[0], 2)}


def versions(libraries, programs):
    told = {library: programs.version(library) for library in libraries}
    return {**told, "ucx": ucx_version()} if ucx_version() else told


def main(arguments):
    plan = parse(arguments)
    facts = about(arguments, plan)

    def say(text):
        print(text, file=sys.stderr, flush=True)

    if facts["load_before"] > 0.5:
        say(f"compare-peers: the machine is busy (load {facts['load_before']:.1f}): ratios mean less than on an idle one")
    if not plan.no_install:
        install(plan.libraries)
    try:
        plan.o.mkdir(parents=True, exist_ok=True)
    except OSError as why:
        say(f"compare-peers: {plan.o} cannot be made: {why.strerror}")
        return 1
    programs = Programs(plan.o / "programs", plan.build)
    field = {}
    for transport in plan.transports:
        field[transport] = []
        for contestant in contestants(transport):
            if contestant.library not in ["tutti", *plan.libraries]:
                continue
            try:
                programs.of(contestant.library)
                field[transport].append(contestant)
            except Absent as why:
                say(f"compare-peers: {contestant.name} over {transport} takes no part: {why}")
                if contestant.library == "tutti":
                    return 1
    try:
        facts["versions"] = versions(dict.fromkeys(one.library for some in field.values() for one in some), programs)
    except Absent as why:
        say(f"compare-peers: {why}")
        return 1
    results = measure_all(plan, field, programs, say)
    all_rows = rows(results)
    (plan.o / "compare.json").write_text(written(document(results, all_rows, facts)))
    (plan.o / "compare.md").write_text(tables(all_rows))
    for (ranks, transport), part in groups(all_rows, lambda row: (row.ranks, row.transport)):
        if drawn := picture(f"{ranks} ranks over {transport}", part):
            (plan.o / f"compare-{ranks}-{transport}.svg").write_text(drawn)
    print(tables(all_rows))
    for (ranks, transport, collective, name), why in results.reasons.items():
        print(f"{name}, {ranks} ranks over {transport}, {collective}: {why}")
    for line in summary(all_rows):
        print(line)
    print(f"{plan.o}/compare.json, compare.md, and pictures where a peer took part")
    failed = [key for key in results.reasons if key[3].startswith("tutti")]
    return 1 if failed else 0
