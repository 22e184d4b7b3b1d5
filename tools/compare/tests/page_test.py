# SPDX-License-Identifier: Apache-2.0
"""usage: page_test.py ROOT

tools/performance-page on a small page: what it writes of a sample, what --check finds, and what it refuses."""
import copy
import json
import subprocess
import sys
import unittest
import xml.dom.minidom
from pathlib import Path

from small_docs import BEFORE, BEHIND, HEAD, HERE, PROSE, SmallDocs

ROOT = Path(sys.argv.pop(1)).resolve()
SAMPLE = HERE / "data/sample.json"
NAME = "2026-11-25-amd-epyc-2-cores"


class Page(SmallDocs):
    def setUp(self):
        super().setUp()
        self.sample = json.loads(SAMPLE.read_text())

    def test_without_results_the_page_is_the_prose(self):
        self.assertEqual(self.play(), (0, "wrote docs/performance.md\n"))
        self.assertEqual(self.page.read_text(),
                         HEAD + "More: [the glossary](glossary.md).\n\n## By hand\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n")
        self.assertEqual(self.algorithms.read_text(), BEFORE + BEHIND)
        self.assert_up_to_date()
        self.assertEqual(self.play(), (0, ""))

    def test_with_results(self):
        status, text = self.play("--add", SAMPLE)
        self.assertEqual(status, 0, text)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         [f"{NAME}-2-shm.svg", f"{NAME}-2-tcp.svg", f"{NAME}.json", "prose.md"])
        self.assert_up_to_date()
        page = " ".join(self.page.read_text().split())
        for part in (
                "Tutti is at most 1.00 times the best peer in 2 of 5 points, at most 1.81 times in all. The median is 2.21 times",
                "Measured on 2026-11-25 on a virtual machine with 2 cores of AMD EPYC (family 25, model 1), Debian GNU/Linux 12 "
                "(bookworm), Linux 6.18.44, in 2 rounds. The machine was busy before (load 3.5).",
                "Tutti 0.1.0 (dc485b5), Open MPI 4.1.4, MPICH 4.0.2, Gloo 0.5.0, UCX 1.13.1.", self.sample["command"],
                "| 2 over shm | ordinary | 5 | 2 | 1 of 3 | 1.81: all_reduce of 64, constant | 5.36 |",
                "| 2 over shm | registered | 5 | 2 | 1 of 3 | 2.21: all_reduce of 64, constant | 5.74 |",
                "| 2 over tcp | ordinary | 2 | 0 | 1 of 2 | 1.13: all_reduce of 64K, constant | 1.87 |",
                "| 64 | 0.479 | 0.586 | 0.265 (openmpi, ucx) | 0.0895 (line) | 1.81 and 2.21 | 5.36 and 6.55 | x1.25 |",
                "| 2K | 0.574 | 0.569 | 0.585 (openmpi, ucx) | 0.349 (staged) and 0.146 (mapped) | 0.98 and 0.97 | 1.64 and 3.89 "
                "| x1.04 |",
                "| 64K | 10.6 | 3.98 | 11 (openmpi, ucx) |", "| x2.57, noisy |",
                "| 64K | 56.5 | 50 (openmpi) | 25.6 (sockets) | 1.13 | 2.21 | x1.39 |",
                "- mpich, barrier (2 over tcp): did not end within 40 s", f"](performance/{NAME}-2-shm.svg)", "## By hand"):
            self.assertIn(part, page)

    def test_the_page_keeps_the_form_of_documents(self):
        self.play("--add", SAMPLE)
        self.put({**self.sample, "date": "2026-11-26"})
        self.play()
        done = subprocess.run([sys.executable, "-B", ROOT / "tools/documents/tests/documents_test.py", self.docs.parent],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_pictures(self):
        self.play("--add", SAMPLE)
        drawn = xml.dom.minidom.parse(str(self.folder / f"{NAME}-2-shm.svg"))
        css = [circle.getAttribute("class") for circle in drawn.getElementsByTagName("circle")]
        self.assertEqual(css, ["ordinary", "ordinary", "ordinary noisy", "registered", "registered", "registered noisy",
                               "limit", "limit", "limit"])
        titles = [title.firstChild.data for title in drawn.getElementsByTagName("title")]
        self.assertIn("2K: 0.574 us, openmpi, ucx 0.585 us: 0.98 of the best peer", titles)

    def test_all_peers_are_drawn_from_an_idle_machine(self):
        picture = self.docs / "pictures/peers.svg"
        self.assertIn("docs/pictures/peers.svg is not drawn from these: the load before was 3.46, expected at most 0.5; measure "
                      "again", self.play("--add", SAMPLE)[1])
        self.assertFalse(picture.exists())
        self.put({**self.sample, "load_before": 0.5})
        self.assertIn("wrote docs/pictures/peers.svg", self.play()[1])
        self.assertIn("Open MPI 4.1.4", picture.read_text())
        self.assertIn("](pictures/peers.svg)", self.page.read_text())
        self.assert_up_to_date()
        picture.write_text("")
        self.assert_differs("docs/pictures/peers.svg is not what its sources give")
        (self.folder / "other.json").unlink()
        self.assertIn("removed docs/pictures/peers.svg", self.play()[1])

    def test_where_tutti_is_behind(self):
        prose = self.folder / "prose.md"
        head = ("<!-- reasons -->\n\n| reason | goals | ranks | over | memory | collectives | bytes | why |\n"
                "| --- | --- | --- | --- | --- | --- | --- | --- |\n")
        prose.write_text(prose.read_text() + "\n" + head + "| the socket | all | 2 | tcp | all | all_reduce | all | two copies |\n")
        self.play("--add", SAMPLE)
        page = self.page.read_text()
        self.assertIn("| peer | below 64 KiB at most the best peer's time | 5 | 2 | 3 | 1 | 0 |", page)
        self.assertIn("| peer-large | 0.80 | 2 over tcp | ordinary | all_reduce | 64K: 1.13 | "
                      "64K: yields 0.5 / 0.5, processor 57 of 57 / 50 of 50 us | the socket |", page)
        self.assertIn("| peer | 1.00 | 2 over shm | ordinary | all_reduce | 64: 1.81 | "
                      "64: processor 0.48 of 0.48 / 0.27 of 0.27 us | no reason given |", page)
        self.assertIn("| line | 1.30 | 2 over shm | registered | barrier | 4.58 | processor 0.41 of 0.41 us | no reason given |", page)
        prose.write_text(prose.read_text().replace("| all_reduce | all |", "| all_reduce | 8 bytes |"))
        self.assertIn('docs/performance/prose.md: expected bytes like 8, 64K or "8 to 64K", got "8 bytes" in', self.play()[1])

    def test_results_without_line_times(self):
        self.put({**self.sample, "format": "tutti-compare/4"})
        self.assertIn("points[0].line: expected to be there, got nothing", self.play()[1])
        self.put({**self.sample, "format": "tutti-compare/3"})
        self.assertEqual(self.play()[0], 0)
        self.assertNotIn("| cores |", self.page.read_text())

    def test_results_with_line_times(self):
        point, yardsticks = self.with_lines()["points"][0], self.sample["yardsticks"]
        for one in yardsticks:
            one["line"] = [[0.1, 0.1], [0.4, 0.4]]
        point["line"] = {name: [[0.1, 0.1], [0.4, 0.4]] for name in point["us"]}
        self.put(self.sample)
        self.play()
        page = " ".join(self.page.read_text().split())
        self.assertIn("took, there and back, of all runs: 50 % 0.1 us, 50 % 0.4 us.", page)
        self.assertIn("| 64 | 0.494 | 0.651 | 0.278 (openmpi, ucx) | 0.0968 (line) | 1.78 and 2.34 | 5.10 and 6.73 | x1.00 | 0.1 us, 1 of 2 |", page)
        for line, words in (({"tutti": [[0.1, 0.1]]}, "points[0].line: expected a pair for each time in us, or none at all, got"),
                            ({"tutti": [[0.1]]}, "points[0].line: expected lists of pairs of times above 0, in us, by contestant, got")):
            point["line"] = line
            self.put(self.sample)
            self.assertIn(words, self.play()[1])
        point["line"], yardsticks[0]["line"] = {}, [[0.1, 0.1]]
        self.put(self.sample)
        self.assertIn("yardsticks[0].line: expected a pair for each time in us, or none at all, got", self.play()[1])

    def with_lines(self):
        """The sample in the newest format, without any line times."""
        for one in self.sample["points"]:
            one["line"] = {}
        for one in self.sample["yardsticks"]:
            one["line"] = []
        self.sample["format"] = "tutti-compare/4"
        return self.sample

    def test_results_without_profiles(self):
        for point in self.sample["points"]:
            del point["profile"]
        self.put({**self.sample, "format": "tutti-compare/2"})
        self.assertEqual(self.play()[0], 0)
        self.assertIn("| peer | 1.00 | 2 over shm | ordinary | all_reduce | 64: 1.81 |  | no reason given |", self.page.read_text())

    def test_a_noisy_limit_is_marked_and_does_not_count(self):
        next(one for one in self.sample["yardsticks"] if one["name"] == "sockets" and one["bytes"] == 64)["us"] = [4.0, 8.0]
        self.put(self.sample)
        self.play()
        page = self.page.read_text()
        self.assertIn("| 64 | 9.01 | 10.9 (openmpi) | 6 (sockets, x2.00) | 0.83 | 1.50 | x1.23 |", page)
        self.assertIn("| 2 over tcp | ordinary | 2 | 0 | 1 of 2 | 1.13: all_reduce of 64K, constant | 2.21 |", page)
        drawn = xml.dom.minidom.parse(str(self.folder / "other-2-tcp.svg"))
        self.assertEqual([circle.getAttribute("class") for circle in drawn.getElementsByTagName("circle")],
                         ["ordinary", "ordinary", "limit noisy", "limit"])

    def test_the_newest_results_come_first(self):
        self.play("--add", SAMPLE)
        self.put({**self.sample, "date": "2026-11-26"}, "0.json")
        self.play()
        page = self.page.read_text()
        self.assertLess(page.index("### AMD EPYC (family 25, model 1), 2 cores, 2026-11-26"),
                        page.index("### AMD EPYC (family 25, model 1), 2 cores, 2026-11-25"))

    def test_without_peers_and_limits(self):
        for point in self.sample["points"]:
            point["us"] = {"tutti": point["us"]["tutti"]}
        self.put({**self.sample, "yardsticks": [], "absent": []})
        self.assertEqual(self.play()[0], 0)
        page = self.page.read_text()
        self.assertIn("| 64K | 56.5 | none |  |  |  | x1.39 |", page)
        self.assertIn("no point has both a peer and a spread that counts", " ".join(page.split()))
        self.assertNotIn(".svg", page)

    def test_check_finds_each_change(self):
        self.play("--add", SAMPLE)
        results, picture, prose = self.folder / f"{NAME}.json", self.folder / f"{NAME}-2-tcp.svg", self.folder / "prose.md"
        for path, words in (
                (self.page, ["docs/performance.md is not what its sources give", "-edited", "+"]),
                (prose, ["docs/performance.md is not what its sources give", "+edited"]),
                (picture, [f"docs/performance/{NAME}-2-tcp.svg is not what its sources give"])):
            text = path.read_text()
            path.write_text(text.replace("\n\n", "\n\nedited\n\n", 1) if path != picture else text.replace("<svg", "<svg "))
            self.assert_differs(*words)
            path.write_text(text)
            self.assert_up_to_date()
        text = results.read_text()
        results.write_text(text.replace("[9.801, 12.02]", "[8.801, 11.02]"))
        self.assert_differs("-| 64 | 9.01 | 10.9 (openmpi)", "+| 64 | 9.01 | 9.91 (openmpi)", "-2-tcp.svg is not what")
        results.write_text(text)
        picture.unlink()
        self.assert_differs(f"docs/performance/{NAME}-2-tcp.svg is not there")
        self.play()
        results.unlink()
        self.assert_differs(f"docs/performance/{NAME}-2-shm.svg: no result file has this picture")
        self.assertIn(f"removed docs/performance/{NAME}-2-shm.svg", self.play()[1])
        self.assert_up_to_date()
        self.page.unlink()
        self.assert_differs("docs/performance.md is not there")

    def test_add_twice(self):
        self.play("--add", SAMPLE)
        self.assertEqual(self.play("--add", SAMPLE)[0], 0)
        other = self.docs.parent / "compare.json"
        other.write_text(json.dumps({**self.sample, "load_before": 0.1}))
        status, text = self.play("--add", other)
        self.assertEqual(status, 1)
        self.assertIn(f"docs/performance/{NAME}.json is there already, with other figures of this machine and day; remove it, or "
                      "copy", text)
        self.assertEqual((self.folder / f"{NAME}.json").read_text(), SAMPLE.read_text())

    def test_bad_results_are_refused(self):
        def with_point(**change):
            told = copy.deepcopy(self.sample)
            told["points"][1].update(change)
            return told

        def without(key):
            return {name: value for name, value in self.sample.items() if name != key}

        def with_profile(*figures):
            return with_point(profile={"tutti": list(figures)})
        machine = self.sample["machine"]
        for told, words in (
                ("{", "the text: expected JSON, got "),
                ("[]", 'format: expected "tutti-compare/4", got nothing; measure again with this tree\'s tools/compare-peers'),
                ({**self.sample, "format": "tutti-compare/1"}, 'format: expected "tutti-compare/4", got "tutti-compare/1"; measure'),
                (without("date"), "date: expected to be there, got nothing"),
                ({**self.sample, "date": "25.11.2026"}, 'date: expected a date like 2026-11-25, got "25.11.2026"'),
                (without("machine"), "machine: expected to be there, got nothing"),
                ({**self.sample, "machine": "EPYC"}, 'machine: expected an object, got "EPYC"'),
                ({**self.sample, "machine": {**machine, "cores": 0}}, "machine.cores: expected a whole number of at least 1, got 0"),
                ({**self.sample, "machine": {**machine, "kernel": ""}}, 'machine.kernel: expected a text of one line, got ""'),
                (without("command"), "command: expected to be there"),
                ({**self.sample, "versions": {"tutti": "0.1.0"}}, "versions: expected one for openmpi, which was measured, got"),
                ({**self.sample, "rounds": 1},
                 "rounds: expected at least 2, since one round has no spread, got 1; measure with --rounds 3"),
                ({**self.sample, "points": []}, "points: expected at least one of tutti, got 0 points of others"),
                ({**self.sample, "points": {}}, "points: expected a list, got {}"),
                (with_point(us={"tutti": [1.0, -1]}), "points[1].us: expected lists of times above 0, in us, by contestant, got"),
                (with_point(us={"tutti": [float("nan")]}), "points[1].us: expected lists of times above 0"),
                (with_point(us={"tutti": [float("inf"), 1]}), "points[1].us: expected lists of times above 0"),
                (with_point(us={"tutti": []}), "points[1].us: expected lists of times above 0"),
                (with_profile(1, 2, 3), "points[1].profile: expected lists of 4 figures of at least 0, by contestant, got"),
                (with_profile(1, 2, 3, -1), "points[1].profile: expected lists of 4 figures"),
                (with_profile(1, 2, 3, True), "points[1].profile: expected lists of 4 figures"),
                ({**self.sample, "profile": ["cycles"]},
                 'profile: expected ["processor_us", "sleeps", "yields", "faults"], got ["cycles"]'),
                (with_point(us={"nccl": [1, 1]}), 'points[1].us: expected contestants of tutti, openmpi, openmpi5, mpich, mpich5, '
                 'intelmpi, gloo, got "nccl"'),
                (with_point(mode="fast"), 'points[1].mode: expected "constant" or "rewritten", got "fast"'),
                (with_point(transport="ib"), 'points[1].transport: expected "shm" or "tcp", got "ib"'),
                (with_point(bytes="2K"), 'points[1].bytes: expected a whole number of at least 0, got "2K"'),
                (with_point(bytes=64), "points[1]: expected each point once, got this one again"),
                ({**self.sample, "yardsticks": [{"name": "line", "bytes": 8}]}, "yardsticks[0].us: expected to be there, got nothing")):
            self.put(told)
            for arguments in ((), ("--check",)):
                status, text = self.play(*arguments)
                self.assertEqual(status, 1, words)
                self.assertIn(f"performance-page: docs/performance/other.json: {words}", text)
                self.assertIn("; ", text)
            self.assertFalse(self.page.exists())

    def test_what_is_missing_is_said(self):
        self.assertIn("nosuch.json cannot be read: No such file", self.play("--add", "nosuch.json")[1])
        (self.folder / "prose.md").write_text(PROSE.replace("<!-- measured: results -->", "results"))
        self.assertIn('docs/performance/prose.md: expected the line "<!-- measured: results -->" once', self.play()[1])
        (self.folder / "prose.md").unlink()
        self.assertIn("docs/performance/prose.md cannot be read: No such file", self.play("--check")[1])

    def test_wrong_command_line(self):
        done = subprocess.run([ROOT / "tools/performance-page", "--check", "--add", "x.json"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("not allowed with", done.stderr)


if __name__ == "__main__":
    unittest.main()
