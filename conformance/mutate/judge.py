# SPDX-License-Identifier: Apache-2.0
"""Lets the contract's cases judge a plugin's file, one after the other until one fails."""

import os
import re
import resource
import select
import signal
import subprocess
import time
from pathlib import Path

OUTCOME = 4  # the descriptor on which a case's process tells its outcome
BAD = ("fail", "crash", "timeout")


def cpu_seconds():
    """Of all processes that this one has started and waited for, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Outcome:
    def __init__(self, case, verdict, clause="", message=""):
        self.case, self.verdict, self.clause, self.message = case, verdict, clause, message

    def is_bad(self):
        return self.verdict in BAD

    def text(self):
        return f"{self.case}: {self.clause or self.verdict}: {' '.join(self.message.split())}"


class Judge:
    """`subject` and `name`: what is judged, such as transport and shm."""

    def __init__(self, program, subject, name, level, patience, limit):
        self.program, self.subject, self.name = str(Path(program).resolve()), subject, name
        self.level, self.patience, self.limit = level, patience, limit
        self.costs, self.kills = {}, {}  # by case: CPU seconds of the original, mutants that it has killed

    def list_cases(self, plugin):
        """The contract's cases of the level, cheapest first."""
        listed = subprocess.run(
            [self.program, "--list", "--level", self.level, f"--{self.subject}", self.name, "--case", "contract/*"],
            capture_output=True, text=True, env=dict(os.environ, TUTTI_PLUGIN_PATH=str(plugin)))  # fmt: skip
        cases = re.findall(rf"^contract/{self.subject}/{re.escape(self.name)}/(\S+)", listed.stdout, re.M)
        if not cases:
            raise RuntimeError(f"tutti-conform lists no case for {self.subject} {self.name}: {listed.stderr.strip()}")
        return cases

    def run(self, case, library):
        """One case, in a process of its own."""
        read, write = os.pipe()
        command = [self.program, "--contract-case", self.subject, str(library), self.name, case, "1", str(self.patience)]
        pid = os.posix_spawn(self.program, command, os.environ, setpgroup=0,
                             file_actions=[(os.POSIX_SPAWN_DUP2, write, OUTCOME)])  # fmt: skip
        os.close(write)
        said = self.listen(read, time.monotonic() + self.limit)
        os.close(read)
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.waitpid(pid, 0)
        if said is None:
            return Outcome(case, "timeout", "", f"no answer in {self.limit:.0f} s")
        parts = said.split("\n", 2)
        return Outcome(case, *parts) if len(parts) == 3 else Outcome(case, "crash", "", "its process ended without a word")

    @staticmethod
    def listen(descriptor, deadline):
        said = b""
        while (left := deadline - time.monotonic()) > 0 and select.select([descriptor], [], [], left)[0]:
            part = os.read(descriptor, 65536)
            if not part:
                return said.decode(errors="replace")
            said += part
        return None

    def try_original(self, plugin, library):
        """Throws unless the original passes all cases. Learns what each costs."""
        for case in self.list_cases(plugin):
            before = cpu_seconds()
            outcome = self.run(case, library)
            if outcome.is_bad():
                raise RuntimeError(f"the original does not pass, so no mutant can be judged: {outcome.text()}")
            if outcome.verdict != "not_supported":
                self.costs[case] = cpu_seconds() - before

    def judge(self, library, original):
        """The failure that kills a mutant, or None. Cases that have killed many mutants for little come first."""
        worth = {case: (self.kills.get(case, 0) + 0.1) / (cost + 0.01) for case, cost in self.costs.items()}
        for case in sorted(worth, key=worth.get, reverse=True):
            outcome = self.run(case, library)
            if outcome.is_bad() and not self.run(case, original).is_bad():  # else the machine is to blame
                self.kills[case] = self.kills.get(case, 0) + 1
                return outcome
        return None
