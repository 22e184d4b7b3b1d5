# SPDX-License-Identifier: Apache-2.0
"""The command line of tools/compare-peers."""
import argparse
import datetime
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import busy
import cores
import goals
import parts
from contestants import contestants
from machine import machine
from parts import COLLECTIVES, MIB, MODES, TRANSPORTS
from peers import LIBRARIES, Absent, Programs, install, ucx_version
from plot import picture
from report import document, groups, rows, summary, tables, written
from runs import measure_all

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


def _parser():
    parser = argparse.ArgumentParser(
        prog="compare-peers", description="Measures Tutti beside Open MPI, MPICH, Intel MPI and Gloo, in turn, with "
        "processes pinned alike. Installs those when they are absent: Debian's packages (needs root or sudo), and wheels of "
        "PyPI in virtual environments of their own.")
    parser.add_argument("-b", type=size, default=8, metavar="SIZE", help="smallest total size in bytes (8)")
    parser.add_argument("-e", type=size, default=256 * MIB, metavar="SIZE", help="largest total size (256M)")
    parser.add_argument("-f", type=whole(2), metavar="FACTOR", help="measure every size from -b on in these steps, for "
                        "each number of ranks, transport and collective; without it a table of sizes (parts.py)")
    parser.add_argument("--full", action="store_true",
                        help="the same with -f 4, with all settings of all peers, 3 rounds: hours")
    parser.add_argument("--ranks", type=several(whole(2)), metavar="N,...", help="only these numbers of ranks (2,4,8)")
    parser.add_argument("--transports", type=several(one_of(TRANSPORTS)), metavar="T,...", help="only these: shm, tcp")
    parser.add_argument("--collectives", type=several(one_of(COLLECTIVES)), metavar="C,...",
                        help="only these, by Tutti's names")
    parser.add_argument("--modes", type=several(one_of(MODES)), metavar="M,...",
                        help="only this input: constant, or rewritten before each call")
    parser.add_argument("--libraries", type=several(one_of(LIBRARIES)), default=list(LIBRARIES), metavar="L,...",
                        help=f"only these peers: {', '.join(LIBRARIES)}")
    parser.add_argument("--minutes", type=whole(1), default=10,
                        help="after the second round, start none that would end later (10)")
    parser.add_argument("--rounds", type=whole(1), help="how often everything is measured, however long it takes")
    parser.add_argument("--milliseconds", type=whole(1), default=10,
                        help="for one point of one contestant in a round (10)")
    parser.add_argument("--busy", type=whole(1), metavar="N", help="instead measure the median and the 99th percentile of 8 "
                        "bytes, with and without N foreign programs that keep the first N cores busy")
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="Tutti's build folder (build)")
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="where wheels are installed (BUILD/peers)")
    parser.add_argument("--no-install", action="store_true", help="leave out what is not installed")
    parser.add_argument("-o", type=Path, metavar="FOLDER", help="where the results go (BUILD/compare)")
    return parser


def parse(arguments):
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.e < options.b:
        parser.error(f"-e {options.e} is below -b {options.b}")
    options.usual = not options.full
    listed = parts.USUAL
    if options.full or options.f or not set(options.ranks or []) <= set(parts.RANKS):
        listed = parts.everything(parts.steps(options.b, options.e, options.f or 4), options.ranks or parts.RANKS)
    options.parts = parts.restricted(listed, options.ranks, options.transports, options.collectives, options.modes,
                                     options.b, options.e)
    if not options.parts:
        parser.error("nothing is left to measure: the usual run has no such points; -f 4 measures every size from -b to -e")
    if options.full and not options.rounds:
        options.rounds = 3
    options.build = options.build.resolve()
    options.peers = (options.peers or options.build / "peers").resolve()
    options.o = (options.o or options.build / "compare").resolve()
    return options


def command_line(arguments):
    """As it was typed, without the options that name folders of this machine and change nothing that is measured."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--build")
    parser.add_argument("--peers")
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
            "commit": commit(plan.build), "load_before": round(os.getloadavg()[0], 2)}


def versions(libraries, programs):
    told = {library: programs.version(library) for library in libraries}
    return {**told, "ucx": ucx_version()} if ucx_version() else told


def entrants(plan, programs, say):
    """The contestants by transport. Throws Absent if Tutti is not among them."""
    field = {}
    for transport in dict.fromkeys(part.transport for part in plan.parts):
        field[transport] = []
        for contestant in contestants(transport):
            if contestant.library not in ["tutti", *plan.libraries] or (plan.usual and not contestant.usual):
                continue
            try:
                programs.of(contestant.library)
                field[transport].append(contestant)
            except Absent as why:
                if contestant.library == "tutti":
                    raise
                say(f"compare-peers: {contestant.name} over {transport} takes no part: {why}")
    return field


def write_comparison(plan, results, facts):
    """The files, and what is printed."""
    all_rows = rows(results)
    found = goals.verdicts(all_rows, facts["machine"]["cores"])
    apart = goals.not_comparable(all_rows, facts["machine"]["cores"])
    standing = goals.report(found, apart)
    met = cores.sentence(results)
    (plan.o / "compare.json").write_text(written({**document(results, all_rows, facts), **goals.document(found, apart)}))
    (plan.o / "compare.md").write_text((f"{met}\n\n" if met else "") + tables(all_rows) + "\n" + standing)
    for (ranks, transport), part in groups(all_rows, lambda row: (row.ranks, row.transport)):
        if drawn := picture(f"{ranks} ranks over {transport}", part):
            (plan.o / f"compare-{ranks}-{transport}.svg").write_text(drawn)
    print(standing)
    for (ranks, transport, name, why), some in groups(results.reasons.items(),
                                                      lambda one: (*one[0][:2], one[0][3], one[1])):
        print(f"{name}, {ranks} ranks over {transport}, {', '.join(key[2] for key, _ in some)}: {why}")
    for line in [*summary(all_rows), *([met] if met else [])]:
        print(line)
    print(f"{plan.o}/compare.json, compare.md, and pictures where a peer took part")
    return 1 if any(key[3].startswith("tutti") for key in results.reasons) else 0


def write_busy(plan, told, facts):
    text = busy.table(told, plan.busy) + "".join(f"\n{line}\n" for line in busy.verdict(told))
    document_of_all = {"format": busy.FORMAT, **facts, "busy": plan.busy, "points": told}
    (plan.o / "busy.json").write_text(json.dumps(document_of_all, indent=1))
    (plan.o / "busy.md").write_text(text)
    print(text)
    print(f"{plan.o}/busy.json, busy.md")
    return 1 if any(one["contestant"] == "tutti" and one["reason"] for one in told) else 0


def main(arguments):
    plan = parse(arguments)
    facts = about(arguments, plan)

    def say(text):
        print(text, file=sys.stderr, flush=True)

    if facts["load_before"] > 0.5:
        say(f"compare-peers: the machine is busy (load {facts['load_before']:.1f}): ratios mean less than on an idle one")
    if not plan.no_install:
        install(plan.libraries, plan.peers, say)
    try:
        plan.o.mkdir(parents=True, exist_ok=True)
    except OSError as why:
        say(f"compare-peers: {plan.o} cannot be made: {why.strerror}")
        return 1
    programs = Programs(plan.o / "programs", plan.build, plan.peers, dict(os.environ))
    try:
        field = entrants(plan, programs, say)
        facts["versions"] = versions(dict.fromkeys(one.library for some in field.values() for one in some), programs)
    except Absent as why:
        say(f"compare-peers: {why}")
        return 1
    if plan.busy:
        return write_busy(plan, busy.measure_busy(plan, field, programs, say), facts)
    results, facts["rounds"] = measure_all(plan, field, programs, say)
    return write_comparison(plan, results, facts)
