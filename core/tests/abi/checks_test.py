#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""checks_test.py C_COMPILER CXX_COMPILER SOURCE_DIR: breaks each promise in a copy and expects the check of that promise to fail
with the right words. A check that nothing makes fail proves nothing."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

CC, CXX, SOURCE = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
HERE = pathlib.Path(__file__).parent
NAMES = ["plugin/types.h", "plugin/entry.h", "plugin/algorithm.h", "plugin/device.h", "plugin/transport.h", "plugin/rails.h",
         "plugin/mapped.h",
         "plugin/collective.h", "plugin/meeting.h", "plugin/rma.h", "plugin/selector.h", "plugin/tracer.h", "plugin/test_settings.h", "plugin/wrapper.h", "tutti.h",
         "memory.h", "reports.h"]


class Copy:
    """A copy of the public headers and the lock, in a temporary folder, and the checks run on it."""

    def __init__(self, folder):
        self.root = pathlib.Path(folder)
        shutil.copytree(SOURCE / "core/include", self.root / "include")
        shutil.copy(SOURCE / "core/abi/layout.txt", self.root / "layout.txt")
        shutil.copy(SOURCE / "docs/abi.md", self.root / "abi.md")
        self.headers = [str(self.root / "include/tutti" / name) for name in NAMES]

    def edit(self, header, old, new):
        path = self.root / "include/tutti" / header
        text = path.read_text()
        assert text.count(old) >= 1, f"{header} has no \"{old}\": adapt this test"
        path.write_text(text.replace(old, new, 1))

    def script(self, name, *arguments):
        result = subprocess.run([sys.executable, "-B", str(HERE / name), *map(str, arguments)], capture_output=True, text=True)
        return result.returncode, result.stdout + result.stderr

    def flags(self, file, old, new):
        path = self.root / file
        text = path.read_text()
        assert text.count(old) == 1, f"{file} has no \"{old}\": adapt this test"
        path.write_text(text.replace(old, new))
        return self.script("flags_test.py", self.root / "layout.txt", self.root / "abi.md")

    def lock(self, mode, *more):
        fields, program = self.root / "layout_fields.h", self.root / "layout"
        code, text = self.script("layout_fields.py", fields, *self.headers)
        if code:
            return code, text
        subprocess.run([CC, "-std=c11", f"-I{self.root}", f"-I{self.root / 'include'}", str(HERE / "layout.c"), "-o",
                        str(program)], check=True)
        return self.script("layout_lock.py", mode, program, self.root / "layout.txt", *self.headers, *more)


def library(copy, name, text, *flags):
    path = copy.root / "lib" / name
    path.parent.mkdir(exist_ok=True)
    source = copy.root / "library.cpp"
    source.write_text(text)
    subprocess.run([CXX, str(source), "-shared", "-fPIC", "-o", str(path), *flags], check=True)
    return path


def member(copy, folder, line):
    home = copy.root / folder
    home.mkdir(parents=True, exist_ok=True)
    (home / "part.hpp").touch()
    (home / "code.cpp").write_text(line + "\n")
    return copy.script("dependency_test.py", copy.root)


def expect(what, outcome, code, words=""):
    got, text = outcome
    if (got != 0) != (code != 0) or words not in text:
        print(f"{what}: expected status {code} and \"{words}\", got {got}:\n{text}")
        return 1
    return 0


def lock_cases(fresh):
    copy = fresh()
    yield "untouched headers", copy.lock("check"), 0
    yield "untouched stamps", copy.lock("stamps"), 0
    copy = fresh()
    copy.edit("plugin/transport.h", "uint32_t lane;\n", "uint32_t pad;\n  uint32_t lane;\n")
    yield "a field in the middle", copy.lock("update"), 1, "implicit padding"
    copy = fresh()
    copy.edit("plugin/device.h", "  uint64_t link_latency_ns;", "  uint64_t link_jitter_ns;\n  uint64_t link_latency_ns;")
    yield "a field before others", copy.lock("check"), 1, "This interface is a draft"
    yield "its update", copy.lock("update"), 1, "locked line changed"
    yield "its update as a new draft", copy.lock("update", "--new-draft"), 0, "lines added"
    yield "its old stamp", copy.lock("stamps"), 1, "#define TUTTI_DEVICE_STAMP 0x"
    copy = fresh()
    copy.edit("plugin/transport.h", "  uint64_t latency_ns;", "  uint64_t jitter_ns;\n  uint64_t latency_ns;")
    yield "a field before others of a stable interface", copy.lock("update", "--new-draft"), 1, "This can never be"
    copy = fresh()
    copy.edit("plugin/transport.h", "} tutti_transport;", "  void (*more)(void* self);\n} tutti_transport;")
    yield "a function appended to a stable interface", copy.lock("update"), 0, "2 lines added"
    copy = fresh()
    copy.edit("plugin/entry.h", "  void* self; /*", "  void* extra;\n  void* self; /*")
    yield "a change of a stable struct", copy.lock("update", "--new-draft"), 1, "This can never be"
    copy = fresh()
    copy.edit("plugin/entry.h", "} tutti_host;", "  void* more;\n} tutti_host;")
    yield "an appended field", copy.lock("check"), 1, "not locked yet: tutti_host.more 80 8 void*"
    yield "its update", copy.lock("update"), 0, "2 lines added"
    yield "afterwards", copy.lock("check"), 0
    copy = fresh()
    copy.edit("plugin/entry.h", "TUTTI_MANDATORY(tutti_host, memory_kind);", "TUTTI_MANDATORY(tutti_host, find_interface);")
    yield "another mandatory field", copy.lock("check"), 1, "locked  tutti_host mandatory 64 memory_kind"
    copy = fresh()
    copy.edit("plugin/entry.h", "TUTTI_MANDATORY(tutti_host, memory_kind);", "")
    yield "a sized struct without one", copy.lock("check"), 1, "tutti_host is sized, but no TUTTI_MANDATORY"
    copy = fresh()
    copy.edit("plugin/entry.h", "} tutti_host;", "  uint32_t more;\n} tutti_host;")
    yield "four bytes appended", copy.lock("check"), 1, "implicit padding"
    copy = fresh()
    copy.edit("plugin/wrapper.h", "(*wrap)(void* self, const tutti_transport* inner,", "(*wrap)(void* self, tutti_transport* inner,")
    yield "another signature", copy.lock("stamps"), 1, "#define TUTTI_WRAPPER_STAMP 0x"
    copy = fresh()
    copy.edit("plugin/transport.h", "uint64_t (*released)(tutti_link* link,", "uint64_t (*released)(const tutti_link* link,")
    yield "another signature of a stable interface", copy.lock("update", "--new-draft"), 1, "This can never be"
    copy = fresh()
    copy.edit("plugin/transport.h", "uint64_t (*released)(tutti_link* link,", "uint64_t (*released)(tutti_link* the_link,")
    yield "a renamed parameter", copy.lock("check"), 0
    copy = fresh()
    copy.edit("plugin/types.h", "TUTTI_MISMATCH = -8", "TUTTI_MISMATCH = -80")
    yield "another value", copy.lock("check"), 1, "constant TUTTI_MISMATCH -8"
    copy = fresh()
    copy.edit("plugin/types.h", "  TUTTI_SYSTEM = -9, ", "  ")
    yield "a constant gone", copy.lock("check"), 1, "(gone)"
    copy = fresh()
    copy.edit("plugin/types.h", "TUTTI_SYSTEM = -9,", "TUTTI_SYSTEM,")
    yield "an enumerator without a value", copy.lock("check"), 1, "has no written value"
    copy = fresh()
    copy.edit("plugin/transport.h", "uint32_t reach; ", "int reach; ")
    yield "a field of type int", copy.lock("check"), 1, "use a sized one"


def flags_cases(fresh):
    marks = "constant TUTTI_TRANSPORT_MARKS 2\n"
    yield "untouched flags", fresh().flags("layout.txt", marks, marks), 0
    yield "a flags field of another width", fresh().flags("layout.txt", "tutti_command.flags 60 4 uint32_t",
                                                         "tutti_command.flags 60 2 uint16_t"), 1, "the table says 32 bits"
    yield "a flags field more", fresh().flags("layout.txt", marks, marks + "tutti_new.flags 0 8 uint64_t\n"), 1, "tutti_new.flags"
    for value, words in (("3", "TUTTI_TRANSPORT_MARKS is 0x3"), (str(1 << 32), "expected one of the bits 0 to 31")):
        yield f"a flag of {value}", fresh().flags("layout.txt", marks, f"constant TUTTI_TRANSPORT_MARKS {value}\n"), 1, words
    yield "a flag that is not there", fresh().flags("layout.txt", marks, ""), 1, "there is no constant TUTTI_TRANSPORT_MARKS"


def header_cases(fresh):
    for edit, words in [(("plugin/types.h", "#include <stdint.h>", ""), "does not compile alone"),
                        (("plugin/transport.h", "#include \"types.h\"", "#include \"types.h\"\n#include <sys/uio.h>"),
                         "neither a standard nor a Tutti header"),
                        (("plugin/entry.h", "} tutti_log_record;", "  uint32_t odd;\n} tutti_log_record;"), "padding"),
                        (("registry.h", "#include <string>", ""), "registry.h does not compile alone")]:
        copy = fresh()
        copy.edit(*edit)
        yield f"headers: {edit[1]}", copy.script("headers_test.py", CC, CXX, copy.root / "include", f"tutti/{edit[0]}"), 1, words
    copy = fresh()
    (copy.root / "include/tutti/plugin/extra.hpp").write_text("#pragma once\n")
    yield "C++ in the ABI", copy.script("headers_test.py", CC, CXX, copy.root / "include", "tutti/plugin/types.h"), 1, "pure C"


def dependency_cases(fresh):
    law = "against the dependency law"
    for folder, line, code in [("plugins/x", "#include <tutti/sdk/plugin.hpp>", 0), ("plugins/x", "#include \"part.hpp\"", 0),
                               ("plugins/x", "#include <tutti/tutti.h>", 1), ("net-x", "#include <tutti/schedule.h>", 1),
                               ("core", "#include <tutti/sdk/plugin.hpp>", 1), ("core", "#include \"../net-y/own.hpp\"", 1),
                               ("tools", "#include <tutti/registry.h>", 0), ("tools", "#include \"own.hpp\"", 1),
                               ("plugins/algorithms/tests", "#include <tutti/schedule.h>", 0),
                               ("plugins/algorithms/src", "#include <tutti/schedule.h>", 1)]:
        copy = fresh()
        other = copy.root / "net-y"
        other.mkdir()
        (other / "CMakeLists.txt").touch()
        (other / "own.hpp").touch()
        home = "plugins/algorithms" if folder.startswith("plugins/algorithms/") else folder
        (copy.root / home).mkdir(parents=True)
        (copy.root / home / "CMakeLists.txt").touch()
        yield f"{folder}: {line}", member(copy, folder, line), code, law if code else ""


def export_cases(fresh):
    entry, leak = 'extern "C" { int tutti_plugin_entry = 1; }\n', "namespace fmt { int leaked() { return 1; } }\n"
    api = 'extern "C" int tutti_comm_create() { return 0; }\n'
    copy = fresh()
    library(copy, "libtutti-a.so", entry)
    yield "a plugin", copy.script("exports_test.py", "plugins", copy.root / "lib"), 0
    library(copy, "libtutti-a.so", entry + leak)
    yield "a plugin that exports more", copy.script("exports_test.py", "plugins", copy.root / "lib"), 1, "exports 2 symbols"
    core = library(copy, "libtutti.so", api)
    yield "the library", copy.script("exports_test.py", "library", core), 0
    linked = copy.root / "linked"
    linked.mkdir()
    library(copy, "../linked/libtutti-b.so", entry, "-Wl,--no-as-needed", str(core))
    yield "a plugin that links the core", copy.script("exports_test.py", "plugins", linked), 1, "plugins link neither"
    library(copy, "libtutti.so", api + leak)
    yield "a library that exports fmt", copy.script("exports_test.py", "library", core), 1, "fmt::leaked"
    yield "no plugins", copy.script("exports_test.py", "plugins", copy.root, "--required"), 1, "no plugin in"


def main():
    with tempfile.TemporaryDirectory() as base:
        number = iter(range(1000))
        fresh = lambda: Copy(pathlib.Path(base) / f"copy{next(number)}")
        cases, failures = 0, 0
        for group in (lock_cases, flags_cases, header_cases, dependency_cases, export_cases):
            for case in group(fresh):
                cases += 1
                failures += expect(*case)
    print(f"{cases} cases, {failures} failed")
    return 1 if failures else 0


sys.exit(main())
