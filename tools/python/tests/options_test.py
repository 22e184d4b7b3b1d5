# SPDX-License-Identifier: Apache-2.0
"""The options of one call: algorithms, order, wire and tag, of every collective and every face."""

import array
import unittest

import tutti

RANKS = 2
# Every collective, with arguments that are right for two ranks.
COLLECTIVES = {
    "broadcast": lambda: (array.array("f", [1]),),
    "reduce": lambda: (array.array("f", [1]), array.array("f", [0])),
    "all_reduce": lambda: (array.array("f", [1]),),
    "gather": lambda: (array.array("f", [1]), array.array("f", [0] * 2)),
    "all_gather": lambda: (array.array("f", [1]), array.array("f", [0] * 2)),
    "scatter": lambda: (array.array("f", [1] * 2), array.array("f", [0])),
    "reduce_scatter": lambda: (array.array("f", [1] * 2), array.array("f", [0])),
    "scan": lambda: (array.array("f", [1]),),
    "exclusive_scan": lambda: (array.array("f", [1]),),
    "all_to_all": lambda: (array.array("f", [1] * 2),),
    "all_gather_v": lambda: (array.array("f", [1]), array.array("f", [0] * 2), [1, 1]),
    "reduce_scatter_v": lambda: (array.array("f", [1] * 2), array.array("f", [0]), [1, 1]),
    "all_to_all_v": lambda: (array.array("f", [1] * 2), array.array("f", [0] * 2), [1, 1], [1, 1]),
    "gather_v": lambda: (array.array("f", [1]), array.array("f", [0] * 2), [1, 1]),
    "scatter_v": lambda: (array.array("f", [1] * 2), array.array("f", [0]), [1, 1]),
    "barrier": lambda: (),
}
REDUCTIONS = {"reduce", "all_reduce", "reduce_scatter", "reduce_scatter_v", "scan", "exclusive_scan"}

WIRED = {"broadcast", "all_gather", "all_gather_v", "reduce", "all_reduce", "reduce_scatter", "reduce_scatter_v"}


def served(comm, collective):
    return {row["algorithm"]: row["calls"] for row in comm.services() if row["collective"] == collective and row["calls"]}


class Options(unittest.TestCase):
    def test_every_collective_takes_them(self):
        def rank(comm):
            def run(face, name, **options):
                request = getattr(face, name)(*COLLECTIVES[name](), **options)
                if face is comm.persistent:
                    request.start()
                if request:
                    request.wait()

            for name in COLLECTIVES:
                for face in (comm, comm.start, comm.persistent):
                    with self.subTest(name=name):
                        run(face, name, algorithms="^tree", tag=7)
                        if name in REDUCTIONS:
                            run(face, name, order="canonical", tag=2**64 - 1)
                        else:
                            self.assertRaises(TypeError, run, face, name, order="canonical")
                        if name in WIRED:
                            run(face, name, wire="float8", tag=7)
                        else:
                            self.assertRaises(TypeError, run, face, name, wire="float8")
                self.assertNotIn("tree", served(comm, name))

        tutti.run_threads(RANKS, rank)

    def test_algorithms_serve_their_call_alone(self):
        def rank(comm):
            for algorithms in ("ring", "tree", None, "ring"):
                data = array.array("i", [comm.rank + 1] * 100)
                comm.all_reduce(data, algorithms=algorithms)
                self.assertEqual(set(data), {3})
            with comm.group():
                for algorithms in ("ring", "tree"):
                    comm.all_reduce(array.array("i", [1]), algorithms=algorithms)
            calls = served(comm, "all_reduce")
            self.assertGreaterEqual(calls["ring"], 3)
            self.assertGreaterEqual(calls["tree"], 2)
            self.assertEqual(sum(calls.values()), 6)

        tutti.run_threads(RANKS, rank)

    def test_numbers_travel_in_the_wire_format(self):
        """A number that float16 has, and one that it rounds down to 1; bfloat16 rounds both."""
        exact, rounded = 1 + 2**-9, 1 + 2**-12

        def rank(comm):
            for wire, results in ((None, (exact, rounded)), ("float16", (exact, 1)), ("bfloat16", (1, 1))):
                for calls in (comm, comm.start):
                    def run(name, *arguments):
                        request = getattr(calls, name)(*arguments, wire=wire)
                        if request:
                            request.wait()

                    with self.subTest(wire=wire):
                        data = array.array("f", [exact, rounded])
                        run("broadcast", data)
                        self.assertEqual(tuple(data), results)
                        for name, more in (("all_gather", ()), ("all_gather_v", ([2, 2],))):
                            out = array.array("f", [0] * 4)
                            run(name, array.array("f", [exact, rounded]), out, *more)
                            self.assertEqual(tuple(out), results * 2)
                        data = array.array("f", [exact, rounded])
                        run("all_reduce", data)
                        self.assertEqual(tuple(data), tuple(2 * one for one in results))
                        out = array.array("f", [0, 0])
                        run("reduce", array.array("f", [exact, rounded]), out, 1, "max")
                        self.assertEqual(tuple(out), results if comm.rank == 1 else (0, 0))
                        for name, more in (("reduce_scatter", ()), ("reduce_scatter_v", ([2, 2],))):
                            out = array.array("f", [0, 0])
                            run(name, array.array("f", [exact, rounded] * 2), out, *more)
                            self.assertEqual(tuple(out), tuple(2 * one for one in results))

        tutti.run_threads(RANKS, rank)

    def test_a_root_rounds_its_own_numbers(self):
        def rank(comm):
            data = memoryview(array.array("f", [1])).toreadonly()
            self.assertRaisesRegex(ValueError, "broadcast: data.*read-only", comm.broadcast, data, comm.rank, wire="float16")
            comm.broadcast(data if comm.rank == 0 else array.array("f", [0]))

        tutti.run_threads(RANKS, rank)

    def test_wrong_ones_are_refused(self):
        def rank(comm):
            def call(**options):
                comm.all_reduce(array.array("f", [1]), **options)

            for options, error, words in (
                    ({"algorithms": "rings"}, tutti.NotFound, 'all_reduce: options.algorithms="rings": .*ring'),
                    ({"algorithms": "ring,"}, tutti.InvalidArgument, "a name is empty"),
                    ({"algorithms": "bruck"}, tutti.NotSupported, "bruck: it does no all_reduce.*ring: "),
                    ({"algorithms": 3}, TypeError, "algorithms"),
                    ({"order": "any"}, ValueError, 'all_reduce: order is "any": expected "free", "canonical", "exact"'),
                    ({"order": "canonical", "algorithms": "ring"}, tutti.NotSupported, "canonical order"),
                    ({"wire": "float7"}, ValueError,
                     'all_reduce: wire is "float7": expected "float16", "bfloat16", "float8", or None for float32 as it is'),
                    ({"wire": "plain"}, ValueError, 'all_reduce: wire is "plain"'),
                    ({"wire": 1}, TypeError, "wire"),
                    ({"wire": "float16", "op": "prod"}, tutti.InvalidArgument, "options.wire is float16, but the error of prod"),
                    ({"wire": "float16", "order": "exact"}, tutti.InvalidArgument, "the order of the sum is exact"),
                    ({"tag": -1}, tutti.InvalidArgument, "all_reduce: tag is -1"),
                    ({"tag": 2**64}, tutti.InvalidArgument, "all_reduce: tag is 18446744073709551616"),
                    ({"tag": "step 7"}, TypeError, "all_reduce: tag is 'step 7'")):
                with self.subTest(options=options):
                    self.assertRaisesRegex(error, words, call, **options)
            with self.assertRaisesRegex(tutti.InvalidArgument, "wire formats are for float32: int32 travels as it is"):
                comm.broadcast(array.array("i", [1]), wire="float16")
            call()

        tutti.run_threads(RANKS, rank)

    def test_ranks_that_differ_get_a_mismatch(self):
        def rank(comm, options):
            with self.assertRaises(tutti.Mismatch) as raised:
                comm.all_reduce(array.array("f", [1]), **options[comm.rank])
                comm.barrier()
            return str(raised.exception)

        for options, words in (([{"tag": 7}, {"tag": 8}], "all_reduce(1 x float32, sum, tag 8)"),
                               ([{"algorithms": "ring"}, {}], "with other algorithms"),
                               ([{"order": "canonical"}, {}], "canonical order"),
                               ([{"wire": "float16"}, {}], "float16")):
            with self.subTest(options=options):
                for text in tutti.run_threads(RANKS, rank, options):
                    self.assertIn(words, text)


if __name__ == "__main__":
    unittest.main()
