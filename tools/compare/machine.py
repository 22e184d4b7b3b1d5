# SPDX-License-Identifier: Apache-2.0
"""What a reader of figures has to know of the machine that they were measured on."""
import os
import platform
from pathlib import Path


def _fields(path, separator):
    """The lines "name SEPARATOR value" of a file; of lines with equal names the first. {}: it cannot be read."""
    found = {}
    try:
        for line in Path(path).read_text().splitlines():
            name, is_one, value = line.partition(separator)
            if is_one:
                found.setdefault(name.strip(), value.strip().strip('"'))
    except OSError:
        pass
    return found


def machine():
    """The processor's model, the cores that this process may use, the kernel and the distribution."""
    cpu = _fields("/proc/cpuinfo", ":")
    name = cpu.get("model name", platform.machine())
    numbers = [f"{what} {cpu[key]}" for what, key in (("family", "cpu family"), ("model", "model")) if key in cpu]
    return {"processor": name + (f" ({', '.join(numbers)})" if numbers else ""), "cores": len(os.sched_getaffinity(0)),
            "virtual": "hypervisor" in cpu.get("flags", "").split(), "kernel": f"{platform.system()} {platform.release()}",
            "system": _fields("/etc/os-release", "=").get("PRETTY_NAME", platform.platform())}
