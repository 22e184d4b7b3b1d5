#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""command_line_test.py TUTTI_DOCTOR TUTTIRUN: exit status and words of tutti-doctor, alone, launched, as passport."""
import json
import os
import pathlib
import resource
import socket
import subprocess
import sys
import tempfile

DOCTOR, TUTTIRUN = sys.argv[1:3]
CLEAN = {key: value for key,
         value in os.environ.items() if not key.startswith("TUTTI_") or key == "TUTTI_TEST_TIME_SCALE"}
SECRET = "00112233445566778899aabbccddeeff"
failures = []
folder = pathlib.Path(tempfile.mkdtemp(prefix="tutti-doctor-"))


def run(*command, limit=None, **environment):
    before = (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))) if limit else None
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=100, cwd=folder,
                          preexec_fn=before,
                          env={**CLEAN, **environment})


def expect(what, condition, result):
    if not condition:
        failures.append(f"{what}: status {result.returncode}\n{result.stdout}{result.stderr}")


def expect_refusal(arguments, words):
    result = run(DOCTOR, *arguments)
    expect(f"{arguments} should be refused with \"{words}\"", result.returncode == 2 and words in result.stderr, result)


def unlabelled(result):
    """The JSON that rank 0 printed under tuttirun."""
    return json.loads("\n".join(line[len("[0] "):] for line in result.stdout.splitlines()))


def found(report, name):
    return [finding for finding in report["findings"] if finding["name"] == name]


# One process.
result = run(DOCTOR, "--json")
report = json.loads(result.stdout)
expect("status follows from errors", result.returncode == (1 if report["errors"] else 0), result)
expect("one rank", len(report["ranks"]) == 1 and report["ranks"][0]["process"]["cpus"], result)
process = report["ranks"][0]["process"]
expect("transports", {"shm", "tcp"} <= set(process["transports"]), result)
expect("one that cannot serve is left out", "chaos" not in process["transports"]
       and "TUTTI_CHAOS_OVER" in process["idle_transports"]["chaos"], result)
result = run(DOCTOR, TUTTI_TRANSPRT="tcp", TUTTI_SECRET=SECRET)
expect("a misspelt setting", "WARNING TUTTI_TRANSPRT is set" in result.stdout
       and "did you mean TUTTI_TRANSPORT?" in result.stdout, result)
result = run(DOCTOR, "--json", TUTTI_SECRET=SECRET)
expect("the secret stays hidden", result.stdout and SECRET not in result.stdout, result)
result = run(DOCTOR, limit=30)
expect("few descriptors", result.returncode == 1
       and result.stdout.startswith("ERROR   this process may open 30 files"), result)
bad = folder / "libtutti-bad.so"
bad.write_text("this is no library")
result = run(DOCTOR, "--json", TUTTI_PLUGIN_PATH=str(bad))
expect("a plugin that is named and broken", result.returncode == 1 and found(json.loads(result.stdout),
                                                                             "plugin_refused"), result)
result = run(DOCTOR, TUTTI_TRANSPORT="nosuch")
expect("no communicator", result.returncode == 1 and result.stdout.startswith("ERROR   ")
       and "there is no transport \"nosuch\"" in result.stdout
       and "will be used" in result.stdout, result)

# Several.
result = run(TUTTIRUN, "-n", "3", DOCTOR, "--json")
lines = result.stdout.splitlines()
report = unlabelled(result)
expect("rank 0 alone reports", all(line.startswith("[0] ") for line in lines) and len(report["ranks"]) == 3, result)
expect("hosts", [host["ranks"] for host in report["hosts"]] == ["0-2"] and not report["links"], result)
environment = {"TUTTI_WORLD_SIZE": "2", "TUTTI_RENDEZVOUS": f"file:{folder}",
               "TUTTI_SECRET": SECRET}
other = subprocess.Popen([DOCTOR], env={**CLEAN, **environment, "TUTTI_RANK": "1", "TUTTI_LOG": "error"},
                         stdout=subprocess.PIPE, text=True)
result = run(DOCTOR, "--json", TUTTI_RANK="0", TUTTI_LOG="warn", **environment)
silent = other.communicate(timeout=100)[0]
expect("rank 1 says nothing", silent == "" and other.returncode == 0, result)
seen = [finding["seen"] for finding in found(json.loads(result.stdout), "setting_differs")]
expect("settings that differ", seen == ["TUTTI_LOG: \"error\" on ranks 1, \"warn\" on ranks 0"], result)
(folder / "empty").mkdir()
result = run(DOCTOR, TUTTI_RANK="1", TUTTI_CONNECT_TIMEOUT="1", **{**environment,
                                                                   "TUTTI_RENDEZVOUS": f"file:{folder}/empty"})
expect("nobody else came", result.returncode == 1 and result.stdout.startswith("ERROR   rank 1")
       and "cores" in result.stdout, result)

result = run(TUTTIRUN, "-n", "4", "--hosts-as-netns", "2", DOCTOR, "--json")
if result.stdout.startswith("[0] {"):
    report = unlabelled(result)
    tried = {(link["from"], link["to"]) for link in report["links"] if not link["problem"]}
    expect("two hosts reach each other", tried == {(0, 2), (2, 0)}, result)
    clocks = [clock["rank"] for clock in report["clocks"]]
    pairs = {(pair["from"], pair["to"], pair["transport"], pair["arrived"]) for pair in report["pairs"]}
    expect("large messages arrive", pairs == {(0, 2, "tcp", 131072), (2, 0, "tcp", 131072)}, result)
    expect("one clock is compared", clocks == [2] and not found(report, "clock"), result)
else:
    print("not tried: two hosts:", result.stderr.strip().splitlines()[-1:] or result.stdout)

# The same address on both hosts, as bridges of containers have it.
result = run(TUTTIRUN, "-n", "2", "--hosts-as-netns", "2", "bash", "-ec",
             "ip link add d0 type bridge; ip addr add 172.17.0.1/16 dev d0; "
             "ip link set d0 up; exec \"$0\" --json", DOCTOR)
if result.stdout.startswith("[0] {"):
    seen = [finding["seen"] for finding in found(unlabelled(result), "address_silent")]
    expect("a doubled address", len(seen) == 2 and all("172.17.0.1" in text
                                                       and "another host's" in text for text in seen), result)
else:
    print("not tried: a doubled address:", result.stderr.strip().splitlines()[-1:] or result.stdout)

# A network that drops large packets. Whatever else the ranks say to each other is small, so the verdict comes.
def over_a_black_hole(script):
    return run(TUTTIRUN, "-n", "3", "bash", "-c", "TUTTI_HOST_ID=host-$RANK exec \"$0\" --json", DOCTOR,
               TUTTI_TRANSPORT="chaos", TUTTI_CHAOS_OVER="tcp", TUTTI_CHAOS=script)


for script, words, carried in (("lose:min=512,count=0", ("rank 0 and rank 1", "rank 0 and rank 2", "rank 1 and rank 2"), set()),
                               ("lose:min=512,count=0,rank=1,peer=2", ("from rank 1 to rank 2",),
                                {(0, 1), (1, 0), (0, 2), (2, 0), (2, 1)})):
    if not any(name != "lo" for _, name in socket.if_nameindex()):
        print("not tried: a black hole: ranks on pretended hosts need an interface beside loopback")
        break
    result = over_a_black_hole(script)
    met = all(line.startswith("[0] ") for line in result.stdout.splitlines())  # else each rank reports for itself
    expect(f"the ranks meet over a black hole: {script}", met, result)
    if not met:
        continue
    report = unlabelled(result)
    seen = [finding["seen"] for finding in found(report, "large_packets_dropped")]
    expect(f"a black hole: {script}", result.returncode == 1 and len(seen) == 1
           and all(word in seen[0] for word in (*words, "8 bytes arrive, 128 KiB do not within 10 s", "over chaos")), result)
    pairs = {(pair["from"], pair["to"]): pair["arrived"] for pair in report["pairs"]}
    expect(f"every pair is tried: {script}", len(pairs) == 6
           and {pair for pair, arrived in pairs.items() if arrived > 8} == carried, result)

# Ranks that refuse each other: every one says why.
result = run(TUTTIRUN, "--survive", "-n", "3", "bash", "-c",
             "[ $RANK = 1 ] && export TUTTI_TRANSPORT=tcp; exec \"$0\"", DOCTOR)
told = [line for line in result.stdout.splitlines() if "ERROR   the ranks disagree about transports" in line]
expect("every rank tells the reason", result.returncode == 1 and len(told) == 3 and "will be used" in result.stdout,
       result)

# Passports.
result = run(DOCTOR, "passport", "--quick", "-o", "one")
passport = json.loads((folder / "one.json").read_text())
expect("a passport", result.returncode == 0 and len(passport["figures"]) == 9 and passport["quick"], result)
for figure in passport["figures"]:
    whole = "problem" in figure or (figure["best"] > 0 and figure["median"] > 0 and figure["samples"] >= 3)
    expect(f"{figure['name']} is measured or says why not", whole, result)
    expect(f"{figure['name']} is on the page", f"| {figure['name']} |" in (folder / "one.md").read_text(), result)
expect("memory is measured", "best" in passport["figures"][0], result)
result = run(DOCTOR, "compare", "one.json", "one.json")
expect("a passport and itself", result.returncode == 0 and "Nothing differs" in result.stdout, result)
passport["figures"][0]["best"] *= 0.7
del passport["figures"][3]
passport["host"]["kernel"] = "another"
(folder / "two.json").write_text(json.dumps(passport))
result = run(DOCTOR, "compare", "one.json", "two.json")
expect("a slower one", result.returncode == 1 and "0.70  B is WORSE" in result.stdout
       and "process_staged_copy      only A has it" in result.stdout
       and "/ \"another\"" in result.stdout, result)
result = run(DOCTOR, "compare", "two.json", "one.json")
expect("a faster one", result.returncode == 1 and "1.43  B is better" in result.stdout, result)
result = run(DOCTOR, "passport", "--quick", "-o", "nosuch/one")
expect("a folder that is not there", result.returncode == 1 and "nosuch/one.json cannot be written" in result.stderr,
       result)

expect_refusal(["--bogus"], "--bogus")
expect_refusal(["passport", "--json"], "--json")
expect_refusal(["--json", "passport"], "--json")
expect_refusal(["compare", "one.json"], "B is required")
expect_refusal(["compare", "one.json", "three.json"], "three.json")
expect_refusal(["compare", "one.json", "libtutti-bad.so"], "libtutti-bad.so is no passport")
for damaged in ('[]', '{"kind": "tutti performance passport"}', '{"kind": 5}', json.dumps({**passport,
                                                                                           "figures": [{"best": 1}]}),
                json.dumps({**passport, "figures": [{**passport["figures"][0],
                                                     "best": "much"}]}), json.dumps(passport)[:200]):
    (folder / "damaged.json").write_text(damaged)
    expect_refusal(["compare", "damaged.json", "one.json"], "damaged.json")
result = run(DOCTOR, "--help")
expect("help", result.returncode == 0 and "Exit status" in result.stdout and "passport" in result.stdout, result)
with open("/dev/full", "w") as full:
    for arguments in ([], ["--json"], ["--help"], ["compare", "one.json", "one.json"]):
        result = subprocess.run([DOCTOR, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
                                env=CLEAN, cwd=folder)
        expect(f"{arguments} into a full disk", result.returncode == 1
               and "standard output cannot be written" in result.stderr, result)

for path in sorted(folder.rglob("*"), reverse=True):
    path.rmdir() if path.is_dir() else path.unlink()
folder.rmdir()
print("\n".join(failures) if failures else "all as expected")
sys.exit(1 if failures else 0)
