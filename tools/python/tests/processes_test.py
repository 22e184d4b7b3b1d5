# SPDX-License-Identifier: Apache-2.0
"""Scripts as a user starts them: python3 -m tutti.run, with ends of every kind."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

try:
    import numpy
except ImportError:
    numpy = None

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples")


class Scripts(unittest.TestCase):
    def start(self, script, *options, ranks=2):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "script.py")
        with open(path, "w") as file:
            file.write("import array, os, signal, sys, threading, time, tutti\n" + textwrap.dedent(script))
        return subprocess.Popen([sys.executable, "-B", "-m", "tutti.run", "-n", str(ranks), *options, path], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run_script(self, script, *options, ranks=2):
        process = self.start(script, *options, ranks=ranks)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def run_alone(self, script):
        """Exit codes and outputs of three ranks without tuttirun, which would end the others when one fails."""
        script = ("import os, signal, sys, tutti\ncomm = tutti.Communicator('file:' + sys.argv[1], int(sys.argv[2]), 3)\n" +
                  textwrap.dedent(script))
        with tempfile.TemporaryDirectory() as folder:
            ranks = [subprocess.Popen([sys.executable, "-B", "-c", script, folder, str(rank)], text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in range(3)]
            outs = [process.communicate(timeout=120) for process in ranks]
        return [process.returncode for process in ranks], [out for out, _ in outs], [err for _, err in outs]

    def test_ranks_meet(self):
        code, out, err = self.run_script("""
            comm = tutti.Communicator()
            total = array.array("i", [comm.rank])
            comm.all_reduce(total)
            print("total", total[0], "of", comm.nranks)
            """, "--no-label", ranks=4)
        self.assertEqual((code, out), (0, "total 6 of 4\n" * 4), err)

    def test_hosts(self):
        code, out, err = self.run_script("""
            os.environ["TUTTI_HOST_ID"] = "east" if os.environ["RANK"] in "03" else "west"
            comm = tutti.Communicator()
            own, third = comm.host(), comm.host(2)
            print(comm.rank, own.host, own.hosts, own.local_rank, own.local_nranks, third.host, third.local_rank)
            try:
                comm.host(4)
            except tutti.InvalidArgument as error:
                assert "rank is 4, expected less than 4 ranks" in str(error), error
            """, "--no-label", ranks=4)
        self.assertEqual((code, sorted(out.splitlines())),
                         (0, ["0 0 2 0 2 1 1", "1 1 2 0 2 1 1", "2 1 2 1 2 1 1", "3 0 2 1 2 1 1"]), err)

    def test_an_exception_ends_the_others(self):
        codes, outs, errs = self.run_alone("""
            if comm.rank == 1:
                raise ValueError("bad page 7")
            try:
                comm.barrier()
            except tutti.Error as error:
                print(error)
            """)
        self.assertEqual(codes, [0, 1, 0], errs)
        for rank in (0, 2):
            self.assertRegex(outs[rank], "rank 1.*the rank ended by ValueError: bad page 7")
        self.assertIn("ValueError: bad page 7", errs[1])

    def test_who_leaves_ends_the_calls_of_the_others(self):
        for leave in ("sys.exit(3)", "comm.close(); sys.exit(3)", "import threading; sys.exit(3)"):
            began = time.monotonic()
            codes, outs, errs = self.run_alone(f"""
                comm.barrier()
                part = comm.duplicate()
                if comm.rank == 1:
                    try:
                        {leave}
                    except tutti.PeerFailed:
                        sys.exit(3)
                try:
                    comm.barrier()
                except tutti.PeerFailed as error:
                    print(error)
                """)
            self.assertEqual(codes, [0, 3, 0], errs)
            for rank in (0, 2):
                self.assertIn("rank 1 has not entered operation #1: it destroys the communicator instead", outs[rank])
            self.assertNotIn("Traceback", errs[1])
            self.assertLess(time.monotonic() - began, 25)  # the ends wait for each other for 30 seconds

    def test_an_interrupt_ends_a_wait_of_some_seconds(self):
        began = time.monotonic()
        process = self.start("""
            comm = tutti.Communicator()
            if comm.rank == 1:
                comm.receive(bytearray(1), 0)
                sys.exit()
            request = comm.start.receive(bytearray(1), 1)
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                request.wait(100)
            except KeyboardInterrupt:
                print("interrupted")
            comm.abort("enough")
            """)
        out, err = process.communicate(timeout=120)
        self.assertIn("interrupted", out, err)
        self.assertLess(time.monotonic() - began, 60)

    def test_a_killed_rank(self):
        codes, outs, errs = self.run_alone("""
            try:
                if comm.rank == 1:
                    comm.receive(bytearray(1), 0)
                    os.kill(os.getpid(), signal.SIGKILL)
                if comm.rank == 0:
                    comm.send(b"x", 1)
                comm.barrier()
            except tutti.PeerFailed as error:
                print(comm.lost, error)
            with comm.shrink() as fewer:
                data = bytearray([1])
                fewer.all_reduce(data)
                print("left:", data[0])
            """)
        self.assertEqual(codes, [0, -signal.SIGKILL, 0], errs)
        for rank in (0, 2):
            self.assertRegex(outs[rank], r"\[1\] .*rank 1")
            self.assertIn("left: 2", outs[rank])

    def test_an_interpreter_that_ends_with_requests_in_flight(self):
        begin = time.monotonic()
        code, out, err = self.run_script("""
            comm = tutti.Communicator()
            data = bytearray(100)
            if comm.rank == 0:
                request = comm.start.receive(data, 1)
            else:
                try:
                    comm.receive(data, 0)
                except tutti.Error as error:
                    print(error, flush=True)
            """)
        self.assertRegex(out, "the interpreter ended with 1 requests in flight", err)
        self.assertLess(time.monotonic() - begin, 60)

    def check_interrupt(self, wait, reason):
        """Rank 0 is interrupted in the wait, and rank 1 is told the reason."""
        _, out, err = self.run_script(f"""
            comm = tutti.Communicator()
            # What a shell starts in the background ignores the interrupt.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            comm.barrier()
            interrupt = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
            try:
                if comm.rank == 0:
                    {wait}
                comm.receive(bytearray(1), 0)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            except tutti.Error as error:
                print(error, flush=True)
            """)
        self.assertRegex(out, r"(?m)^\[0\] interrupted", err)
        self.assertRegex(out, rf"(?m)^\[1\].*{reason}", err)

    def test_an_interrupt_ends_a_call(self):
        self.check_interrupt("interrupt.start(); comm.receive(bytearray(1), 1)", "a signal interrupted a call")

    def test_an_interrupt_ends_the_wait_for_a_request_that_is_dropped(self):
        self.check_interrupt("request = comm.start.receive(bytearray(1), 1); interrupt.start(); del request\n"
                             "                    while True: pass",
                             "a signal interrupted the wait for a request that was dropped")

    def test_an_interrupt_ends_a_wait_for_ranks(self):
        for call in ("comm.split(0)", "comm.register(bytearray(64))", "comm.close()"):
            began = time.monotonic()
            codes, outs, errs = self.run_alone(f"""
                import fcntl, threading
                signal.signal(signal.SIGINT, signal.default_int_handler)
                gate = open(sys.argv[1] + "/gate", "w")
                if comm.rank == 0:
                    fcntl.flock(gate, fcntl.LOCK_EX)
                comm.barrier()
                try:
                    if comm.rank == 0:
                        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
                        {call}
                    else:
                        fcntl.flock(gate, fcntl.LOCK_SH)
                        comm.barrier()
                except KeyboardInterrupt:
                    print("interrupted")
                    fcntl.flock(gate, fcntl.LOCK_UN)
                except tutti.Error as error:
                    print(error)
                """)
            with self.subTest(call):
                self.assertEqual(codes, [0, 0, 0], errs)
                self.assertEqual(outs[0], "interrupted\n", errs)
                for rank in (1, 2):
                    self.assertRegex(outs[rank], "rank 0 .*was interrupted by its caller", errs)
                self.assertLess(time.monotonic() - began, 25)

    def test_an_interrupt_ends_the_wait_for_a_meeting(self):
        for rank in range(2):
            script = """
                import os, signal, sys, threading, tutti
                signal.signal(signal.SIGINT, signal.default_int_handler)
                threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
                try:
                    tutti.Communicator("file:" + sys.argv[1], int(sys.argv[2]), 2, connect_timeout=60)
                except KeyboardInterrupt:
                    print("interrupted")
                """
            with tempfile.TemporaryDirectory() as folder, self.subTest(rank):
                done = subprocess.run([sys.executable, "-B", "-c", textwrap.dedent(script), folder, str(rank)], text=True,
                                      capture_output=True, timeout=50)
                self.assertEqual((done.returncode, done.stdout), (0, "interrupted\n"), done.stderr)

    def test_a_handler_that_returns_lets_the_wait_go_on(self):
        codes, outs, errs = self.run_alone("""
            import fcntl, threading
            seen = []
            gate = open(sys.argv[1] + "/gate", "w")
            def see(number, frame):
                seen.append(number)
                fcntl.flock(gate, fcntl.LOCK_UN)
            signal.signal(signal.SIGUSR1, see)
            if comm.rank == 0:
                fcntl.flock(gate, fcntl.LOCK_EX)
            comm.barrier()
            if comm.rank == 0:
                threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            else:
                fcntl.flock(gate, fcntl.LOCK_SH)
            with comm.split(0) as part:
                print(part.nranks, len(seen))
            """)
        self.assertEqual((codes, outs), ([0, 0, 0], ["3 1\n", "3 0\n", "3 0\n"]), errs)

    def test_a_forked_child(self):
        code, out, err = self.run_script("""
            comm = tutti.Communicator()
            child = os.fork()
            if child == 0:
                try:
                    comm.barrier()
                except tutti.InvalidUsage as error:
                    print("child:", error, flush=True)
                del comm
                sys.exit(0)
            os.waitpid(child, 0)
            comm.barrier()
            print("parent goes on", flush=True)
            """)
        self.assertEqual(code, 0, err)
        self.assertEqual(out.count("parent goes on"), 2)
        self.assertEqual(out.count("child:"), 2)

    def test_a_child_that_is_forked_while_another_thread_is_in_a_call(self):
        code, out, err = self.run_script("""
            import fcntl
            comm = tutti.Communicator()
            gate = open(__file__)
            if comm.rank == 0:
                fcntl.flock(gate, fcntl.LOCK_EX)
            comm.barrier()
            if comm.rank == 1:
                fcntl.flock(gate, fcntl.LOCK_SH)
                comm.split(0)
                sys.exit()

            def split():
                while True:
                    try:
                        return comm.split(0)
                    except tutti.InvalidUsage:  # it has met a test of the main thread
                        pass

            request, inside = comm.start.receive(bytearray(1), 1), threading.Thread(target=split)
            inside.start()
            refused = False
            while not refused:  # until the thread is in its call
                try:
                    request.test()
                except tutti.InvalidUsage:
                    refused = True
            child = os.fork()
            if child == 0:
                try:
                    comm.barrier()
                except tutti.InvalidUsage as error:
                    print("child:", error, flush=True)
                del request
                print("child: dropped", flush=True)
                os._exit(0)
            print("status", os.waitpid(child, 0)[1], flush=True)
            fcntl.flock(gate, fcntl.LOCK_UN)
            inside.join()
            comm.abort("enough")
            """)
        self.assertRegex(out, r"child: .*this process was forked after the communicator was made: a child may only exec or exit")
        self.assertIn("child: dropped", out, err)
        self.assertIn("status 0", out, err)

    def test_a_forked_child_is_told_what_its_calls_do(self):
        code, out, err = self.run_script("""
            import warnings
            comm = tutti.Communicator()
            data = array.array("f", [comm.rank])
            request = comm.start.receive(data, 1) if comm.rank == 0 else None
            if comm.rank == 0:
                child = os.fork()
                if child == 0:
                    try:
                        request.wait()
                    except tutti.InvalidUsage as error:
                        print("wait:", error, flush=True)
                    with warnings.catch_warnings(record=True) as caught:
                        warnings.simplefilter("always")
                        comm.abort("by a child")
                        comm.close()
                        comm.close()
                        for warning in caught:
                            print(warning.category.__name__, warning.message, flush=True)
                    sys.exit(0)
                os.waitpid(child, 0)
            comm.barrier()
            if comm.rank == 1:
                comm.send(data, 0)
            if request:
                request.wait()
            comm.close()
            print("parent goes on", flush=True)
            """)
        self.assertEqual(code, 0, err)
        self.assertEqual(out.count("parent goes on"), 2, err)
        forked = "this process was forked after the communicator"
        self.assertRegex(out, f"wait: .*{forked} was made: a child may only exec or exit")
        for call in ("abort", "close"):
            self.assertEqual(out.count(f'RuntimeWarning Communicator.{call}: {forked} "world" was made, so the call does '
                                       "nothing: a child may only exec or exit"), 1, out)
        self.assertNotIn("RuntimeWarning", err)

    def run_example(self, name, *arguments):
        return subprocess.run([sys.executable, "-B", "-m", "tutti.run", "-n", "3", "--no-label", os.path.join(EXAMPLES, name), *arguments],
                              capture_output=True, text=True, timeout=120)

    @unittest.skipIf(numpy is None, "numpy is not installed (python3-numpy)")
    def test_the_digits(self):
        done = self.run_example("digits.py", "6")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("weights: the same bits on all ranks", done.stdout)
        accuracy = float(done.stdout.split("held-out ")[-1].split()[0])
        with open(os.path.join(EXAMPLES, "digits.py")) as file:
            self.assertLessEqual(len(file.readlines()), 60)
        self.assertGreater(accuracy, 93, done.stdout)

    @unittest.skipIf(numpy is None, "numpy is not installed (python3-numpy)")
    def test_the_mean_of_a_file(self):
        with tempfile.NamedTemporaryFile() as file:
            numpy.arange(3_000_001, dtype="f4").tofile(file)
            file.flush()
            done = self.run_example("mean_of_file.py", file.name)
        self.assertEqual(done.stdout, "3000001 numbers: mean 1.5e+06, standard deviation 866026\n", done.stderr)

    def test_the_starter(self):
        def run(*arguments):
            return subprocess.run([sys.executable, "-B", "-m", "tutti.run", *arguments], capture_output=True, text=True, timeout=60)

        self.assertIn("usage: python3 -m tutti.run", run("--help").stdout)
        nothing = run()
        self.assertEqual(nothing.returncode, 2)
        self.assertIn("expected a script (SCRIPT.py) or -m MODULE, got nothing", nothing.stderr)
        for words, text in (
            (["-n", "2", "-m"], "-m needs the name of a module"),
            (["-n"], "-n needs a value"),
            (["-n", "2", "python3", "script.py"], f"no script python3; the interpreter is {sys.executable} and is not named"),
            (["--nproc_per_node", "2", "script.py"], "--nproc_per_node is no option: the number of ranks is -n N"),
            (["-c", "print()"], "-c is no option"),
            (["-n", "2", "absent.py"], "no script absent.py"),
        ):
            done = run(*words)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(text, done.stderr)
        self.assertRegex(run("--version").stdout, "^0\\.")
        module = run("-n", "2", "--no-label", "-m", "platform")
        self.assertEqual((module.returncode, len(module.stdout.splitlines())), (0, 2), module.stderr)
        self.assertNotEqual(run("-n", "none", __file__).returncode, 0)


if __name__ == "__main__":
    unittest.main()
