#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""command_line_test.py TUTTI_INFO DEVICE: exit status and words of tutti-info; DEVICE is a plugin."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

INFO, DEVICE = sys.argv[1:]
failures = []


def run(*arguments, **environment):
    return subprocess.run([INFO, *arguments], capture_output=True, text=True, timeout=60, env={**os.environ, **environment})


def expect(what, condition, result):
    if not condition:
        failures.append(f"{what}: status {result.returncode}\n{result.stdout}{result.stderr}")


def expect_refusal(arguments, words):
    result = run(*arguments)
    expect(f"{arguments} should be refused with \"{words}\"", result.returncode == 2 and words in result.stderr, result)


expect_refusal(["--bogus"], "--bogus")
expect_refusal(["--explain", "allreduces", "1M"], "known are broadcast, reduce, all_reduce")
expect_refusal(["--explain", "all_reduce", "1X"], "size \"1X\"")
expect_refusal(["--explain", "all_reduce", "1M", "--type", "float8"], "known are int8")
expect_refusal(["--explain", "all_reduce"], "--explain")
expect_refusal(["--net", "--topology"], "--net")
expect_refusal(["--net", "--hang"], "--net")
expect_refusal(["--settings", "--topology"], "--settings")
expect_refusal(["-n", "2"], "only of use with")
expect_refusal(["--topology", "-n", "0"], "-n")

result = run(TUTTI_SECRET="very-secret", TUTTI_HOST_ID="my-host")
expect("plain", result.returncode == 0 and "Plugins" in result.stdout and "TUTTI_HOST_ID=my-host" in result.stdout, result)
expect("the key", "my-host (TUTTI_HOST_ID)" in result.stdout, result)
expect("the secret stays hidden", "very-secret" not in result.stdout and "TUTTI_SECRET=(hidden)" in result.stdout, result)

result = run("--settings", TUTTI_TIMEOUT="5", TUTTI_SECRET="very-secret")
expect("every setting", result.returncode == 0 and "TUTTI_TIMEOUT=5\n" in result.stdout and "default: 600\n" in result.stdout and
       "TUTTI_SECRET=(hidden)" in result.stdout and "a list: shm,tcp, ^tcp;" in result.stdout and "order (docs/order.md)" in result.stdout, result)
known = {setting["name"]: setting for setting in json.loads(run("--settings", "--json", TUTTI_TIMEOUT="5").stdout)}
expect("settings as JSON", known["TUTTI_TIMEOUT"]["value"] == "5" and known["TUTTI_CHECK"]["default"] == "off", result)

result = run("--json")
report = json.loads(result.stdout)
loaded = {name for plugin in report["plugins"] if plugin["loaded"] for name in plugin["algorithms"]}
expect("JSON", result.returncode == 0 and report["host"]["online_cores"] > 0 and loaded, result)

with tempfile.TemporaryDirectory() as folder:
    bad = pathlib.Path(folder) / "libtutti-bad.so"
    bad.write_text("this is no library")
    result = run(TUTTI_PLUGIN_PATH=str(bad))
    expect("a plugin that is named and broken", result.returncode == 1 and f"REFUSED {bad}" in result.stdout, result)
    result = run("--topology", "-n", "2", TUTTI_PLUGIN_PATH=str(bad))
    expect("it is an error of every communicator", result.returncode == 1 and "libtutti-bad.so" in result.stderr, result)

# Plugins that must not be mapped or run: cut off at some length, or in a folder that everybody may write. Damaged files
# are listed, whether named or found in a folder, and do not end the program.
whole = pathlib.Path(next(plugin["path"] for plugin in report["plugins"] if plugin["id"] == "algorithms"))
with tempfile.TemporaryDirectory() as folder:
    cut = pathlib.Path(folder) / "libtutti-cut.so"
    for length in (1000, 20000, whole.stat().st_size - 1):
        cut.write_bytes(whole.read_bytes()[:length])
        for path, status in ((cut, 1), (folder, 0)):
            result = run(TUTTI_PLUGIN_PATH=str(path))
            expect(f"cut off at {length} and searched in {path}", result.returncode == status and f"REFUSED {cut}" in result.stdout and
                   f"it has {length} bytes, and its ELF headers describe {whole.stat().st_size}" in result.stdout, result)
    cut.write_bytes(whole.read_bytes())
    os.chmod(folder, 0o777)
    result = run(TUTTI_PLUGIN_PATH=folder)
    expect("in a folder of everybody's", result.returncode == 0 and f"its folder {folder} has mode 0777" in result.stdout and
           f"{cut} is not loaded" in result.stderr, result)

# The loopback interface is everywhere; a filter that leaves only it says why the others are not used.
networks = {network["transport"]: network for network in json.loads(run("--net", "--json").stdout)["networks"]}
loopback = [rail for rail in networks["tcp"]["rails"] if rail["medium"] == "loopback"]
expect("the loopback interface", len(loopback) == 1 and loopback[0]["chosen"], result)
usable = [address["address"] for address in loopback[0]["addresses"] if address["usable"]]
expect("its address", "127.0.0.1/8" in usable, result)
expect("ib has rails or says why not", bool(networks["ib"]["rails"]) != bool(networks["ib"]["problem"]), result)
name = loopback[0]["name"]
result = run("--net", TUTTI_TCP_INTERFACE=name)
expect("a table", result.returncode == 0 and f"yes: named by TUTTI_TCP_INTERFACE={name}" in result.stdout and "127.0.0.1/8" in result.stdout,
       result)
others = [rail["name"] for rail in networks["tcp"]["rails"] if rail["chosen"] and rail["name"] != name]
expect("the others are left out", not others or f"no: left out by TUTTI_TCP_INTERFACE={name}" in result.stdout, result)
result = run("--net", TUTTI_TCP_INTERFACE="nosuch0")
expect("a filter that means nothing", "\"nosuch0\" matches no address of this host" in result.stdout, result)

result = run("--explain", "all_reduce", "1M", "-n", "3")
expect("explain", result.returncode == 0 and any(name in result.stdout for name in loaded), result)
for of_type, words in (("bfloat16", "an exact sum (TUTTI_ORDER): all contributions are reduced in one step"),
                       ("int32", "sums of int32 do not round: any algorithm gives exact ones (TUTTI_ORDER)"),
                       ("complex64", "all_reduce of complex64 is refused: exact sums (TUTTI_ORDER) are not defined")):
    result = run("--explain", "all_reduce", "1M", "-n", "3", "--type", of_type, TUTTI_ORDER="exact")
    flat = "no candidate: it does not reduce all contributions in one step" in result.stdout
    expect(f"explain exact sums of {of_type}", words in result.stdout and flat == (of_type == "bfloat16"), result)
result = run("--explain", "all_reduce", "1M", "-n", "3", TUTTI_DEVICE="none")
expect("explained for the host", "in host memory" in result.stdout and "in device memory" not in result.stdout, result)
result = run("--explain", "all_reduce", "1M", "-n", "3", TUTTI_PLUGIN_PATH=DEVICE, TUTTI_DEVICE="simulated:0")
tables = result.stdout.split("all_reduce of ")[1:]
expect("explained for a device, too", [" in host memory, " in tables[0], " in device memory, " in tables[-1]] == [True, True]
       and len(tables) == 2 and all("chosen: " in table for table in tables), result)
result = run("--explain", "alltoall", "1M", "-n", "2")
expect("names as MPI and NCCL write them", result.returncode == 0 and "all_to_all" in result.stdout, result)
with open("/dev/full", "w") as full:
    for arguments in ([], ["--json"], ["--help"], ["--version"]):
        result = subprocess.run([INFO, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        expect(f"{arguments} into a full disk", result.returncode == 1 and "standard output cannot be written" in result.stderr, result)
result = run("--topology", "--explain", "all_gather", "64K", "--type", "bfloat16", "-n", "2", "--json")
report = json.loads(result.stdout or "{}")
expect("both as JSON", report.get("nranks") == 2 and report.get("topology") and report.get("explanation"), result)

print("\n".join(failures) if failures else "all as expected")
sys.exit(1 if failures else 0)
