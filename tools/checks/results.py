# SPDX-License-Identifier: Apache-2.0
"""What a run of ctest came to, from the JUnit file that it wrote and from what it printed.

Passed and failed count ctest's tests. Skipped counts tests that skip themselves, and GoogleTest's skipped cases within
tests that pass; a test all of whose cases were skipped counts by its cases only."""
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import xml.etree.ElementTree

SCALE = "TUTTI_TEST_TIME_SCALE"
# The first line that begins one of these says why a test failed; following lines may belong to it.
FAILURES = [re.compile(pattern) for pattern in (
    r": Failure$", r"^\S*Error: ", r"ERROR: \w+Sanitizer", r"WARNING: ThreadSanitizer", r"runtime error: ",
    r"^FAILED|^failed|^FAIL:")]
CASE = re.compile(r"\[ RUN      \] (\S+)\n(.*?)\[  SKIPPED \] \1 \(", re.DOTALL)
RAN = re.compile(r"^\[       OK \] |^\[  FAILED  \] ", re.MULTILINE)


def one_line(text, longest=300):
    line = " ".join(text.split())
    return line if len(line) <= longest else line[:longest] + "..."


def endings(ctest_log):
    """How tests ended that ctest lists as failed: {"name": "Timeout"}."""
    listed = ctest_log.partition("The following tests FAILED:")[2]
    return {match[1]: match[2] for match in re.finditer(r"^\s+\d+ - (.*) \(([^()]*)\)$", listed, re.MULTILINE)}


def reason_for_failure(case, output, ending):
    """One line: the first failed assertion, or the last thing said, and how the test ended unless it returned."""
    lines = [line for line in output.splitlines() if line.strip()]
    said = lines[-1] if lines else "it printed nothing"
    for number, line in enumerate(lines):
        if any(pattern.search(line) for pattern in FAILURES):
            said = " ".join(lines[number:number + 4 if line.endswith(": Failure") else number + 1])
            break
    message = (case.find("failure") if case.find("failure") is not None else case.find("skipped"))
    told = message.get("message", "") if message is not None else ""
    if ending == "Timeout":
        return one_line(f"timeout after {float(case.get('time')):.0f} s; {said}")
    if ending in (None, "Failed", "Not Run"):
        return one_line(f"{told}: {said}" if told else said)
    return one_line(f"{ending}; {said}")


def reason_for_skip(text):
    """What was printed while skipping: GoogleTest names the place first, and then come the words."""
    words = text.partition(": Skipped\n")[2] or text
    return one_line(words) or "no reason is given"


def skips_of(name, output):
    """Skipped cases in the output of a test that passed, by reason: [(what, reason, number of cases)]."""
    by_reason = {}
    for match in CASE.finditer(output):
        by_reason.setdefault(reason_for_skip(match[2]), []).append(match[1])
    return [(f"{name}: {', '.join(cases)}", reason, len(cases)) for reason, cases in by_reason.items()]


@dataclasses.dataclass
class Failed:
    test: str
    reason: str
    log: str
    ending: str  # ctest's word: "Failed", "Timeout", "SEGFAULT", ...
    output: str


@dataclasses.dataclass
class Results:
    passed: int = 0
    failed: list = dataclasses.field(default_factory=list)   # of Failed
    skipped: list = dataclasses.field(default_factory=list)  # (what, reason, number of cases)
    seconds: dict = dataclasses.field(default_factory=dict)  # test: time

    def skips(self):
        return sum(number for _, _, number in self.skipped)


def read(junit, ctest_log, folder):
    """The results. The output of each failed test goes to folder/TEST.log."""
    ended = endings(ctest_log)
    results = Results()
    for case in xml.etree.ElementTree.parse(junit).getroot().iter("testcase"):
        name, status, output = case.get("name"), case.get("status"), case.findtext("system-out") or ""
        skip = case.find("skipped").get("message", "") if case.find("skipped") is not None else ""
        results.seconds[name] = float(case.get("time") or 0)
        if status == "disabled" or skip.startswith("SKIP_"):
            cases = skips_of(name, output)
            lines = [line for line in output.splitlines() if line.strip()]
            results.skipped += cases or [(name, one_line(lines[-1]) if lines else "no reason is given", 1)]
        elif status == "run":
            cases = skips_of(name, output)
            results.passed += not cases or RAN.search(output) is not None
            results.skipped += cases
        else:
            folder.mkdir(parents=True, exist_ok=True)
            log = folder / (re.sub(r"[^\w.-]", "_", name) + ".log")
            log.write_text(output)
            results.failed.append(
                Failed(name, reason_for_failure(case, output, ended.get(name)), str(log), ended.get(name, ""), output))
    return results


def limits(folder):
    """{test: seconds after which ctest ends it} on a machine of scale 1, of the tests that have a limit of their own."""
    told = subprocess.run(["ctest", "--test-dir", str(folder), "--show-only=json-v1"], capture_output=True, text=True,
                          env={key: value for key, value in os.environ.items() if key != SCALE})
    found = {}
    for test in json.loads(told.stdout or "{}").get("tests", []):
        for entry in test.get("properties", []):
            if entry["name"] == "TIMEOUT":
                found[test["name"]] = float(entry["value"])
    return found


def stretch(folder, scale):
    """Has ctest multiply the limits of all tests in folder by the scale, as long as the environment names this scale; the
    limits then. cmake/TuttiTestTiers.cmake includes the file."""
    place = pathlib.Path(folder) / "test_tiers"
    stretched = {test: limit * scale for test, limit in limits(folder).items()}
    if place.is_dir():
        lines = [f'  set_tests_properties("{test}" PROPERTIES TIMEOUT {limit:g})' for test, limit in stretched.items()]
        (place / "limits.cmake").write_text("\n".join([f'if("$ENV{{{SCALE}}}" STREQUAL "{scale}")', *lines, "endif()", ""]))
    return stretched


def near_limit(seconds, limit, share=0.4):
    """Tests that took more than a share of their limits, slowest first: (test, seconds, limit)."""
    near = [(test, took, limit[test]) for test, took in seconds.items() if test in limit and took > share * limit[test]]
    return sorted(near, key=lambda row: -row[1] / row[2])
