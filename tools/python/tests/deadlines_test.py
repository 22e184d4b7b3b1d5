# SPDX-License-Identifier: Apache-2.0
"""Deadlines that pass."""
import os
import pathlib
import tempfile
import time
import unittest
from unittest import mock

import tutti

PATIENCE = 60 * float(os.environ.get("TUTTI_TEST_TIME_SCALE") or 1)  # seconds


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

    def test_the_line_that_waits_is_recorded(self):
        def rank(comm):
            if comm.rank == 0:
                comm.receive(bytearray(1), 1)
                comm.start.receive(bytearray(1), 1).wait(10 * PATIENCE)
            else:
                for line in (rank.__code__.co_firstlineno + 2, rank.__code__.co_firstlineno + 3):
                    site = f"{os.path.basename(__file__)}:{line}\0".encode()
                    until = time.monotonic() + PATIENCE
                    while not any(site in record.read_bytes() for record in pathlib.Path(folder).glob("*.flight")):
                        self.assertLess(time.monotonic(), until, site)
                        time.sleep(0.01)
                    comm.send(bytearray(1), 0)

        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, TUTTI_RECORDER_DIR=folder):
            tutti.run_threads(2, rank)


if __name__ == "__main__":
    unittest.main()
