# SPDX-License-Identifier: Apache-2.0
"""What a user sees who asks: repr(), help(), and the stubs, which name what there is with the arguments that it has."""

import array
import ast
import inspect
import os
import re
import unittest

import tutti
from tutti import _core

FACES = (tutti.Calls, tutti.Start, tutti.Persistent)
REDUCTIONS = {"reduce", "all_reduce", "reduce_scatter", "reduce_scatter_v", "scan", "exclusive_scan"}
WIRED = {"broadcast", "all_gather", "all_gather_v", "reduce", "all_reduce", "reduce_scatter", "reduce_scatter_v"}


def things():
    """All that the module has: (name, thing), of classes also (Class.member, thing)."""
    for name, thing in vars(_core).items():
        if name.startswith("__") or inspect.ismodule(thing):
            continue
        yield name, thing
        if inspect.isclass(thing) and not issubclass(thing, BaseException):
            yield from ((f"{name}.{member}", getattr(thing, member)) for member in vars(thing) if not member.startswith("_"))


def text_of(thing):
    """The help without the signatures, which pybind11 writes."""
    return "\n".join(line for line in (inspect.getdoc(thing) or "").splitlines() if not re.match(r"\w+\(.*\) -> ", line)).strip()


class Help(unittest.TestCase):
    def test_everything_has_some(self):
        for name, thing in things():
            with self.subTest(name):
                self.assertRegex(text_of(thing), r"\w.*\w")

    def test_calls_say_their_arrays_and_errors(self):
        for face in FACES:
            for name, call in vars(face).items():
                if name.startswith("_") or name in ("barrier", "group"):
                    continue
                with self.subTest(f"{face.__name__}.{name}"):
                    text = text_of(call)
                    self.assertRegex(text, "(?i)elements|messages")
                    self.assertIn("C-contiguous", text)
                    self.assertRegex(text, "(?s)Raises TypeError or ValueError.*Mismatch, Timeout, PeerFailed or Aborted")
                    self.assertEqual("`op`: \"sum\"" in text, name in REDUCTIONS)
                    self.assertEqual("`wire`: \"float16\"" in text, name in WIRED)
                    self.assertEqual("are of any type that is no reference" in text, name not in REDUCTIONS)

    def test_the_operators_that_it_names_are_those_that_there_are(self):
        def rank(comm):
            with self.assertRaisesRegex(ValueError, "expected") as raised:
                comm.all_reduce(array.array("f", [1]), op="none")
            return re.findall(r'"(\w+)"', str(raised.exception).split("expected", 1)[1])

        known = tutti.run_threads(1, rank)[0]
        help_line = re.search(r"(?s)`op`: (.*?), or an\s+Operator", text_of(tutti.Calls.all_reduce)).group(1)
        self.assertEqual(sorted(re.findall(r'"(\w+)"', help_line)), sorted(known))


class Reprs(unittest.TestCase):
    def test_those_of_a_communicator(self):
        def rank(comm):
            r = comm.rank
            whole = f'"world" rank {r} of 2'
            self.assertEqual(repr(comm), f'<tutti.Communicator "world", rank {r} of 2>')
            got = bytearray(3)
            request = comm.start.receive(got, 1) if r == 0 else comm.start.barrier()
            self.assertRegex(repr(request), f"^<tutti.Request {('receive', 'barrier')[r]}, {whole}, in flight>$")
            if r == 0:
                comm.barrier()
            request.wait() if r == 1 else None
            if r == 1:
                comm.send(b"abc", 0)
            request.wait()
            self.assertRegex(repr(request), ", complete>$")
            request = comm.persistent.all_reduce(array.array("i", [1]))
            self.assertEqual(repr(request), f"<tutti.Request all_reduce, {whole}, not started>")
            self.assertTrue(request.test())
            self.assertRegex(repr(request), ", not started>$")
            request.start()
            self.assertRegex(repr(request), ", in flight>$")
            request.wait()
            self.assertRegex(repr(request), ", complete>$")
            group = comm.group()
            self.assertEqual(repr(group), f"<tutti.Group, {whole}, not entered>")
            with group:
                comm.barrier()
                self.assertRegex(repr(group), ", open>$")
            self.assertRegex(repr(group), ", ended>$")
            self.assertEqual(repr(group.request), f"<tutti.Request group, {whole}, complete>")
            self.assertEqual([repr(comm.start), repr(comm.persistent)], [f"<tutti.Start, {whole}>", f"<tutti.Persistent, {whole}>"])
            with comm.register(bytearray(4096)) as window:
                self.assertRegex(repr(window), rf"^<tutti.Window {window.id} of 4096 bytes, {whole}, (in place|staged: .+)>$")
            self.assertEqual(repr(window), "<tutti.Window, closed>")
            self.assertEqual(repr(comm.host()), f"<tutti.Host 0 of 1, local rank {r} of 2>")
            if r == 1:
                comm.send(b"12345", 0, tag=9)
            else:
                self.assertEqual(repr(comm.probe(timeout=None)), "<tutti.Envelope from rank 1, tag 9, 5 bytes>")
                comm.receive(bytearray(5), 1, tag=9)
            kept = comm.duplicate()
            kept.abort("enough")
            self.assertRegex(repr(kept), "rank . of 2, broken>$")
            kept.close()
            self.assertRegex(repr(kept), "rank . of 2, closed>$")
            failing = comm.duplicate()
            request = failing.start.barrier() if r == 0 else None
            comm.barrier()
            if r == 1:
                failing.abort("enough")
            else:
                self.assertRaises(tutti.Error, request.wait)
                self.assertRegex(repr(request), "barrier, .*, failed>$")

        tutti.run_threads(2, rank)

    def test_those_of_the_rest(self):
        self.assertEqual(repr(tutti.Memory(100)), "<tutti.Memory of 100 bytes>")
        self.assertEqual(repr(tutti.Send(b"", 3, 7)), "<tutti.Send to rank 3, tag 7, of bytes>")
        self.assertEqual(repr(tutti.Receive(bytearray(), 1)), "<tutti.Receive from rank 1, tag 0, of bytearray>")
        self.assertEqual([repr(tutti.IN()), repr(tutti.OUT(2, 3)), repr(tutti.SCRATCH(1))], ["IN(0, 1)", "OUT(2, 3)", "SCRATCH(1, 1)"])
        plan = tutti.Plan("ring", "all_reduce", 4)
        self.assertRegex(repr(plan), r"^<tutti.Plan ring, all_reduce of 4 ranks, \d+ steps>$")
        self.assertRegex(repr(plan.verify()), r"^<tutti.Proof, ok, \d+ steps, \d+ messages in \d+ rounds>$")


def parameters(function):
    """Names, kinds and defaults of a function's arguments, without self."""
    arguments = function.args
    plain = arguments.posonlyargs + arguments.args
    defaults = [None] * (len(plain) - len(arguments.defaults)) + arguments.defaults
    rows = [(one.arg, "plain", default and ast.unparse(default)) for one, default in zip(plain, defaults)]
    rows += [(one.arg, "named", default and ast.unparse(default)) for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    return [(name, kind, "()" if default == "[]" else default and re.sub(r"^(\d+\.\d+|\d+(\.\d+)?e[-+]?\d+)$", lambda m: repr(float(m.group())), default))
            for name, kind, default in rows if name != "self"]


class Stubs(unittest.TestCase):
    """The stubs name what there is."""

    @classmethod
    def setUpClass(cls):
        with open(os.path.join(os.path.dirname(_core.__file__), "_core.pyi")) as file:
            cls.module = {node.name: node for node in ast.parse(file.read()).body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}

    def members(self, name):
        """Of a class and of those that it is derived from."""
        found = {}
        for base in self.module[name].bases:
            base = ast.unparse(base).split("[")[0]
            found.update(self.members(base) if base in self.module else {})
        for node in self.module[name].body:
            if isinstance(node, ast.FunctionDef):
                found[node.name] = node
            elif isinstance(node, ast.AnnAssign):
                found[node.target.id] = node
        return found

    def stub_of(self, name):
        owner, _, member = name.partition(".")
        self.assertIn(owner, self.module)
        if not member:
            return self.module[owner]
        self.assertIn(member, self.members(owner), name)
        return self.members(owner)[member]

    def test_they_are_complete(self):
        for name, thing in things():
            with self.subTest(name):
                self.stub_of(name)

    def test_they_name_nothing_else(self):
        for name, node in self.module.items():
            if name.startswith("_") and not hasattr(_core, name):
                continue
            self.assertTrue(hasattr(_core, name), name)
            if isinstance(node, ast.ClassDef):
                for member in self.members(name):
                    if member != "status" and member not in ("__buffer__",):  # set by raise(); since Python 3.12
                        self.assertTrue(hasattr(getattr(_core, name), member), f"{name}.{member}")

    def test_arguments_have_their_names_and_defaults(self):
        compared = 0
        for name, thing in [*things(), *((f"{owner}.__init__", getattr(_core, owner).__init__) for owner in ("Communicator", "Plan", "Memory"))]:
            signature = (inspect.getdoc(thing) or "").splitlines()[:1]
            if not signature or not re.match(r"\w+\(.*\) -> ", signature[0]):
                continue
            with self.subTest(name):
                built = ast.parse(f"def {signature[0]}: ...").body[0]
                self.assertEqual(parameters(self.stub_of(name)), parameters(built))
                compared += 1
        self.assertGreater(compared, 100)


if __name__ == "__main__":
    unittest.main()
