# SPDX-License-Identifier: Apache-2.0
"""Which failed tests are run again, and when flaky tests fail a run.

A test of the gate that fails is run again alone, twice. If it passes both times it is flaky: the run passes, and the
record keeps the test's name, seed, reason and log. These are never run again, since repeating would hide a defect:

    crash      the test ended by a signal, or one of its processes did
    sanitizer  a report of a sanitizer
    leak       a report of leaked memory, descriptors or processes
    hang       the test ran into its limit
    wrong      a comparison of values failed, or the conformance suite calls a result wrong

A comparison counts as wrong unless the test's output says that a deadline passed: on a busy machine a status that
should be OK is then a timeout."""
import re

MOST_FLAKY = 2          # in one run
MOST_RECORDS_OF_ONE = 1  # of the last ten runs
RECORDS = 10

SANITIZER = re.compile(r"ERROR: \w*Sanitizer|WARNING: ThreadSanitizer|SUMMARY: \w*Sanitizer|runtime error: ")
LEAK = re.compile(r"LeakSanitizer|\bleak(s|ed|ing)?\b", re.IGNORECASE)
CRASH = re.compile(r"SIG(SEGV|BUS|ILL|FPE|ABRT|SYS)\b|Segmentation fault|Bus error|core dumped|terminate called|"
                   r"(killed|ended|died|exited) (by|with|on) signal (4|6|7|8|11)\b|free\(\): |malloc\(\): |corrupted ", re.IGNORECASE)
DEADLINE = re.compile(r"TUTTI_TIMEOUT|timed out|TimeoutExpired|stood still|has waited \d")
WRONG = re.compile(r"Expected equality of these values|The difference between|AssertionError|"
                   r"\b(wrong|incorrect|corrupt(ed)?) (result|value|element|byte|answer|data)s?\b|#wrong", re.IGNORECASE)


def why_not_again(ending, output):
    """The kind of defect, if a test that ended so is not to be run again; else None. `ending` is ctest's word."""
    if ending == "Timeout":
        return "hang"
    if ending not in (None, "", "Failed", "Not Run"):
        return "crash"
    if LEAK.search(output):
        return "leak"
    if SANITIZER.search(output):
        return "sanitizer"
    if CRASH.search(output):
        return "crash"
    if WRONG.search(output) and not DEADLINE.search(output):
        return "wrong"
    return None


def seed_of(output):
    """The last seed that a test printed; tests of the gate that print none have fixed ones."""
    found = re.findall(r"\bseed[ =:]+(\d+)", output)
    return int(found[-1]) if found else "fixed"


def too_flaky(flaky, earlier):
    """Why a run fails for its flaky tests: sentences. `flaky` are names; `earlier` the lists of names of earlier runs."""
    reasons = []
    if len(flaky) > MOST_FLAKY:
        reasons.append(f"{len(flaky)} tests were flaky; at most {MOST_FLAKY} are allowed in a run")
    for name in sorted(set(flaky)):
        before = sum(name in names for names in earlier[-(RECORDS - 1):])
        if before + 1 > MOST_RECORDS_OF_ONE:
            reasons.append(f"{name} was flaky in {before + 1} of the last {RECORDS} runs")
    return reasons
