# SPDX-License-Identifier: Apache-2.0
"""usage: python3 -m tutti.run [OPTION...] SCRIPT.py [ARGUMENT...]
       python3 -m tutti.run [OPTION...] -m MODULE [ARGUMENT...]

Starts the ranks of a script on this machine. The options are those of tuttirun: -n 4 for four ranks; tuttirun --help
has all."""

import os
import shutil
import sys


def find_tuttirun() -> "str | None":
    """The tuttirun that belongs to this package: in its folder, as in a wheel, or of the same build tree or prefix; else
    the one in PATH."""
    folder = os.path.realpath(__file__)
    while folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
        program = os.path.join(folder, "bin", "tuttirun")
        if os.access(program, os.X_OK):
            return program
    return shutil.which("tuttirun")


VALUED = ("-n", "--ranks", "--timeout", "--grace", "--env", "--stdin", "--hosts-as-netns")  # options of tuttirun
FLAGS = ("--survive", "--no-label", "--version", "-h", "--help")


class Wrong(Exception):
    """What is wrong with the arguments, in words."""


def split(arguments: "list[str]") -> "tuple[list[str], list[str]]":
    """Options, and the script or module with its arguments. Raises Wrong."""
    at = 0
    while at < len(arguments):
        word = arguments[at]
        name = word.split("=", 1)[0]
        if word == "--":
            return arguments[:at], arguments[at + 1:]
        if word == "-m":
            if at + 1 == len(arguments):
                raise Wrong("-m needs the name of a module")
            return arguments[:at], arguments[at:]
        if not word.startswith("-"):
            if not os.path.exists(word):
                raise Wrong(f"there is no script {word}; the interpreter is {sys.executable} and is not named")
            return arguments[:at], arguments[at:]
        if name in VALUED and name == word:
            at += 1
            if at == len(arguments):
                raise Wrong(f"{word} needs a value")
        elif not (word in FLAGS or name in VALUED or (word.startswith("-n") and word[2:].isdecimal())):
            hint = ": the number of ranks is -n N" if word.startswith(("-np", "--np", "--nproc")) else ""
            raise Wrong(f"{word} is no option{hint}")
        at += 1
    return arguments, []


def main() -> int:
    try:
        options, script = split(sys.argv[1:])
        if "-h" in options or "--help" in options:
            print(__doc__)
            return 0
        if not script and "--version" not in options:
            raise Wrong(f"expected a script (SCRIPT.py) or -m MODULE, got {' '.join(options) or 'nothing'}")
    except Wrong as problem:
        print(f"tutti.run: {problem}\n{__doc__}", file=sys.stderr)
        return 2
    tuttirun = find_tuttirun()
    if not tuttirun:
        print("tutti.run: there is no tuttirun beside this package and none in PATH: build or install Tutti's tools",
              file=sys.stderr)
        return 2
    os.execv(tuttirun, [tuttirun, *options, *([sys.executable, *script] if script else [])])


if __name__ == "__main__":
    sys.exit(main())
