# SPDX-License-Identifier: Apache-2.0
"""The installed Tutti that the package tests share, and commands run against it.

A test is called with SOURCE BUILD CMAKE. The folder is made by install_test.py and named in BUILD/package/installed.txt.
"""
import os
import pathlib
import shutil
import subprocess
import sys

SOURCE, BUILD, CMAKE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), sys.argv[3]
SCALE = "TUTTI_TEST_TIME_SCALE"  # how many times as long as usual the limits of time are
NOTE = BUILD / "package" / "installed.txt"


def folder():
    """The temporary folder: `prefix` is in it, and whatever the tests build."""
    if not NOTE.is_file():
        sys.exit("there is no installed Tutti: run the test package.install first (ctest -R package does)")
    return pathlib.Path(NOTE.read_text())


def prefix():
    return folder() / "prefix"


def library_folder():
    return next((prefix() / "lib").rglob("libtutti.so")).parent


def cache(name):
    """A value of the workspace's CMake cache."""
    for line in (BUILD / "CMakeCache.txt").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return line.split("=", 1)[1]
    return ""


def environment(**more):
    """The caller's, with none of Tutti's settings but the time scale, the installed programs first, and a compiler cache
    that sees past the folder's name."""
    result = {key: value for key, value in os.environ.items() if not key.startswith("TUTTI_") or key == SCALE}
    result["PATH"] = f"{prefix() / 'bin'}:{result['PATH']}"
    result["PKG_CONFIG_PATH"] = str(library_folder() / "pkgconfig")
    result["CCACHE_BASEDIR"] = str(folder())
    result.update(more)
    return result


def run(*command, cwd=None, fails=False, timeout=120, **settings):
    """Runs, expects success (or failure), gives what was printed."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=environment(**settings), text=True,
                          timeout=timeout * float(os.environ.get(SCALE) or 1),
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if (done.returncode != 0) != fails:
        sys.exit(f"$ {' '.join(map(str, command))}\n{done.stdout}\nstatus {done.returncode}, expected {'an error' if fails else 0}")
    return done.stdout


def launcher():
    """The compiler behind the compiler cache, as a list."""
    found = shutil.which("ccache")
    return [found] if found else []


def configure(source, build, *options, fails=False):
    cached = [f"-DCMAKE_{language}_COMPILER_LAUNCHER={path}" for path in launcher() for language in ("C", "CXX")]
    compilers = [f"-DCMAKE_C_COMPILER={cache('CMAKE_C_COMPILER')}", f"-DCMAKE_CXX_COMPILER={cache('CMAKE_CXX_COMPILER')}"]
    return run(CMAKE, "-G", "Ninja", "-S", source, "-B", build, "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_PREFIX_PATH={prefix()}",
               *cached, *compilers, *options, fails=fails)


def build(folder_of_build):
    run(CMAKE, "--build", folder_of_build, timeout=250)


def fresh(name):
    """An empty folder beside the prefix."""
    path = folder() / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    return path


def expect(what, condition, told=""):
    if not condition:
        sys.exit(f"not so: {what}\n{told}")
    print(f"ok: {what}")
