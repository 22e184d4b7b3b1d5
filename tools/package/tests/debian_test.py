#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Debian packages of this build: control fields, files, permissions; all that `cmake --install` installs is in one of them."""
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import installed
from installed import expect

LIB = f"usr/{installed.cache('CMAKE_INSTALL_LIBDIR') or 'lib'}"
PYTHON = "usr/lib/python3/dist-packages/tutti"
# package: section, packages of the same version that it depends on, what else it depends on, its files
PACKAGES = {
    "libtutti0": ("libs", [], ["libc6", "libfmt9", "libssl3", "libstdc++6"],
                  [f"{LIB}/libtutti.so.0", f"{LIB}/libtutti.so.0.*"]),
    "libtutti-dev": ("libdevel", ["libtutti0"], [],
                     ["usr/include/tutti/*", f"{LIB}/libtutti.so", f"{LIB}/cmake/Tutti/*", f"{LIB}/pkgconfig/tutti*.pc",
                      "usr/share/tutti/template/*", "usr/share/doc/libtutti-dev/docs/*.md", "usr/share/doc/libtutti-dev/docs/pictures/*",
                      "usr/share/doc/libtutti-dev/docs/performance/*.svg",
                      "usr/share/doc/libtutti-dev/README.md", "usr/share/doc/libtutti-dev/examples/*"]),
    "tutti-plugins": ("libs", ["libtutti0"], ["libc6"],
                      [f"{LIB}/tutti/libtutti-{name}.so"
                       for name in ("algorithms", "shm", "net-tcp", "cuda-ipc", "checksum", "trace", "chaos", "meeting-pmi1", "meeting-pmix", "nccl-net", "import")]
                      + [f"{LIB}/libnccl-net-tutti.so"]),
    "tutti-plugin-ib": ("libs", ["libtutti0"], ["libibverbs1"], [f"{LIB}/tutti/libtutti-net-ib.so"]),
    "tutti-plugin-cuda": ("contrib/libs", ["libtutti0", "tutti-plugins"], ["libc6"], [f"{LIB}/tutti/libtutti-cuda-kernels.so"]),
    "tutti-tools": ("utils", ["libtutti0", "tutti-plugins"], ["libc6"],
                    ["usr/bin/tuttirun", "usr/bin/tutti-*", "usr/share/bash-completion/completions/tutti*", "usr/share/man/man1/tutti*.1.gz",
                     "usr/share/tutti/launchers/*", "usr/share/tutti/models/*", "usr/share/tutti/conformance/*",
                     f"{LIB}/libtutti-mpitrampoline.so", f"{LIB}/libtutti-mpi.so", f"{LIB}/libtutti-mpi-openmpi.so",
                     f"{LIB}/libtutti-mpi-mpich.so"]),
    "python3-tutti": ("python", ["libtutti0", "tutti-plugins"], ["python3"],
                      [f"{PYTHON}/*.py", f"{PYTHON}/*.pyi", f"{PYTHON}/py.typed", f"{PYTHON}/_core.*.so",
                       "usr/share/doc/python3-tutti/python-examples/*.py"]),
}
# What a build may lack: plugins that are no member or whose library is absent, files for MPI libraries, man pages without help2man, the suite.
OPTIONAL = {"/tutti/libtutti-": lambda name: (installed.BUILD / "lib/tutti" / name).exists(),
            "/libnccl-net-": lambda name: (installed.BUILD / "lib" / name).exists(),
            "/libtutti-mpi": lambda name: (installed.BUILD / "lib" / name).exists(),
            "/man/man1/": lambda _: any(installed.BUILD.glob("man/*.1")),
            "/tutti/conformance/": lambda _: (installed.BUILD / "bin/tutti-conform").exists()}
for tool in ("dpkg-deb", "dpkg-shlibdeps", "file"):
    if not shutil.which(tool):
        print(f"SKIPPED: there is no {tool}, which makes Debian packages")
        sys.exit(77)

folder = pathlib.Path(tempfile.mkdtemp(prefix="tutti-debian-"))


def call(*command, cwd=None):
    done = subprocess.run([str(part) for part in command], cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, "LC_ALL": "C"})
    if done.returncode:
        sys.exit(f"$ {' '.join(map(str, command))}\n{done.stdout}\nstatus {done.returncode}, expected 0")
    return done.stdout


def is_built(pattern):
    return all(built(pathlib.Path(pattern).name) for part, built in OPTIONAL.items() if part in pattern)


def check_control(package, deb, section, own, other):
    fields = {}
    for line in call("dpkg-deb", "--field", deb).splitlines():
        if not line.startswith(" "):
            name, _, text = line.partition(": ")
            fields[name] = text
        else:
            fields[name] += "\n" + line
    version = fields["Version"]
    depends = fields.get("Depends", "").split(", ")
    problems = []
    for name, wanted in (("Package", package), ("Source", "tutti"), ("Section", section), ("Priority", "optional")):
        if fields.get(name) != wanted:
            problems.append(f"{name} is {fields.get(name)}, expected {wanted}")
    problems += [f"Depends lacks {name} (= {version})" for name in own if f"{name} (= {version})" not in depends]
    problems += [f"Depends lacks {name}" for name in other if not any(part.split(" ")[0] == name for part in depends)]
    synopsis, *body = fields["Description"].split("\n")
    if len(synopsis) > 79 or len(body) < 4 or any(not line.startswith(" ") or len(line) > 80 for line in body):
        problems.append(f"Description: expected a synopsis of at most 79 columns and a text of some lines of 80, got {fields['Description']}")
    if not re.fullmatch(r".+ <.+@.+>", fields["Maintainer"]):
        problems.append(f"Maintainer is {fields['Maintainer']}, expected NAME <ADDRESS>")
    expect(f"{package}: control fields", not problems, "\n".join(problems))


def check_files(package, deb, patterns):
    """The files, without what every package has."""
    patterns = [f"usr/share/doc/{package}/{name}" for name in ("copyright", "changelog.Debian.gz")] + patterns
    root = folder / package
    call("dpkg-deb", "--raw-extract", deb, root)
    files = {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}
    files = {name for name in files if not name.startswith("DEBIAN/")}
    stray = [name for name in files if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    lacking = [pattern for pattern in patterns if is_built(pattern) and not fnmatch.filter(files, pattern)]
    expect(f"{package}: {len(files)} files", not stray and not lacking, f"not expected: {stray}\nlacking: {lacking}")
    problems = []
    for line in call("dpkg-deb", "--contents", deb).splitlines():
        mode, owner, name = line.split()[0], line.split()[1], line.split()[5]
        program = "/bin/" in name or name.endswith("one-node-slurm")
        wanted = "l" if mode[0] == "l" else "drwxr-xr-x" if mode[0] == "d" else "-rwxr-xr-x" if program else "-rw-r--r--"
        if not mode.startswith(wanted) or owner != "root/root":
            problems.append(f"{name}: {mode} {owner}, expected {wanted} root/root")
    for name in files:
        path = root / name
        if not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF":
            told = call("readelf", "--wide", "--dynamic", "--sections", path)
            if "RUNPATH" in told or "RPATH" in told or ".symtab" in told:
                problems.append(f"{name}: has a search path or symbols for the linker only: expected to be stripped and without")
            if name.endswith("libtutti.so.0.1.0") and "soname: [libtutti.so.0]" not in told:
                problems.append(f"{name}: its SONAME is not libtutti.so.0")
    expect(f"{package}: modes, owners, programs and libraries", not problems, "\n".join(problems))
    return {name for name in files if not name.endswith(("/copyright", "/changelog.Debian.gz"))}


def installed_files():
    """What `cmake --install` installs, by the names of the packages."""
    prefix = folder / "installed" / "usr"
    call(installed.CMAKE, "--install", installed.BUILD, "--prefix", prefix)
    for path in prefix.rglob("*"):
        name = str(path.relative_to(prefix.parent))
        if not path.is_dir() and not name.endswith("doc/tutti/LICENSE") and "/tutti/torch/" not in name:  # no package: pip's torch
            yield name + ".gz" if "/man/" in name else name


try:
    not_made = {line.split(":")[0] for line in (installed.BUILD / "package/debian/not_made.txt").read_text().splitlines()}
    call("cpack", "-G", "DEB", "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=none", "-B", folder / "packages", cwd=installed.BUILD)
    debs = {path.name.split("_")[0]: path for path in (folder / "packages").glob("*.deb")}
    expect(f"{len(debs)} packages are made, {len(not_made)} are told not to be: {' '.join(not_made)}",
           not debs.keys() & not_made and debs.keys() | not_made == PACKAGES.keys(), f"made: {sorted(debs)}")
    packed = []
    for name, (section, own, other, patterns) in PACKAGES.items():
        if name in debs:
            check_control(name, debs[name], section, own, other)
            packed += [re.sub(f"^usr/share/doc/{name}/", "usr/share/doc/tutti/", file) for file in check_files(name, debs[name], patterns)]
    twice = sorted({name for name in packed if packed.count(name) > 1})
    of_others = [pattern for name in not_made for pattern in PACKAGES[name][3]]
    missing = sorted(name for name in set(installed_files()) ^ set(packed) if not any(fnmatch.fnmatch(name, other) for other in of_others))
    expect("each installed file is in one package", not twice and not missing, f"in two: {twice}\nin one of the two only: {missing}")
    scripts = sorted(f"{path.parent.parent.name}/{path.name}" for path in folder.glob("*/DEBIAN/*") if path.name not in ("control", "md5sums"))
    wanted = ["libtutti0/shlibs", "libtutti0/triggers"]
    wanted += [f"python3-tutti/{script}" for script in ("postinst", "prerm") if "python3-tutti" in debs]
    expect("maintainer scripts are those of Python, and the loader's cache is a trigger's", scripts == sorted(wanted), f"got {scripts}")
    unnamed = [path for path in folder.glob("*/DEBIAN/p*") if not re.search(rf" -p {path.parent.parent.name}$", path.read_text(), re.MULTILINE)]
    expect("maintainer scripts name their package", not unnamed, "\n".join(f"{path}:\n{path.read_text()}" for path in unnamed))
finally:
    shutil.rmtree(folder, ignore_errors=True)
