#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the built libraries show to the outside.

  exports_test.py plugins FOLDER [--required]   each libtutti-*.so exports tutti_plugin_entry and nothing else, and needs neither
                                                libtutti nor fmt. Without any plugin: skipped (77), or with --required failed.
  exports_test.py library FILE                  libtutti.so exports none of its insides and nothing of fmt, Boost and other libraries
"""
import pathlib
import re
import subprocess
import sys

ENTRY = "tutti_plugin_entry"


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def exported(path):
    """The names of the dynamic symbols that a library defines, as written (mangled)."""
    return [line.split()[-1].split("@")[0] for line in run("nm", "-D", "--defined-only", str(path)).splitlines()]


def check_plugin(path):
    errors, symbols = [], exported(path)
    if symbols != [ENTRY]:
        others = [symbol for symbol in symbols if symbol != ENTRY]
        errors.append(f"{path.name} exports {len(symbols)} symbols, expected exactly {ENTRY}; "
                      f"{'without it' if ENTRY not in symbols else 'with it'}: {' '.join(others[:10])}")
    for needed in re.findall(r"\(NEEDED\).*\[(.+?)\]", run("readelf", "-d", str(path))):
        if re.match(r"libtutti|libfmt", pathlib.Path(needed).name):
            errors.append(f"{path.name} needs {needed}: plugins link neither the core nor fmt")
    return errors


def check_library(path):
    errors = []
    for line in run("nm", "-DC", "--defined-only", str(path)).splitlines():
        name = line.split(maxsplit=2)[-1]
        # Instantiations of std templates are weak and the same in every library; anything else belongs to somebody.
        if re.search(r"\b(fmt|boost|nlohmann|CLI|OPENSSL|EVP)(::|_)", name) or re.match(r"tutti::core::", name):
            errors.append(f"{path.name} exports {name}: only the public API may be seen")
    if not any(symbol == "tutti_comm_create" for symbol in exported(path)):
        errors.append(f"{path.name} does not export tutti_comm_create")
    return errors[:20]


def main():
    mode, target = sys.argv[1], pathlib.Path(sys.argv[2])
    if mode == "library":
        errors = check_library(target)
    else:
        plugins = sorted(target.glob("*.so"))
        if not plugins:
            print(f"no plugin in {target}")
            return 1 if "--required" in sys.argv else 77
        errors = [error for plugin in plugins for error in check_plugin(plugin)]
        print(f"{len(plugins)} plugins: {' '.join(plugin.stem for plugin in plugins)}")
    print("\n".join(errors))
    return 1 if errors else 0


sys.exit(main())
