#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""wheel_test.py SOURCE [--torch REQUIREMENT]: Tutti by pip, as its users meet it; they are in environments that are made anew.

1. README's lines for pip, typed in a copy of the tree, one after the other in one shell, with the torch that README names.
2. tools/wheel makes a wheel with the backend for that torch, for this Python and the newest other one that is found. It is
   installed where no compiler is in PATH, and used; its folder is moved; another installation, another interpreter and another
   torch beside it are told apart.

It fetches from where pip's settings say, so no test of ctest starts it: tools/check --soak does. The times are printed.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(sys.argv[1]).resolve()
SCALE = float(os.environ.get("TUTTI_TEST_TIME_SCALE") or 1)
CLEAN = {name: value for name, value in os.environ.items()
         if not name.startswith(("TUTTI_", "PYTHON", "LD_", "VIRTUAL_ENV"))}
TESTS = ("arrays", "calls", "deadlines", "errors", "examples", "help", "operators", "persistent", "schedules", "threads")
UNCHANGED = """
import os, torch, torch.distributed as dist
dist.init_process_group("tutti")
data = torch.full((3,), float(dist.get_rank() + 1))
dist.all_reduce(data)
os.write(1, f"{dist.get_backend()} {data.tolist()}\\n".encode())  # as a whole, beside the other rank's
dist.destroy_process_group()
"""


def run(*command, status=0, seconds=120, **more):
    """What it prints. Its status is the expected one."""
    begin = time.monotonic()
    done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=seconds * SCALE, **{"env": CLEAN, **more})
    if done.returncode != status:
        sys.exit(f"$ {' '.join(map(str, command))}\n{done.stdout[-6000:]}\nstatus {done.returncode}, expected {status}")
    run.took = time.monotonic() - begin
    return done.stdout


def expect(what, good, told=""):
    if not good:
        sys.exit(f"FAILED: {what}\n{told}")
    print(f"ok: {what}", flush=True)


def block(fence):
    """The lines of README's blocks with this fence."""
    found = re.findall(rf"^```{fence}\n(.*?)^```$", (SOURCE / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    return "".join(found)


def typed(home):
    """README's lines, in its order: of the blocks `sh pip`, and those of `sh installed` that start Python."""
    (home / "gradient.py").write_text(block("python gradient.py"))
    lines = []
    for fence, text in re.findall(r"^```(sh pip|sh installed)\n(.*?)^```$", (SOURCE / "README.md").read_text(), re.MULTILINE | re.DOTALL):
        lines += [line for line in text.splitlines() if line.strip() and (fence == "sh pip" or line.startswith("python3"))]
    expect(f"README has {len(lines)} lines for pip", len(lines) >= 4, "is its form still what this test reads?")
    script = []
    for line in lines:
        script += [f"echo '$ {line.split('  #')[0]}'", "SECONDS=0", line, 'echo "seconds: $SECONDS"']
    told = run("bash", "-euo", "pipefail", "-c", "\n".join(script), cwd=home, seconds=1500)
    print(*re.findall(r"^(?:\$ .*|seconds: \d+)$", told, re.MULTILINE), sep="\n")
    expect("README's lines for pip", "weights: the same bits on all ranks" in told, told[-3000:])
    unchanged = home / "unchanged.py"
    unchanged.write_text(UNCHANGED)
    told = run(home / "env/bin/torchrun", "--nproc-per-node", "2", unchanged, cwd=home)
    expect("a program that imports nothing of Tutti's", told.count("tutti [3.0, 3.0, 3.0]") == 2, told)
    return lines


def environment(folder, *requirements, python=sys.executable):
    run(python, "-m", "venv", folder)
    run(folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check", *requirements, seconds=600)
    return folder / "bin/python3"


def another_interpreter():
    """The newest one of another minor version that can build a wheel, of pyenv's and the system's; None if there is none."""
    pyenv = pathlib.Path(os.environ.get("PYENV_ROOT") or pathlib.Path.home() / ".pyenv")
    files = [*pyenv.glob("versions/*/bin/python3.*"), *pathlib.Path("/usr/bin").glob("python3.*")]
    found = [(int(minor[1]), file) for file in files if (minor := re.fullmatch(r"python3\.([0-9]+)", file.name))
             and int(minor[1]) >= 10 and int(minor[1]) != sys.version_info[1]]
    able = "import ensurepip, os, sysconfig; os.stat(sysconfig.get_path('include') + '/Python.h')"
    for _, file in sorted(found, reverse=True):
        if subprocess.run([file, "-c", able], env=CLEAN, stderr=subprocess.DEVNULL).returncode == 0:
            return file
    return None


def used(python, home):
    """The wheel in an environment without torch, without a compiler in PATH."""
    bare = {**CLEAN, "PATH": str(python.parent)}
    run(python, "-B", "-c", "import tutti", env=bare)
    costs = []
    for _ in range(5):
        costs.append(float(run(python, "-c", "import time; begin = time.perf_counter(); import tutti; print(time.perf_counter() - begin)", env=bare)))
    print(f"import tutti: {min(costs) * 1000:.0f} ms at best of 5, {max(costs) * 1000:.0f} ms at most")
    expect("import tutti prints nothing", run(python, "-W", "error", "-c", "import tutti", env=bare) == "")
    told = run(python, "-m", "tutti.run", "-n", "4", home / "gradient.py", env=bare)
    expect("python3 -m tutti.run", told == "", told)
    told = run(python.parent / "tuttirun", "-n", "2", "tutti-perf", "all_reduce", "-b", "8", "-e", "1K", "-f", "8", env=bare)
    expect("tuttirun, tutti-perf", "Out of bounds values : 0 OK" in told, told)
    told = run(python.parent / "tutti-perf", "buckets", "resnet50", *"--wire plain --advance caller --compute 1 -n 1 -w 0 -c 0".split(), env=bare)
    expect("tutti-perf buckets finds its models", "model: resnet50 parameters: 161" in told, told)
    told = run(python.parent / "tutti-info", env=bare)
    expect("plugins are those of the wheel", "site-packages/tutti/lib/tutti/libtutti-shm.so" in told and "site-packages/tutti/lib/tutti/libtutti-net-tcp.so" in told, told)
    for program in ("tutti-plan", "tutti-trace", "tutti-doctor"):
        run(python.parent / program, "--help", env=bare)
    run(python, "-B", "-m", "unittest", *(f"{subject}_test" for subject in TESTS), env=bare, cwd=home / "tools/python/tests")
    expect(f"the package's tests: {', '.join(TESTS)}", True)
    told = run(python, "-c", "import tutti.torch", env=bare, status=1)
    expect("without torch", told.splitlines()[-1] == "ModuleNotFoundError: No module named 'torch'", told)
    if os.geteuid() == 0 and pathlib.Path("/usr/lib").is_dir():
        hidden = sorted(pathlib.Path("/usr/lib").rglob("libibverbs.so.1*")) + sorted(pathlib.Path("/usr/lib").rglob("libpmix.so.2*"))
        hide = "".join(f"mount --bind /dev/null {path} && " for path in hidden if not path.is_symlink())
        told = run("unshare", "--mount", "sh", "-c", f'{hide}"$0" -W error -c "import tutti" && "$1"', python, python.parent / "tutti-info")
        expect("a machine without libibverbs and PMIx", "libtutti-shm.so" in told and "Traceback" not in told, told)
    for first, words in (("", "data"), ("import ssl; ssl.create_default_context(); ", "data")):
        told = run(python.parent / "tuttirun", "-n", "2", python, "-c", f"{first}import tutti; c = tutti.Communicator(); d = bytearray(8); c.broadcast(d); print('data', len(d))",
                   env={**bare, "TUTTI_TRANSPORT": "tcp", "TUTTI_SECRET": "a secret of sixteen bytes"})
        expect("TCP" + (", beside the interpreter's own TLS" if first else ""), told.count(f"{words} 8") == 2, told)


def moved(python, folder):
    site = pathlib.Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('platlib'))").strip())
    elsewhere = folder / "moved to here"
    shutil.copytree(site / "tutti", elsewhere / "tutti")
    for library in site.glob("tutti*.libs"):
        shutil.copytree(library, elsewhere / library.name)
    told = run(sys.executable, "-c", "import tutti; print(tutti.__file__)", env={**CLEAN, "PYTHONPATH": str(elsewhere)})
    expect("in another folder", str(elsewhere) in told, told)
    told = run(elsewhere / "tutti/bin/tutti-info")
    expect("its plugins there", f"{elsewhere}/tutti/lib/tutti/libtutti-shm.so" in told, told)
    for module in (elsewhere / "tutti").glob("_core.*"):
        module.rename(module.with_name("_core.cpython-299-x86_64-linux-gnu.so"))
    told = run(sys.executable, "-c", "import tutti", env={**CLEAN, "PYTHONPATH": str(elsewhere)}, status=1)
    expect("another interpreter is told", f"is for CPython {sys.version_info[0]}.{sys.version_info[1]} (" in told and
           f"in Tutti's folder: {sys.executable} -m pip install ." in told, told)


def beside(python, folder):
    """Another libtutti.so.0 in LD_LIBRARY_PATH is not taken; one that is loaded before is refused by name."""
    other = folder / "other"
    other.mkdir()
    (other / "other.c").write_text('const char* tutti_version(void) { return "9.9.9"; }\n')
    run("cc", "-shared", "-fPIC", "-Wl,-soname,libtutti.so.0", "-o", other / "libtutti.so.0", other / "other.c")
    told = run(python, "-c", "import tutti; print([line.split()[-1] for line in open('/proc/self/maps') if 'libtutti.so' in line][0])",
               env={**CLEAN, "LD_LIBRARY_PATH": str(other)})
    expect("LD_LIBRARY_PATH does not mix", "site-packages/tutti/lib/" in told, told)
    told = run(python, "-c", "import tutti", env={**CLEAN, "LD_PRELOAD": str(other / "libtutti.so.0")}, status=1)
    expect("a library with other symbols is refused by name", f"does not fit {other}/libtutti.so.0, which is in this process already" in told, told)
    run("cc", "-shared", "-fPIC", "-o", other / "libversion.so", other / "other.c")
    told = run(python, "-c", "import tutti", env={**CLEAN, "LD_PRELOAD": str(other / "libversion.so")}, status=1)
    expect("a library of another version, too", f"the library of this process, {other}/libversion.so, is 9.9.9" in told, told)


def of_one_version(python, folder):
    """The moved one is of the wheel's version. Together they work: a process has one library, and each plugin once."""
    same = folder / "same"  # LD_PRELOAD takes no path with spaces
    same.symlink_to(folder / "moved to here/tutti")
    met = ("import tutti; tutti.Communicator().broadcast(bytearray(8)); "
           "print('met', *sorted({line.split(maxsplit=5)[5].strip() for line in open('/proc/self/maps') if '/lib/' in line and 'libtutti' in line}))")
    told = run(same / "bin/tuttirun", "-n", "2", python, "-c", met)
    expect("another one's tuttirun", told.count("met ") == 2 and str(folder / "moved to here") not in told, told)
    told = run(python.parent / "tuttirun", "-n", "2", python, "-c", met, env={**CLEAN, "LD_PRELOAD": str(same / "lib/libtutti.so.0")})
    expect("another one's library, with its plugins", told.count("met ") == 2 and "site-packages/tutti/lib" not in told, told)
    told = run(python.parent / "tuttirun", "-n", "2", python, "-c", met, env={**CLEAN, "TUTTI_PLUGIN_PATH": str(same / "lib/tutti")})
    expect("TUTTI_PLUGIN_PATH to another one's plugins", told.count("met ") == 2, told)
    told = run(python.parent / "tutti-info", env={**CLEAN, "TUTTI_PLUGIN_PATH": str(same / "lib/tutti")})
    expect("tutti-info says whose are used", re.search(rf"REFUSED .*site-packages/tutti/lib/tutti/libtutti-shm.so\n +its id is taken by {same}/lib/tutti/libtutti-shm.so, which was found first", told), told)


def with_torch(python, wheel, torch, home, folder):
    told = run(python.parent / "torchrun", "--nproc-per-node", "2", home / "unchanged.py")
    expect(f"{torch} and the wheel: a program that imports nothing of Tutti's", told.count("tutti [3.0, 3.0, 3.0]") == 2, told)
    site = pathlib.Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('platlib'))").strip())
    for module in (site / "tutti/torch").glob("_core_*"):
        module.rename(module.with_name(re.sub(r"_core_[0-9]+_[0-9]+", "_core_1_0", module.name)))
    told = run(python, "-c", "import torch; print('imported'); torch.distributed.init_process_group('tutti', init_method='tcp://127.0.0.1:1', rank=0, world_size=1)", status=1,
               env={**CLEAN, "PYTHONUNBUFFERED": "1"})
    expect("a torch that the wheel is not for: torch itself is imported, and the group says it",
           told.startswith("imported\n") and re.search(r"ImportError: tutti.torch: .* is for torch 1.0, and the torch of .* -m pip install \.$", told.strip()), told)
    (site / "tutti/__init__.py").write_text("raise RuntimeError('broken')\n")
    told = run(python, "-c", "import torch; print('imported')")
    expect("torch beside a broken tutti", told == "imported\n", told)


torch = sys.argv[sys.argv.index("--torch") + 1] if "--torch" in sys.argv else None
with tempfile.TemporaryDirectory(prefix="tutti-wheel-test-") as place:
    place = pathlib.Path(place)
    home = place / "tutti"
    run(SOURCE / "tools/copy-tree", home)
    CLEAN.update(CCACHE_BASEDIR=str(home), CCACHE_NOHASHDIR="1")
    lines = typed(home)
    torch = torch or re.search(r"torch==[0-9.]+", " ".join(lines))[0]
    other = another_interpreter()
    print(f"another Python: {other}" if other else "skipped: another Python: neither pyenv nor the system has one from 3.10 on with headers and venv")
    pythons = [sys.executable] + ([other] if other else [])
    run(home / "tools/wheel", *(word for each in pythons for word in ("--python", each)), "--torch", torch, "--output", place / "wheels", seconds=1500)
    print(f"tools/wheel for {len(pythons)}: {run.took:.0f} s")
    wheels = {int(tag[1]): file for file in (place / "wheels").iterdir()
              if (tag := re.fullmatch(r"tutti_collectives-.*-cp3([0-9]+)-manylinux_2_34_\w+\.whl", file.name))}
    expect(f"wheels of the promised tag: {', '.join(f'{file.name} ({file.stat().st_size / 1e6:.1f} MB)' for file in wheels.values())}",
           len(wheels) == len(pythons) == len(os.listdir(place / "wheels")), os.listdir(place / "wheels"))
    wheel = wheels.pop(sys.version_info[1])
    python = environment(place / "plain", wheel, "numpy")
    used(python, home)
    for minor, of_other in wheels.items():
        print(f"Python 3.{minor}:")
        used(environment(place / f"python3.{minor}", of_other, "numpy", python=other), home)
    moved(python, place)
    beside(python, place)
    of_one_version(python, place)
    with_torch(environment(place / "torch", wheel, torch, "numpy"), wheel, torch, home, place)
print("all of pip's ways passed")
