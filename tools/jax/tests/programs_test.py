# SPDX-License-Identifier: Apache-2.0
"""JAX programs of 2 and 4 processes over libtutti-mpitrampoline, beside one process with as many devices and beside Gloo.

TUTTI_TEST_JAX: an interpreter that has jax; unset: this one.
"""
import contextlib
import os
import pathlib
import pickle
import socket
import subprocess
import sys
import tempfile
import textwrap
import unittest

import numpy

BUILD = pathlib.Path(os.environ["TUTTI_TEST_BUILD"])
PROGRAM = pathlib.Path(__file__).with_name("program.py")
PYTHON = os.environ.get("TUTTI_TEST_JAX") or sys.executable
if subprocess.run([PYTHON, "-c", "import jax"], capture_output=True).returncode:
    print(f"skipped: {PYTHON} has no jax: TUTTI_TEST_JAX=FOLDER/bin/python, made by python3 -m venv FOLDER and "
          "FOLDER/bin/pip install jax")
    sys.exit()
OVER = {"tutti": {"JAX_CPU_COLLECTIVES_IMPLEMENTATION": "mpi",
                  "MPITRAMPOLINE_LIB": str(BUILD / "lib/libtutti-mpitrampoline.so")},
        "gloo": {"JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo"}}


def free_port():
    with contextlib.closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def start(ranks, over, *command, **environment):
    """The end of a job under tuttirun."""
    return subprocess.run([BUILD / "bin/tuttirun", "-n", str(ranks), PYTHON, "-B", *map(str, command)], text=True,
                          capture_output=True, timeout=400,
                          env={**os.environ, "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1", **OVER[over], **environment})


def whole(parts, name):
    """A result of all processes as one array."""
    if isinstance(parts[0][name], numpy.ndarray):
        return parts[0][name]
    shape = parts[0][name][0]
    shards = [shard for part in parts for shard in part[name][1]]
    array = numpy.zeros(shape, shards[0][1].dtype)
    for index, values in shards:
        array[index] = values
    return array


class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def results(self, ranks, over):
        """What each process has written."""
        script = self.folder / "rank.py"
        script.write_text("import os, runpy, sys\n"
                          f"sys.argv = [sys.argv[0], sys.argv[1] + os.environ['RANK'], *sys.argv[2:]]\n"
                          f"runpy.run_path({str(PROGRAM)!r}, run_name='__main__')\n")
        done = start(ranks, over, script, self.folder / f"{over}.", ranks, f"127.0.0.1:{free_port()}")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return [pickle.loads((self.folder / f"{over}.{rank}").read_bytes()) for rank in range(ranks)]

    def compare(self, ranks):
        alone = subprocess.run([PYTHON, "-B", PROGRAM, self.folder / "alone", str(ranks)], text=True, capture_output=True,
                               timeout=400, env={**os.environ, "JAX_PLATFORMS": "cpu"})
        self.assertEqual(alone.returncode, 0, alone.stdout + alone.stderr)
        expected = [pickle.loads((self.folder / "alone").read_bytes())]
        over = {name: self.results(ranks, name) for name in OVER}
        for name in expected[0]:
            right = whole(expected, name)
            for library, parts in over.items():
                with self.subTest(name, library=library, ranks=ranks):
                    mine = whole(parts, name)
                    if name.startswith("losses"):
                        self.assertEqual(len(mine), len(right))
                        numpy.testing.assert_allclose(mine, right, rtol=2e-4)
                        self.assertLess(mine[-5:].mean(), 0.6 * mine[0])
                    else:
                        self.assertEqual(mine.dtype, right.dtype)
                        numpy.testing.assert_array_equal(mine, right)

    def test_two_processes(self):
        self.compare(2)

    def test_four_processes(self):
        self.compare(4)

    def script(self, ranks, text, **environment):
        path = self.folder / "script.py"
        path.write_text(textwrap.dedent("""
            import os, sys, numpy as np, jax
            jax.distributed.initialize(sys.argv[1], int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"]))
            import jax.numpy as jnp
            from jax.sharding import NamedSharding, PartitionSpec as P
            def total(array, devices=None):
                mesh = jax.sharding.Mesh(np.array(devices or jax.devices()), ("x",))
                one = jax.make_array_from_callback(array.shape, NamedSharding(mesh, P("x")), lambda index: array[index])
                return np.asarray(jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, P()))(one))
            """) + textwrap.dedent(text))
        return start(ranks, "tutti", path, f"127.0.0.1:{free_port()}", **environment)

    def test_a_process_has_one_device(self):
        done = self.script(2, "print('total', total(np.arange(4.0)))", JAX_NUM_CPU_DEVICES="2")
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stderr, r"MPI_Comm_split: the keys of color 0 are \d, \d, expected 0 to 1, each once: JAX has "
                                      "several devices in a process.*JAX_NUM_CPU_DEVICES=1")
        self.assertNotIn("total", done.stdout)

    def test_a_lost_process_is_an_exception(self):
        done = self.script(2, """
            assert total(np.arange(2.0)) == 1
            if os.environ["RANK"] == "1":
                os._exit(0)
            try:
                for _ in range(1000):
                    total(np.arange(2.0))
            except Exception as error:
                print(error, flush=True)
            os._exit(0)
            """)
        self.assertRegex(done.stdout + done.stderr, "MPI error: MPI_Allreduce: rank 1 died")

    def test_initialize(self):
        path = self.folder / "initialize.py"
        path.write_text("import tutti.jax\ntutti.jax.initialize()\nimport jax, jax.numpy as jnp\n"
                        "from jax.experimental import multihost_utils\n"
                        "print(jax.process_index(), multihost_utils.process_allgather(jnp.array([jax.process_index()])).ravel())\n")
        done = subprocess.run([PYTHON, "-B", "-m", "tutti.run", "-n", "3", "--no-label", path], text=True, capture_output=True,
                              timeout=400, env={**os.environ, "JAX_PLATFORMS": "cpu"})
        self.assertEqual((done.returncode, sorted(done.stdout.splitlines())), (0, [f"{rank} [0 1 2]" for rank in range(3)]),
                         done.stderr)
        done = subprocess.run([PYTHON, "-B", "-c", "import jax, tutti.jax\ntutti.jax.initialize()"], text=True, capture_output=True,
                              timeout=400)
        self.assertIn("InvalidUsage: tutti.jax.initialize: jax has been imported", done.stderr)


if __name__ == "__main__":
    unittest.main()
