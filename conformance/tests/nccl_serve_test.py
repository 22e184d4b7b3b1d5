#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nccl_serve_test.py TUTTI_CONFORM LIB: the closed loop. Tutti hosts libnccl-net-tutti.so by nccl-net, and that library
serves a transport of Tutti's. NCCL's contract holds over each transport, and so do a share of Tutti's and one of the
matrix."""
import os
import pathlib
import sys

import expectations
from expectations import end, expect

CONFORM, LIB = sys.argv[1], pathlib.Path(sys.argv[2])
SERVE = LIB / "libnccl-net-tutti.so"


def conform(transport, *arguments, **more):
    # Without a secret ranks meet by 127.0.0.1, where the library listens only if it is told to.
    environment = {"TUTTI_NCCL_SERVES": transport, "TUTTI_NCCL_SERVES_ADDRESS": "127.0.0.1", **more}
    return expectations.run([CONFORM, "--nccl-net", SERVE, *arguments], 300, {**os.environ, **environment})


for transport, cases in (("tcp", "contract/nccl/*"), ("shm", "contract/nccl/*"), ("template", "contract/nccl/*"),
                         ("tcp", "contract/transport/*/o*")):
    status, out = conform(transport, "--level", "quick", "--case", cases, TUTTI_PLUGIN_PATH=str(LIB / "tutti-samples"))
    expect(f"{cases} holds over {transport}", status == 0 and " 0 failed" in out, out)
for version in range(6, 13):
    status, out = conform("tcp", "--case", "contract/nccl/*", TUTTI_NCCL_NET_VERSION=str(version))
    expect(f"version {version} keeps NCCL's contract", status == 0 and " 0 failed" in out, out)
status, out = conform("tcp", "--level", "smoke", "--share", "1/128")
expect("a share of the matrix passes", status == 0 and " 0 failed" in out, out)

# Settings that cannot be. The run ends before any case, with the library's words.
for transport, says in (("carrier-pigeon", 'there is no transport "carrier-pigeon"'), ("nccl:tutti", "NCCL_NET_PLUGIN=tutti"),
                        ("", "TUTTI_NCCL_SERVES is empty"), ("chaos", "transport chaos: open_domain failed")):
    status, out = conform(transport)
    expect(f"transport {transport!r} is refused", status == 2 and says in out and "init returned 5" in out, out)
status, out = conform("tcp", TUTTI_NCCL_SERVES_ADDRESS="here")
expect("an address that is none is named", status == 2 and 'TUTTI_NCCL_SERVES_ADDRESS="here" is no IP address' in out, out)
end()
