#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""results.py JUNIT CTEST_LOG FOLDER: what a run of ctest came to, for tools/check.

Reads the JUnit file that ctest wrote and what ctest printed, and writes the output of each failed test to
FOLDER/TEST.log. Prints lines of fields separated by tabs:

    counts   PASSED FAILED SKIPPED
    failed   TEST REASON LOG
    skipped  WHAT REASON

PASSED and FAILED count ctest's tests; SKIPPED counts tests that skip themselves, and GoogleTest's skipped cases within
tests that pass. A test all of whose cases were skipped counts by its cases only.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree

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


def read(junit, ctest_log, folder):
    """(passed, [(test, reason, log)], [(what, reason, number)])"""
    ended = endings(ctest_log)
    passed, failed, skipped = 0, [], []
    for case in xml.etree.ElementTree.parse(junit).getroot().iter("testcase"):
        name, status, output = case.get("name"), case.get("status"), case.findtext("system-out") or ""
        skip = case.find("skipped").get("message", "") if case.find("skipped") is not None else ""
        if status == "disabled" or skip.startswith("SKIP_"):
            cases = skips_of(name, output)
            lines = [line for line in output.splitlines() if line.strip()]
            skipped += cases or [(name, one_line(lines[-1]) if lines else "no reason is given", 1)]
        elif status == "run":
            cases = skips_of(name, output)
            passed += not cases or RAN.search(output) is not None
            skipped += cases
        else:
            folder.mkdir(parents=True, exist_ok=True)
            log = folder / (re.sub(r"[^\w.-]", "_", name) + ".log")
            log.write_text(output)
            failed.append((name, reason_for_failure(case, output, ended.get(name)), str(log)))
    return passed, failed, skipped


def main():
    junit, ctest_log, folder = (pathlib.Path(argument) for argument in sys.argv[1:])
    passed, failed, skipped = read(junit, ctest_log.read_text(errors="replace"), folder)
    print("counts", passed, len(failed), sum(number for _, _, number in skipped), sep="\t")
    for test, reason, log in failed:
        print("failed", test, reason, log, sep="\t")
    for what, reason, _ in skipped:
        print("skipped", what, reason, sep="\t")


if __name__ == "__main__":
    main()
