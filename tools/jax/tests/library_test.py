# SPDX-License-Identifier: Apache-2.0
"""libtutti-mpitrampoline as MPItrampoline loads it: all names are there, wrong arguments and functions that are not served are
named."""
import ctypes
import os
import pathlib
import subprocess
import sys
import textwrap
import unittest

BUILD = pathlib.Path(os.environ["TUTTI_TEST_BUILD"])
LIBRARY = BUILD / "lib/libtutti-mpitrampoline.so"
ABI = pathlib.Path(__file__).parent.parent / "abi"
BEGIN = f"""
import ctypes, os, sys, threading
lib = ctypes.CDLL({str(LIBRARY)!r})
def handle(name): return ctypes.c_size_t.in_dll(lib, "MPIABI_" + name)
def number(name): return ctypes.c_int.in_dll(lib, "MPIABI_" + name).value
def floats(*values): return (ctypes.c_float * len(values))(*values)
def text(code):
    buffer, length = ctypes.create_string_buffer(1024), ctypes.c_int()
    lib.MPIABI_Error_string(code, buffer, ctypes.byref(length))
    assert length.value == len(buffer.value)
    return buffer.value.decode()
def init():
    provided = ctypes.c_int()
    assert lib.MPIABI_Init_thread(None, None, number("THREAD_FUNNELED"), ctypes.byref(provided)) == 0
    assert provided.value >= number("THREAD_FUNNELED")
world, FLOAT, SUM, IGNORE = handle("COMM_WORLD"), handle("FLOAT"), handle("SUM"), handle("STATUS_IGNORE")
NO_COMM, NO_REQUEST = handle("COMM_NULL").value, handle("REQUEST_NULL").value
rank, size = ctypes.c_int(), ctypes.c_int()
"""


class Library(unittest.TestCase):
    def run_script(self, script, ranks=1):
        """Exit status, standard output and error of a script on each rank, after BEGIN."""
        done = subprocess.run([BUILD / "bin/tuttirun", "-n", str(ranks), "--no-label", sys.executable, "-B", "-c",
                               BEGIN + textwrap.dedent(script)], text=True, capture_output=True, timeout=100)
        return done.returncode, done.stdout, done.stderr

    def succeed(self, script, ranks=1):
        code, out, err = self.run_script(script, ranks)
        self.assertEqual((code, out), (0, "done\n" * ranks), err)

    def test_every_name_is_there(self):
        library = ctypes.CDLL(str(LIBRARY))
        lines = [line.split() for file in ("constants", "unserved") for line in (ABI / f"{file}.txt").read_text().splitlines()
                 if not line.startswith("#")]
        names = [words[1] if len(words) > 1 else words[0] for words in lines]
        self.assertGreater(len(names), 600)
        for name in names:
            self.assertTrue(hasattr(library, name.replace("MPI_", "MPIABI_").replace("MPIX_", "MPIXABI_")), name)
        handles = [ctypes.c_size_t.in_dll(library, words[1].replace("MPI_", "MPIABI_")).value
                   for words in lines if words[0] == "handle"]
        self.assertEqual(len(set(handles)), len(handles))
        self.assertGreater(min(handles), 0)

    def test_every_call(self):
        self.succeed("""
            init()
            lib.MPIABI_Comm_rank(world, ctypes.byref(rank))
            lib.MPIABI_Comm_size(world, ctypes.byref(size))
            me, n = rank.value, size.value
            assert n == 3 and str(me) == os.environ["RANK"]
            got = floats(*[0] * 6)
            assert lib.MPIABI_Allreduce(floats(1 + me, 5), got, 2, FLOAT, SUM, world) == 0 and got[:2] == [6, 15]
            assert lib.MPIABI_Allreduce(floats(1 + me, 5), got, 2, FLOAT, handle("PROD"), world) == 0 and got[:2] == [6, 125]
            assert lib.MPIABI_Allreduce(floats(1 + me, 5), got, 2, FLOAT, handle("MAX"), world) == 0 and got[:2] == [3, 5]
            assert lib.MPIABI_Allreduce(floats(1 + me, 5), got, 2, FLOAT, handle("MIN"), world) == 0 and got[:2] == [1, 5]
            assert lib.MPIABI_Allgather(floats(me, 7), 2, FLOAT, got, 2, FLOAT, world) == 0 and got[:] == [0, 7, 1, 7, 2, 7]
            mine = floats(*[10 * me + i for i in range(6)])
            counts = (ctypes.c_int * 3)(2, 2, 2)
            assert lib.MPIABI_Reduce_scatter(mine, got, counts, FLOAT, SUM, world) == 0
            assert got[:2] == [30 + 6 * me, 33 + 6 * me]
            counts = (ctypes.c_int * 3)(1, 2, 3)
            assert lib.MPIABI_Reduce_scatter(mine, got, counts, FLOAT, SUM, world) == 0
            assert got[:1 + me] == [30 + 3 * i for i in [[0], [1, 2], [3, 4, 5]][me]]
            left, right = (me - 1) % 3, (me + 1) % 3
            assert lib.MPIABI_Sendrecv(floats(me), 1, FLOAT, right, 4, got, 1, FLOAT, left, 4, world, IGNORE) == 0
            assert got[0] == left
            wait, status = [ctypes.c_size_t(), ctypes.c_size_t()], (ctypes.c_int * 10)()
            assert lib.MPIABI_Irecv(got, 4, handle("BYTE"), left, 9, world, ctypes.byref(wait[0])) == 0
            assert lib.MPIABI_Isend(floats(50 + me), 4, handle("BYTE"), right, 9, world, ctypes.byref(wait[1])) == 0
            again = ctypes.c_size_t(wait[0].value)
            assert lib.MPIABI_Wait(ctypes.byref(wait[0]), status) == 0 and got[0] == 50 + left and status[6:8] == [left, 9]
            code = lib.MPIABI_Wait(ctypes.byref(again), IGNORE)
            assert code and "expected one of MPI_Isend or MPI_Irecv that has not been waited for" in text(code), text(code)
            assert lib.MPIABI_Wait(ctypes.byref(wait[1]), IGNORE) == 0
            assert lib.MPIABI_Wait(ctypes.byref(wait[1]), IGNORE) == 0 and wait[1].value == NO_REQUEST
            part = ctypes.c_size_t()
            assert lib.MPIABI_Comm_split(world, 0 if me else number("UNDEFINED"), 2 - me, ctypes.byref(part)) == 0
            assert (part.value == NO_COMM) == (me == 0)
            if me:
                lib.MPIABI_Comm_rank(part, ctypes.byref(rank))
                lib.MPIABI_Comm_size(part, ctypes.byref(size))
                assert (rank.value, size.value) == (2 - me, 2)
                assert lib.MPIABI_Allreduce(floats(me), got, 1, FLOAT, SUM, part) == 0 and got[0] == 3
                assert lib.MPIABI_Comm_free(ctypes.byref(part)) == 0 and part.value == NO_COMM
            assert lib.MPIABI_Comm_split(world, 5, me, ctypes.byref(part)) == 0  # MPI_Finalize frees it
            assert lib.MPIABI_Finalize() == 0
            assert lib.MPIABI_Comm_free(ctypes.byref(part)) == 0
            assert lib.MPIABI_Finalize() == 0
            print("done", flush=True)
            """, 3)

    def test_any_thread_calls(self):
        self.succeed("""
            init()
            wrong = []
            def call():
                main, got = ctypes.c_int(), floats(0)
                lib.MPIABI_Is_thread_main(ctypes.byref(main))
                if not main.value or lib.MPIABI_Allreduce(floats(1), got, 1, FLOAT, SUM, world) or got[0] != 2:
                    wrong.append(got[0])
            threads = [threading.Thread(target=call) for _ in range(8)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            assert not wrong, wrong
            lib.MPIABI_Finalize()
            print("done", flush=True)
            """, 2)

    def test_the_state_is_told(self):
        self.succeed("""
            flag = ctypes.c_int(7)
            def state():
                lib.MPIABI_Initialized(ctypes.byref(flag)); begun = flag.value
                lib.MPIABI_Finalized(ctypes.byref(flag)); return begun, flag.value
            assert state() == (0, 0)
            code = lib.MPIABI_Allreduce(floats(1), floats(0), 1, FLOAT, SUM, world)
            assert code and text(code) == "MPI_Allreduce: MPI_Init_thread has not been called", text(code)
            init()
            init()  # JAX makes one client after another
            assert state() == (1, 0)
            lib.MPIABI_Finalize()
            assert state() == (1, 1)
            code = lib.MPIABI_Allreduce(floats(1), floats(0), 1, FLOAT, SUM, world)
            assert text(code) == "MPI_Allreduce: MPI_Finalize has been called", text(code)
            assert text(0) == "success" and text(4711) == "error 4711 of MPI"
            major, minor, buffer = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(8192)
            lib.MPIABI_Get_version(ctypes.byref(major), ctypes.byref(minor))
            lib.MPIABI_Get_library_version(buffer, ctypes.byref(flag))
            assert (major.value, minor.value) == (3, 1) and buffer.value.startswith(b"Tutti 0."), buffer.value
            print("done", flush=True)
            """)

    def test_wrong_arguments_are_named(self):
        self.succeed("""
            init()
            got, request, part = floats(0, 0), ctypes.c_size_t(), ctypes.c_size_t()
            def expect(code, words):
                assert code and words in text(code), (code, words, text(code))
            def all_reduce(a=floats(1), count=1, kind=FLOAT, op=SUM, comm=world):
                return lib.MPIABI_Allreduce(a, got, count, kind, op, comm)
            expect(all_reduce(kind=handle("REAL16")), "MPI_Allreduce: the type is MPI_REAL16, expected MPI_BYTE")
            expect(all_reduce(kind=ctypes.c_size_t(1 << 40)), "the type is 1099511627776, expected")
            expect(all_reduce(op=handle("MINLOC")), "the operator is MPI_MINLOC, expected MPI_SUM")
            expect(all_reduce(comm=handle("COMM_SELF")), "the communicator is MPI_COMM_SELF, expected MPI_COMM_WORLD")
            expect(all_reduce(comm=ctypes.c_size_t(999999)), "the communicator is 999999, expected")
            expect(all_reduce(count=-2), "the count is -2, expected 0 to 2,147,483,647")
            expect(all_reduce(a=handle("IN_PLACE")), "the buffer is MPI_IN_PLACE, expected an address")
            expect(all_reduce(a=None), "MPI_Allreduce: rank 0")
            expect(lib.MPIABI_Allgather(got, 1, FLOAT, got, 2, FLOAT, world), "each rank sends 1 of MPI_FLOAT and receives 2 of")
            expect(lib.MPIABI_Irecv(got, 1, FLOAT, number("ANY_SOURCE"), 0, world, ctypes.byref(request)),
                   "the peer is -1, expected")
            expect(lib.MPIABI_Isend(got, 1, FLOAT, 9, 0, world, ctypes.byref(request)), "MPI_Isend: rank 0")
            expect(lib.MPIABI_Isend(got, 1, FLOAT, 0, -5, world, ctypes.byref(request)), "the tag is -5, expected")
            expect(lib.MPIABI_Wait(ctypes.byref(ctypes.c_size_t(777777)), IGNORE), "MPI_Wait: the request is 777777, expected")
            assert all_reduce() == 0 and got[0] == 1
            print("done", flush=True)
            """)

    def test_what_jax_does_not_look_at_ends_the_job(self):
        for call, words in (
                ("lib.MPIABI_Bcast(got, 1, FLOAT, 0, world)", "MPI_Bcast: libtutti-mpitrampoline.so does not serve this function"),
                ("lib.MPIXABI_Query_cuda_support()", "MPIX_Query_cuda_support: libtutti-mpitrampoline.so does not serve"),
                ("lib.MPIABI_Comm_rank(ctypes.c_size_t(99999), ctypes.byref(rank))",
                 "MPI_Comm_rank: the communicator is 99999, expected"),
                ("lib.MPIABI_Comm_split(world, -7, 0, ctypes.byref(part))", "MPI_Comm_split: the color is -7, expected 0 or more"),
                ("lib.MPIABI_Comm_split(world, 0, 1, ctypes.byref(part))",
                 "MPI_Comm_split: the keys of color 0 are 1, expected 0 to 0"),
                ("lib.MPIABI_Comm_free(ctypes.byref(world))", "MPI_Comm_free: the communicator is MPI_COMM_WORLD")):
            with self.subTest(call):
                code, out, err = self.run_script(f"""
                    init()
                    got, part = floats(0), ctypes.c_size_t()
                    {call}
                    print("went on")
                    """)
                self.assertEqual((code, out), (1, ""), err)
                self.assertIn("tutti: " + words, err)

    def test_ranks_that_do_not_meet(self):
        done = subprocess.run([sys.executable, "-B", "-c", BEGIN + "init()"], text=True, capture_output=True, timeout=100,
                              env={**os.environ, "RANK": "5", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"})
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, "tutti: MPI_Init_thread: .*RANK=5")


if __name__ == "__main__":
    unittest.main()
