# SPDX-License-Identifier: Apache-2.0
"""usage: compare_test.py BUILD

The measuring loop, the rows and their ratios, the command line, and one comparison of Tutti with itself alone."""
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import parts
import profiles
import report
import runs
from comparison import command_line, commit, parse
from contestants import Contestant
from machine import machine
from peers import Absent, Programs
from runs import Results, run

BUILD = Path(sys.argv.pop(1)).resolve()
LOOP = [HERE.parent / "programs/loop.c", HERE.parent / "programs/line.c"]
TOOL = HERE.parent.parent / "compare-peers"


class Loop(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="compare-test-"))
        cls.program = cls.folder / "one_rank"
        subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Werror", HERE / "one_rank.c", *LOOP, "-o",
                        cls.program], check=True)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def play(self, *arguments, fault=""):
        return subprocess.run([self.program, *arguments], capture_output=True, text=True,
                              env=dict(os.environ, ONE_RANK_FAULT=fault))

    def lines_of(self, *arguments, fault=""):
        done = self.play(*arguments, fault=fault)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_every_collective_and_mode_gives_a_line_for_each_size(self):
        for collective in ("broadcast", "reduce", "all_reduce", "gather", "all_gather", "scatter", "reduce_scatter",
                           "all_to_all", "send_receive"):
            lines = self.lines_of(collective, "8,100,40000", "rewritten,constant", "1")
            self.assertEqual(lines.pop(), {"done": collective})
            self.assertEqual([(line["collective"], line["bytes"], line["mode"]) for line in lines],
                             [(collective, size, mode) for size in (8, 100, 40000) for mode in ("constant", "rewritten")])
            for line in lines:
                self.assertGreaterEqual(len(line["us"]), 3)

    def test_several_collectives_in_one_program(self):
        lines = self.lines_of("barrier,all_reduce", "8,64", "constant", "1")
        self.assertEqual([line.get("done") or (line["collective"], line["bytes"]) for line in lines],
                         [("all_reduce", 8), ("all_reduce", 64), "all_reduce", ("barrier", 0), "barrier"])

    def test_a_profile_tells_of_sleeps_and_faults(self):
        for mode in ("constant", "rewritten"):
            profile = self.lines_of("broadcast", "64", mode, "20", fault="5")[0]["profile"]
            self.assertEqual(list(profile), list(profiles.NAMES))
            self.assertTrue(0.9 < profile["sleeps"] < 4 and 1.9 < profile["faults"] < 3 and profile["processor_us"] > 0, profile)
            self.assertLess(self.lines_of("broadcast", "64", mode, "20")[0]["profile"]["sleeps"], 0.5)

    def test_one_rank_measures_no_line(self):
        with unittest.mock.patch.dict(os.environ, {"COMPARE_LINE": "/nosuch/line"}):
            self.assertNotIn("line_us", self.lines_of("all_reduce", "8", "constant", "1")[0])

    def test_latency_has_percentiles(self):
        line = self.lines_of("all_reduce", "8", "latency", "1")[0]
        self.assertEqual((line["bytes"], line["mode"], line["calls"] % 200), (8, "latency", 0))
        self.assertLessEqual(line["p50"], line["p99"])

    def test_a_wrong_element_is_named(self):
        done = self.play("all_gather", "8,64", "constant", "1", fault="1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("all_gather of 8 bytes: rank 0: element 1 is", done.stderr)
        for fault, collective in (("3", "send_receive"), ("4", "all_reduce")):  # only after some calls
            for mode in ("constant", "rewritten"):
                done = self.play(collective, "8000", mode, "1", fault=fault)
                self.assertEqual(done.returncode, 1, (collective, mode))
                self.assertIn(f"{collective} of 8000 bytes: rank 0: element 1999 is", done.stderr)

    def test_the_first_result_is_checked(self):
        done = self.play("all_reduce", "64", "constant", "1", fault="6")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("all_reduce of 64 bytes: rank 0: element 15 is", done.stderr)

    def test_a_call_that_does_not_end_is_named(self):
        program = self.folder / "late"
        source = '#include <unistd.h>\n#include "loop.h"\nint main(void) { limit_time("the call", 1); sleep(30); return 0; }\n'
        subprocess.run(["gcc", "-x", "c", "-", "-I", HERE.parent / "programs", "-x", "c", *LOOP, "-o", program],
                       input=source, text=True, check=True)
        done = subprocess.run([program], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (4, "compare: no end in time: the call\n"))

    def test_a_collective_that_is_not_there_is_said(self):
        done = self.play("all_gather", "8,64", "constant", "1", fault="2")
        self.assertEqual(done.returncode, 0)
        self.assertEqual([json.loads(line) for line in done.stdout.splitlines()], [{"collective": "all_gather", "none": True},
                                                                                  {"done": "all_gather"}])

    def test_wrong_arguments(self):
        for arguments, word in ((("all_gather", "8"), "4 arguments"), (("reduce,all_sum", "8", "constant", "1"), "all_sum"),
                                (("reduce", "8", "steady", "1"), "steady"), (("reduce", "8x", "constant", "1"), "8x"),
                                (("reduce", "8", "constant", "none"), "none")):
            done = self.play(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(word, done.stderr)


@unittest.skipIf(machine()["cores"] < 2, "two ranks on one core wait for each other's time slices")
class TwoRanks(unittest.TestCase):
    """Times are those of a clock that the test drives, except where none is given."""
    TICKS = "0,700,0,100,0,400,0,200,0,300,0,500,0,600;0,1000"  # batches of rank 0: a median of 400 us; those of rank 1

    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp(prefix="compare-test-"))
        cls.program, cls.file = cls.folder / "two_ranks", str(cls.folder / "line")
        subprocess.run(["gcc", "-O1", "-Wall", "-Wextra", "-Werror", HERE / "two_ranks.c", *LOOP, "-o", cls.program], check=True)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def play(self, *arguments, status=0, **setting):
        Path(self.file).unlink(missing_ok=True)
        done = subprocess.run([self.program, *arguments], capture_output=True, text=True, env={**os.environ, **setting})
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def line(self, **setting):
        return json.loads(self.play("line", **{"COMPARE_LINE": self.file, **setting}).stdout)

    def test_a_line_is_the_median_of_the_batches_of_rank_0(self):
        told = self.line(TWO_RANKS_TICKS=self.TICKS)
        self.assertEqual((told["us"], told["sleeps"]), ([4, 4, 4], [0, 0]))

    def test_a_line_takes_time(self):
        told = self.line()
        self.assertTrue(all(us > 0 for us in told["us"]), told)
        self.assertNotEqual(*told["cores"])

    def test_each_rank_waits_for_the_other_one(self):
        for late in (0, 1):
            told = self.line(TWO_RANKS_LATE=str(late))
            self.assertGreater(told["end"][1 - late], told["begin"][late])

    def test_rank_0_decides_to_measure_again(self):
        for wanted, most_sleeps, us, sleeps in (("3,5", "0", 4, 0), ("7,9", "3", 8, 3), ("0,3.9", "0", 4, 100),
                                                ("4.1,9", "0", 4, 100), ("9,11", "0", 4, 100)):  # the last as rank 1 has it
            told = self.line(TWO_RANKS_TICKS=self.TICKS, TWO_RANKS_SLEEPS=most_sleeps, COMPARE_LINE_WANTED=wanted)
            self.assertEqual((told["us"], told["sleeps"]), ([4, us, us], [sleeps, sleeps]), wanted)

    def test_without_a_file_no_line_is_measured(self):
        self.assertEqual(json.loads(self.play("line").stdout)["us"], [0, 0, 0])
        self.assertIn("COMPARE_LINE: expected a file that can be written and mapped, got /nosuch/line: No such file",
                      self.play("line", COMPARE_LINE="/nosuch/line", status=1).stderr)
        self.assertIn("COMPARE_LINE_WANTED: expected two times like 0.08,0.2, got near",
                      self.play("line", COMPARE_LINE=self.file, COMPARE_LINE_WANTED="near", status=1).stderr)

    def loop(self, mode, slow=10 ** 6, ticks="0;0", **setting):
        done = self.play("all_reduce", "64", mode, "1", TWO_RANKS_TICKS=ticks, TWO_RANKS_SLOW=str(slow), **setting)
        return json.loads(done.stdout.splitlines()[0]), int(done.stderr.split()[-1])

    def test_a_time_is_that_of_the_slowest_rank_without_the_barrier(self):
        line, _ = self.loop("constant")
        self.assertEqual(set(line["us"]), {5})
        line, after_barrier = self.loop("rewritten")
        self.assertEqual(set(line["us"]), {5})
        self.assertEqual(after_barrier, len(line["us"]) + 2)  # the first call, and the first of the estimate

    def test_percentiles(self):
        for slow, p99 in ((66, 100), (100, 5)):  # of 200 calls at least three are slow, or two
            line, _ = self.loop("latency", slow)
            self.assertEqual((line["calls"] % 200, line["p50"], line["p99"]), (0, 5, p99))

    def test_a_point_has_the_line_before_and_after_it(self):
        line, _ = self.loop("constant", ticks="50;70", COMPARE_LINE=self.file)
        self.assertEqual(line["line_us"], [0.5, 0.5])


class Runs(unittest.TestCase):
    def test_what_fails_or_does_not_end_has_a_reason(self):
        def why(*argv, limit=20):
            return run([(list(argv), dict(os.environ))], limit)[1]

        self.assertEqual(why("sh", "-c", "echo '---' >&2; echo it broke >&2; exit 3"), "ended with status 3: it broke")
        self.assertEqual(why("sh", "-c", "echo no >&2; echo 'compare: late' >&2; exit 4"), "ended with status 4: compare: late")
        self.assertEqual(why("sh", "-c", "sleep 60 & wait", limit=1), "did not end within 1 s")
        self.assertEqual(why("nosuchprogram"), "nosuchprogram is not there")

    def test_lines_before_a_failure_are_kept(self):
        lines, why = run([(["sh", "-c", """echo '{"done": "reduce"}'; echo '{"half'; sleep 60"""], dict(os.environ))], 1)
        self.assertEqual((lines, why), ([{"done": "reduce"}], "did not end within 1 s"))

    def play(self, script, **more):
        """The results of a part of three collectives by a contestant that is this shell script."""
        programs = types.SimpleNamespace(of=lambda library: "/bin/sh", environment={}, peers=Path("/none"))
        results = Results()
        part = parts.Part(1, "tcp", ("broadcast", "reduce", "barrier"), (8,), ("constant",))
        contestant = Contestant("gloo, ring", "gloo", "tcp", **more)
        with unittest.mock.patch("runs.arguments_of", lambda part, left, milliseconds: ["-c", script, ",".join(left)]):
            runs._measure(types.SimpleNamespace(milliseconds=1, usual=True), part, contestant, programs, results)
        return {key[2]: why for key, why in results.reasons.items()}, {place[2]: us for place, us in results.points.items()}

    def test_a_program_continues_behind_a_collective_that_fails(self):
        point = '{"collective": "%s", "bytes": 8, "mode": "constant", "us": [3.0]}'
        fails_reduce = f"""case $0 in broadcast*) echo '{point % "broadcast"}'; echo '{{"done": "broadcast"}}'; exit 3;;
            reduce*) exit 3;; esac; echo '{point % "barrier"}'; echo '{{"done": "barrier"}}'"""
        self.assertEqual(self.play(fails_reduce),
                         ({"reduce": "ended with status 3"}, {"broadcast": {"gloo, ring": [3.0]}, "barrier": {"gloo, ring": [3.0]}}))
        self.assertEqual(self.play("exit 3"), ({"broadcast": "ended with status 3", "reduce": "ended with status 3",
                                                "barrier": "left out after 2 failures"}, {}))

    def test_rounds_fit_in_the_minutes(self):
        plan = types.SimpleNamespace(rounds=None, minutes=10)
        another = [runs._is_another(plan, done, seconds, 200) for done, seconds in ((0, 0), (1, 900), (2, 400), (2, 401))]
        self.assertEqual(another, [True, True, True, False])
        self.assertEqual([runs._is_another(types.SimpleNamespace(rounds=3), done, 9999, 9999) for done in (2, 3)], [True, False])


class Rows(unittest.TestCase):
    def setUp(self):
        self.results = Results()
        for us in (2.0, 3.0, 4.0):
            self.results.add((2, "shm", "all_reduce", 1024, "constant"), "tutti", us)
        for name, us in (("openmpi", 5.0), ("mpich", 6.0)):
            self.results.add((2, "shm", "all_reduce", 1024, "constant"), name, us)
        self.results.add((4, "shm", "gather", 1024, "constant"), "tutti", 7.0)
        self.results.add_yardstick("staged", 1024, 2.5)
        self.results.add_yardstick("direct", 1024, 1.5)
        self.results.add_yardstick("mapped", 1024, 1.0)

    def test_ratios_to_the_best_peer_and_to_the_better_limit(self):
        first, second = report.rows(self.results)
        self.assertEqual((first.tutti["ordinary"].us, first.peer.name, first.limits["ordinary"].name), (3.0, "openmpi", "direct"))
        self.assertAlmostEqual(first.ratio("ordinary"), 0.6)
        self.assertAlmostEqual(first.from_limit("ordinary"), 2.0)
        self.assertAlmostEqual(first.spread, 2.0)
        self.assertEqual((first.ratio("registered"), first.from_limit("registered")), (None, None))
        self.assertEqual((second.peer, second.limits, second.ratio("ordinary"), second.from_limit("ordinary")), (None, {}, None, None))

    def test_registered_memory_stands_beside_ordinary_and_has_its_own_limit(self):
        self.results.add((2, "shm", "all_reduce", 1024, "constant"), "tutti, registered", 2.0)
        row = report.rows(self.results)[0]
        self.assertEqual((row.ratio("registered"), row.limits["registered"].name), (0.4, "mapped"))
        self.assertIn("| 1K | 3 | 2 | 5 (openmpi) | 1.5 (direct) and 1 (mapped) | 0.60 and 0.40 | 2.00 and 2.00 | x2.00, noisy |",
                      report.table([row]))

    def test_a_noisy_peer_makes_a_point_noisy(self):
        place = (2, "tcp", "reduce", 64, "constant")
        for mine, peers in ((4.0, 4.0), (4.0, 7.0)):
            self.results.add(place, "tutti", mine)
            self.results.add(place, "gloo, ring", peers)
        row = report.rows(self.results)[-1]
        self.assertEqual((row.spread, row.noisy), (1.75, True))

    def test_one_odd_round_of_five_makes_no_noise(self):
        self.assertEqual(report.Figure.of("tutti", [3.0, 1.0, 3.0, 4.0, 30.0]), report.Figure("tutti", 3.0, 4 / 3))
        self.assertEqual(report.Figure.of("tutti", [3.0, 1.0, 3.0, 4.0]).spread, 4)

    def test_profiles_are_medians_and_stand_beside_each_other(self):
        place = (2, "tcp", "reduce", 64, "constant")
        for name, us, sleeps in (("tutti", 10.0, 0.0), ("openmpi", 9.0, 1.0), ("tutti", 10.0, 0.01), ("openmpi", 9.0, 1.5),
                                 ("openmpi", 9.0, 2.5)):
            self.results.add(place, name, us, {"processor_us": us / 2, "sleeps": sleeps, "yields": 0.0, "faults": 0.0})
        row = report.rows(self.results)[-1]
        self.assertEqual(row.peer.profile, {"processor_us": 4.5, "sleeps": 1.5, "yields": 0.0, "faults": 0.0})
        self.assertEqual(profiles.beside(row.tutti["ordinary"], row.peer), "sleeps 0.0 / 1.5, processor 5 of 10 / 4.5 of 9 us")
        self.assertEqual(profiles.beside(row.tutti["ordinary"], report.Figure("sockets", 5.0, 1.0)), "processor 5 of 10 us")
        self.assertEqual(profiles.beside(report.Figure("tutti", 5.0, 1.0), row.peer), "")
        points = report.document(self.results, [], {})["points"]
        self.assertEqual((points[0]["profile"], points[-1]["profile"]["openmpi"]), ({}, [4.5, 1.5, 0.0, 0.0]))
        self.assertNotIn("profile", str(report.document(self.results, [row], {})["rows"]))

    def test_texts(self):
        rows = report.rows(self.results)
        text = report.tables(rows)
        self.assertIn("### all_reduce, 2 ranks over shm, input constant\n\n| bytes | Tutti, ordinary, us | best peer, us |", text)
        self.assertIn("| 1K | 3 | 5 (openmpi) | 1.5 (direct) | 0.60 | 2.00 | x2.00, noisy |", text)
        self.assertIn("| 1K | 7 | none |  |  |  | x1.00 |", text)
        self.assertEqual(report.summary(rows), ["1 of 2 points are noisy (spread above x1.5) and not counted"])
        self.results.points[2, "shm", "all_reduce", 1024, "constant"]["tutti"] = [3.0, 3.0]
        self.assertEqual(report.summary(report.rows(self.results)), [
            "2 ranks over shm, ordinary memory: at most 0.60 times the best peer in 1 of 1 points; the worst is all_reduce of 1K, "
            "constant: 0.60 of openmpi"])

    def test_tally(self):
        for size, us in ((8, 9.0), (16, 10.5), (32, 15.0), (64, 12.0)):
            self.results.add((2, "tcp", "reduce", size, "constant"), "tutti", us)
            self.results.add((2, "tcp", "reduce", size, "constant"), "mpich", 10.0)
        tally = report.Tally.of(report.rows(self.results)[2:], "ordinary")
        self.assertEqual(tally.sentence(), "at most 1.00 times the best peer in 1 of 4 points, at most 1.10 times in 2, at most 1.50 "
                                           "times in all")

    def test_json_has_an_element_on_a_line(self):
        told = report.document(self.results, report.rows(self.results), {"date": "2026-11-25"})
        text = report.written({**told, "sum": 0.1 + 0.2})
        self.assertEqual(json.loads(text)["points"], told["points"])
        self.assertIn('\n  {"name": "staged", "bytes": 1024, "us": [2.5], "line": []},\n', text)
        self.assertIn(' "sum": 0.3\n}\n', text)


class About(unittest.TestCase):
    def test_the_machine(self):
        told = machine()
        self.assertEqual(list(told), ["processor", "cores", "virtual", "kernel", "system"])
        self.assertEqual(told["cores"], len(os.sched_getaffinity(0)))
        self.assertIn(os.uname().release, told["kernel"])
        self.assertTrue(told["processor"] and told["system"])

    def test_the_command_line_names_no_folders(self):
        self.assertEqual(command_line(["--ranks", "2", "--build", "/a/b", "-o/c", "--no-install", "-b", "8", "--transports=shm"]),
                         "tools/compare-peers --ranks 2 -b 8 --transports=shm")

    def test_the_commit(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(commit(folder), "")
            git = ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a"]
            Path(folder, "file").write_text("a")
            for arguments in (["init", "-q"], ["add", "file"], ["commit", "-q", "-m", "a"]):
                subprocess.run([*git, *arguments], check=True)
            self.assertRegex(commit(folder), "^[0-9a-f]{7,}$")
            Path(folder, "file").write_text("b")
            self.assertRegex(commit(folder), "^[0-9a-f]{7,}-dirty$")

    def test_versions(self):
        with tempfile.TemporaryDirectory() as folder:
            programs = Programs(folder, folder, folder, dict(os.environ))
            for library, says in (("openmpi", "Open MPI v4.1.4, package: Debian"), ("mpich", "MPICH Version:\t4.0.2\nMPICH Release"),
                                  ("gloo", "none")):
                programs.made[library] = Path(folder, library)
                programs.made[library].write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\n")
                programs.made[library].chmod(0o755)
            self.assertEqual((programs.version("openmpi"), programs.version("mpich")), ("4.1.4", "4.0.2"))
            with self.assertRaisesRegex(Absent, 'gloo: expected a version like 4.1.4, got status 0 and "none"'):
                programs.version("gloo")


class Command(unittest.TestCase):
    def test_sizes(self):
        for part in parse(["-b", "8", "-e", "1K", "-f", "4"]).parts:
            self.assertEqual((part.sizes, part.collectives), ((8, 32, 128, 512), parts.COLLECTIVES))
        self.assertEqual([(part.ranks, part.transport) for part in parse(["--ranks", "3"]).parts], [(3, "shm"), (3, "tcp")])
        few = parse(["--ranks", "2,8", "--transports", "tcp", "-b", "1M", "--modes", "constant"]).parts
        self.assertEqual([(part.ranks, part.sizes, part.modes) for part in few],
                         [(2, (1 << 20, 16 << 20), ("constant",)), (8, (4 << 20,), ("constant",))])
        self.assertEqual({part.ranks for part in parse([]).parts}, {2, 4, 8})

    def test_wrong_arguments(self):
        for arguments, word in ((["-b", "x"], '"x"'), (["-b", "1K", "-e", "8"], "below"), (["--ranks", "1"], '"1"'),
                                (["--transports", "ib"], '"ib"'), (["--collectives", "sum"], '"sum"'),
                                (["--ranks", "8", "--transports", "tcp", "--collectives", "scatter"], "nothing is left"),
                                (["--busy", "0"], '"0"')):
            done = subprocess.run([TOOL, *arguments], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(word, done.stderr)

    def test_a_build_that_is_not_there(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([TOOL, "--no-install", "--build", folder, "-o", folder + "/out"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("libtutti.so is not there: build Tutti first", done.stderr)

    def test_tutti_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([TOOL, "--no-install", "--build", BUILD, "-o", folder, "--libraries", "openmpi", "--ranks", "2",
                                   "--transports", "shm", "--collectives", "all_gather", "-b", "64", "-e", "4K", "-f", "64",
                                   "--rounds", "1", "--milliseconds", "2"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
            told = json.loads(Path(folder, "compare.json").read_text())
        self.assertEqual((told["format"], told["machine"], told["rounds"]), (report.FORMAT, machine(), 1))
        self.assertLessEqual((datetime.date.today() - datetime.date.fromisoformat(told["date"])).days, 1)
        self.assertTrue(told["command"].startswith("tools/compare-peers --libraries openmpi --ranks 2"), told["command"])
        self.assertRegex(told["versions"]["tutti"], r"^\d+\.\d+\.\d+$")
        self.assertEqual(len(told["rows"]), 4)  # two sizes and modes
        for point in told["points"]:
            self.assertGreater(dict(zip(told["profile"], point["profile"]["tutti"]))["processor_us"], 0)
            self.assertEqual([len(line) for line in point["line"].get("tutti", [])], [2] if machine()["cores"] >= 2 else [])
        for row in told["rows"]:
            for memory in ("ordinary", "registered"):
                self.assertGreater(row["tutti"][memory]["us"], 0)


if __name__ == "__main__":
    unittest.main()
