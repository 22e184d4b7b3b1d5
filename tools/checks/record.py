# SPDX-License-Identifier: Apache-2.0
"""What a run of the check came to: build/check-record.json of one run, build/check-runs.jsonl of the last ten."""
import json
import pathlib
import subprocess

import verdict


def commit_of(root):
    """The commit's short name, with a + where files differ from it; "unknown" without git."""
    def git(*words):
        return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True).stdout.strip()
    try:
        name = git("rev-parse", "--short", "HEAD")
        return f"{name}+" if name and git("status", "--porcelain") else name or "unknown"
    except OSError:
        return "unknown"


def earlier_flaky(file):
    """The names of the flaky tests of the last runs, oldest first. Lines that are not records are left out."""
    runs = []
    for line in file.read_text().splitlines() if file.is_file() else []:
        try:
            runs.append([entry["test"] for entry in json.loads(line)["flaky"]])
        except (ValueError, KeyError, TypeError):
            continue
    return runs


def append(file, entry):
    """Adds a run and keeps the last ten."""
    lines = file.read_text().splitlines() if file.is_file() else []
    file.write_text("".join(f"{line}\n" for line in [*lines, json.dumps(entry)][-verdict.RECORDS:]))


def write(file, entry):
    pathlib.Path(file).write_text(json.dumps(entry, indent=1) + "\n")
