#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rules for sources, on trees of one file: what is planted is refused, and what is like it is not."""
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import source_rules  # noqa: E402


class Rules(unittest.TestCase):
    def faults(self, line, path="core/src/comm/planted.cpp"):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / path
            file.parent.mkdir(parents=True)
            file.write_text(f"int a;\n{line}\n")
            return source_rules.check(Path(folder))

    def test_what_obeys_the_locale(self):
        for line in ("  const double seconds = std::strtod(text, &end);", "  throw Failure(std::stoi(*bad), text);",
                     "  std::istringstream in(text);", "  std::ostringstream out;", "  std::stringstream both{text};",
                     "  if (std::sscanf(line, \"%u\", &first) == 1) return;", "  if (!isalnum(c)) c = '_';",
                     "  text += toupper (c);", "  std::ifstream(folder + \"/numa_node\") >> node;", "  return atoi(text);",
                     "  std::transform(a.begin(), a.end(), a.begin(), ::tolower);", "  std::printf(\"%.1f GB/s\", rate);",
                     "  std::snprintf(text, sizeof text, \"%g\", value);", "      \"%s took %-10.*lf s\",", "  printf(\"%+e\", x);"):
            with self.subTest(line=line):
                self.assertEqual([fault.split("\n")[0] for fault in self.faults(line)],
                                 [f"core/src/comm/planted.cpp:2: locale: {line.strip()}"])

    def test_what_does_not(self):
        for line in ("  const auto c = to_upper(text[0]);", "  // as strtod(text) does", " * isalnum(c) obeys it",
                     "  return is_digit(c);", "  std::getline(std::ifstream(path), line);", "  const int mask = a >> 3;",
                     "#include <sstream>", "  std::printf(\"%llu of %zu, %s%d\", a, b, c, d);",
                     "  text = fmt::format(\"{:.2f} % of all, 10 % full\", part);"):
            with self.subTest(line=line):
                self.assertEqual(self.faults(line), [])

    def test_where(self):
        line = "  return std::stoi(text);"
        for path in ("plugins/shm/src/a.hpp", "net-tcp/src/a.cpp", "tools/torch/src/a.cpp", "cuda-kernels/src/a.cu",
                     "tools/perf/src/a.cpp", "tools/texts/a.hpp"):
            self.assertTrue(self.faults(line, path), path)
        for path in ("core/tests/a.cpp", "plugins/shm/tests/a.cpp", "core/examples/a.cpp", "tools/compare/programs/a.cpp",
                     "tools/perf/tests/a.cpp"):
            self.assertFalse(self.faults(line, path), path)

    def test_types_of_one_name(self):
        def faults(first, second):
            with tempfile.TemporaryDirectory() as folder:
                for name, text in (("a.hpp", first), ("b.cpp", second)):
                    file = Path(folder) / "core/src" / name
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(f"namespace tutti::core {{\n{text}\n}}  // namespace tutti::core\n")
                return source_rules.check(Path(folder))
        one = "class Guest final : public Visitor {\n};"
        self.assertEqual([fault.split("\n")[0] for fault in faults(one, "struct Guest {\n};")],
                         ["core/src/b.cpp: names: tutti::core::Guest is a type of core/src/a.hpp, too"])
        for other in ("class Guest;", "struct Host {\n  struct Guest {\n  };\n};", "namespace {\nstruct Guest {\n};\n}  // namespace",
                      "namespace api {\nstruct Guest {\n};\n}  // namespace api", "struct Host::Guest {\n};"):
            with self.subTest(other=other):
                self.assertEqual(faults(one, other), [])


if __name__ == "__main__":
    unittest.main()
