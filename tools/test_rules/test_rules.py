#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: test_rules.py SOURCE [BUILD]      The rules for a test of the gate, which passes on any machine, slow or busy.

  sleep       no pause stands for an event; a loop may pause between two looks at the event
  clock       no verdict by a real clock below 60 s
  deadline    no deadline below 5 s, nor one that variables set
  port        no port that another program can take between its choice and its use
  random      no seed that differs from run to run
  helper      what real_time cases share serves them only

A source is judged line by line. These are free of the rules:

  - GoogleTest cases with RealTime in the name of suite or case, which run as the soak test NAME.real_time, and definitions
    with real_time or RealTime in their name, which such cases alone may use
  - of the first three: definitions with a VirtualTime, whose clock goes on when all threads wait, and that clock itself
    (core/tests/harness/virtual_time)
  - files of soak tests only, which SOURCE/tools/test_rules/allowed.txt names in a line "PATH: soak: TEST ..."
  - lines that it names in a line "PATH: PATTERN: reason", where PATTERN is a regular expression for the line's text

The list only shrinks: an entry that matches nothing fails. With BUILD, ctest is asked: a source with RealTime cases has its
NAME.real_time and no other test of the gate runs them, tests that the list calls soak have that label, and each line of
SOURCE/cmake/soak_tests.txt has a test.
"""
import json
import re
import subprocess
import sys
from pathlib import Path

ALLOWED = "tools/test_rules/allowed.txt"
SOAK_TESTS = "cmake/soak_tests.txt"
MINUTE, SHORTEST_DEADLINE, POLLING = 60e9, 5e9, 20e6  # nanoseconds

UNITS = {"nanoseconds": 1, "ns": 1, "microseconds": 1e3, "us": 1e3, "milliseconds": 1e6, "ms": 1e6, "seconds": 1e9, "s": 1e9,
         "minutes": 60e9, "min": 60e9, "hours": 3600e9, "h": 3600e9}
NUMBER = r"\d+(?:'\d{3})*(?:\.\d+)?"
# std::chrono::seconds(2), seconds soon(2), 300ms
DURATION = re.compile(rf"\b(?P<call>(?:nano|micro|milli)?seconds|minutes|hours)(?: \w+)?[({{](?P<number>{NUMBER})[)}}]"
                      rf"|(?<![-\w.'])(?P<literal>{NUMBER})(?P<unit>ms|us|ns|s|min|h)\b")
# 300'000'000 is nanoseconds; 300000000 is where its line speaks of time.
NANOSECONDS = re.compile(r"(?<![-\w.'])(\d{1,3}(?:'\d{3}){2,}|\d{7,})(?![\w.'])")
SPEAKS_OF_TIME = re.compile(r"(?i)timeout|deadline|_ns\b|wait_for|time_limit")
# TUTTI_TIMEOUT=2, "--timeout", "0.4", timeout=0.3
SECONDS = re.compile(r"(?i)(?:timeout|deadline)[\"']?(?:\s*[=:,]\s*)[\"']?(\d+(?:\.\d+)?)(?![\d'.]|\s*\*)")
CONSTANT = re.compile(r"\bconst(?:expr)?\b.*?\b(\w+)(?: =|[({])")
SLEEP = re.compile(r"\bthis_thread::sleep_(?:for|until)\s*\(|\b(?:usleep|nanosleep)\s*\(|(?<!\w)(?:::|time\.)sleep\s*\("
                   r"|(?:^|[;&|(\"'])\s*sleep [\d.]")
LOOP = re.compile(r"\b(?:while|until)\b|\bfor \(.*&&")
CLOCK = re.compile(r"(?:_clock|Clock)::now\(|\bclock_gettime\s*\(CLOCK|\btime\.(?:monotonic|time|perf_counter)\(\)|\bgetrusage\s*\("
                   r"|\$SECONDS\b")
VERDICT = re.compile(r"[<>](?![<>\w])|(?:_|assert)(?:LT|LE|GT|GE|Less|Greater)|now\(\) *\+|-(?:lt|gt|le|ge)\b")
POLL = re.compile(r"\bpoll\([^()]*, *(\d{1,4})\)")
PORT = re.compile(r"\bfree_port\(|\w\(\)\.port\(\)|(?:127\.0\.0\.1|localhost|\[::1\]):[1-9]\d{2,4}\b|\bhtons\([1-9]|\bbind\(\(\"[^\"]*\", *\d")
RANDOM = re.compile(r"\brandom_device\b|\$RANDOM\b|\bos\.urandom\b|\bsecrets\.|\bsrand\(\s*time|(?<![\w.:])rand\(\)"
                    r"|(?<!\w)random\.(?:random|randint|choice|choices|shuffle|sample|randbytes|randrange)\(|\bRandom\(\)")
CASE = re.compile(r"^ *(?:TYPED_)?TEST(?:_[FP])?\((\w+), *(\w+)")
VIRTUAL_TIME = re.compile(r"\bVirtualTime \w+;")
REAL_TIME = re.compile(r"RealTime|real_time")
ADVICE = {
    "sleep": "wait for the event itself",
    "clock": "drop the bound, or make it a minute, or allow both outcomes",
    "deadline": "where nobody is meant to reach it, make it 60 s; where it is the subject, name the case RealTime...",
    "port": "hold it (HeldPort in core/bootstrap/tests/meeting_fixture.hpp)",
    "random": "give a fixed seed",
    "helper": "name the case RealTime..., or do without what only such cases may use",
}


def durations(line):
    """The times in a line, in nanoseconds."""
    for found in DURATION.finditer(line):
        number, unit = (found["number"], found["call"]) if found["call"] else (found["literal"], found["unit"])
        yield float(number.replace("'", "")) * UNITS[unit]
    for found in NANOSECONDS.finditer(line):
        time = int(found[1].replace("'", ""))
        if SPEAKS_OF_TIME.search(line) or ("'" in found[1] and time >= 50_000_000):
            yield time
    for found in SECONDS.finditer(line):
        yield float(found[1]) * 1e9


def is_pause(line, before):
    """Is a sleep a pause between two looks at an event, or one whose end nobody is meant to see?"""
    plain = re.search(r"(u)?sleep[ (]\s*([\d.']+)", line)
    times = [float(plain[2].replace("'", "")) * (1e3 if plain[1] else 1e9)] if plain else durations(line)
    longest = max(times, default=0)
    return (longest >= MINUTE or bool(LOOP.search(line))
            or (longest <= POLLING and any(LOOP.search(one) for one in before)))


def is_short_verdict(line, constants):
    """Does a line that reads the clock judge by less than a minute?"""
    if not VERDICT.search(line):
        return False
    times = list(durations(line)) + [constants[name] for name in re.findall(r"\w+", line) if name in constants]
    times += [float(number) * 1e9 for number in re.findall(r"(?:[<>] *|\+ |, )(\d+)\b(?!')", line) if "time." in line]
    return bool(times) and min(times) < MINUTE


def rules_broken(line, before, constants):
    """The rules that a line breaks. `before`: the three lines before it; `constants`: times that the file has named."""
    times = list(durations(line))
    if SLEEP.search(line):
        if not is_pause(line, before):
            yield "sleep"
    elif CLOCK.search(line):
        if is_short_verdict(line, constants):
            yield "clock"
    elif any(1e6 <= time < SHORTEST_DEADLINE for time in times) or any(0 < int(ms) < 5000 for ms in POLL.findall(line)):
        yield "deadline"
    if PORT.search(line):
        yield "port"
    if RANDOM.search(line):
        yield "random"


def code_of(path):
    """(number, line, region) of each line without comments. The region is the case or the top-level definition around it: its
    name, or the line that begins it; "" outside of any."""
    region, depth, quoted = "", 0, False
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        if path.suffix in (".py", ".sh"):
            if quoted or line.lstrip().startswith('"""'):
                quoted ^= line.count('"""') == 1
            elif not line.lstrip().startswith("#"):
                yield number, line, ""
            continue
        line = re.sub(r"(?<![:\w])//(?:[^\"]*\"[^\"]*\")*[^\"]*$", "", line).rstrip()
        begins = CASE.match(line)
        if begins:
            region, depth = f"{begins[1]}.{begins[2]}", 0
        elif not region and re.match(r"\w", line) and not re.match(r'namespace|extern "C" \{', line):
            region, depth = line, 0
        yield number, line, region
        bare = re.sub(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'', "", line)
        depth += sum(bare.count(c) for c in "({[") - sum(bare.count(c) for c in ")}]")
        if depth <= 0 and bare.endswith((";", "}")) or line == "}":
            region = ""


def is_test(path):
    return (path.suffix in (".cpp", ".hpp", ".cu", ".c", ".py", ".sh")
            and ("tests" in path.parts or path.stem.endswith("_test")) and not {"test_rules", "virtual_time"} & set(path.parts))


def sources(root):
    folders = [folder for folder in sorted(root.iterdir()) if folder.is_dir() and not folder.name.startswith((".", "build"))]
    for path in (path for folder in folders for path in sorted(folder.rglob("*"))):
        if is_test(path.relative_to(root)):
            yield path.relative_to(root)


def entries(path):
    """(line number, text) of a list without comments."""
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line.strip()


class Allowed:
    """The allow-list, and which of its entries were of use."""

    def __init__(self, root):
        self.faults, self.lines, self.soak, self.used = [], {}, {}, set()
        for number, text in entries(root / ALLOWED):
            fields = text.split(": ", 2)
            if len(fields) != 3:
                self.faults.append(f"{ALLOWED}:{number}: an entry is PATH: PATTERN: reason, or PATH: soak: TEST ...")
            elif fields[1] == "soak":
                self.soak[fields[0]] = (number, fields[2].split())
            else:
                self.lines.setdefault(fields[0], []).append((number, re.compile(fields[1])))

    def permits(self, path, line):
        if path in self.soak:
            self.used.add(self.soak[path][0])
            return True
        found = [number for number, pattern in self.lines.get(path, []) if pattern.search(line)]
        self.used.update(found)
        return bool(found)

    def left_over(self):
        everything = [(number, path) for path, rows in self.lines.items() for number, _ in rows]
        everything += [(number, path) for path, (number, _) in self.soak.items()]
        return [f"{ALLOWED}:{number}: nothing in {path} needs this entry any more: delete it"
                for number, path in sorted(everything) if number not in self.used]


def check_source(root, path, allowed):
    """The faults of a source, and whether it has RealTime cases."""
    faults, before, constants, has_real_time = [], ["", "", ""], {}, False
    lines = list(code_of(root / path))
    by_virtual_clock = {region for _, line, region in lines if region and VIRTUAL_TIME.search(line)}
    for number, line, region in lines:
        if REAL_TIME.search(region):
            has_real_time |= bool(CASE.match(line))
        else:
            broken = [rule for rule in rules_broken(line, before, constants)
                      if region not in by_virtual_clock or rule not in ("sleep", "clock", "deadline")]
            if path.suffix in (".cpp", ".hpp") and REAL_TIME.search(line):
                broken.append("helper")
            faults += [f"{path}:{number}: {rule}: {line.strip()}\n    {ADVICE[rule]}"
                       for rule in broken if not allowed.permits(str(path), line)]
        constant = CONSTANT.search(line)
        if constant and not CLOCK.search(line):
            constants.update({constant[1]: time for time in durations(line)})
        before = before[1:] + [line]
    return faults, has_real_time


def programs_of(build):
    """The programs of a build folder by the sources that they are compiled from, also of several as one file."""
    programs = {}
    for unit in json.loads((build / "compile_commands.json").read_text()):
        program = re.search(r"-o \S*CMakeFiles/([^/\s]+)\.dir/", unit["command"])[1]
        file = Path(unit["file"])
        together = re.findall(r'#include "([^"]+)"', file.read_text()) if file.parent.name == "Unity" else [file]
        for source in together:
            programs[Path(source).resolve()] = program
    return programs


def runs(command, path):
    """Whether a test's command runs a source's cases: one of tutti_test_group() names the sources."""
    given = [word.removeprefix("--sources=").split(",") for word in command if word.startswith("--sources=")]
    return not given or path.name in given[0]


def check_build(root, build, allowed, real_time):
    """The faults of the tests that ctest knows in a build folder. `real_time`: the sources that have RealTime cases."""
    shown = subprocess.run(["ctest", "--show-only=json-v1"], cwd=build, capture_output=True, text=True, check=True).stdout
    soak, commands = {}, {}
    for test in json.loads(shown)["tests"]:
        labels = [one["value"] for one in test.get("properties", []) if one["name"] == "LABELS"]
        soak[test["name"]] = "soak" in sum(labels, [])
        commands[test["name"]] = test.get("command", [""])
    faults = []
    programs = programs_of(build)
    for path in real_time:
        program = programs.get((root / path).resolve())
        running = {name: " ".join(command[1:]) for name, command in commands.items()
                   if Path(command[0]).name == program and runs(command, path)}
        own = f"{program}.real_time"
        if program and not soak.get(own) and not any(name.endswith(".real_time") and soak[name] for name in running):
            faults.append(f"{path}: {own} is no soak test, nor NAME.real_time of a group: run cmake again and build; objects of a library have none")
        faults += [f"{path}: {name} is no soak test, and runs all cases of {program}" for name, arguments in running.items()
                   if not soak[name] and "--gtest_filter" not in arguments]
    for number, pattern in entries(root / SOAK_TESTS):
        if not any(re.fullmatch(pattern, name) for name in soak):
            faults.append(f"{SOAK_TESTS}:{number}: no test is called {pattern}: delete the line, or mend the name")
    for path, (number, tests) in allowed.soak.items():
        faults += [f"{ALLOWED}:{number}: {path}: {test} is no soak test: name it in {SOAK_TESTS}"
                   for test in tests if not soak.get(test)]
    return faults


def check(root, build=None):
    """All faults, and how many sources have RealTime cases."""
    allowed = Allowed(root)
    faults, real_time = [], []
    for path in sources(root):
        found, has_real_time = check_source(root, path, allowed)
        faults += found
        if has_real_time:
            real_time.append(path)
    faults += allowed.faults + allowed.left_over()
    if build:
        faults += check_build(root, build, allowed, real_time)
    return faults, len(real_time)


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    faults, real_time = check(*map(Path, sys.argv[1:]))
    for fault in faults:
        print(fault)
    if faults:
        sys.exit(f"{len(faults)} faults against the rules for tests of the gate (tools/test_rules/test_rules.py --help)")
    print(f"the rules hold in all tests of the gate; {real_time} sources have RealTime cases")


if __name__ == "__main__":
    main()
