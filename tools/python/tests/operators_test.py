# SPDX-License-Identifier: Apache-2.0
"""Operators that the application makes: functions of Python, and a factor for each rank."""

import array
import gc
import math
import unittest

import tutti


def each(combine):
    """An operator's function of one of two elements."""

    def function(left, right):
        for i, pair in enumerate(zip(left, right)):
            left[i] = combine(*pair)
    return function


def then(left, right):
    """Affine maps modulo 2^16, as 32 bits: associative, and hardly ever commuting."""
    a, b, c, d = left >> 16, left & 0xffff, right >> 16, right & 0xffff
    return (a * c & 0xffff) << 16 | (b * c + d) & 0xffff


class Functions(unittest.TestCase):
    def test_each_collective(self):
        def rank(comm):
            gcd = comm.operator("gcd", each(math.gcd), "int64")
            self.assertEqual(repr(gcd), '<tutti.Operator "gcd">')
            data = array.array("q", [12 * (comm.rank + 1), 35])
            comm.all_reduce(data, op=gcd)
            self.assertEqual(list(data), [12, 35])
            data = array.array("q", [12 * (comm.rank + 1)] * 20000)
            comm.start.all_reduce(data, op=gcd).wait()
            self.assertEqual(set(data), {12})
            mine = array.array("q", [0])
            comm.reduce_scatter(array.array("q", [6, 9, 15]), mine, op=gcd)
            self.assertEqual(mine[0], (6, 9, 15)[comm.rank])
        tutti.run_threads(3, rank)

    def test_the_order_of_ranks(self):
        def rank(comm):
            op = comm.operator("then", each(then), "uint32", commutes=False)
            values = [(r * 2654435761 + 12345) & 0xffffffff for r in range(comm.nranks)]
            expected = values[0]
            for value in values[1:]:
                expected = then(expected, value)
            data = array.array("I", [values[comm.rank]] * 9)
            comm.all_reduce(data, op=op)
            self.assertEqual(set(data), {expected})
        for ranks in (1, 2, 5):
            tutti.run_threads(ranks, rank)

    def test_the_memory_is_for_the_call_only(self):
        kept = []

        def rank(comm):
            op = comm.operator("keeps", lambda left, right: kept.extend((left, right)), "float32")
            comm.all_reduce(array.array("f", [1]), op=op)
        tutti.run_threads(2, rank)
        self.assertTrue(kept)
        for view in kept:
            with self.assertRaisesRegex(ValueError, "released"):
                view[0]

    def test_one_that_is_dropped_while_it_is_used(self):
        def rank(comm):
            data = array.array("i", [comm.rank] * 1000)
            request = comm.start.all_reduce(data, op=comm.operator("larger", each(max), "int32"))
            gc.collect()
            request.wait()
            self.assertEqual(set(data), {2})
        tutti.run_threads(3, rank)

    def test_an_exception_ends_the_communicator_with_its_text(self):
        def rank(comm):
            def fail(left, right):
                raise KeyError("no such thing")
            op = comm.operator("fails", fail, "int32")
            with self.assertRaisesRegex(tutti.Aborted, "no such thing"):
                comm.all_reduce(array.array("i", [1]), op=op)
                comm.barrier()
            comm.abort("done")
        tutti.run_threads(2, rank)

    def test_wrong_use(self):
        def rank(comm):
            data = array.array("i", [1])
            op = comm.operator("larger", each(max), "int32")
            other = comm.duplicate()
            for error, text, call in (
                (TypeError, "all_reduce: op is of type int: expected a name", lambda: comm.all_reduce(data, op=3)),
                (ValueError, 'the operator "larger" is of the communicator "world"', lambda: other.all_reduce(data, op=op)),
                (ValueError, 'the type is "i4"', lambda: comm.operator("x", max, "i4")),
                (ValueError, "no view of elements of bfloat16", lambda: comm.operator("x", max, "bfloat16")),
                (tutti.InvalidArgument, "name", lambda: comm.operator("", max, "int32")),
                (tutti.InvalidArgument, "larger.*int32", lambda: comm.all_reduce(array.array("f", [1]), op=op)),
            ):
                with self.assertRaisesRegex(error, text):
                    call()
            comm.all_reduce(data, op=op)
            other.close()
        tutti.run_threads(2, rank)


class Factors(unittest.TestCase):
    def test_each_rank_has_its_own(self):
        def rank(comm):
            data = array.array("f", [1, 2, 3])
            comm.all_reduce(data, op=comm.premul_sum(array.array("f", [comm.rank + 0.5])))
            self.assertEqual(list(data), [4.5, 9, 13.5])
        tutti.run_threads(3, rank)

    def test_wrong_factors(self):
        def rank(comm):
            for error, text, factor in ((TypeError, r"premul_sum: factor \(float\) has no elements", 0.5),
                                        (ValueError, "factor has 2 elements: expected one", array.array("f", [1, 2]))):
                with self.assertRaisesRegex(error, text):
                    comm.premul_sum(factor)
            with self.assertRaisesRegex(tutti.InvalidArgument, "float32"):
                comm.all_reduce(array.array("d", [1]), op=comm.premul_sum(array.array("f", [2])))
        tutti.run_threads(1, rank)


if __name__ == "__main__":
    unittest.main()
