#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""report_files_test.py REPORT_SAMPLE TUTTI_CONFORM SCHEMA: the files of a report as other programs read them (a JSON Schema validator, an
XML parser, sha256sum), and the command verify-report as a reviewer uses it."""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

import jsonschema

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tests"))
from expectations import end, expect

SAMPLE, CONFORM, SCHEMA = sys.argv[1:4]


def verify(*arguments):
    done = subprocess.run([CONFORM, "verify-report", *arguments], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def errors(document):
    return list(jsonschema.Draft7Validator(schema).iter_errors(document))


schema = json.loads(pathlib.Path(SCHEMA).read_text())
jsonschema.Draft7Validator.check_schema(schema)
with tempfile.TemporaryDirectory() as base:
    for kind in ("good", "bad"):
        folder = pathlib.Path(base) / kind
        subprocess.run([SAMPLE, kind, folder], check=True, timeout=60)
        document = json.loads((folder / "report.json").read_text())
        few = {**document, "results": [result for i, result in enumerate(document["results"]) if i % 20 == 0 or result["message"]]}
        found = errors(few)
        expect(f"the {kind} report is valid by the schema", not found, str(found[:3]))
        expect("sha256sum agrees", subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=folder).returncode == 0)
        suites = xml.etree.ElementTree.parse(folder / "report.xml").getroot()
        cases = suites.findall("./testsuite/testcase")
        expect("JUnit has every case", len(cases) == len(document["results"]) == int(suites.get("tests")))
        for tag, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            expect(f"JUnit counts each {tag}", len(suites.findall(f".//{tag}")) == int(suites.get(attribute)))
        warned = [result["message"] for result in document["results"] if result["verdict"] == "warning"]
        told = [out.text for out in suites.findall(".//system-out") if out.text.startswith("warning: ")]
        expect("JUnit tells each warning", told == [f"warning: {text}" for text in warned] and bool(warned) == (kind == "bad"), told)
        expect("the JUnit file has failures only where there are some", (int(suites.get("failures")) > 0) == (kind == "bad"))

    # The schema refuses documents that are not reports.
    for path, value in ((["schema"], "x/2"), (["results", 0, "verdict"], "skipped"), (["results", 0, "seed"], 7), (["manifest", "level"], "fast"),
                        (["waivers", 0, "expires"], "soon"), (["results", 0, "attestation", "traffic", 0, "rank"], -1), (["more"], 1)):
        changed = copy.deepcopy({**document, "results": document["results"][:5]})
        place = changed
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        expect(f"the schema refuses {path} = {value}", errors(changed))

    status, told = verify(f"{base}/good")
    expect("a good report conforms", status == 0 and told.startswith("conforming: algorithm ring, transport shm, transport tcp"), told)
    status, told = verify(f"{base}/bad", "--day", "2026-11-20")
    expect("a bad one does not", status == 1 and told.count("NOT conforming") == 1 and "4 failed" in told and "waived until" in told, told)
    status, told = verify(f"{base}/good", "--transport", "tcp")
    expect("one may ask about one transport", status == 0 and told.startswith("conforming: transport tcp;"), told)
    status, told = verify(f"{base}/good", "--transport", "tcp", "--transport", "elsewhere")
    expect("each subject is judged by itself", status == 1 and told.startswith("conforming: transport tcp;") and "NOT conforming: transport elsewhere\n" in told, told)
    status, told = verify(f"{base}/good", "--transport", "elsewhere")
    expect("whom one asks about need not be installed here", status == 1 and "no plugin of the manifest has the transport elsewhere" in told, told)
    (pathlib.Path(base) / "empty").mkdir()
    status, told = verify(f"{base}/empty")
    expect("an empty folder", status == 1 and "has no report.json" in told, told)
    for arguments in (["--day", "soon", base], [], [base, "--bogus"]):
        status, told = verify(*arguments)
        expect(f"{arguments} is wrong usage", status == 2, told)

    with open("/dev/full", "w") as full:
        done = subprocess.run([CONFORM, "verify-report", f"{base}/good"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        expect("a verdict on a full disk is none", done.returncode == 1 and "standard output cannot be written" in done.stderr, done.stderr)

end()
