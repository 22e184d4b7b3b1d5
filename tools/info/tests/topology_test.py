#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""topology_test.py TUTTI_INFO TUTTI_PLAN FOLDER: topology files. A job's is saved and read again; those of FOLDER are for ranks
that are not there; a file that lies is refused by its words."""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

INFO, PLAN, FOLDER = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
failures = []


def run(*arguments):
    return subprocess.run([str(a) for a in arguments], capture_output=True, text=True, timeout=60)


def expect(what, condition, result):
    if not condition:
        failures.append(f"{what}: status {result.returncode}\n{result.stdout}{result.stderr}")


def chosen(file, collective, size):
    """The algorithm that is chosen, and the predicted microseconds of all candidates."""
    result = run(INFO, "--explain", collective, size, "--file", file)
    rows = [line.split() for line in result.stdout.splitlines()[2:] if "no candidate" not in line]
    expect(f"explain {collective} {size} for {file}", result.returncode == 0 and rows and "chosen" in result.stdout, result)
    return next((row[0] for row in rows if "chosen:" in row), ""), {row[0]: float(row[1]) for row in rows}


def check_choice(file, size, wanted):
    """The algorithm chosen for an all_reduce is `wanted`. Simulated, no candidate is more than a tenth faster; those predicted
    to take twice as long are left out."""
    name, costs = chosen(file, "all_reduce", size)
    simulated = {}
    for candidate in (c for c in costs if costs[c] <= 2 * costs.get(name, 0)):
        result = run(PLAN, "simulate", "all_reduce", candidate, "--topology", file, "--size", size, "--json")
        expect(f"simulate {candidate} {size} for {file}", result.returncode == 0, result)
        simulated[candidate] = json.loads(result.stdout)["seconds"] if result.returncode == 0 else 0
    if name != wanted or simulated[name] > 1.1 * min(simulated.values()):
        failures.append(f"{file}, {size}: chosen is {name}, expected {wanted}; predicted {costs}, simulated {simulated}")


def dealt_hosts(hosts, ranks_of_each):
    """Ranks that are dealt to hosts in turn, so that neighbours by number are never on one host; a slow network."""
    rank = {"cores": 64, "transports": [
        {"name": "shm", "reach": "host", "latency": 150, "bandwidth": 10_000_000_000},
        {"name": "tcp", "reach": "network", "latency": 7000, "bandwidth": 1_250_000_000}]}
    return {"tutti_topology": 1, "hosts": [{"name": f"host{h}", "ranks": [rank]} for _ in range(ranks_of_each) for h in range(hosts)]}


with tempfile.TemporaryDirectory() as place:
    saved, again, picture = (pathlib.Path(place) / name for name in ("ranks.json", "again.json", "ranks.svg"))

    # There and back.
    result = run(INFO, "--topology", "-n", "3", "--save", saved, "--svg", picture)
    expect("save", result.returncode == 0 and saved.exists(), result)
    shown = result.stdout
    result = run(INFO, "--topology", "--file", saved, "--save", again)
    expect("what was saved is shown alike", result.stdout == shown, result)
    expect("and saved alike", saved.read_text() == again.read_text(), result)
    expect("a picture", xml.parse(picture).getroot().tag.endswith("svg") and "rank 2" in picture.read_text(), result)
    direct = run(INFO, "--explain", "all_reduce", "64K", "-n", "3")
    result = run(INFO, "--explain", "all_reduce", "64K", "--file", saved)
    expect("the choice is that of the ranks themselves", result.stdout == direct.stdout, result)

    # 64 ranks on 8 hosts.
    islands = FOLDER / "islands.json"
    result = run(INFO, "--topology", "--file", islands, "--svg", picture)
    expect("64 ranks", result.returncode == 0 and "64 ranks on 8 hosts" in result.stdout, result)
    expect("are drawn", "rank 63" in picture.read_text() and "NUMA node 1" in picture.read_text(), result)
    result = run(PLAN, "verify", "all_reduce", "hierarchical", "--topology", islands)
    expect("are planned for", result.returncode == 0 and "between hosts" in result.stdout, result)
    result = run(PLAN, "simulate", "all_reduce", "hierarchical", "--topology", islands, "--size", "1M", "--json")
    expect("are simulated", result.returncode == 0 and json.loads(result.stdout)["ranks"] == 64, result)
    result = run(PLAN, "simulate", "all_reduce", "ring", "--topology", islands, "--network", islands)
    expect("one network, not two", result.returncode == 2 and "one of them" in result.stderr, result)

    # Hosts decide the choice. On islands ranks follow each other and hosts are powers of two: the first exchanges of
    # canonical_halving, with the nearest partner, stay inside a host, so it sends as little between hosts as hierarchical.
    check_choice(islands, "4M", "canonical_halving")
    check_choice(islands, "64K", "canonical_halving")
    dealt = pathlib.Path(place) / "dealt.json"
    dealt.write_text(json.dumps(dealt_hosts(3, 5)))
    check_choice(dealt, "64K", "hierarchical")
    check_choice(dealt, "4M", "hierarchical")
    name, costs = chosen(FOLDER / "two_hosts.json", "all_reduce", "64K")  # the core of a host is shared
    if name != "leaders":
        failures.append(f"2 hosts of 2 ranks and one core take {name} for all_reduce of 64 KiB: {costs}")
    name, costs = chosen(FOLDER / "two_hosts.json", "all_to_all", "32K")  # four messages of a host, or one
    if name != "hierarchical":
        failures.append(f"2 hosts of 2 ranks and one core take {name} for all_to_all of 32 KiB: {costs}")

    # Files that lie.
    good = json.loads(saved.read_text())
    bad = pathlib.Path(place) / "bad.json"

    def refused(words, change):
        made = copy.deepcopy(good)
        made = change(made) or made
        bad.write_text(made if isinstance(made, str) else json.dumps(made))
        info = run(INFO, "--topology", "--file", bad)
        plan = run(PLAN, "verify", "all_reduce", "ring", "--topology", bad)
        simulate = run(PLAN, "simulate", "all_reduce", "ring", "--topology", bad)
        for result, status in ((info, 1), (plan, 2), (simulate, 2)):
            told = all(part in result.stderr for part in ("bad.json: ", words, "docs/topology.md"))
            expect(f"refused: {words}", result.returncode == status and told, result)

    first = lambda file: file["ranks"][0]
    refused("not JSON", lambda file: "{")
    refused("tutti_topology", lambda file: "[]")
    refused("the format that this version reads", lambda file: file.update(tutti_topology=2))
    refused("ranks is missing", lambda file: file.pop("ranks") and None)
    refused("ranks: expected a list", lambda file: file.update(ranks=[]))
    refused("rank 0.cores is missing", lambda file: first(file).pop("cores") and None)
    refused("rank 0.cores: expected a whole number from 1 to 1048576, got 0",
            lambda file: first(file).update(cores=0))
    refused("rank 0.cores: expected a whole number from 1 to 1048576, got -1.5",
            lambda file: first(file).update(cores=-1.5))
    refused("rank 0.host: expected a text of at most 256 bytes without control characters, got 5",
            lambda file: first(file).update(host=5))
    refused("rank 0.transports[0].rails: expected a list of at most 64, got \"all\"",
            lambda file: first(file)["transports"][0].update(rails="all"))
    refused("rank 0.transports: expected transports of different names, got \"shm\"",
            lambda file: first(file).update(transports=[
                {"name": "shm", "reach": "host", "latency": 1, "bandwidth": 1} for _ in range(2)]))
    refused("rank 0: unknown key kores", lambda file: first(file).update(kores=1))
    refused("rank 0.numa: expected a node's number or null, got -1", lambda file: first(file).update(numa=-1))
    refused("rank 0.numa: expected a node's number or null, got 65536", lambda file: first(file).update(numa=65536))
    refused("rank 0.device: expected an object", lambda file: first(file).update(device="cuda"))
    refused("rank 0.device.kind: expected a text that is not empty", lambda file: first(file).update(device={"kind": "", "index": 0}))
    refused("rank 0.processors: expected hexadecimal digits, a bit for each processor, got \"0x1\"",
            lambda file: first(file).update(processors="0x1"))
    refused("rank 0.left out[0]: expected an object with \"name\", got 5", lambda file: first(file).update({"left out": [5]}))
    refused("rank 0.transports[0].reach: expected", lambda file: first(file)["transports"][0].update(reach="everywhere"))
    refused("rank 0.transports[0].bandwidth", lambda file: first(file)["transports"][0].update(bandwidth=0))
    refused("no transport connects rank", lambda file: first(file).update(host="elsewhere", transports=[
        {"name": "shm", "reach": "host", "latency": 1, "bandwidth": 1}]))
    refused("hosts[0].count", lambda file: file.update(hosts=[{"name": "a", "count": 0, "ranks": file["ranks"]}]))
    result = run(INFO, "--topology", "--file", pathlib.Path(place) / "none.json")
    expect("no file", result.returncode == 1 and "cannot read the topology file" in result.stderr, result)

print("\n".join(failures) or "topology files: all as expected")
sys.exit(bool(failures))
