# SPDX-License-Identifier: Apache-2.0
"""Every call, blocking and started, between ranks that are threads, with arrays of several libraries."""

import array
import asyncio
import ctypes
import itertools
import unittest

import tutti

try:
    import numpy
except ImportError:
    numpy = None

RANKS = (1, 2, 3, 4)


def ints(values):
    return array.array("i", values)


class Interface:
    """An object whose only interface is __array_interface__."""

    def __init__(self, values, strides=None, typestr="<i4", read_only=False):
        self.memory = (ctypes.c_int32 * len(values))(*values)
        self.__array_interface__ = {"version": 3, "shape": (len(values),), "typestr": typestr, "strides": strides,
                                    "data": (ctypes.addressof(self.memory), read_only)}

    def __iter__(self):
        return iter(self.memory)


class DlpackOnly:
    """An array of numpy that shows DLPack and nothing else."""

    def __init__(self, values):
        self.values = values
        self.__dlpack__ = values.__dlpack__
        self.__dlpack_device__ = values.__dlpack_device__


def both_faces(comm):
    """The blocking calls, and the started ones, each waited for."""

    class Waited:
        def __getattr__(self, name):
            return lambda *a, **k: getattr(comm.start, name)(*a, **k).wait()

    return comm, Waited()


class Windows(unittest.TestCase):
    """Memory that all ranks have registered together."""

    def test_calls_use_it_and_its_memory_stays(self):
        def rank(comm):
            data = bytearray(8 * 1000)
            with comm.register(data) as window:
                self.assertEqual((window.bytes, window.in_place, window.closed), (8000, window.reason == "", False))
                self.assertRaises(BufferError, data.append, 0)
                values = memoryview(data).cast("q")
                values[7] = comm.rank + 1
                comm.all_reduce(values)
                self.assertEqual(values[7], sum(range(1, comm.nranks + 1)))
                values.release()
                ids = array.array("Q", [0] * comm.nranks)
                comm.all_gather(array.array("Q", [window.id]), ids)
                self.assertEqual(set(ids), {window.id})
            self.assertTrue(window.closed)
            window.close()
            self.assertRaises(tutti.InvalidUsage, lambda: window.bytes)
            data.append(0)

        for n in RANKS:
            with self.subTest(ranks=n):
                tutti.run_threads(n, rank, timeout=60)

    def test_the_end_of_the_communicator_is_its_end(self):
        data = bytearray(4096)
        with tutti.Communicator("local:window", 0, 1) as comm:
            window = comm.register(data)
            self.assertFalse(window.closed)
        self.assertTrue(window.closed)
        window.close()
        data.append(0)

    def test_bad_input_leaves_the_communicator_usable(self):
        def rank(comm):
            data = bytearray(4096)
            window = comm.register(data)
            with self.assertRaisesRegex(tutti.InvalidArgument, "overlap"):
                comm.register(data)
            with self.assertRaisesRegex(tutti.Mismatch, "bytes"):
                comm.register(bytearray(100 + comm.rank))
            with self.assertRaisesRegex(ValueError, "read-only"):
                comm.register(b"constant")
            with self.assertRaisesRegex(ValueError, "register: timeout is -1"):
                comm.register(bytearray(8), timeout=-1)
            comm.barrier()
            window.close()

        tutti.run_threads(2, rank, timeout=60)


class Calls(unittest.TestCase):
    def on_all(self, function, **settings):
        for n in RANKS:
            with self.subTest(ranks=n):
                tutti.run_threads(n, function, timeout=60, **settings)

    def test_broadcast(self):
        def rank(comm):
            for calls, root in itertools.product(both_faces(comm), range(comm.nranks)):
                data = ints([comm.rank * 10 + i for i in range(5)])
                calls.broadcast(data, root)
                self.assertEqual(list(data), [root * 10 + i for i in range(5)])

        self.on_all(rank)

    def test_reductions(self):
        results = {"sum": sum, "min": min, "max": max, "avg": lambda v: sum(v) // len(v)}

        def rank(comm):
            n = comm.nranks
            for calls, (op, fold) in itertools.product(both_faces(comm), results.items()):
                of = lambda r: [(r + 1) * (i + 1) for i in range(2 * n)]
                expected = [fold(values) for values in zip(*(of(r) for r in range(n)))]
                out = ints([0] * 2 * n)
                calls.all_reduce(ints(of(comm.rank)), out, op)
                self.assertEqual(list(out), expected)
                data = ints(of(comm.rank))
                calls.all_reduce(data, op=op)
                self.assertEqual(list(data), expected)
                root = n - 1
                data = ints(of(comm.rank))
                calls.reduce(data, root=root, op=op)
                self.assertEqual(list(data), expected if comm.rank == root else of(comm.rank))
                part = ints([0, 0])
                calls.reduce_scatter(ints(of(comm.rank)), part, op)
                self.assertEqual(list(part), expected[2 * comm.rank:2 * comm.rank + 2])

        self.on_all(rank)

    def test_orders(self):
        def rank(comm):
            data = array.array("f", [(1e8, 1.0, -1e8)[comm.rank]])
            with self.assertRaisesRegex(tutti.NotSupported, "exact sums are defined for sum and avg"):
                comm.all_reduce(data, op="prod")
            comm.all_reduce(data)
            return data[0]

        self.assertEqual(tutti.run_threads(3, rank, order="exact"), [1.0] * 3)
        with self.assertRaisesRegex(ValueError, 'order is "fixed": expected "canonical", "exact" or None'):
            tutti.Communicator("local:orders", 0, 1, order="fixed")

    def test_scans(self):
        results = {"sum": sum, "min": min, "max": max, "avg": lambda v: sum(v) // len(v)}

        def rank(comm):
            of = lambda r: [(r + 1) * (i + 1) for i in range(5)]
            prefix = lambda fold, ranks: [fold(values) for values in zip(*(of(r) for r in range(ranks)))]
            for calls, (op, fold) in itertools.product(both_faces(comm), results.items()):
                out, data = ints([-1] * 5), ints(of(comm.rank))
                calls.scan(data, out, op)
                self.assertEqual(list(out), prefix(fold, comm.rank + 1))
                calls.scan(data, op=op)
                self.assertEqual(data, out)
                out, data = ints([-1] * 5), ints(of(comm.rank))
                calls.exclusive_scan(data, out, op)
                self.assertEqual(list(out), prefix(fold, comm.rank) if comm.rank else [-1] * 5)
                calls.exclusive_scan(data, op=op)
                self.assertEqual(list(data), prefix(fold, comm.rank) if comm.rank else of(0))

        self.on_all(rank)

    def test_gathers_and_scatter(self):
        def rank(comm):
            n, me = comm.nranks, comm.rank
            whole = [10 * r + i for r in range(n) for i in range(3)]
            for calls, root in itertools.product(both_faces(comm), range(n)):
                mine = ints(whole[3 * me:3 * me + 3])
                out = ints([0] * 3 * n)
                calls.all_gather(mine, out)
                self.assertEqual(list(out), whole)
                out = ints([0] * 3 * n) if me == root else None
                calls.gather(mine, out, root)
                if out is not None:
                    self.assertEqual(list(out), whole)
                part = ints([0] * 3)
                calls.scatter(ints(whole) if me == root else None, part, root)
                self.assertEqual(list(part), whole[3 * me:3 * me + 3])

        self.on_all(rank)

    def test_all_to_all(self):
        def rank(comm):
            n, me = comm.nranks, comm.rank
            for calls in both_faces(comm):
                data = ints([100 * me + r for r in range(n)])
                out = ints([0] * n)
                calls.all_to_all(data, out)
                self.assertEqual(list(out), [100 * r + me for r in range(n)])
                calls.all_to_all(data)
                self.assertEqual(list(data), list(out))

        self.on_all(rank)

    def test_messages(self):
        def rank(comm):
            n, me = comm.nranks, comm.rank
            right, left = (me + 1) % n, (me - 1) % n
            for calls in both_faces(comm):
                got = ints([0])
                calls.exchange([tutti.Send(ints([me]), right, 7), tutti.Receive(got, left, 7)])
                self.assertEqual(list(got), [left])
                if n == 1:
                    continue
                if me == 0:
                    calls.send(b"hello", 1, tag=3)
                elif me == 1:
                    text = bytearray(5)
                    calls.receive(text, 0, tag=3)
                    self.assertEqual(text, b"hello")
                calls.barrier()

        self.on_all(rank)

    def test_await(self):
        async def several(comm):
            first, second = ints([comm.rank]), ints([1])
            await asyncio.gather(wait(comm.start.all_reduce(first)), wait(comm.start.all_reduce(second)))
            return first[0], second[0]

        async def wait(request):
            await request

        def rank(comm):
            n = comm.nranks
            self.assertEqual(asyncio.run(several(comm)), (n * (n - 1) // 2, n))

        self.on_all(rank)

    def test_an_await_that_is_cancelled(self):
        """Its operation goes on, and nobody waits for it."""
        async def waits(comm):
            data = bytearray(1)

            async def receive():
                await comm.start.receive(data, 1 - comm.rank)

            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(receive(), 0.01)
            comm.barrier()
            comm.exchange([tutti.Send(b"x", 1 - comm.rank)])
            comm.barrier()
            return data

        def rank(comm):
            self.assertEqual(asyncio.run(waits(comm)), b"x")

        tutti.run_threads(2, rank, timeout=60)

    def test_a_request_keeps_its_array(self):
        def rank(comm):
            data = bytearray(8)
            request = comm.start.all_reduce(data)
            if comm.nranks > 1 and not request.test():
                with self.assertRaises(BufferError):
                    data.append(1)
            self.assertTrue(request.wait(60))
            self.assertTrue(request.test())
            data.append(1)

        self.on_all(rank)

    def test_array_interface(self):
        def rank(comm):
            data = Interface([1, 2, 3])
            comm.all_reduce(data, op="max")
            self.assertEqual(list(data), [1, 2, 3])
            with self.assertRaisesRegex(ValueError, r"not C-contiguous \(shape \(2,\), strides \(8,\)\)"):
                comm.all_reduce(Interface([1, 2], strides=(8,)))
            with self.assertRaisesRegex(ValueError, 'elements of type ">i4"'):
                comm.all_reduce(Interface([1, 2], typestr=">i4"))
            with self.assertRaisesRegex(ValueError, "read-only"):
                comm.all_reduce(Interface([1, 2], read_only=True))

        self.on_all(rank)

    def test_truth_values_and_bits(self):
        def rank(comm):
            flags = memoryview(bytearray([1, comm.rank == 0, 0])).cast("?")
            comm.all_reduce(flags, op="land")
            self.assertEqual(list(flags), [True, comm.nranks == 1, False])
            bits = array.array("H", [1 << comm.rank])
            comm.all_reduce(bits, op="bor")
            self.assertEqual(bits[0], (1 << comm.nranks) - 1)
            comm.all_reduce(Interface([1], typestr="|b1"), op="lor")
            with self.assertRaisesRegex(tutti.InvalidArgument, "operator avg is not defined for bool: expected one of band"):
                comm.all_reduce(flags, op="avg")
            with self.assertRaisesRegex(tutti.InvalidArgument, "operator bxor is not defined for float32"):
                comm.all_reduce(array.array("f", [1]), op="bxor")

        self.on_all(rank)

    def test_complex_numbers(self):
        def rank(comm):
            number = Interface([0x3f800000, 0])  # 1 + 0i: two parts of 4 bytes
            number.__array_interface__.update(shape=(1,), typestr="<c8")
            comm.all_reduce(number)
            self.assertEqual(array.array("f", bytes(number.memory)).tolist(), [float(comm.nranks), 0.0])
            with self.assertRaisesRegex(tutti.InvalidArgument, "min is not defined for complex64: expected one of sum"):
                comm.all_reduce(number, op="min")

        self.on_all(rank)

    def test_pairs(self):
        class Pair(ctypes.Structure):
            _fields_ = [("value", ctypes.c_float), ("place", ctypes.c_int32)]

        class WidePair(ctypes.Structure):
            _fields_ = [("value", ctypes.c_double), ("place", ctypes.c_int64)]

        class Turned(ctypes.Structure):
            _fields_ = [("place", ctypes.c_int32), ("value", ctypes.c_float)]

        class Padded(ctypes.Structure):
            _fields_ = [("value", ctypes.c_double), ("place", ctypes.c_int32)]

        def rank(comm):
            last = comm.nranks - 1
            for kind in (Pair, WidePair):
                pairs = (kind * 2)(kind(abs(comm.rank - last), comm.rank), kind(1, 100 - comm.rank))
                comm.all_reduce(pairs, op="minloc")
                self.assertEqual([(p.value, p.place) for p in pairs], [(0, last), (1, 100 - last)])
                gathered = (kind * comm.nranks)()
                comm.all_gather(kind(0.5, comm.rank), gathered)
                self.assertEqual([p.place for p in gathered], list(range(comm.nranks)))
            bits = Interface([0x40000000 + comm.rank, comm.rank])  # about 2.0
            bits.__array_interface__.update(shape=(1,), typestr="|V8", descr=tutti.FLOAT32_INT32)
            comm.all_reduce(bits, op="maxloc")
            self.assertEqual(array.array("i", bytes(bits.memory))[1], last)
            with self.assertRaisesRegex(tutti.InvalidArgument, "sum is not defined for float32_int32: expected one of minloc"):
                comm.all_reduce(Pair(1, 1))
            with self.assertRaisesRegex(tutti.InvalidArgument, "maxloc is not defined for float32"):
                comm.all_reduce(array.array("f", [1]), op="maxloc")
            for wrong in (Turned, Padded):
                with self.assertRaisesRegex(ValueError, "has elements of type .* of float64 and int64"):
                    comm.all_reduce(wrong(), op="minloc")

        self.on_all(rank)

    @unittest.skipIf(numpy is None, "numpy is not installed (python3-numpy)")
    def test_numpy(self):
        types = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()

        def rank(comm):
            for dtype in types:
                data = numpy.full((3, 4), comm.rank + 1, dtype)
                comm.all_reduce(data, op="sum")
                self.assertTrue((data == comm.nranks * (comm.nranks + 1) // 2).all(), dtype)
            flags = numpy.array([True, comm.rank == 0])
            comm.all_reduce(flags, op="lxor")
            self.assertEqual(list(flags), [comm.nranks % 2 == 1, True])
            for fields in (tutti.FLOAT32_INT32, tutti.FLOAT64_INT64):
                pairs = numpy.array([(comm.rank % 2, comm.rank)], fields)
                comm.all_reduce(pairs, op="maxloc")
                self.assertEqual(pairs["index"][0], min(1, comm.nranks - 1))
            matrix = numpy.zeros((4, 4), "f4")
            with self.assertRaisesRegex(ValueError, "not C-contiguous"):
                comm.all_reduce(matrix.T[1:])
            with self.assertRaisesRegex(ValueError, "float32 and out is float64"):
                comm.all_reduce(matrix, numpy.zeros((4, 4)))
            for wrong in (numpy.zeros(3, "c32"), numpy.zeros(3, ">f4"), numpy.array(["a"])):
                with self.assertRaisesRegex(ValueError, "has elements of type"):
                    comm.all_reduce(wrong)
            shared = numpy.frombuffer(tutti.Memory(4096), "f8")
            shared[:] = comm.rank
            comm.all_reduce(shared, op="max")
            self.assertTrue((shared == comm.nranks - 1).all())
            over_dlpack = numpy.full(5, comm.rank, "f4")
            comm.all_reduce(DlpackOnly(over_dlpack), op="max")
            self.assertTrue((over_dlpack == comm.nranks - 1).all())

        self.on_all(rank)

    def test_facts(self):
        def rank(comm):
            data = ints(range(1000))
            comm.all_reduce(data)
            served = [s for s in comm.services() if s["collective"] == "all_reduce"]
            self.assertEqual([(s["calls"], s["bytes"]) for s in served], [(1, 4000)])
            self.assertIn("all_reduce", comm.explain("all_reduce", 1000))
            self.assertIn("rank", comm.topology())
            self.assertIsInstance(comm.traffic(), list)
            self.assertEqual((comm.failure, comm.lost, comm.device, comm.closed), (None, [], "none", False))
            self.assertRegex(repr(comm), rf'"world", rank {comm.rank} of {comm.nranks}')

        self.on_all(rank, device="none")

    def test_blocks_of_unequal_sizes(self):
        def rank(comm):
            n, r = comm.nranks, comm.rank
            counts = [2 * i % 5 for i in range(n)]
            mine, total = ints([r] * counts[r]), sum(counts)
            everyone = [i for i in range(n) for _ in range(counts[i])]
            out = ints([-1] * total)
            comm.all_gather_v(mine, out, counts)
            self.assertEqual(list(out), everyone)
            out = ints([-1] * (n * 6))
            comm.start.all_gather_v(mine, out, counts, [6 * i for i in range(n)]).wait()
            self.assertEqual(list(out), [v for i in range(n) for v in [i] * counts[i] + [-1] * (6 - counts[i])])
            part = ints([0] * counts[r])
            comm.reduce_scatter_v(ints(everyone), part, counts, op="sum")
            self.assertEqual(list(part), [r * n] * counts[r])
            sent = ints([r * 10 + i for i in range(n) for _ in range(i)])
            got = ints([-1] * (n * r))
            comm.all_to_all_v(sent, got, list(range(n)), [r] * n)
            self.assertEqual(list(got), [i * 10 + r for i in range(n) for _ in range(r)])
            root = n - 1
            all_of_them = ints([-1] * total) if r == root else None
            comm.gather_v(mine, all_of_them, counts if r == root else None, root=root)
            if r == root:
                self.assertEqual(list(all_of_them), everyone)
            back = ints([-1] * counts[r])
            comm.scatter_v(all_of_them, back, counts if r == root else None, root=root)
            self.assertEqual(list(back), list(mine))

        self.on_all(rank)

    def test_blocks_that_do_not_fit(self):
        def rank(comm):
            n = comm.nranks
            for call, text in (
                (lambda: comm.all_gather_v(ints([1]), ints([0] * n), [1] * (n + 1)),
                 f"all_gather_v: counts has {n + 1} entries: expected {n}, one for each rank"),
                (lambda: comm.all_gather_v(ints([1, 2]), ints([0] * n), [1] * n),
                 r"all_gather_v: data has 2 elements: expected 1, which is counts\[%d\]" % comm.rank),
                (lambda: comm.all_gather_v(ints([1]), ints([0] * n), [1] * n, [5] * n),
                 f"all_gather_v: out has {n} elements: the block of rank 0 has 1 from element 5 on"),
                (lambda: comm.all_to_all_v(ints([1] * n), ints([0] * n), [1] * n, [2] * n),
                 "all_to_all_v: out has"),
                (lambda: comm.reduce_scatter_v(ints([1] * n), array.array("f", [0]), [1] * n),
                 "reduce_scatter_v: data is int32 and out is float32"),
                (lambda: comm.gather_v(ints([1]), ints([0] * n), root=comm.rank), "gather_v: counts has 0 entries"),
            ):
                with self.assertRaisesRegex(ValueError, text):
                    call()
            comm.barrier()

        tutti.run_threads(3, rank, timeout=60)

    def test_messages_from_anyone(self):
        def rank(comm):
            if comm.rank > 0:
                comm.send(ints([comm.rank, 5]), 0, tag=comm.rank + 10)
                return
            self.assertIsNone(comm.probe(tag=99))
            for _ in range(comm.nranks - 1):
                found = comm.probe(timeout=None)
                self.assertEqual((found.tag, found.bytes), (found.peer + 10, 8))
                data = ints([0, 0])
                met = comm.receive_any(data, tag=found.tag)
                self.assertEqual((list(data), met.peer), ([found.peer, 5], found.peer))

        self.on_all(rank)

    def test_split(self):
        def rank(comm):
            part = comm.split(comm.rank % 2, key=-comm.rank)
            self.assertEqual(part.name, f"world.1:{comm.rank % 2}")
            total = ints([1])
            part.all_reduce(total)
            self.assertEqual(total[0], part.nranks)
            none = comm.split(None if comm.rank == 0 else 1, name="others", timeout=20)
            self.assertEqual(none is None, comm.rank == 0)
            with comm.split(by="host") as host, comm.duplicate() as again:
                self.assertEqual((host.nranks, again.rank), (comm.nranks, comm.rank))
            with self.assertRaisesRegex(ValueError, 'split: by is "rack", expected "color", "host", "numa" or "device"'):
                comm.split(by="rack")

        self.on_all(rank)

    def test_shrink_and_grow(self):
        def rank(comm):
            again = comm.shrink()
            total = ints([1])
            again.all_reduce(total)
            self.assertEqual(total[0], comm.nranks)
            again.close()
            self.assertTrue(again.closed)

        self.on_all(rank)

    def test_nothing_to_move(self):
        def rank(comm):
            comm.all_reduce(bytearray())
            comm.broadcast(ints([]))

        self.on_all(rank)


if __name__ == "__main__":
    unittest.main()
