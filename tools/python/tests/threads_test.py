# SPDX-License-Identifier: Apache-2.0
"""Ranks that are threads: wrong numbers of them, the end by an interrupt, and daemon threads at the program's end."""

import subprocess
import sys
import textwrap
import unittest

import tutti


class Threads(unittest.TestCase):
    def test_wrong_arguments(self):
        for error, text, arguments in (
            (ValueError, "^run_threads: nranks is 0: expected at least 1$", (0, print)),
            (ValueError, "^run_threads: nranks is -1: expected at least 1$", (-1, print)),
            (TypeError, "^run_threads: nranks is 2.0: expected a whole number of ranks, an int$", (2.0, print)),
            (TypeError, "^run_threads: nranks is None: expected", (None, print)),
            (TypeError, "^run_threads: function is 5: expected a function, called with a Communicator$", (2, 5)),
        ):
            with self.assertRaisesRegex(error, text):
                tutti.run_threads(*arguments)

    def reasons_of_an_interrupt(self, rank):
        """Three ranks run the function `rank`, given as lines, which interrupts them; the texts that it has put into `reasons`."""
        program = textwrap.dedent("""
            import os, signal, threading, tutti
            signal.signal(signal.SIGINT, signal.default_int_handler)
            there = threading.Barrier(3, lambda: os.kill(os.getpid(), signal.SIGINT))
            reasons = []
            """) + textwrap.dedent(rank) + textwrap.dedent("""
            try:
                tutti.run_threads(3, rank)
            except KeyboardInterrupt:
                print("interrupted", threading.active_count())
            print(*reasons, sep="\\n")
            """)
        done = subprocess.run([sys.executable, "-B", "-c", program], capture_output=True, text=True, timeout=60)
        lines = done.stdout.splitlines()
        self.assertEqual((done.returncode, lines[:1]), (0, ["interrupted 1"]), done.stderr)
        for line in lines[1:]:
            self.assertIn("run_threads was ended by KeyboardInterrupt", line)
        return lines[1:]

    def test_an_interrupt_ends_the_ranks(self):
        reasons = self.reasons_of_an_interrupt("""
            def rank(comm):
                there.wait()
                try:
                    comm.receive(bytearray(1), (comm.rank + 1) % comm.nranks)
                except tutti.Error as error:
                    reasons.append(str(error))
            """)
        self.assertEqual(len(reasons), 3, reasons)

    def test_an_interrupt_ends_waits_in_other_communicators(self):
        reasons = self.reasons_of_an_interrupt("""
            def rank(comm):
                for make in lambda: comm.split(0), lambda: tutti.Communicator("local:own", comm.rank, 3):
                    try:
                        with make() as other:
                            if other.rank == 0 and not reasons:
                                os.kill(os.getpid(), signal.SIGINT)
                            other.receive(bytearray(1), (other.rank + 1) % 3)
                    except tutti.Error as error:
                        reasons.append(str(error))
            """)
        self.assertEqual(len(reasons), 6, reasons)

    def test_an_exception_ends_waits_in_other_communicators(self):
        def rank(comm):
            other = comm.split(0)
            if other.rank == 1:
                raise KeyError("page 7")
            with self.assertRaisesRegex(tutti.Aborted, "rank 1 .*the rank left by KeyError: 'page 7'"):
                other.receive(bytearray(1), 1)

        with self.assertRaisesRegex(KeyError, "page 7"):
            tutti.run_threads(3, rank)

    def test_daemon_threads_in_calls_at_the_end(self):
        """They stay where they are, and print nothing of calls that only the end has ended.

        CPython would end them in the middle of C++, or the process because one of them prints.
        """
        program = textwrap.dedent("""
            import array, sys, threading, tutti
            there = threading.Barrier(5)
            def call(*world):
                comm, data = tutti.Communicator(*world), array.array("f", [1])
                there.wait()
                while True:
                    comm.all_reduce(data)
            for rank in range(4):
                world = ("local:all", rank, 4) if sys.argv[1] == "one" else ()
                threading.Thread(target=call, args=world, daemon=True).start()
            there.wait()
            """)
        for world in ("of their own", "one") * 10:
            done = subprocess.run([sys.executable, "-B", "-c", program, world], capture_output=True, text=True,
                                  timeout=60)
            self.assertEqual((done.returncode, done.stderr), (0, ""), world)


if __name__ == "__main__":
    unittest.main()
