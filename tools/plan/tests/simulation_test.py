#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""simulation_test.py TUTTI_PLAN: the plugins' schedules in networks, against closed formulas, and refusals.

Needs the algorithms plugin beside the library, else it is skipped (77).
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

plan = sys.argv[1]
folder = tempfile.TemporaryDirectory()
root = pathlib.Path(folder.name)
failures = []

LATENCY, BANDWIDTH, REDUCTION = 2e-6, 1e10, 3e10
SWITCH = {"network": "switch", "nic": {"latency": LATENCY, "bandwidth": BANDWIDTH}, "reduction": REDUCTION, "fragment": 0}


def network(description):
    path = root / "network.json"
    path.write_text(description if isinstance(description, str) else json.dumps(description))
    return ["--network", str(path)]


def plan_run(*arguments):
    return subprocess.run([plan, *map(str, arguments)], capture_output=True, text=True, timeout=60)


def simulate(description, collective, algorithm, ranks, *more):
    done = plan_run("simulate", collective, algorithm, "-n", ranks, *network(description), "--json", *more)
    if done.returncode != 0:
        failures.append(f"simulate {collective} {algorithm} -n {ranks}: status {done.returncode}: {done.stderr}")
        return None
    return json.loads(done.stdout)


def expect(condition, text):
    if not condition:
        failures.append(text)


def refused(words, description, *arguments):
    where = network(description) if description else ["--network", str(root / "none.json")]
    done = plan_run(*(arguments or ("simulate", "all_reduce", "ring", "-n", 8)), *where)
    expect(done.returncode == 2 and words in done.stderr.replace(str(root) + "/", ""),
           f"{description}: expected status 2 and \"{words}\", got {done.returncode} and: {done.stderr}")


# Latency, bytes and reductions of N bytes over n ranks. Where a round's blocks wrap around they are two messages, and
# what is there early goes first: halving and the all-gather by doubling may take longer by the share that is last.
def formulas():
    a, b, c = LATENCY, 1 / BANDWIDTH, 1 / REDUCTION
    for n in (2, 8, 64):
        rounds, part = math.log2(n), (n - 1) / n
        for size in (8 * n, 4096 * 64 * n):
            yield "all_reduce", "ring", n, size, 2 * (n - 1) * a + part * size * (2 * b + c)
            yield "all_reduce", "doubling", n, size, rounds * (a + size * (b + c))
            yield "all_reduce", "halving", n, size, 2 * rounds * a + part * size * (2 * b + c), 0.15
            yield "broadcast", "tree", n, size, rounds * (a + size * b)
            yield "reduce", "tree", n, size, rounds * (a + size * (b + c))
            yield "all_gather", "ring", n, size, (n - 1) * (a + size * b)
            yield "all_gather", "doubling", n, size, rounds * a + (n - 1) * size * b, 0.3
            yield "reduce_scatter", "ring", n, size, (n - 1) * (a + size * (b + c))
            yield "all_to_all", "direct", n, size, a + (n - 1) * size * b
        yield "barrier", "doubling", n, 0, rounds * a


def check_formulas():
    points = 0
    for collective, algorithm, n, size, expected, *slower in formulas():
        got = simulate(SWITCH, collective, algorithm, n, "--size", size, "--slices", 1)
        if got is None:
            continue
        points += 1
        # Direct has 16 steps in flight, so latency shows once in a while where messages are small.
        if algorithm == "direct" and size < 1 << 20 and n > 8:
            continue
        expect(-0.01 * expected <= got["seconds"] - expected <= max([0.01, *slower]) * expected,
               f"{algorithm} {collective}, {n} ranks, {size} bytes: expected {expected:.6g} s, got {got['seconds']:.6g}")
    return points


def check_conservation():
    for collective, algorithm, n in (("all_reduce", "ring", 12), ("all_to_all", "bruck", 9), ("all_reduce", "tree", 16)):
        got = simulate(SWITCH, collective, algorithm, n, "--size", "1M")
        for link in got["links"]:
            expect(link["bytes"] == got["bytes"], f"{algorithm} {collective}: {link['class']} carried {link['bytes']} "
                   f"bytes, {got['bytes']} were sent")
            expect(0 < link["utilisation"]["most"] <= 1 + 1e-9, f"{algorithm}: utilisation {link['utilisation']}")
        parts = sum(part["seconds"] for part in got["critical_path"]["parts"])
        expect(abs(parts - got["seconds"]) < 1e-6 * got["seconds"], f"the path's parts sum to {parts}, not {got['seconds']}")


# 16 hosts on two leaves: half of what each sends crosses, so a tree that is f times too narrow takes f times 8/15 of
# the time of a switch as soon as that is more than one.
def check_contention():
    big = ("all_to_all", "direct", 16, "--size", "4M", "--slices", 1)
    alone = simulate(SWITCH, *big)["seconds"]
    for factor in (1, 2, 4, 8):
        tree = dict(SWITCH, network="fat_tree", levels=[{"down": 8, "oversubscription": factor}, {"down": 2}])
        got = simulate(tree, *big)
        expected = max(1, factor * 8 / 15)
        expect(abs(got["seconds"] / alone - expected) < 0.15 * expected,
               f"oversubscribed by {factor}: expected {expected:.2f} times the time of a switch, got "
               f"{got['seconds'] / alone:.2f}")
        expect(factor < 4 or any("level 1" in part["what"] for part in got["critical_path"]["parts"]),
               f"oversubscribed by {factor}: the path names no link between the levels")


def check_placement():
    islands = dict(SWITCH, network="islands", ranks_per_host=8, nics_per_host=8,
                   inside={"latency": "0.2us", "bandwidth": "400 GB/s"})
    near = simulate(islands, "all_reduce", "hierarchical", 64, "--size", "64M")["seconds"]
    flat = simulate(islands, "all_reduce", "ring", 64, "--size", "64M")["seconds"]
    expect(near < flat / 2, f"on islands hierarchical takes {near} s and a ring {flat} s")
    block = simulate(dict(islands, nics_per_host=1), "all_reduce", "ring", 64, "--size", "64M")["seconds"]
    cyclic = simulate(dict(islands, nics_per_host=1, placement="cyclic"), "all_reduce", "ring", 64, "--size", "64M")
    expect(cyclic["seconds"] > 4 * block, f"a ring over cyclic ranks takes {cyclic['seconds']} s, over blocks {block} s")
    dragonfly = dict(SWITCH, network="dragonfly", hosts_per_router=2, routers_per_group=4,
                     local={"bandwidth": BANDWIDTH, "latency": "1us"}, **{"global": {"bandwidth": "1 GB/s", "latency": "5us"}})
    got = simulate(dragonfly, "all_to_all", "direct", 32, "--size", "1M")
    most = max(got["links"], key=lambda link: link["utilisation"]["most"])
    expect(most["class"] == "global", f"the busiest links of a dragonfly are {most['class']}")


def check_refusals():
    without = {key: value for key, value in SWITCH.items() if key != "nic"}
    refused("network.json: not JSON", "{")
    refused("network.json: network: expected \"switch\"", dict(SWITCH, network="torus"))
    refused("network.json: nic is missing", without)
    refused("network.json: unknown key nics; known here are", dict(SWITCH, nics=2))
    refused("unknown key nic.speed; known in nic are bandwidth, latency", dict(SWITCH, nic={"bandwidth": 1, "speed": 1}))
    refused("nic.bandwidth: expected a bandwidth above 0", dict(SWITCH, nic={"bandwidth": -1}))
    refused("nic.bandwidth: expected a bandwidth above 0", dict(SWITCH, nic={"bandwidth": "10 GB"}))
    refused("nic.latency: expected a time of at least 0", dict(SWITCH, nic={"bandwidth": 1, "latency": -1e-6}))
    refused("ranks_per_host: expected a whole number from 1", dict(SWITCH, ranks_per_host=0))
    refused("inside is missing", dict(SWITCH, ranks_per_host=2))
    refused("ranks_per_host is missing", dict(SWITCH, network="islands"))
    refused("nics_per_host: expected at most ranks_per_host, 1", dict(SWITCH, nics_per_host=2))
    refused("placement: expected \"block\" or \"cyclic\"", dict(SWITCH, placement="random"))
    refused("levels: expected a list of objects", dict(SWITCH, network="fat_tree", levels=[]))
    refused("levels[0].down is missing", dict(SWITCH, network="fat_tree", levels=[{}]))
    refused("8 ranks need 8 hosts of 1, the network has 4", dict(SWITCH, hosts=4))
    refused("8 ranks need 8 hosts of 1, the network has 6", dict(SWITCH, network="fat_tree", levels=[{"down": 3}, {"down": 2}]))
    refused("cannot read the network file \"none.json\": No such file", None)
    refused("--size \"-1\": expected a number of bytes", SWITCH, "simulate", "all_reduce", "ring", "--size=-1")
    refused("expected a multiple of an element's 4 bytes", SWITCH, "simulate", "all_reduce", "ring", "--size", 6)
    refused("--slices \"0\": expected a number from 1", SWITCH, "simulate", "all_reduce", "ring", "--slices", 0)
    refused("unknown collective", SWITCH, "simulate", "al", "ring")
    refused("tune compares", SWITCH, "simulate", "all_reduce", "ring", "-n", "1..4")
    refused("-n \"x\": expected how many ranks", SWITCH, "tune", "-n", "4,x")
    refused("--sizes \"4,\": expected sizes", SWITCH, "tune", "--sizes", "4,")


def check_pictures():
    done = plan_run("simulate", "all_reduce", "ring", "-n", 16, *network(SWITCH), "--svg", root / "links.svg")
    expect("critical path: " in done.stdout and "nic out" in done.stdout, f"the report lacks its parts: {done.stdout}")
    expect((root / "links.svg").read_text().count('class="cell') >= 32, "the picture lacks links")
    done = plan_run("tune", "all_reduce", "-n", "8,32", "--sizes", "8,1M", *network(SWITCH), "--plot", root / "plot.svg", "--json")
    winners = {(w["ranks"], w["block_bytes"]): w["algorithm"] for w in json.loads(done.stdout)["winners"]}
    expect(len(winners) == 4 and winners[32, 8] != "ring", f"the winners are {winners}")
    expect("all_reduce: time, 32 ranks" in (root / "plot.svg").read_text(), "the plot lacks a panel")
    done = plan_run("tune", "all_to_all", "-n", "64", "--sizes", "1K", "--most-steps", 9000, *network(SWITCH))
    expect("left out:" in done.stdout and "more than --most-steps" in done.stdout, f"nothing is left out: {done.stdout}")


if plan_run("print", "all_reduce", "ring", "-n", 4).returncode != 0:
    print("the algorithms plugin is not there")
    sys.exit(77)
points = check_formulas()
for check in (check_conservation, check_contention, check_placement, check_refusals, check_pictures):
    check()
print("\n".join(failures) if failures else f"{points} points keep to their formulas")
sys.exit(1 if failures else 0)
