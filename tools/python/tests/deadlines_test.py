# SPDX-License-Identifier: Apache-2.0
"""Deadlines that pass."""
import unittest

import tutti


class Deadlines(unittest.TestCase):
    def test_who_does_not_come(self):
        with self.assertRaisesRegex(tutti.Timeout, "rank") as caught:
            tutti.Communicator("local:alone", 0, 2, connect_timeout=0.2)
        self.assertIsInstance(caught.exception, TimeoutError)
        self.assertEqual(caught.exception.status, -5)

    def test_who_does_not_send(self):
        def rank(comm):
            if comm.rank == 0:
                with self.assertRaisesRegex(tutti.Timeout, "rank 1"):
                    comm.receive(bytearray(1), 1)
            else:
                with self.assertRaises(tutti.Error):
                    comm.receive(bytearray(1), 0)

        tutti.run_threads(2, rank, timeout=0.3)


if __name__ == "__main__":
    unittest.main()
