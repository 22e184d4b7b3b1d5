# SPDX-License-Identifier: Apache-2.0
"""How fast this machine is at the moment, and what it is.

Each part of the check multiplies every limit of time by `time_scale()`, which is measured and not guessed from a load:
slow machines, busy ones and virtual ones that lose their cores to others (steal) show in the same two figures."""
import os
import pathlib
import platform
import subprocess
import sys
import time

# Both were measured on an idle machine of two cores (AMD EPYC, 2.4 GHz): its scale is 1.
LOOP_SECONDS = 0.35
SLEEP_SECONDS = 0.010  # of a sleep of 1 ms; the scheduler may let a thread of a busy core wait for two of its time slices
LARGEST_SCALE = 20
# A sanitizer's program runs at this fraction of the speed at most.
SANITIZER_SCALE = 3

# Compressing, since that depends little on how Python was built: arithmetic, branches, tables in the cache.
LOOP = """
import time, zlib
data = b"".join(b"%d " % (i * 2654435761 % 4294967296) for i in range(300000))
begun = time.perf_counter()
zlib.compress(data, 6)
print(time.perf_counter() - begun)
"""


def measure():
    """(seconds of the fixed loop on the slowest core, 99th percentile of a sleep of 1 ms), with all cores busy."""
    loops = [subprocess.Popen([sys.executable, "-I", "-c", LOOP], stdout=subprocess.PIPE, text=True)
             for _ in range(os.cpu_count() or 1)]
    sleeps = []
    while any(loop.poll() is None for loop in loops):
        begun = time.perf_counter()
        time.sleep(0.001)
        sleeps.append(time.perf_counter() - begun)
    slowest = max(float(loop.stdout.read()) for loop in loops)
    return slowest, sorted(sleeps)[len(sleeps) * 99 // 100]


def scale_of(loop, sleep, sanitized):
    """The factor for limits of time: at least 1."""
    factor = min(max(1.0, loop / LOOP_SECONDS, sleep / SLEEP_SECONDS), LARGEST_SCALE)
    return round(factor * (SANITIZER_SCALE if sanitized else 1), 1)


def processor():
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def load():
    return round(os.getloadavg()[0], 2)


class Steal:
    """The share of processor time that a host of virtual machines took away since this object was made, in per cent."""

    def __init__(self):
        self.begin = self.read()

    @staticmethod
    def read():
        try:
            fields = pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:]
            return int(fields[7]), sum(map(int, fields[:8]))
        except (OSError, IndexError, ValueError):
            return 0, 0

    def percent(self):
        stolen, whole = (now - then for now, then in zip(self.read(), self.begin))
        return round(100 * stolen / whole, 1) if whole else 0.0


def has_gpu():
    return pathlib.Path("/dev/nvidiactl").exists() or pathlib.Path("/dev/nvidia0").exists()
