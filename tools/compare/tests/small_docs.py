# SPDX-License-Identifier: Apache-2.0
"""A small docs folder for the tests of tools/performance-page."""
import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import performance_page

HEAD = "# Performance\n\nAfter this page you know how fast it is.\n\n"
PROSE = HEAD + ("<!-- measured: summary -->\n\nMore: [the glossary](../glossary.md).\n\n<!-- measured: behind -->\n\n"
                "<!-- measured: results -->\n\n"
                "## By hand\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n")
BEFORE = "# Algorithms\n\nAfter this page you know the algorithms.\n\n<!-- begin: tools/performance-page -->\n"
BEHIND = "<!-- end -->\n\n## All\n\n<!-- begin: other -->\n\n| a |\n| --- |\n| 1 |\n\n<!-- end -->\n"


class SmallDocs(unittest.TestCase):
    def setUp(self):
        self.docs = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="page-test-"))) / "docs"
        self.folder, self.page, self.algorithms = (self.docs / name for name in ("performance", "performance.md", "algorithms.md"))
        self.folder.mkdir(parents=True)
        (self.docs / "glossary.md").write_text("# Glossary\n\nAfter this page you know a term.\n\n- **point**: a size.\n")
        (self.folder / "prose.md").write_text(PROSE)
        self.algorithms.write_text(BEFORE + BEHIND)

    def play(self, *arguments):
        """The status and all that was printed."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            status = performance_page.main([*map(str, arguments), "--docs", str(self.docs)])
        return status, printed.getvalue()

    def put(self, told, name="other.json"):
        """A file of results among the pages'."""
        (self.folder / name).write_text(told if isinstance(told, str) else json.dumps(told))

    def assert_up_to_date(self):
        self.assertEqual(self.play("--check"), (0, "the pages and their pictures are up to date\n"))

    def assert_differs(self, *words):
        status, text = self.play("--check")
        self.assertEqual(status, 1, text)
        for word in (*words, "these are written from what docs/performance holds", "run tools/performance-page"):
            self.assertIn(word, text)
