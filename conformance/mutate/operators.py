# SPDX-License-Identifier: Apache-2.0
"""Finds the places of a C++ source where a mutation operator applies.

A mutation replaces a stretch of one file by another text with the same number of lines. The operators are mechanical: none
knows what the code is for. Nothing is mutated in a string, a comment, a macro, or a file of another member.
"""

import difflib
import re
from dataclasses import dataclass, field

from clang import cindex
from clang.cindex import CursorKind as Kind
from clang.cindex import TokenKind

# operator: the mistake that it stands for
OPERATORS = {
    "narrow": "an integer variable, field or parameter of 32, 16 or 8 bits",
    "constant": "an integer constant that is one more or one less",
    "compare": "a comparison with the wrong limit or sense",
    "arithmetic": "plus for minus, shift left for right, and the reverse",
    "logic": "and for or, and the reverse",
    "negate": "a condition that is negated",
    "drop": "a statement that is left out",
    "swap": "two statements in the other order",
    "arguments": "two arguments of one type in the other order",
    "return": "a function that ends before a statement",
    "lock": "a lock that is not taken",
    "fence": "a fence that is left out",
    "order": "a relaxed memory order",
    "share": "state of the whole process in the place of an object's or a call's own",
}

INTEGERS = ("uint64_t", "int64_t", "size_t", "uint32_t", "int32_t", "int", "uint16_t")
NARROWER = {64: ("uint32_t", "uint16_t", "uint8_t"), 32: ("uint16_t", "uint8_t"), 16: ("uint8_t",)}
WIDTH = {"uint64_t": 64, "int64_t": 64, "size_t": 64, "uint32_t": 32, "int32_t": 32, "int": 32, "uint16_t": 16}
COMPARE = {"<": ("<=",), "<=": ("<",), ">": (">=",), ">=": (">",), "==": ("!=",), "!=": ("==",)}
ARITHMETIC = {"+": ("-",), "-": ("+",), "<<": (">>",), ">>": ("<<",), "+=": ("-=",), "-=": ("+=",), "*": ("+",), "%": ("/",)}
LOGIC = {"&&": ("||",), "||": ("&&",)}
LOCKS = ("lock_guard", "unique_lock", "scoped_lock")
FENCES = re.compile(r"atomic_thread_fence|atomic_signal_fence|_mm_[sml]fence|__sync_synchronize")
ORDER = re.compile(r"memory_order(_|::)(acquire|release|acq_rel|seq_cst)$")
FUNCTIONS = (Kind.FUNCTION_DECL, Kind.CXX_METHOD, Kind.CONSTRUCTOR, Kind.DESTRUCTOR, Kind.FUNCTION_TEMPLATE)
STATEMENTS = (
    Kind.CALL_EXPR,
    Kind.BINARY_OPERATOR,
    Kind.COMPOUND_ASSIGNMENT_OPERATOR,
    Kind.UNARY_OPERATOR,
    Kind.UNEXPOSED_EXPR,
)


@dataclass(frozen=True)
class Mutation:
    file: str  # relative to the source tree
    line: int
    begin: int  # bytes [begin, end) of the file
    end: int
    before: str
    after: str
    operator: str
    function: str

    where: str = field(default="", compare=False)  # the source line, with the place marked

    def text(self):
        change = f"{shown(self.before)} -> {shown(self.after)}"
        where = f"   in: {self.where}" if self.where else ""
        return f"{self.file}:{self.line}: {self.operator} in {self.function}: {change}{where}"

    def applied(self, content):
        return content[: self.begin] + self.after.encode() + content[self.end :]

    def diff(self, content):
        """Of the whole lines that differ."""
        before, after = content.decode().splitlines(), self.applied(content).decode().splitlines()
        return [line for line in difflib.unified_diff(before, after, self.file, self.file, n=1, lineterm="")][2:]

    def key(self):
        """The same after edits elsewhere in the file."""
        return [self.file, self.function, self.operator, shown(self.before), shown(self.after), self.where]


# What no test is meant to tell apart: the words of logs and errors, and room that a container asks for in advance. Nothing
# is mutated in a call of these functions, nor in what is thrown.
TEXTS = {"log", "log_mismatch", "says", "describe", "error", "system_error", "Error", "refusal", "set_error", "format"}
HINTS = {"reserve", "shrink_to_fit"}


def is_beside_the_point(cursor):
    if cursor.kind in (Kind.CXX_THROW_EXPR, Kind.STATIC_ASSERT):
        return True
    if cursor.kind != Kind.CALL_EXPR:
        return False
    return cursor.spelling in TEXTS or (cursor.spelling in HINTS and "std::" in object_type(cursor))


def object_type(call):
    """The type of what a member function is called on."""
    for member in call.get_children():
        for base in member.get_children():
            return base.type.get_canonical().spelling
    return ""


def shown(text):
    text = " ".join(text.split())
    return text if len(text) <= 70 else text[:50] + " ... " + text[-15:]


def padded(text, before):
    """`text` with as many line ends as `before`."""
    return text + "\n" * (before.count("\n") - text.count("\n"))


class Finder:
    """The mutations of one parsed translation unit. `own` maps the full names of files that may be mutated to short ones."""

    def __init__(self, unit, own):
        self.unit = unit
        self.own = own
        self.bytes = {}
        self.found = []
        self.function = ""
        self.ends = ()  # how the function may end early

    def mutations(self):
        self.walk(self.unit.cursor, None)
        return self.found

    # ---- Places

    def content(self, file):
        if file not in self.bytes:
            with open(file, "rb") as stream:
                self.bytes[file] = stream.read()
        return self.bytes[file]

    def is_own(self, cursor):
        extent = cursor.extent
        return (
            extent.start.file is not None
            and extent.end.file is not None
            and extent.start.file.name in self.own
            and extent.start.file.name == extent.end.file.name
        )

    def source(self, cursor):
        extent = cursor.extent
        return self.content(extent.start.file.name)[extent.start.offset : extent.end.offset].decode()

    def add(self, operator, file, begin, end, after):
        content = self.content(file)
        before = content[begin:end].decode()
        after = padded(after, before)
        if before == after:
            return
        line = content.count(b"\n", 0, begin) + 1
        first, last = content.rfind(b"\n", 0, begin) + 1, content.find(b"\n", end)
        marked = content[first:begin] + b"[" + content[begin:end] + b"]" + content[end:last]
        where = "" if end - begin > 60 else " ".join(marked.decode().split())
        self.found.append(
            Mutation(self.own[file], line, begin, end, before, after, operator, self.function, where)
        )

    def add_at(self, operator, cursor, after):
        extent = cursor.extent
        self.add(operator, extent.start.file.name, extent.start.offset, extent.end.offset, after)

    def add_token(self, operator, token, after):
        extent = token.extent
        self.add(operator, extent.start.file.name, extent.start.offset, extent.end.offset, after)

    # ---- The walk

    def walk(self, cursor, parent):
        for child in cursor.get_children():
            location = child.location.file
            if cursor.kind == Kind.TRANSLATION_UNIT and (location is None or location.name not in self.own):
                continue
            if is_beside_the_point(child):
                continue
            outer = self.function, self.ends
            if child.kind in FUNCTIONS:
                nothing = child.kind in (Kind.CONSTRUCTOR, Kind.DESTRUCTOR) or child.result_type.spelling == "void"
                self.function, self.ends = child.spelling, ("return",) if nothing else ("return {}",)
            elif child.kind == Kind.LAMBDA_EXPR:
                self.ends = ("return", "return {}")
            if self.is_own(child):
                self.visit(child, cursor)
            self.walk(child, cursor)
            self.function, self.ends = outer

    def visit(self, cursor, parent):
        kind = cursor.kind
        if kind == Kind.COMPOUND_STMT:
            self.statements(cursor)
        elif kind in (Kind.IF_STMT, Kind.WHILE_STMT, Kind.DO_STMT):
            self.branches(cursor)
        elif kind in (Kind.FOR_STMT, Kind.CXX_FOR_RANGE_STMT, Kind.CASE_STMT, Kind.DEFAULT_STMT):
            self.body(list(cursor.get_children())[-1:])
        elif kind in (Kind.VAR_DECL, Kind.FIELD_DECL, Kind.PARM_DECL):
            self.declaration(cursor, parent)
        elif kind == Kind.INTEGER_LITERAL:
            self.literal(cursor)
        elif kind in (Kind.BINARY_OPERATOR, Kind.COMPOUND_ASSIGNMENT_OPERATOR):
            self.operation(cursor)
        elif kind == Kind.CALL_EXPR:
            self.call(cursor)
        elif kind == Kind.DECL_REF_EXPR and ORDER.search(self.source(cursor)):
            self.add_at("order", cursor, "std::memory_order_relaxed")

    def is_statement(self, cursor):
        return cursor.kind in STATEMENTS and self.is_own(cursor) and not is_beside_the_point(cursor)

    def statements(self, block):
        children = list(block.get_children())
        for at, child in enumerate(children):
            if self.is_lock(child):
                self.add_at("lock", child, ";")
            if not self.is_statement(child):
                continue
            self.statement(child)
            if at + 1 < len(children) and self.is_statement(children[at + 1]):
                self.swapped("swap", child, children[at + 1])

    def statement(self, cursor):
        text = self.source(cursor)
        self.add_at("fence" if FENCES.search(text) else "drop", cursor, "")
        for end in self.ends:
            self.add_at("return", cursor, end)

    def swapped(self, operator, first, second):
        file = first.extent.start.file.name
        begin, end = first.extent.start.offset, second.extent.end.offset
        between = self.content(file)[first.extent.end.offset : second.extent.start.offset].decode()
        self.add(operator, file, begin, end, self.source(second) + between + self.source(first))

    def is_lock(self, cursor):
        if cursor.kind != Kind.DECL_STMT or not self.is_own(cursor):
            return False
        return any(v.kind == Kind.VAR_DECL and any(l in v.type.spelling for l in LOCKS) for v in cursor.get_children())

    def branches(self, cursor):
        children = list(cursor.get_children())
        if not children:
            return
        condition, bodies = (children[-1], children[:-1]) if cursor.kind == Kind.DO_STMT else (children[0], children[1:])
        if condition.kind not in (Kind.VAR_DECL, Kind.DECL_STMT) and self.is_own(condition):
            self.add_at("negate", condition, f"!({self.source(condition)})")
        self.body(bodies)

    def body(self, statements):
        for cursor in statements:
            if self.is_statement(cursor):
                self.statement(cursor)

    def declaration(self, cursor, parent):
        tokens = list(cursor.get_tokens())
        for token in tokens:
            if token.spelling in ("=", "{", "(") and token.kind == TokenKind.PUNCTUATION:
                break
            if token.spelling in INTEGERS:
                for narrower in NARROWER[WIDTH[token.spelling]]:
                    self.add_token("narrow", token, narrower)
                break
        words = {token.spelling for token in tokens[:4]}
        if words & {"static", "constexpr", "const", "thread_local", "inline", "extern"} or "&" in cursor.type.spelling:
            return
        start = cursor.extent.start
        if cursor.kind == Kind.FIELD_DECL:
            self.add("share", start.file.name, start.offset, start.offset, "inline static ")
        elif cursor.kind == Kind.VAR_DECL and parent.kind == Kind.DECL_STMT:
            self.add("share", start.file.name, start.offset, start.offset, "static ")

    def literal(self, cursor):
        match = re.fullmatch(r"(0[xX][0-9a-fA-F']+|[0-9']+)([uUlLzZ]*)", self.source(cursor))
        if not match:
            return
        value = int(match[1].replace("'", ""), 0) if match[1] != "0" else 0
        for other in (value + 1, value - 1):
            if other >= 0:
                self.add_at("constant", cursor, f"{other}{match[2]}")

    def operation(self, cursor):
        operands = list(cursor.get_children())
        if len(operands) != 2 or not all(self.is_own(o) for o in operands):
            return
        for token in cursor.get_tokens():
            offset = token.extent.start.offset
            if operands[0].extent.end.offset <= offset < operands[1].extent.start.offset and token.spelling != ")":
                for operator, table in (("compare", COMPARE), ("arithmetic", ARITHMETIC), ("logic", LOGIC)):
                    for other in table.get(token.spelling, ()):
                        self.add_token(operator, token, other)
                return

    def call(self, cursor):
        arguments = [a for a in cursor.get_arguments() if a is not None]
        for first, second in zip(arguments, arguments[1:]):
            if not (self.is_own(first) and self.is_own(second)):
                continue
            same = first.type.get_canonical().spelling == second.type.get_canonical().spelling
            if same and first.extent.end.offset < second.extent.start.offset:
                self.swapped("arguments", first, second)


def find(source, flags, own):
    """The mutations of the files `own` as one source with its headers sees them."""
    unit = cindex.Index.create().parse(source, args=flags)
    fatal = [d for d in unit.diagnostics if d.severity >= cindex.Diagnostic.Fatal]
    if fatal:
        raise RuntimeError(f"{source} cannot be parsed: {fatal[0].spelling}")
    return Finder(unit, own).mutations()
