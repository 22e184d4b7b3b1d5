# SPDX-License-Identifier: Apache-2.0
"""Wrong arguments, failures of other ranks, wrong moments: exceptions with Tutti's text, and nothing that hangs."""

import array
import threading
import unittest

import tutti


def ints(values):
    return array.array("i", values)


class Arguments(unittest.TestCase):
    def test_wrong_arrays(self):
        def rank(comm):
            two = ints([1, 2])
            for error, text, call in (
                (TypeError, r"all_reduce: data \(list\) has no elements to work on: expected an object with the buffer protocol",
                 lambda: comm.all_reduce([1, 2])),
                (TypeError, r"data \(NoneType\)", lambda: comm.all_reduce(None)),
                (ValueError, r"all_reduce: data \(bytes\) is read-only", lambda: comm.all_reduce(b"ab")),
                (ValueError, r"broadcast: data \(bytes\) is read-only", lambda: comm.broadcast(b"ab", 1 - comm.rank)),
                (ValueError, "data has 2 elements: expected out to have as many, got 3", lambda: comm.all_reduce(two, ints([0] * 3))),
                (ValueError, "expected out to have 2 times as many, a block for each rank, got 2", lambda: comm.all_gather(two, ints([0] * 2))),
                (ValueError, "scan: data has 2 elements: expected out to have as many, got 3", lambda: comm.scan(two, ints([0] * 3))),
                (ValueError, "exclusive_scan: op is \"xor\"", lambda: comm.exclusive_scan(two, op="xor")),
                (ValueError, "expected data to have 2 times as many", lambda: comm.reduce_scatter(two, ints([0] * 2))),
                (ValueError, "data has 3 elements: expected a multiple of the 2 ranks", lambda: comm.all_to_all(ints([0] * 3))),
                (ValueError, 'op is "xor": expected "sum"', lambda: comm.all_reduce(two, op="xor")),
                (tutti.InvalidArgument, "root", lambda: comm.broadcast(two, 2)),
                (tutti.InvalidArgument, "itself|oneself|peer", lambda: comm.send(two, comm.rank)),
                (tutti.InvalidArgument, "broadcast: root is -1: expected the number of a rank", lambda: comm.broadcast(two, -1)),
                (ValueError, 'no collective "allgather"', lambda: comm.explain("allgather", 3)),
                (ValueError, 'no data type "f4"', lambda: comm.explain("all_gather", 3, "f4")),
            ):
                with self.assertRaisesRegex(error, text):
                    call()
            comm.all_reduce(two)  # nothing of it broke the communicator
            self.assertEqual(list(two), [2, 4])

        tutti.run_threads(2, rank)

    def test_wrong_communicators(self):
        for text, call in (
            ("rank and nranks belong together", lambda: tutti.Communicator("local:x", 1)),
            ("nranks is 0", lambda: tutti.Communicator("local:x", 0, 0)),
            ("rank", lambda: tutti.Communicator("local:x", 2, 2)),
            ("timeout is -1", lambda: tutti.Communicator("local:x", 0, 1, timeout=-1)),
            ("rendezvous|meet", lambda: tutti.Communicator("nowhere", 0, 2)),
        ):
            with self.assertRaisesRegex(ValueError, text):
                call()
        with self.assertRaisesRegex(tutti.NotFound, "carrier-pigeon"):
            tutti.Communicator("local:y", 0, 1, transports="carrier-pigeon")


class Moments(unittest.TestCase):
    def test_after_close(self):
        def rank(comm):
            request = comm.start.barrier()
            request.wait()
            comm.close()
            comm.close()
            self.assertTrue(request.test())
            self.assertIn("closed", repr(comm))
            self.assertEqual((comm.rank in (0, 1), comm.nranks), (True, 2))
            for call in (comm.barrier, lambda: comm.start.barrier(), comm.services, comm.shrink):
                with self.assertRaisesRegex(tutti.InvalidUsage, '"world" is closed'):
                    call()

        tutti.run_threads(2, rank)

    def test_what_is_found_at_the_end_is_raised(self):
        both = ("rank 1 is in tutti_comm_split, rank 0 in tutti_comm_destroy|"
                "rank 0 is in tutti_comm_destroy, rank 1 in tutti_comm_split")

        def rank(comm):
            if comm.rank == 0:
                with self.assertRaisesRegex(tutti.Mismatch, f"close: .*({both})"):
                    comm.close()
            else:
                with self.assertRaisesRegex(tutti.Mismatch, both):
                    comm.split(0)
                comm.close()  # raised already

        tutti.run_threads(2, rank)

    def test_a_wait_of_no_number_of_seconds(self):
        def rank(comm):
            request = comm.start.barrier()
            with self.assertRaisesRegex(ValueError, "seconds is nan"):
                request.wait(float("nan"))
            request.wait()

        tutti.run_threads(2, rank)

    def test_one_thread_at_a_time(self):
        def rank(comm):
            if comm.rank == 1:
                comm.receive(bytearray(1), 0)
                comm.send(b"5", 0, tag=5)
                comm.send(b"6", 0, tag=6)
                return
            five, six = bytearray(1), bytearray(1)
            first, second = comm.start.receive(five, 1, tag=5), comm.start.receive(six, 1, tag=6)
            waiter = threading.Thread(target=first.wait, args=(1,))
            waiter.start()
            refused = ""
            while waiter.is_alive() and not refused:
                try:
                    second.test()
                except tutti.InvalidUsage as error:
                    refused = str(error)
            self.assertIn('"world" is in use by another thread', refused)
            waiter.join()
            comm.send(b"x", 1)
            first.wait()
            second.wait()
            self.assertEqual((five, six), (b"5", b"6"))

        tutti.run_threads(2, rank)

    def test_a_request_that_is_dropped_waits(self):
        def rank(comm):
            data = ints([comm.rank])
            comm.start.all_reduce(data)
            self.assertEqual(data[0], 1)

        tutti.run_threads(2, rank)


class Failures(unittest.TestCase):
    def test_an_exception_of_one_rank_ends_the_others(self):
        seen = []

        def rank(comm):
            if comm.rank == 1:
                raise KeyError("lost page")
            try:
                comm.barrier()
            except tutti.Error as error:
                seen.append((error, comm.failure, comm.lost))
                raise

        with self.assertRaisesRegex(KeyError, "lost page"):
            tutti.run_threads(3, rank)
        self.assertEqual(len(seen), 2)
        for error, failure, lost in seen:
            self.assertRegex(str(error), "rank 1.*the rank left by KeyError: 'lost page'")
            self.assertIsInstance(failure, tutti.Error)
            self.assertEqual(failure.status, error.status)
            self.assertEqual(lost, [1])

    def test_survivors_go_on(self):
        def rank(comm):
            if comm.rank == 1:
                comm.abort("this rank goes home")
                return None
            with self.assertRaises(tutti.Error):
                comm.barrier()
            with comm.shrink() as fewer:
                total = ints([1])
                fewer.all_reduce(total)
                return total[0]

        self.assertEqual(tutti.run_threads(3, rank), [2, None, 2])

    def test_checked_calls(self):
        def rank(comm):
            with self.assertRaisesRegex(tutti.Mismatch, "all_reduce"):
                comm.all_reduce(ints([1] * (1 + comm.rank)))

        tutti.run_threads(2, rank, check_calls=True)


if __name__ == "__main__":
    unittest.main()
