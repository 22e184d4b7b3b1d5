# SPDX-License-Identifier: Apache-2.0
"""usage: algorithms_part_test.py ROOT

tools/performance-page with tuning files: the part of docs/algorithms.md, its pictures, and which files are refused."""
import copy
import json
import re
import subprocess
import sys
import unittest
import xml.dom.minidom
from pathlib import Path

from small_docs import BEFORE, BEHIND, HERE, SmallDocs

from algorithms_plot import COLOURS, LABEL_HEIGHT
from tuning_file import COLLECTIVES

ROOT = Path(sys.argv.pop(1)).resolve()
SAMPLE, RESULTS = HERE / "data/tuning.json", HERE / "data/sample.json"
NAME = "2026-11-25-4-x-intel-xeon-platinum-8481c-4-ranks-2-hosts-shm-tcp"


class AlgorithmsPart(SmallDocs):
    def setUp(self):
        super().setUp()
        self.sample = json.loads(SAMPLE.read_text())

    def drawn(self, told):
        """The picture of an all_reduce with these points."""
        self.put({**self.sample, "collectives": {"all_reduce": told}})
        status, text = self.play()
        self.assertEqual(status, 0, text)
        return xml.dom.minidom.parse(str(self.folder / "other-all_reduce.svg"))

    def test_the_part(self):
        status, text = self.play("--add", SAMPLE)
        self.assertEqual(status, 0, text)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()),
                         [f"{NAME}-all_reduce.svg", f"{NAME}-barrier.svg", f"{NAME}.json", "prose.md"])
        self.assert_up_to_date()
        page = self.algorithms.read_text()
        self.assertTrue(page.startswith(BEFORE + "\n## Algorithms measured\n\n"), page)
        self.assertTrue(page.endswith("|\n\n" + BEHIND), page)
        for part in (
                "### 4 ranks on 2 hosts over shm+tcp, 2026-11-25\n",
                "| machine | 4 x Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz |\n| date | 2026-11-25T12:00:00Z |\n"
                "| ranks | 4 ranks on 2 hosts, 2 on each, one host after the other |\n| transports | `shm`, `tcp` |\n"
                "| command | `tutti-perf all --tune 'my times.json'` |\n",
                f"#### all_reduce, 4 ranks on 2 hosts\n\n![time against block size](performance/{NAME}-all_reduce.svg)\n",
                "| 8 to 512 | `direct` | `doubling` | 1.25 to 1.50 |\n| 32K | `doubling` | `ring` | 1.00 |\n"
                "| 1M | `ring` | none |  |\n",
                "| no data | `direct` | `tree` | 1.50 |\n"):
            self.assertIn(part, page)
        self.assertLess(page.index("#### all_reduce"), page.index("#### barrier"), "the order of the pages, not of the file")

    def test_the_part_goes_with_its_files(self):
        self.play("--add", SAMPLE)
        (self.folder / f"{NAME}.json").unlink()
        self.assert_differs(f"docs/performance/{NAME}-barrier.svg: no result file has this picture", "docs/algorithms.md is not")
        self.assertIn("wrote docs/algorithms.md", self.play()[1])
        self.assertEqual(self.algorithms.read_text(), BEFORE + BEHIND)

    def test_both_kinds_side_by_side(self):
        self.play("--add", RESULTS)
        page = self.page.read_text()
        self.play("--add", SAMPLE)
        self.put({**self.sample, "date": "2026-11-26T00:00:00Z"}, "0.json")
        self.play()
        self.assertEqual(self.page.read_text(), page, "tuning files belong to the other page")
        text = self.algorithms.read_text()
        self.assertLess(text.index("shm+tcp, 2026-11-26"), text.index("shm+tcp, 2026-11-25"))
        self.assertNotIn("Open MPI", text)
        self.assertEqual(len(list(self.folder.glob("*.svg"))), 2 + 2 + 2)
        done = subprocess.run([sys.executable, "-B", ROOT / "tools/documents/tests/documents_test.py", self.docs.parent],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_check_finds_each_change(self):
        self.play("--add", SAMPLE)
        picture, times = self.folder / f"{NAME}-barrier.svg", self.folder / f"{NAME}.json"
        for path, old, new, words in (
                (self.algorithms, "| 1.50 |", "| 1.49 |", ["docs/algorithms.md is not what its sources give", "-| no data | ", "+| no"]),
                (picture, "<svg", "<svg ", [f"docs/performance/{NAME}-barrier.svg is not what"]),
                (times, '"tree": 4.5', '"tree": 2.5', ["+| no data | `tree` | `direct` | 1.20 |", "-barrier.svg is not what"])):
            text = path.read_text()
            path.write_text(text.replace(old, new))
            self.assert_differs(*words)
            path.write_text(text)
            self.assert_up_to_date()
        self.algorithms.write_text(self.algorithms.read_text().replace("| 1 |\n", "| 2 |\n"))
        self.assert_up_to_date()  # another part of the page

    def test_placement_is_said(self):
        for hosts, said in (([0], "1 rank on 1 host"), ([0, 0], "2 ranks on 1 host"),
                            ([0, 1, 0, 1], "4 ranks on 2 hosts; the host of each rank: 0, 1, 0, 1"),
                            ([0, 0, 1], "3 ranks on 2 hosts; the host of each rank: 0, 0, 1")):
            self.put({**self.sample, "host_of_rank": hosts, "transports": []})
            self.play()
            text = self.algorithms.read_text()
            self.assertIn(f"| ranks | {said} |\n| transports | none |\n", text)
            self.assertIn(" over no transport, ", text)

    def test_text_does_not_become_markdown(self):
        self.put({**self.sample, "machine": "2 x <b> [a](b) a|b", "command": ["/opt/bin/tutti-perf", "a`|b"]})
        self.play()
        text = self.algorithms.read_text()
        self.assertIn(r"| machine | 2 x \<b\> \[a\](b) a\|b |", text)
        self.assertIn(r"| command | `` tutti-perf 'a`\|b' `` |", text)

    def test_pictures(self):
        self.play("--add", SAMPLE)
        drawn = xml.dom.minidom.parse(str(self.folder / f"{NAME}-all_reduce.svg"))
        titles = [title.firstChild.data for title in drawn.getElementsByTagName("title")]
        self.assertEqual(titles[0], "all_reduce, 4 ranks on 2 hosts over shm+tcp, 2026-11-25")
        self.assertIn("512: ring 6.4 us", titles)
        self.assertEqual([title for title in titles if "fastest" in title], [
            "8: direct is the fastest, 2 us; doubling takes 1.50 times as long",
            "512: direct is the fastest, 3.2 us; doubling takes 1.25 times as long",
            "32K: doubling is the fastest, 30 us; ring takes 1.00 times as long", "1M: ring is the fastest, 1,000 us"])
        best = [circle for circle in drawn.getElementsByTagName("circle") if circle.getAttribute("class") == "best"]
        points = {(circle.getAttribute("cx"), circle.getAttribute("cy")) for circle in drawn.getElementsByTagName("circle")
                  if circle.getAttribute("class").startswith("s")}
        self.assertEqual(len(best), 1 + 4, "one explains the others")
        for circle in best[1:]:
            self.assertIn((circle.getAttribute("cx"), circle.getAttribute("cy")), points)
        texts = [text.firstChild.data for text in drawn.getElementsByTagName("text")]
        for word in ("8", "32K", "2 us", "1,000 us", "direct", "doubling", "ring"):
            self.assertIn(word, texts)

    def test_axes_are_logarithmic(self):
        drawn = self.drawn([{"block_bytes": 4 ** power, "us": {"ring": 10 ** power}} for power in (1, 2, 3)])
        places = [(float(circle.getAttribute("cx")), float(circle.getAttribute("cy")))
                  for circle in drawn.getElementsByTagName("circle") if circle.getAttribute("class") == "s0"]
        for axis in (0, 1):
            self.assertAlmostEqual(places[1][axis] - places[0][axis], places[2][axis] - places[1][axis], delta=0.2)
        self.assertLess(places[0][0], places[1][0])
        self.assertGreater(places[0][1], places[1][1])

    def test_twelve_lines_are_told_apart(self):
        names = [f"algorithm{at:02}" for at in range(12)]
        drawn = self.drawn([{"block_bytes": size, "us": {name: 5 + at / 1000 for at, name in enumerate(names)}} for size in (8, 64)])
        labels = [text for text in drawn.getElementsByTagName("text") if text.getAttribute("class") == "label"]
        self.assertEqual([label.firstChild.data for label in labels], names)
        heights = sorted(float(label.getAttribute("y")) for label in labels)
        self.assertGreaterEqual(min(b - a for a, b in zip(heights, heights[1:])), LABEL_HEIGHT - 0.1)
        self.assertLess(heights[-1], float(drawn.documentElement.getAttribute("height")) - 40)
        lines = {path.getAttribute("class") for path in drawn.getElementsByTagName("path") if "line" in path.getAttribute("class")}
        self.assertEqual(len(lines), 12)
        self.assertEqual(len({colour for pair in COLOURS for colour in pair}), 24)
        # As many again are dashed.
        drawn = self.drawn([{"block_bytes": 8, "us": {f"algorithm{at:02}": at + 1 for at in range(24)}}])
        lines = {path.getAttribute("class") for path in drawn.getElementsByTagName("path") if "line" in path.getAttribute("class")}
        self.assertEqual(len(lines), 24)

    def test_points_stay_in_their_panel(self):
        for sizes, times in (([0], [5]), ([24], [1e-6]), ([24, 28], [1, 1]), ([0, 1], [1e12, 1e-6]), ([0, 8, 2 ** 64 - 1], [3, 4, 5]),
                             ([1, 1000], [0.1, 1000])):
            drawn = self.drawn([{"block_bytes": size, "us": {"ring": us}} for size, us in zip(sizes, times)])
            panel = next(one for one in drawn.getElementsByTagName("rect") if one.getAttribute("class") == "panel")
            x, y, width, height = (float(panel.getAttribute(name)) for name in ("x", "y", "width", "height"))
            circles = [circle for circle in drawn.getElementsByTagName("circle") if circle.getAttribute("class") == "s0"]
            self.assertEqual(len({circle.getAttribute("cx") for circle in circles}), len(sizes), sizes)
            for circle in circles:
                self.assertTrue(x < float(circle.getAttribute("cx")) < x + width, sizes)
                self.assertTrue(y - 0.1 <= float(circle.getAttribute("cy")) <= y + height + 0.1, times)
            marks = [text for text in drawn.getElementsByTagName("text") if text.getAttribute("text-anchor") == "middle"]
            self.assertTrue(marks, sizes)

    def test_add_twice(self):
        self.play("--add", SAMPLE)
        self.assertEqual(self.play("--add", SAMPLE), (0, f"wrote docs/performance/{NAME}.json\n"))
        other = self.docs.parent / "tuning.json"
        other.write_text(json.dumps(self.sample))
        status, text = self.play("--add", other)
        self.assertEqual(status, 1)
        self.assertIn(f"docs/performance/{NAME}.json is there already, with other figures", text)

    def test_bad_tuning_files_are_refused(self):
        def but(**change):
            return {**self.sample, **change}

        def without(key):
            return {name: value for name, value in self.sample.items() if name != key}

        def with_point(**change):
            told = copy.deepcopy(self.sample)
            told["collectives"]["all_reduce"][1].update(change)
            return told
        at = "collectives.all_reduce[1]"
        times = "microseconds from 1e-6 to 1e12, got "
        for told, words in (
                (but(tutti_tuning=2), "tutti_tuning: expected 1, got 2; measure again with this tree's tutti-perf --tune"),
                (but(tutti_tuning=True), "tutti_tuning: expected 1, got true"),
                (without("machine"), "machine: expected to be there, got nothing; measurements are not edited: write the file"),
                (but(machine=""), 'machine: expected a text of one line, got ""'),
                (without("date"), "date: expected to be there, got nothing"),
                (but(date="2026-11-25"), 'date: expected a time like 2026-11-25T12:00:00Z, got "2026-11-25"'),
                (without("command"), "command: expected to be there, got nothing"),
                (but(command="tutti-perf"), 'command: expected a list of words, got "tutti-perf"'),
                (but(command=[]), "command: expected a list of words, got []"),
                (but(host_of_rank=[0, 2]), "host_of_rank: expected for each rank its host's number"),
                (but(host_of_rank=[]), "host_of_rank: expected for each rank its host's number"),
                (but(transports=["shm", "shm"]), "transports: expected a list of names, each once"),
                (but(transports=["a|b"]), "transports: expected a list of names, each once"),
                (but(speed=1), 'the file: expected no keys but tutti_tuning, machine, date, command, host_of_rank, transports, '
                 'collectives, got "speed"'),
                (but(collectives={}), "collectives: expected an object with at least one collective, got {}"),
                (but(collectives={"gather_v": []}), "collectives: expected collectives of equal blocks (broadcast, "),
                (but(collectives={"reduce": []}), "collectives.reduce: expected at least one size, got []"),
                (but(collectives={"reduce": {}}), "collectives.reduce: expected a list, got {}"),
                (with_point(block_bytes=8), f"{at}.block_bytes: expected more than 8, since sizes rise, got 8"),
                (with_point(block_bytes=-1), f"{at}.block_bytes: expected a whole number of at least 0, got -1"),
                (with_point(us={}), f"{at}.us: expected an object of algorithms and microseconds, got {{}}"),
                (with_point(us={"ring": 0}), f"{at}.us.ring: expected {times}0"),
                (with_point(us={"ring": "3"}), f'{at}.us.ring: expected {times}"3"'),
                (with_point(us={"ring": float("nan")}), f"{at}.us.ring: expected {times}NaN"),
                (with_point(us={"ring": 10 ** 400}), f"{at}.us.ring: expected {times}1000"),
                (with_point(us={"a|b": 1}), f'{at}.us: expected names of algorithms, got "a|b"'),
                ("[" * 100000, "the text: expected JSON, got "),
                ('{"tutti_tuning": 1', "the text: expected JSON, got "),
                (without("tutti_tuning"), 'format: expected "tutti-compare/4", got nothing; measure again with this tree\'s '
                 'tools/compare-peers; a file of tutti-perf --tune has "tutti_tuning": 1 instead')):
            self.put(told)
            for arguments in ((), ("--check",), ("--add", self.folder / "other.json")):
                status, text = self.play(*arguments)
                self.assertEqual(status, 1, words)
                self.assertIn(f"other.json: {words}", text)
                self.assertIn("; ", text)
            self.assertEqual(self.algorithms.read_text(), BEFORE + BEHIND)
            self.assertFalse(self.page.exists())

    def test_marks_that_are_not_there(self):
        expected = 'docs/algorithms.md: expected the line "<!-- begin: tools/performance-page -->" once, and after it "<!-- end -->"'
        for text in ("# Algorithms\n", BEFORE, BEFORE + BEHIND.replace("<!-- end -->\n", "", 1), BEFORE + BEFORE + BEHIND,
                     BEFORE + BEHIND + BEFORE + BEHIND):
            self.algorithms.write_text(text)
            for arguments in ((), ("--check",)):
                status, said = self.play(*arguments)
                self.assertEqual(status, 1, text)
                self.assertIn(expected, said)
            self.assertEqual(self.algorithms.read_text(), text)
        self.algorithms.unlink()
        self.assertIn("docs/algorithms.md cannot be read: No such file", self.play()[1])

    def test_the_collectives_are_those_of_the_page(self):
        tables = (ROOT / "docs/algorithms.md").read_text().split("## All algorithms\n")[1]
        self.assertEqual(sorted(name for name in re.findall(r"^### (\w+)$", tables, re.M) if not name.endswith("_v")),
                         sorted(COLLECTIVES))


if __name__ == "__main__":
    unittest.main()
