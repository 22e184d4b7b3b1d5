# SPDX-License-Identifier: Apache-2.0
"""usage: cores_test.py

Kinds of cores, with made-up results: only runs that met the same kind are compared."""
import json
import random
import sys
import unittest
import unittest.mock
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import cores
import goals
import report
import runs
from result_file import results_of
from runs import Results

N, F = [0.12, 0.14], [0.5, 0.6]  # line times of a run near and far
TURNS = [0.13, 0.55]  # of one whose cores changed
PLACE = (2, "shm", "reduce", 512, "constant")


class Made(unittest.TestCase):
    def setUp(self):
        self.results = Results()

    def put(self, contestant, *runs, place=PLACE):
        """Runs as (time, line times)."""
        for us, line in runs:
            used = {"processor_us": us / 2, "sleeps": 0.0, "yields": 0.0, "faults": 0.0}
            self.results.add(place, contestant, us, used, line)

    def put_yardstick(self, name, size, *runs):
        for us, line in runs:
            self.results.add_yardstick(name, size, us, line)

    def row(self):
        return report.rows(self.results)[0]

    def goals_of(self, memory="ordinary"):
        rows = report.rows(self.results)
        found, apart = goals.verdicts(rows, 2), goals.not_comparable(rows, 2)
        return [(one.goal.name, round(one.ratio, 2)) for one in found if one.memory == memory], dict(apart)


class Kinds(unittest.TestCase):
    def test_a_boundary_is_in_the_middle_between_groups_wherever_they_lie(self):
        for scale in (0.1, 1, 30):
            for near in (30, 500, 970):
                draw = random.Random(near)
                times = [scale * draw.uniform(0.11, 0.15) for _ in range(near)]
                times += [scale * draw.uniform(0.39, 0.77) for _ in range(1000 - near)]
                bound, = cores.Kinds.of_times(times).boundaries
                self.assertTrue(0.2 * scale < bound < 0.3 * scale, (scale, near, bound))

    def test_three_groups_and_some_times_between_them(self):
        draw = random.Random(1)
        times = [draw.gauss(middle, middle / 20) for middle in (0.06, 0.12, 0.41) for _ in range(300)]
        times += [draw.uniform(0.06, 0.41) for _ in range(20)] + [9.0, 30.0]
        self.assertEqual(cores.Kinds.of_times(times).names, ["0.06 us", "0.12 us", "0.41 us"])

    def test_one_group_is_not_divided(self):
        draw = random.Random(1)
        self.assertEqual(cores.Kinds.of_times([draw.gauss(0.2, 0.04) for _ in range(1000)] + [30.0]).names, ["0.2 us"])
        for few in ([0.1], [0.1, 0.1], [0.1, 0.12]):
            self.assertEqual(cores.Kinds.of_times(few).boundaries, [])
        self.assertEqual(cores.Kinds.of_times([]), cores.Kinds([], []))

    def test_a_run_whose_cores_changed_is_of_no_kind(self):
        kinds = cores.Kinds(["near", "far"], [0.3])
        self.assertEqual([kinds.kind(line) for line in (N, F, TURNS, TURNS[::-1])], ["near", "far", "changed", "changed"])
        self.assertEqual(kinds.divide([1, 2, 3], [F, TURNS, N]), {"far": [1], "near": [3]})
        self.assertEqual(kinds.divide([1, 2], []), {cores.ONE: [1, 2]})


class Wanted(Made):
    def test_programs_of_two_ranks_wait_for_what_most_runs_met(self):
        def wanted(ranks=2, number=2):
            with unittest.mock.patch("os.sched_getaffinity", lambda _: range(number)):
                return runs.line_setting(ranks, "/folder", self.results)
        self.assertEqual(wanted(), {"COMPARE_LINE": "/folder/line"})
        self.put("tutti", (1.0, N), (1.0, F), (1.0, F))
        first, last = map(float, wanted()["COMPARE_LINE_WANTED"].split(","))
        self.assertTrue(0.14 < first < 0.5 < 0.6 < last)
        self.put("tutti", (1.0, N), (1.0, N))
        first, last = map(float, wanted()["COMPARE_LINE_WANTED"].split(","))
        self.assertTrue(first == 0 and 0.14 < last < 0.5)
        self.assertEqual((wanted(ranks=4), wanted(number=1)), ({}, {}))


class Ratios(Made):
    def test_a_ratio_is_of_one_kind_although_the_medians_are_of_two(self):
        self.put("tutti", (1.0, N), (3.0, F), (3.2, F))
        self.put("openmpi", (1.5, N), (1.7, N), (4.0, F))
        row = self.row()
        self.assertEqual((row.cores, row.fewest, row.most), ("0.13 us", 1, 3))
        self.assertEqual((row.tutti["ordinary"].us, row.peer.us), (1.0, 1.6))
        self.assertEqual(self.goals_of(), ([("peer", 0.62)], {}))

    def test_the_kind_of_which_the_scarcest_contestant_has_most_runs_counts(self):
        self.put("tutti", (1.0, N), (3.0, F), (3.2, F), (0.5, TURNS))
        self.put("openmpi", (1.5, N), (4.0, F), (4.2, F), (1.0, TURNS))
        row = self.row()
        self.assertEqual((row.cores, row.fewest, row.most), ("0.55 us", 2, 4))
        self.assertAlmostEqual(row.ratio("ordinary"), 3.1 / 4.1)
        self.assertEqual(row.tutti["ordinary"].profile["processor_us"], 1.55)
        self.assertIn("| 512 | 3.1 | 4.1 (openmpi) |  | 0.76 |  | x1.07 | 0.55 us, 2 of 4 |", report.table([row]))

    def test_without_a_common_kind_there_is_no_ratio(self):
        self.put("tutti", (1.0, N), (1.1, N))
        self.put("openmpi", (3.0, F), (3.0, F))
        self.put("mpich5", (4.0, F), (1.2, N))
        row = self.row()
        self.assertEqual((row.peer, row.ratio("ordinary"), row.cores), (None, None, "0.13 us"))
        self.assertIn("| 512 | 1.05 | not comparable: tutti: 0.13 us; openmpi: 0.55 us |  |  |  | x1.10 | 0.13 us, 0 of 2 |",
                      report.table([row]))
        self.assertEqual(self.goals_of(), ([], {"peer": 1}))
        rows = report.rows(self.results)
        self.assertIn("| peer | below 64 KiB at most the best peer's time | 0 | 0 | 0 | 0 | 1 |",
                      goals.report([], goals.not_comparable(rows, 2)))
        self.assertEqual(report.summary(rows), ["1 of 1 points are not comparable in all: contestants or limits met different cores"])
        told = report.document(self.results, rows, {})["rows"][0]
        self.assertEqual(told["not_comparable"], [{"to": "peer", "memory": "ordinary",
                                                   "reason": "tutti: 0.13 us; openmpi: 0.55 us"}])

    def test_a_tutti_whose_cores_changed_in_each_run_is_not_comparable(self):
        self.put("tutti", (1.0, TURNS), (1.1, TURNS))
        self.put("openmpi", (3.0, F), (3.0, N))
        self.assertEqual((self.row().tutti, self.goals_of()), ({}, ([], {"peer": 1})))
        self.assertEqual(self.row().apart, {("peer", "ordinary"): "tutti: changed"})

    def test_registered_memory_that_met_other_cores_is_not_comparable(self):
        self.put("tutti", (1.0, N), (1.1, N))
        self.put("tutti, registered", (2.0, F), (2.0, F))
        self.put("openmpi", (3.0, N), (3.0, N))
        row = self.row()
        self.assertEqual((list(row.tutti), row.peer.us, list(row.apart)), (["ordinary"], 3.0, [("peer", "registered")]))

    def test_a_limit_is_of_the_same_kind(self):
        place = (2, "shm", "all_reduce", 4096, "constant")
        self.put("tutti", (1.0, N), (3.0, F), (3.0, F), place=place)
        self.put("openmpi", (2.0, N), (6.0, F), (6.0, F), place=place)
        self.put_yardstick("staged", 4096, (0.9, N), (2.7, F), (2.7, F))
        self.put_yardstick("direct", 4096, (0.7, N), (9.0, F), (9.0, F))
        self.assertEqual(self.row().limits["ordinary"].us, 2.7)
        self.assertEqual(self.goals_of(), ([("peer", 0.5), ("ordinary", 1.11)], {}))
        self.results.yardstick_lines["direct", 4096] = [N, TURNS, TURNS]  # the row now is of near cores, which all met
        self.assertEqual((self.row().cores, self.row().limits["ordinary"].us), ("0.13 us", 0.7))

    def test_a_limit_without_that_kind_is_not_comparable(self):
        place = (2, "shm", "barrier", 0, "constant")
        self.put("tutti", (3.0, F), (3.0, F), place=place)
        self.put("openmpi", (2.0, N), (6.0, F), place=place)
        self.put_yardstick("line", 8, (0.1, N), (0.1, N))
        self.assertEqual(self.row().limits, {})
        self.assertEqual(self.goals_of(), ([("peer", 0.5)], {"line": 1}))
        self.assertIn("| 6 (openmpi) | not comparable: tutti: 0.55 us; line: 0.13 us | 0.50 |  |", report.table([self.row()]))

    def test_own_copies_are_of_the_same_kind(self):
        place = (2, "shm", "all_gather", 8192, "constant")
        self.put("tutti", (3.0, F), (3.0, F), place=place)
        self.put_yardstick("staged_copy", 4096, (0.9, N), (2.0, F))
        self.put_yardstick("own", 4096, (0.5, F), (0.1, N))
        self.assertEqual(self.row().limits["ordinary"].us, 2.5)

    def test_cores_of_one_kind_are_not_told_apart(self):
        self.put("tutti", (1.0, N), (2.0, N))
        self.put("openmpi", (3.0, N), (3.0, N))
        row = self.row()
        self.assertEqual((row.cores, row.ratio("ordinary")), (cores.ONE, 0.5))
        self.assertNotIn("cores", report.table([row]))
        self.assertEqual(cores.sentence(self.results), "A cache line between two ranks took, there and back, of all runs: 100 % 0.13 us.")

    def test_points_without_line_times_stay_as_they_are(self):
        place = (4, "shm", "reduce", 512, "constant")
        for us in (1.0, 3.0):
            self.results.add(place, "tutti", us)
            self.results.add(place, "openmpi", 2 * us)
        self.put("tutti", (1.0, N))
        self.put("openmpi", (1.0, F))
        row = self.row()
        self.assertEqual((row.ratio("ordinary"), row.cores, row.apart), (0.5, cores.ONE, {}))


class File(Made):
    def test_the_share_of_each_kind_is_told(self):
        self.assertEqual(cores.sentence(self.results), "")
        self.put("tutti", (1.0, N), (1.0, TURNS), (3.0, F), (3.0, F))
        self.assertEqual(cores.sentence(self.results), "A cache line between two ranks took, there and back, of all runs: 25 % 0.13 us, "
                                                       "50 % 0.55 us, 25 % changed.")

    def test_a_file_gives_the_same_rows(self):
        self.put("tutti", (1.0, N), (3.0, F), (3.2, F))
        self.put("openmpi", (1.5, N), (4.0, F), (1.7, F))
        self.put_yardstick("staged", 512, (1.0, N), (2.0, F))
        about = {"date": "2026-11-25", "command": "a", "commit": "", "load_before": 0, "rounds": 3, "versions": {"tutti": "1", "openmpi": "1"},
                 "machine": {"processor": "a", "cores": 2, "kernel": "a", "system": "a", "virtual": True}}
        rows = report.rows(self.results)
        told = json.loads(report.written(report.document(self.results, rows, about)))
        file = results_of(told, "a", "a.json")
        self.assertEqual((file.rows, file.met), (rows, cores.sentence(self.results)))


if __name__ == "__main__":
    unittest.main()
