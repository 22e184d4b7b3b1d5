# SPDX-License-Identifier: Apache-2.0
"""Commands with a log, within the time of the whole check."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

NOT_STARTED = 127
TIME_IS_OVER = 124  # the status of a command that was ended because the time of the whole check is over


def minutes(seconds):
    return f"{seconds / 60:.1f} min"


class Commands:
    """Runs commands one after the other. No command runs past the deadline; an interrupt ends the one that runs."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.deadline = time.monotonic() + seconds
        self.child = None

    def time_is_over(self):
        return f"the time for all parts, {self.seconds // 60} minutes, is over"

    def run(self, name, log, command, environment=None):
        """Appends the command and its output to the log and returns its exit status."""
        with open(log, "a", encoding="utf-8", errors="replace") as out:
            out.write("$ " + " ".join(map(str, command)) + "\n")
            out.flush()
            if time.monotonic() >= self.deadline:
                out.write(self.time_is_over() + "\n")
                return TIME_IS_OVER
            # A session of its own, so that all of it can be ended.
            try:
                self.child = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=out,
                                              stderr=out, start_new_session=True, env={**os.environ, **(environment or {})})
            except OSError as error:
                out.write(f"{command[0]}: {error.strerror}\n")
                return NOT_STARTED
            begun = time.monotonic()
            while self.child.poll() is None:
                if time.monotonic() >= self.deadline:
                    self.end()
                    out.write(self.time_is_over() + "\n")
                    return TIME_IS_OVER
                try:
                    self.child.wait(0.5)
                except subprocess.TimeoutExpired:
                    show_progress(name, log, time.monotonic() - begun)
            if sys.stdout.isatty():
                print("\r\x1b[K", end="", flush=True)
            status, self.child = self.child.returncode, None
            return status

    def end(self):
        """Ends the command that runs, with all its processes."""
        child, self.child = self.child, None
        if child is None:
            return
        for number, patience in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
            try:
                os.killpg(child.pid, number)
            except ProcessLookupError:
                break
            try:
                child.wait(patience)
            except subprocess.TimeoutExpired:
                continue


def show_progress(name, log, seconds):
    """One line on the terminal, from the log's last "[7/90]" (ninja) or "7/90 Test" (ctest)."""
    if not sys.stdout.isatty():
        return
    with open(log, "rb") as file:
        file.seek(max(0, os.path.getsize(log) - 4096))
        tail = file.read().decode(errors="replace")
    found = re.findall(r"^\[(\d+/\d+)\]|^ *(\d+/\d+) Test", tail, re.MULTILINE)
    built, tested = found[-1] if found else ("", "")
    what = f"built {built}, " if built else f"tested {tested}, " if tested else ""
    print(f"\r\x1b[K{name}: {what}{minutes(seconds)}", end="", flush=True)


def last_lines(log, number):
    lines = pathlib.Path(log).read_text(errors="replace").splitlines()
    return [line for line in lines if line.strip()][-number:]
