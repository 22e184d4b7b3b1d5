#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Persistent requests, of ranks that are threads."""
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


if __name__ == "__main__":
    unittest.main()
