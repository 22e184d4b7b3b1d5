#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An application in C and one in C++, by find_package and by pkg-config, against the installed Tutti alone; and the refusals."""
import shutil

import installed
from installed import expect, run

home = installed.fresh("applications")
source = shutil.copytree(installed.SOURCE / "tools/package/tests/application", home / "source")


def right(program, **settings):
    told = run("tuttirun", "-n", "3", program, **settings)
    return "3 ranks, sum 3" in told


for language in ("C", "CXX"):
    folder = home / f"cmake-{language}"
    installed.configure(source, folder, f"-DLANGUAGE={language}")
    installed.build(folder)
    expect(f"find_package in a {language} project: three ranks sum", right(folder / "average"))

libraries = run("pkg-config", "--variable=libdir", "tutti").strip()
for compiler, file, flags in ((installed.cache("CMAKE_C_COMPILER"), "average.c", ["-std=c11"]),
                              (installed.cache("CMAKE_CXX_COMPILER"), "average.cpp", ["-std=c++20"])):
    program = home / f"pkg-config-{file}.out"
    told = run("pkg-config", "--cflags", "--libs", "tutti").split()
    run(*installed.launcher(), compiler, *flags, *[flag for flag in told if flag.startswith("-I")], "-c", source / file, "-o",
        home / f"{file}.o")
    run(compiler, home / f"{file}.o", *[flag for flag in told if not flag.startswith("-I")], "-o", program)
    expect(f"pkg-config, {file}: three ranks sum", right(program, LD_LIBRARY_PATH=libraries))

version = run("pkg-config", "--modversion", "tutti").strip()
expect(f"tuttirun and pkg-config tell one version, {version}", version in run("tuttirun", "--version"))

too_new = (source / "CMakeLists.txt").read_text().replace("Tutti 0.1", "Tutti 9.0")
(source / "CMakeLists.txt").write_text(too_new)
told = installed.configure(source, home / "too-new", "-DLANGUAGE=C", fails=True)
expect("another version is refused, naming this one", f"version: {version}" in told, told)
(source / "CMakeLists.txt").write_text(too_new.replace("Tutti 9.0 REQUIRED", "Tutti REQUIRED COMPONENTS cuda"))
told = installed.configure(source, home / "component", "-DLANGUAGE=C", fails=True)
expect("an unknown component is refused by name", "there is no component cuda" in told, told)
