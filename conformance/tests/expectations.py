# SPDX-License-Identifier: Apache-2.0
"""What the suite's tests expect of tutti-conform: a test counts what does not hold and ends with the count."""
import subprocess
import sys

_failed = 0


def expect(what, holds, seen=""):
    """Counts and prints `what`, with what was `seen`, where it does not hold."""
    global _failed
    if not holds:
        _failed += 1
        print(f"FAILED: {what}\n{seen}")


def run(command, timeout, environment=None):
    """Exit status and both outputs of a command, one after the other, as they are written."""
    done = subprocess.run([*map(str, command)], text=True, timeout=timeout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    return done.returncode, done.stdout


def refused(command, says):
    """The command ends with status 2, wrong usage, and says this."""
    status, out = run(command, 200)
    expect(f"{command[1:]} is refused with status 2 and says {says!r}", status == 2 and says in out, f"{status}\n{out}")


def end():
    """Ends the program: its exit status is 1 where anything did not hold."""
    print(f"{_failed} failed")
    sys.exit(1 if _failed else 0)
