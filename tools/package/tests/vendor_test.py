#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The vendor's path: plugins/template, copied into an empty folder, is built, tested and used with the installed Tutti alone."""
import hashlib
import json
import pathlib
import shutil
import subprocess

import installed
from installed import expect, run

home = installed.fresh("vendor")
source = shutil.copytree(installed.SOURCE / "plugins/template", home / "template")
build = home / "build"
installed.configure(source, build)
installed.build(build)
plugins = build / "lib" / "tutti"
files = sorted(path.name for path in plugins.iterdir())
expect("both plugins are built", files == ["libtutti-template-algorithm.so", "libtutti-template.so"], str(files))

used = {pathlib.Path(line.strip()) for line in run("ninja", "-C", build, "-t", "deps").splitlines() if line.startswith("    ")}
used = {(build / path).resolve() for path in used}
headers = [path for path in used if path.is_relative_to(installed.prefix())]
expect(f"the compiler read {len(headers)} of the package's headers", len(headers) >= 8, str(used))
strays = [str(path) for path in used if path.is_relative_to(installed.SOURCE)]
expect("and no file of the source tree", not strays, "\n".join(strays))

for name in files:
    symbols = [line.split()[-1] for line in run("nm", "-D", "--defined-only", plugins / name).splitlines()]
    expect(f"{name} exports its entry and nothing else", symbols == ["tutti_plugin_entry"], str(symbols))

told = run("ctest", "--test-dir", build, "--output-on-failure")
expect("its own tests pass", "100% tests passed" in told and "template_transport_test" in told, told)

seen = {plugin["id"]: plugin for plugin in json.loads(run("tutti-info", "--json", TUTTI_PLUGIN_PATH=str(plugins)))["plugins"]}
for name in ("template", "template-algorithm"):
    expect(f"{name} is found by TUTTI_PLUGIN_PATH", seen.get(name, {}).get("loaded") is True, str(seen))
expect("beside the package's own", {"algorithms", "shm"} <= set(seen), str(list(seen)))

told = run("tutti-perf", "broadcast", "--threads", "3", "-b", "1", "-e", "64K", "-f", "256", "-n", "3", "-w", "1", "-d", "uint8",
           TUTTI_PLUGIN_PATH=str(plugins), TUTTI_TRANSPORT="template", TUTTI_ALGO="broadcast:line")
expect("three ranks broadcast by its algorithm over its transport, checked", "transports: template" in told and "values : 0 OK" in told, told)

transport, algorithm = plugins / files[1], plugins / files[0]
told = run("tutti-conform", "--plugin", transport, "--transport", "template", "--level", "smoke", timeout=200)
expect("the transport passes tutti-conform", "\nconforming" in told and " 0 failed" in told, told)
report = home / "report"
told = run("tutti-conform", "--plugin", algorithm, "--algorithm", "line", "--transport", "shm", "--level", "quick", "--report", report, timeout=200)
expect("so does the algorithm", "\nconforming" in told and " 0 failed" in told, told)
told = run("tutti-conform", "verify-report", report, "--algorithm", "line")
expect("and its report is accepted", told.startswith("conforming: algorithm line;"), told)
seen = {plugin["id"]: plugin for plugin in json.loads((report / "report.json").read_text())["manifest"]["plugins"]}
digest = hashlib.sha256(algorithm.read_bytes()).hexdigest()
expect("which names the plugin by its digest", seen["template-algorithm"]["sha256"] == digest, str(seen))

alone = home / "alone"
installed.configure(source / "algorithm", alone, "-DBUILD_TESTING=OFF")
installed.build(alone)
expect("each of the two can be copied alone", (alone / "lib/tutti/libtutti-template-algorithm.so").is_file())
destination = home / "theirs"
run(installed.CMAKE, "--install", alone, "--prefix", destination)
expect("and installed", subprocess.check_output(["find", destination, "-name", "*.so"], text=True).count("/tutti/libtutti-") == 1)
