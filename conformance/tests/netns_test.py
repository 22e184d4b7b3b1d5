#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""netns_test.py TUTTI_CONFORM HOSTS_SCRIPT: attestation against the interfaces.

The matrix of shm+tcp on two pretended hosts that are network namespaces: what the results attest as sent over tcp has to have
left by the namespaces' interfaces, and hardly anything else may have. 77: skipped, with the reason."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

CONFORM, HOSTS = sys.argv[1], sys.argv[2]
NAME = f"tutti-conform-{os.getpid()}"
# The overhead of a case: meeting, connecting, headers of small messages, acknowledgements.
MOST_PER_CASE, MOST_RATIO = 60_000, 1.25


def sent_by(host):
    """Bytes that the interface of a host has sent."""
    table = subprocess.run(["ip", "netns", "exec", f"{NAME}-{host}", "cat", "/proc/net/dev"], check=True, text=True,
                           capture_output=True).stdout
    line = next(line for line in table.splitlines() if line.strip().startswith("eth0:"))
    return int(line.split(":")[1].split()[8])


def conform(arguments, folder):
    report = folder / "report.json"
    run = subprocess.run([CONFORM, "--seed", "5", "--netns", NAME, "--json", report, *arguments], text=True, timeout=200,
                         capture_output=True)
    if run.returncode != 0:
        raise SystemExit(f"tutti-conform {' '.join(arguments)} ended with {run.returncode}:\n{run.stdout}{run.stderr}")
    return json.loads(report.read_text())["results"]


def main():
    if os.geteuid() != 0 or not shutil.which("ip") or subprocess.run(["ip", "netns", "list"], capture_output=True).returncode:
        print("skipped: network namespaces need root and iproute2")
        return 77
    subprocess.run([HOSTS, "up", NAME, "2"], check=True)
    try:
        before = [sent_by(host) for host in (0, 1)]
        with tempfile.TemporaryDirectory() as folder:
            results = conform(["--level", "smoke", "--transport", "shm+tcp", "--case", "matrix/*"], pathlib.Path(folder))
        measured = sum(sent_by(host) for host in (0, 1)) - sum(before)
    finally:
        subprocess.run([HOSTS, "down", NAME], check=True)
    rows = [row for result in results for row in result["attestation"]["traffic"]]
    attested = sum(row["sent_bytes"] for row in rows if row["transport"] == "tcp")
    inside = sum(row["sent_bytes"] for row in rows if row["transport"] == "shm")
    received = sum(row["received_bytes"] for row in rows if row["transport"] == "tcp")
    print(f"{len(results)} cases: {attested} bytes attested as sent over tcp, {measured} by the interfaces' count; "
          f"{inside} over shm")
    if not attested or not inside or attested != received:
        print("both transports must have carried bytes, and as many must have been received as were sent")
        return 1
    if not attested <= measured <= attested * MOST_RATIO + MOST_PER_CASE * len(results):
        print("the interfaces' count does not fit what is attested")
        return 1
    return 0


sys.exit(main())
