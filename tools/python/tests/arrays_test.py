# SPDX-License-Identifier: Apache-2.0
"""Arrays as numpy's users have them: of every type and layout, taken or refused with the call that mends it."""

import array
import ctypes
import unittest

import tutti

try:
    import numpy
except ImportError:
    numpy = None
try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

RECORD = [("name", "S3"), ("weight", ">f4"), ("place", "<i2", (2,))]
# Types that no operator takes, and what the refusal says to do.
MOVED = {"longdouble": r'pass data.astype\("f8"\)', "clongdouble": r'pass data.astype\("c16"\)',
         ">f4": r'pass data.astype\("f4"\), .*data.byteswap\(inplace=True\).view\("f4"\)',
         ">i8": r'byteswap\(inplace=True\).view\("i8"\)', ">c8": r'astype\("c8"\)', "S5": "", "U3": "", ">U3": "",
         "M8[ns]": r'pass data.view\("i8"\)', "m8[s]": r'pass data.view\("i8"\)', "V8": r"pass data.view\(TYPE\)",
         "record": r"pass a field, numpy.ascontiguousarray\(data\[FIELD\]\)"}


def dtype_of(name):
    return numpy.dtype(RECORD if name == "record" else name)


def values(dtype, count, seed):
    """Elements of any type, which differ from one seed to another in every byte."""
    return numpy.frombuffer(bytes((seed * 37 + i) % 251 for i in range(count * dtype.itemsize)), dtype).copy()


@unittest.skipIf(numpy is None, "numpy is not installed (python3-numpy)")
class Moved(unittest.TestCase):
    """Calls that only move elements take every type."""

    def on_three(self, rank):
        for name in MOVED:
            with self.subTest(name):
                tutti.run_threads(3, rank, dtype_of(name), timeout=60)

    def same(self, got, *expected):
        """The same bytes: numpy would compare values, and turn them into this machine's byte order where it joins arrays."""
        self.assertEqual(got.tobytes(), b"".join(one.tobytes() for one in expected))

    def test_collectives(self):
        def rank(comm, dtype):
            r, n = comm.rank, comm.nranks
            mine, everyone = values(dtype, 4, r), [values(dtype, 4, i) for i in range(n)]
            data = mine.copy()
            comm.broadcast(data, 1)
            self.same(data, values(dtype, 4, 1))
            out = numpy.zeros(4 * n, dtype)
            comm.start.all_gather(mine, out).wait()
            self.same(out, *everyone)
            out = numpy.zeros((n, 4), dtype) if r == 2 else None
            comm.gather(mine, out, 2)
            if r == 2:
                self.same(out, *everyone)
            whole = numpy.zeros(4 * n, dtype)
            comm.all_gather(mine, whole)
            part = numpy.zeros(4, dtype)
            comm.scatter(whole if r == 0 else None, part)
            self.same(part, mine)
            data, out = values(dtype, n, r), numpy.zeros(n, dtype)
            comm.all_to_all(data, out)
            self.same(out, *(values(dtype, n, i)[r:r + 1] for i in range(n)))

        self.on_three(rank)

    def test_blocks_of_unequal_sizes(self):
        def rank(comm, dtype):
            r, n = comm.rank, comm.nranks
            counts, begins = [1, 2, 3], [0, 2, 5]
            mine, blocks = values(dtype, counts[r], r), [values(dtype, counts[i], i) for i in range(n)]
            out = numpy.zeros(8, dtype)
            comm.all_gather_v(mine, out, counts, begins)
            for i in range(n):
                self.same(out[begins[i]:begins[i] + counts[i]], blocks[i])
            together = numpy.zeros(6, dtype)
            comm.gather_v(mine, together if r == 0 else None, numpy.array(counts))
            part = numpy.zeros(counts[r], dtype)
            comm.scatter_v(together if r == 0 else None, part, counts)
            self.same(part, mine)
            sent, got = values(dtype, 6, r), numpy.zeros(n * counts[r], dtype)
            comm.all_to_all_v(sent, got, counts, [counts[r]] * n)
            self.same(got, *(values(dtype, 6, i)[sum(counts[:r]):][:counts[r]] for i in range(n)))

        self.on_three(rank)

    def test_messages(self):
        def rank(comm, dtype):
            r, n = comm.rank, comm.nranks
            got = numpy.zeros(4, dtype)
            comm.exchange([tutti.Send(values(dtype, 4, r), (r + 1) % n), tutti.Receive(got, (r - 1) % n)])
            self.same(got, values(dtype, 4, (r - 1) % n))
            if r == 0:
                comm.send(values(dtype, 4, 9), 1)
                comm.send(values(dtype, 4, 8), 1, tag=7)
            elif r == 1:
                comm.receive(got, 0)
                self.same(got, values(dtype, 4, 9))
                self.assertEqual(comm.receive_any(got, tag=7).bytes, 4 * dtype.itemsize)
                self.same(got, values(dtype, 4, 8))
            with comm.register(numpy.zeros(4, dtype)) as window:
                self.assertEqual(window.bytes, 4 * dtype.itemsize)

        self.on_three(rank)

    def test_any_address(self):
        """Rank 0's arrays are aligned, and the ranks compare their types."""
        def rank(comm, dtype):
            r, n = comm.rank, comm.nranks
            places = iter(numpy.zeros(4 * n * dtype.itemsize + r, "u1")[r:].view(dtype) for _ in range(3))
            mine, out, got = next(places)[:4], next(places), next(places)[:4]
            mine[:] = values(dtype, 4, r)
            self.assertEqual(mine.flags.aligned, r == 0)
            comm.all_gather(mine, out)
            self.same(out, *(values(dtype, 4, i) for i in range(n)))
            comm.exchange([tutti.Send(mine, (r + 1) % n), tutti.Receive(got, (r - 1) % n)])
            self.same(got, values(dtype, 4, (r - 1) % n))
            if r:
                with self.assertRaisesRegex(tutti.InvalidArgument, "in = .* is not aligned to its type"):
                    comm.all_reduce(mine)

        for name in "f4", "i8", "c16":
            with self.subTest(name):
                tutti.run_threads(3, rank, numpy.dtype(name), check_calls=True, timeout=60)

    def test_operators_refuse_them(self):
        def rank(comm):
            for name, advice in MOVED.items():
                data = values(dtype_of(name), 3, 1)
                for call in (comm.all_reduce, comm.reduce, comm.scan, lambda data: comm.reduce_scatter(data, data[:3 // comm.nranks])):
                    with self.subTest(name), self.assertRaises(ValueError) as raised:
                        call(data)
                    self.assertRegex(str(raised.exception), "has elements of type .*, which no operator takes: expected bool, "
                                     f".*{advice}.*Calls that only move elements take it")
            comm.barrier()

        tutti.run_threads(1, rank)

    def test_the_advice_is_right(self):
        def rank(comm):
            swapped = numpy.arange(4).astype(">f4")
            comm.all_reduce(swapped.byteswap(inplace=True).view("f4"))
            times = numpy.array(["2026-01-01", "2026-01-02"], "M8[D]") + comm.rank
            comm.all_reduce(times.view("i8"), op="max")
            self.assertEqual(list(times.astype("U")), ["2026-01-02", "2026-01-03"])

        tutti.run_threads(2, rank)

    def test_in_and_out_are_of_one_type(self):
        for name, shown in (("f4", "float32"), ("S4", '"[|]S4"'), (">i4", '">i4"')):
            with self.assertRaisesRegex(ValueError, f'data is ">f4" and out is {shown}'):
                tutti.run_threads(1, lambda comm: comm.all_gather(numpy.zeros(2, ">f4"), numpy.zeros(2, name)))

    def test_ranks_of_different_byte_orders_are_told(self):
        def rank(comm):
            data = numpy.zeros(4, ">f4" if comm.rank else "f4")
            with self.assertRaises(tutti.Mismatch):
                comm.broadcast(data)

        tutti.run_threads(2, rank, check_calls=True)


class References(unittest.TestCase):
    """No call takes references: they mean nothing in another process."""

    def refused(self, data):
        def rank(comm):
            for call in (comm.broadcast, comm.all_reduce, lambda data: comm.all_gather(data, bytearray(8))):
                with self.assertRaisesRegex(ValueError, "are references to objects, or addresses: they mean nothing in another "
                                            r"process. Pass their values, data.astype\(TYPE\), or the bytes of pickle.dumps\(data\)"):
                    call(data)

        tutti.run_threads(1, rank)

    def test_of_ctypes(self):
        class Node(ctypes.Structure):
            _fields_ = [("value", ctypes.c_int), ("next", ctypes.POINTER(ctypes.c_int))]

        for data in ((ctypes.py_object * 2)(1, 2), (ctypes.c_void_p * 2)(), (ctypes.c_char_p * 2)(), (ctypes.c_wchar_p * 2)(), Node()):
            with self.subTest(type(data).__name__):
                self.refused(data)

    @unittest.skipIf(numpy is None, "numpy is not installed (python3-numpy)")
    def test_of_numpy(self):
        arrays = [numpy.array([1, "two"], object), numpy.zeros(2, [("a", "f4"), ("b", [("c", "O")])]),
                  numpy.zeros(2, [("when", "M8[s]"), ("b", "O")])]
        if hasattr(getattr(numpy, "dtypes", None), "StringDType"):  # since numpy 2
            arrays.append(numpy.array(["a", "longer than any that lies in the array"], numpy.dtypes.StringDType()))
        for data in arrays:
            with self.subTest(str(data.dtype)):
                self.refused(data)


@unittest.skipIf(numpy is None, "numpy is not installed (python3-numpy)")
class Layouts(unittest.TestCase):
    """Arrays that are not C-contiguous are refused in numpy's words, with the call that mends it."""

    def test_the_words(self):
        matrix = numpy.arange(12, dtype="f4").reshape(3, 4)
        for data, text in (
            (matrix.T, r"is not C-contiguous \(shape \(4, 3\), strides \(4, 16\)\): pass data.T on every rank, a C-contiguous view of "
             r"these elements in F order, or numpy.ascontiguousarray\(data\), a copy, and put the result back with data\[...\] = copy"),
            (numpy.asfortranarray(matrix), "pass data.T on every rank"),
            (matrix[:, 1:], r"\(shape \(3, 3\), strides \(16, 4\)\): pass numpy.ascontiguousarray\(data\), a copy, and put"),
            (matrix[0, ::-1], r"\(shape \(4,\), strides \(-4,\)\): pass numpy.ascontiguousarray"),
            (matrix[0, ::2], r"strides \(8,\)"),
        ):
            with self.assertRaisesRegex(ValueError, text):
                tutti.run_threads(1, lambda comm: comm.all_reduce(data))
        for data, text in ((numpy.broadcast_to(matrix[0], (2, 4)), r"strides \(0, 4\)\): pass numpy.ascontiguousarray\(data\), a copy$"),
                           (numpy.zeros((2, 3), "M8[s]").T, r"strides \(8, 24\)\): pass data.T on every rank")):
            with self.assertRaisesRegex(ValueError, text):
                tutti.run_threads(1, lambda comm: comm.all_gather(data, bytearray(64)))

    def test_the_transpose_of_f_order_is_taken(self):
        def rank(comm):
            data = numpy.asfortranarray(numpy.arange(6, dtype="f8").reshape(2, 3))
            comm.all_reduce(data.T)
            self.assertTrue((data == 2 * numpy.arange(6).reshape(2, 3)).all())

        tutti.run_threads(2, rank)

    def test_contiguous_ones_of_every_shape(self):
        def rank(comm):
            for data in (numpy.ones(()), numpy.ones((0, 3)), numpy.ones((0, 3)).T, numpy.ones((1, 4)).T, numpy.ones((4, 1))[::1, ::-1],
                         numpy.ones((3, 2, 1), order="F")[:, 0]):
                if not data.flags.c_contiguous:
                    continue
                comm.all_reduce(data)
                self.assertTrue((data == 2).all())

        tutti.run_threads(2, rank)

    def test_masked_arrays(self):
        def rank(comm):
            for data in (numpy.ma.array([1., 2.], mask=[False, True]), numpy.ma.array([1., 2.]), numpy.ma.mrecords.fromarrays([[1], [2]])):
                for call in (comm.all_reduce, comm.broadcast):
                    with self.assertRaisesRegex(TypeError, r"has a mask, which the call would not look at: pass data.filled\(VALUE\), or "
                                                r"data.data and numpy.ma.getmaskarray\(data\) in two calls"):
                        call(data)
            masked = numpy.ma.array([1., 2.], mask=[False, True])
            filled = masked.filled(0)
            comm.all_reduce(filled)
            self.assertEqual(list(filled), [2, 0])

        import numpy.ma.mrecords  # numpy does not load it
        tutti.run_threads(2, rank)

    def test_read_only_ones(self):
        def rank(comm):
            constant = numpy.ones(2)
            constant.flags.writeable = False
            with self.assertRaisesRegex(ValueError, r"is read-only, and the call writes into it: pass numpy.array\(data\), a copy"):
                comm.all_reduce(constant)
            with self.assertRaisesRegex(ValueError, "all_reduce: data .*is read-only"):
                comm.all_reduce(numpy.float64(1))
            comm.all_reduce(constant, numpy.zeros(2))

        tutti.run_threads(2, rank)


class NoArrays(unittest.TestCase):
    def test_what_makes_one(self):
        class Series:  # as of pandas
            def __array__(self):
                raise AssertionError("it is not asked for")

        def rank(comm):
            for data, made in (([1, 2], "numpy.array"), ((1, 2), "numpy.array"), (Series(), "numpy.asarray")):
                with self.assertRaisesRegex(TypeError, rf"has no elements to work on: .*; {made}\(data\) makes one"):
                    comm.all_reduce(data)
            for data in (0.5, None, "text", {1: 2}):
                with self.assertRaisesRegex(TypeError, "has no elements to work on: .* or __array_interface__$"):
                    comm.all_reduce(data)

        tutti.run_threads(1, rank)

    def test_elements_without_bytes(self):
        class Nothing(ctypes.Structure):
            _fields_ = []

        with self.assertRaisesRegex(ValueError, "which are no whole bytes"):
            tutti.run_threads(1, lambda comm: comm.broadcast(Nothing()))


class Bools(unittest.TestCase):
    def test_sums_are_any_and_products_all(self):
        def rank(comm):
            for op, expected in (("sum", [True, True, False]), ("max", [True, True, False]), ("prod", [True, False, False]),
                                 ("min", [True, False, False]), ("lor", [True, True, False]), ("land", [True, False, False])):
                data = memoryview(bytearray([1, comm.rank == 0, 0])).cast("?")
                comm.all_reduce(data, op=op)
                self.assertEqual(list(data), expected, op)
            with self.assertRaisesRegex(tutti.InvalidArgument, "operator avg is not defined for bool"):
                comm.all_reduce(data, op="avg")

        tutti.run_threads(2, rank)


class Numbers(unittest.TestCase):
    """Ranks, tags and counts that are none: the call, the argument, and the value."""

    def test_wrong_ones(self):
        def rank(comm):
            one, two = array.array("i", [1]), array.array("i", [1, 2])
            rank = "expected the number of a rank, from 0 up"
            whole = "expected a whole number from 0 up"
            for error, text, call in (
                (tutti.InvalidArgument, f"broadcast: root is -1: {rank}$", lambda: comm.broadcast(two, -1)),
                (TypeError, rf"broadcast: root is 1.0 \(float\): {rank}, an int$", lambda: comm.broadcast(two, 1.0)),
                (TypeError, r"reduce: root is None \(NoneType\)", lambda: comm.reduce(two, root=None)),
                (tutti.InvalidArgument, f"gather: root is {1 << 40}: {rank}", lambda: comm.gather(two, two, 1 << 40)),
                (TypeError, r"scatter: root is '0' \(str\)", lambda: comm.scatter(two, one, root="0")),
                (tutti.InvalidArgument, f"send: peer is -1: {rank}", lambda: comm.send(two, -1)),
                (tutti.InvalidArgument, f"receive: tag is -1: {whole}$", lambda: comm.receive(two, 1, -1)),
                (TypeError, "send: tag is 0.5", lambda: comm.start.send(two, 1, 0.5)),
                (TypeError, "Send: peer is 0.0", lambda: tutti.Send(two, 0.)),
                (tutti.InvalidArgument, "Receive: tag is -5", lambda: tutti.Receive(two, 0, -5)),
                (tutti.InvalidArgument, f"all_gather_v: counts is -1: {whole}", lambda: comm.all_gather_v(one, two, [1, -1])),
                (TypeError, "all_to_all_v: out_counts is 1.5", lambda: comm.all_to_all_v(two, two, [1, 1], [1.5, 1])),
                (tutti.InvalidArgument, "a displacement is -4", lambda: comm.all_gather_v(one, two, [1, 1], [0, -4])),
                (tutti.InvalidArgument, "gather_v: root is -1", lambda: comm.gather_v(one, two, [1, 1], root=-1)),
                (tutti.InvalidArgument, "split: color is -1: expected a whole number from 0 up, or None for no part",
                 lambda: comm.split(-1)),
                (TypeError, "probe: peer is 1.0", lambda: comm.probe(1.0)),
                (tutti.InvalidArgument, "receive_any: tag is -1", lambda: comm.receive_any(two, tag=-1)),
                (tutti.InvalidArgument, "host: rank is -1", lambda: comm.host(-1)),
                (tutti.InvalidArgument, "explain: count is -1", lambda: comm.explain("all_reduce", -1)),
                (TypeError, "grow: newcomers is 1.5", lambda: comm.grow("tcp://127.0.0.1:1", 1.5)),
            ):
                with self.subTest(text), self.assertRaisesRegex(error, text):
                    call()
            comm.all_reduce(two)
            self.assertEqual(list(two), [2, 4])

        tutti.run_threads(2, rank)
        for error, text, call in (
            (tutti.InvalidArgument, "Communicator: rank is -1", lambda: tutti.Communicator("local:numbers", -1, 2)),
            (TypeError, "Communicator: nranks is 2.0", lambda: tutti.Communicator("local:numbers", 0, 2.0)),
            (tutti.InvalidArgument, "Memory: bytes is -1", lambda: tutti.Memory(-1)),
            (tutti.InvalidArgument, "Plan: nranks is -1", lambda: tutti.Plan("ring", "all_reduce", -1)),
            (TypeError, "Plan: root is 0.5", lambda: tutti.Plan("ring", "all_reduce", 4, root=0.5)),
            (tutti.InvalidArgument, "Plan: hosts is -1", lambda: tutti.Plan("ring", "all_reduce", 2, hosts=[0, -1])),
        ):
            with self.subTest(text), self.assertRaisesRegex(error, text):
                call()

    @unittest.skipIf(numpy is None, "numpy is not installed (python3-numpy)")
    def test_those_of_numpy_are_taken(self):
        def rank(comm):
            data = numpy.full(2, comm.rank)
            comm.broadcast(data, numpy.int64(1))
            comm.broadcast(data, numpy.uint8(1))
            comm.broadcast(data, True)
            self.assertEqual(list(data), [1, 1])

        tutti.run_threads(numpy.int32(2), rank)


class Described:
    """An array of a type that only numpy's name tells, as those of ml_dtypes."""

    class Dtype:
        def __init__(self, name):
            self.name = name

        def __str__(self):
            return self.name

    def __init__(self, name, code, values):
        self.memory, self.dtype = array.array(code, values), self.Dtype(name)
        self.__array_interface__ = {"version": 3, "shape": (len(values),), "typestr": f"<V{self.memory.itemsize}",
                                    "data": (self.memory.buffer_info()[0], False)}


class Tensors(unittest.TestCase):
    @unittest.skipIf(numpy is None, "numpy is not installed (python3-numpy)")
    def test_negated_views(self):
        class Negated:  # as torch's: DLPack shows the bytes of its base
            def __init__(self, values, negated):
                self.is_neg, self.__dlpack__, self.__dlpack_device__ = lambda: negated, values.__dlpack__, values.__dlpack_device__

        def rank(comm):
            comm.all_reduce(Negated(numpy.ones(2), False))
            for call in (comm.all_reduce, comm.broadcast):
                with self.assertRaisesRegex(ValueError, r"is a negated view, whose bytes are not its values: pass data.resolve_neg\(\), a copy"):
                    call(Negated(numpy.ones(2), True))

        tutti.run_threads(1, rank)


class MlDtypes(unittest.TestCase):
    def test_their_names(self):
        def rank(comm):
            for name, code, one, two in (("bfloat16", "H", 0x3f80, 0x4000), ("float8_e4m3fn", "B", 0x38, 0x40),
                                         ("float8_e5m2", "B", 0x3c, 0x40)):
                data = Described(name, code, [one] * 3)
                comm.all_reduce(data)
                self.assertEqual(list(data.memory), [two] * 3, name)
            other = Described("float8_e4m3b11fnuz", "B", [comm.rank + 1] * 3)
            with self.assertRaisesRegex(ValueError, 'elements of type "float8_e4m3b11fnuz", which no operator takes'):
                comm.all_reduce(other)
            comm.broadcast(other, 1)
            self.assertEqual(list(other.memory), [2] * 3)

        tutti.run_threads(2, rank)

    @unittest.skipIf(ml_dtypes is None or numpy is None, "ml_dtypes is not installed (pip install ml_dtypes)")
    def test_arrays(self):
        def rank(comm):
            for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
                data = numpy.full((2, 3), comm.rank + 1, dtype)
                comm.all_reduce(data)
                self.assertEqual(set(data.astype("f4").flat), {3.0})
            for dtype in (ml_dtypes.int4, ml_dtypes.float8_e4m3b11fnuz, getattr(ml_dtypes, "complex32", ml_dtypes.int4)):
                data = numpy.full((2, 3), comm.rank + 1, dtype)
                comm.broadcast(data, 1)
                self.assertEqual(set(data.astype("f4").flat), {2.0})

        tutti.run_threads(2, rank)


if __name__ == "__main__":
    unittest.main()
