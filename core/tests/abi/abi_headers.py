#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the C headers of the ABI and tells which structs, fields, function types and constants they have.

The headers keep to a simple style (typedef struct X {...} X; one field per declaration), so a short parser is enough.
What it could overlook does not stay hidden: the C program built from its result fails when the fields of a struct do not
fill the struct.
"""
import pathlib
import re

# Not part of the lock: the minor version grows, and the stamps are computed from the locked lines.
FREE_CONSTANTS = re.compile(r"TUTTI_ABI_MINOR$|TUTTI_\w+_STAMP$")
# Types whose size differs between compilers or platforms do not cross the boundary.
FORBIDDEN_TYPES = {"int", "long", "short", "unsigned", "signed", "bool", "_Bool", "enum", "union", "size_t", "float", "double"}
# Draft interfaces: their stamp and their table.
DRAFTS = {
    "TUTTI_COLLECTIVE_STAMP": "tutti_collective",
    "TUTTI_DEVICE_STAMP": "tutti_device",
    "TUTTI_EXECUTOR_STAMP": "tutti_executor",
    "TUTTI_MAPPED_STAMP": "tutti_mapped",
    "TUTTI_RMA_STAMP": "tutti_rma",
    "TUTTI_SELECTOR_STAMP": "tutti_selector",
    "TUTTI_TRACER_STAMP": "tutti_tracer",
    "TUTTI_WRAPPER_STAMP": "tutti_wrapper",
}
# The tables of the interfaces that are stable. What they reach never changes, whatever drafts reach it, too.
STABLE = ("tutti_algorithm", "tutti_meeting", "tutti_rails", "tutti_transport", "tutti_view", "tutti_wait_fd")


class Headers:
    """structs: {name: [(field, type text)]} and constants: [name], in the order of the headers."""

    def __init__(self, paths):
        self.structs, self.constants, self.function_types, self.mandatory = {}, [], {}, {}
        for path in paths:
            self._read(pathlib.Path(path).read_text())

    def _read(self, text):
        text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
        text = text.replace("\\\n", " ")
        self.mandatory.update(re.findall(r"^TUTTI_MANDATORY\((\w+), (\w+)\);", text, flags=re.M))
        for name, value in re.findall(r"^[ \t]*#define[ \t]+(TUTTI_\w+)[ \t]+(\S.*)$", text, flags=re.M):
            if re.match(r'(0x[0-9a-fA-F]+u?|\d+u?|".*")\s*$', value) and not FREE_CONSTANTS.match(name):
                self.constants.append(name)
        text = re.sub(r"^[ \t]*#.*$", "", text, flags=re.M)
        for body in re.findall(r"\benum\s*\{(.*?)\}", text, flags=re.S):
            for enumerator in body.split(","):
                if enumerator.strip() and "=" not in enumerator:
                    raise SystemExit(f"the enumerator {enumerator.strip()} has no written value")
            self.constants += re.findall(r"\b(TUTTI_\w+)\s*=", body)
        for result, name, parameters in re.findall(r"\btypedef\s+([\w ]+?[\w*])\s*\(\*\s*(\w+)\)\s*\(([^)]*)\)\s*;", text):
            self.function_types[name] = function_type(result, parameters)
        for name, body in re.findall(r"\btypedef\s+struct\s+(\w+)\s*\{(.*?)\}\s*\w+\s*;", text, flags=re.S):
            self.structs[name] = [self._field(name, d.strip()) for d in body.split(";") if d.strip()]

        for name in re.findall(r"\b(?:struct|union)\s+(\w*)\s*\{", text):
            if name not in self.structs:
                raise SystemExit(f"struct or union {name or '(unnamed)'} is not written as `typedef struct X {{...}} X;`")
        for name, fields in self.structs.items():
            if fields[0][0] == "struct_size" and self.mandatory.get(name) not in [field for field, _ in fields]:
                raise SystemExit(f"{name} is sized, but no TUTTI_MANDATORY({name}, FIELD); says its last mandatory field")
            for field, kind in fields:
                if FORBIDDEN_TYPES & set(re.findall(r"\w+", kind)):
                    raise SystemExit(f"{name}.{field}: the type {kind} may differ between compilers; use a sized one")

    def _field(self, struct, declaration):
        function = re.match(r"(.+?)\(\s*\*\s*(\w+)\s*\)\s*\((.*)\)$", declaration, flags=re.S)
        if function:
            return function[2], function_type(function[1], function[3])
        plain = re.match(r"(.+?)(\w+)\s*(\[[^\]]+\])?$", declaration, flags=re.S)
        if not plain or "," in declaration:
            raise SystemExit(f"{struct}: cannot read the declaration \"{declaration}\"; write one field per declaration")
        kind = normalise(plain[1] + (plain[3] or ""))
        return plain[2], self.function_types.get(kind, kind)

    def reachable(self, struct):
        """`struct` and the structs that its fields and functions name, in header order."""
        seen, todo = set(), [struct]
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                words = set(re.findall(r"\w+", " ".join(kind for _, kind in self.structs[name])))
                todo += [other for other in self.structs if other in words]
        return [name for name in self.structs if name in seen]


def normalise(text):
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"\s*([*(),\[\]])\s*", r"\1", text)


def function_type(result, parameters):
    """The type with the parameters' names left out: renaming one changes nothing for the other side."""
    kinds = []
    for parameter in parameters.split(","):
        parameter = normalise(parameter)
        named = re.match(r"(.*[\w*])(?:(?<=\*)|\s)\w+$", parameter)
        kinds.append(named[1].strip() if named and named[1] not in ("const", "struct", "unsigned") else parameter)
    return f"{normalise(result)}(*)({','.join(kinds)})"
