#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Persistent requests and groups of calls, of ranks that are threads."""
import array
import unittest

import tutti


def ints(values):
    return array.array("i", values)


class PersistentRequests(unittest.TestCase):
    def on_all(self, rank):
        for n in (1, 2, 4):
            tutti.run_threads(n, rank)

    def test_persistent_requests_start_again(self):
        def rank(comm):
            n = comm.nranks
            data, total = ints([0, 0]), ints([0, 0])
            reduce = comm.persistent.all_reduce(data, total)
            gathered = ints([0] * n)
            gather = comm.persistent.all_gather_v(ints([comm.rank]), gathered, [1] * n)
            barrier = comm.persistent.barrier()
            self.assertTrue(reduce.test())
            for turn in range(4):
                data[0], data[1] = comm.rank, turn
                for request in (reduce, gather, barrier):
                    request.start()
                for request in (reduce, gather, barrier):
                    self.assertTrue(request.wait())
                self.assertEqual(list(total), [n * (n - 1) // 2, n * turn])
                self.assertEqual(list(gathered), list(range(n)))
            with self.assertRaisesRegex(tutti.InvalidUsage, "Communicator.persistent"):
                comm.start.barrier().start()

        self.on_all(rank)

    def test_they_are_refused_once_the_communicator_is_closed(self):
        left = []

        def rank(comm):
            left.append(comm.persistent.all_reduce(ints([1])))

        tutti.run_threads(2, rank)
        for request in left:
            with self.assertRaisesRegex(tutti.InvalidUsage, "closed"):
                request.start()


class Groups(unittest.TestCase):
    def test_calls_begin_and_end_together(self):
        def rank(comm):
            n, other = comm.nranks, (comm.rank + 1) % comm.nranks
            sums = [ints([comm.rank + i]) for i in range(20)]
            text, got = bytearray(b"%d" % comm.rank), bytearray(1)
            with comm.group():
                for one in sums:
                    comm.all_reduce(one)
                comm.send(text, other)
                comm.receive(got, (comm.rank - 1) % n)
            self.assertEqual([one[0] for one in sums], [n * (n - 1) // 2 + n * i for i in range(20)])
            self.assertEqual(got, b"%d" % ((comm.rank - 1) % n))
            self.assertEqual([s["calls"] for s in comm.services() if s["collective"] == "all_reduce"], [1])
            with comm.start.group() as group:
                with self.assertRaisesRegex(tutti.InvalidUsage, "has not ended"):
                    group.request
                comm.all_reduce(sums[0])
                with self.assertRaisesRegex(tutti.InvalidArgument, "tutti_group_end"):
                    comm.start.all_reduce(sums[1])
            self.assertTrue(group.request.wait(60))
            with comm.persistent.group() as again:
                comm.all_reduce(sums[2])
                comm.all_reduce(sums[3])
            for _ in range(3):
                sums[2][0], sums[3][0] = 1, comm.rank
                again.request.start()
                again.request.wait()
                self.assertEqual((sums[2][0], sums[3][0]), (n, n * (n - 1) // 2))

        for n in (2, 3):
            tutti.run_threads(n, rank)

    def test_an_exception_forgets_them(self):
        def rank(comm):
            data = ints([1])
            with self.assertRaises(KeyError):
                with comm.group():
                    comm.all_reduce(data)
                    raise KeyError
            comm.all_reduce(data)
            self.assertEqual(data[0], comm.nranks)

        tutti.run_threads(2, rank)


if __name__ == "__main__":
    unittest.main()
