# SPDX-License-Identifier: Apache-2.0
"""usage: python3 -m tutti.run [OPTION...] SCRIPT.py [ARGUMENT...]
       python3 -m tutti.run [OPTION...] -m MODULE [ARGUMENT...]

Starts the ranks of a script on this machine. The options are those of tuttirun: -n 4 for four ranks; tuttirun --help
has all."""

import os
import shutil
import sys


def find_tuttirun():
    """The tuttirun that belongs to this package: of the same build tree or prefix; else the one in PATH."""
    folder = os.path.dirname(os.path.realpath(__file__))
    while folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
        program = os.path.join(folder, "bin", "tuttirun")
        if os.access(program, os.X_OK):
            return program
    return shutil.which("tuttirun")


def split(arguments):
    """Options, and the script or module with its arguments."""
    for i, argument in enumerate(arguments):
        if argument == "-m" or (argument.endswith(".py") and not argument.startswith("-")):
            return arguments[:i], arguments[i:]
    return arguments, []


def main():
    options, script = split(sys.argv[1:])
    if "-h" in options or "--help" in options:
        print(__doc__)
        return 0
    if not script or script == ["-m"]:
        print(f"tutti.run: expected a script (SCRIPT.py) or -m MODULE, got {' '.join(sys.argv[1:]) or 'nothing'}\n{__doc__}",
              file=sys.stderr)
        return 2
    tuttirun = find_tuttirun()
    if not tuttirun:
        print("tutti.run: there is no tuttirun beside this package and none in PATH: build or install Tutti's tools",
              file=sys.stderr)
        return 2
    os.execv(tuttirun, [tuttirun, *options, sys.executable, *script])


if __name__ == "__main__":
    sys.exit(main())
