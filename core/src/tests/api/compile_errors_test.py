#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compile_errors_test.py CXX_COMPILER INCLUDE_DIR: misuse of tutti.hpp does not compile, and the compiler's first words say why."""
import subprocess
import sys
import tempfile

CXX, INCLUDE = sys.argv[1:3]
FLAGS = [CXX, "-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}"]
HEADERS = """#include <tutti/tutti.hpp>
#include <list>
#include <vector>
"""
FRAME = """void f(tutti::Communicator& world, std::vector<float>& a, const std::vector<float>& c, std::vector<double>& d) {
  (void)world, (void)a, (void)c, (void)d;
  %s;
}
"""
CASES = [
    ("world.all_reduce(c, a, tutti::Op::sum)", None),
    ("world.async().all_reduce(c, a, tutti::Op::sum)", None),
    ("world.all_reduce(std::vector<float>(3), a, tutti::Op::sum)", None),
    ("world.all_reduce(a, d, tutti::Op::sum)", "in and out have different element types"),
    ("world.all_reduce(a, c, tutti::Op::sum)", "out is const"),
    ("world.receive(c, 0)", "out is const"),
    ("world.all_gather(a, std::vector<float>(3))", "out is a temporary"),
    ("world.async().all_reduce(std::vector<float>(3), a, tutti::Op::sum)", "in is a temporary"),
    ("(void)tutti::send(std::vector<float>(3), 0)", "the data is a temporary"),
    ("std::list<float> l; world.all_reduce(l, l, tutti::Op::sum)", "Elements"),
    ("std::vector<bool> b; world.broadcast(b, 0)", "Elements"),
    ("std::vector<std::string> s; world.send(s, 0)", "Elements"),
    ("(void)tutti::dtype_of<long double>()", "no such tutti type"),
]

faults = 0
with tempfile.TemporaryDirectory() as folder:
    # The headers are compiled once.
    header = f"{folder}/headers.hpp"
    with open(header, "w", encoding="utf-8") as file:
        file.write(HEADERS)
    subprocess.run([*FLAGS, "-x", "c++-header", header, "-o", f"{header}.gch"], check=True)
    for line, words in CASES:
        done = subprocess.run([*FLAGS, "-fsyntax-only", "-include", header, "-x", "c++", "-"],
                              input=FRAME % line, text=True, capture_output=True)
        told = "\n".join(done.stderr.splitlines()[:40])
        if (done.returncode == 0) != (words is None) or (words or "") not in told:
            faults += 1
            print(f"{line}: expected {words and repr(words) or 'to compile'}, got status {done.returncode}:\n{told}")
print(f"{len(CASES)} cases, {faults} failed")
sys.exit(1 if faults else 0)
