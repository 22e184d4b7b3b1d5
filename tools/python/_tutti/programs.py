# SPDX-License-Identifier: Apache-2.0
"""The commands of a wheel: each starts the program of its name in tutti/bin, `tutti_perf` tutti-perf."""

import importlib.util
import os
import sys


def _folder():
    return os.path.join(importlib.util.find_spec("tutti").submodule_search_locations[0], "bin")


def __getattr__(name):
    program = name.replace("_", "-")

    def start():
        path = os.path.join(_folder(), program)
        try:
            os.execv(path, [program, *sys.argv[1:]])
        except OSError as error:
            sys.exit(f"{program}: {path} cannot be started: {error.strerror}: install the wheel again")
    return start
