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

    def names(self, *files):
        """The first lines of the faults of a tree with these files, each a path and its text within tutti::core."""
        with tempfile.TemporaryDirectory() as folder:
            for path, text in files:
                file = Path(folder) / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(f"namespace tutti::core {{\n{text}\n}}  // namespace tutti::core\n")
            return [fault.split("\n")[0] for fault in source_rules.check(Path(folder))]

    def test_types_of_one_name(self):
        for one in ("class Guest final : public Visitor {\n};", "struct Guest {\n};", "enum class Guest { early, late };",
                    "class Guest : public First,\n              public Second {\n};", "using Guest = std::tuple<int, bool>;",
                    "template <typename T>\nstruct Guest {\n};", "struct alignas(64) Guest {};", "union Guest {\n};"):
            for other in ("struct Guest {\n};", "struct Host {\n  struct Guest {\n  };\n};", "enum Guest : int { early, late };",
                          "namespace {\nstruct Guest {\n};\n}  // namespace", "struct Host {\n  enum class Guest { a } guest;\n};",
                          "namespace api {\nstruct Guest {\n};\n}  // namespace api", "struct Host::Guest {\n};",
                          "  using Guest = uint32_t;", "template <typename T>\nusing Guest = std::vector<T>;"):
                with self.subTest(one=one, other=other):
                    line = 1 + next(n for n, text in enumerate(other.split("\n"), 1) if " Guest" in text or "::Guest" in text)
                    first = 1 + next(n for n, text in enumerate(one.split("\n"), 1) if " Guest" in text)
                    self.assertEqual(self.names(("core/net/a.hpp", one), ("core/src/b.cpp", other)),
                                     [f"core/src/b.cpp:{line}: names: Guest is a type of core/net/a.hpp:{first}, too"])
        within = "struct A {\n  struct Guest {};\n};\nstruct B {\n  struct Guest {};\n};"
        self.assertEqual(self.names(("core/net/a.hpp", within)),
                         ["core/net/a.hpp:6: names: Guest is a type of core/net/a.hpp:3, too"])

    def test_types_of_other_names(self):
        one = ("core/net/a.hpp", "struct Guest {\n};")
        for other in ("class Guest;", "enum class Guest : int;", "friend class Guest;", "  using Guest = Host::Guest;",
                      "// struct Guest {", "template <>\nstruct Guest<int> {\n};", "struct Guests {\n};", "struct Guest make() {\n}",
                      "template <typename Guest>\nvoid meet(Guest&& guest) {\n}", "struct Host guest{};"):
            with self.subTest(other=other):
                self.assertEqual(self.names(one, ("core/src/b.cpp", other)), [])
        trait = "struct A {\n  using Stored = int;\n};\nstruct B {\n  using Stored = char;\n};"
        self.assertEqual(self.names(("core/kernels/a.hpp", trait)), [])
        result = "struct {} {{\n  using type = int;\n}};"
        self.assertEqual(self.names(("core/net/a.hpp", result.format("A")), ("core/src/b.hpp", result.format("B"))), [])
        for elsewhere in ("core/src/tests/b.cpp", "core/engine/benches/b.cpp", "plugins/shm/src/b.cpp"):
            self.assertEqual(self.names(one, (elsewhere, one[1])), [], elsewhere)

    def test_types_of_public_headers(self):
        public = ("core/include/tutti/a.hpp", "struct Guest {\n};")
        self.assertEqual(self.names(public, ("core/base/b.hpp", "struct Guest {\n};")),
                         ["core/include/tutti/a.hpp:2: names: Guest is a type of core/base/b.hpp:2, too"])
        self.assertEqual(self.names(public, ("core/src/b.hpp", "struct Guest {\n};")),
                         ["core/src/b.hpp:2: names: Guest is a type of core/include/tutti/a.hpp:2, too"])
        self.assertEqual(self.names(public, ("core/src/b.hpp", "namespace api {\nstruct Guest {\n};\n}  // namespace api")), [])


if __name__ == "__main__":
    unittest.main()
