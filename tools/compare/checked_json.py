# SPDX-License-Identifier: Apache-2.0
"""Reading JSON that pages are made of, and checking it against a shape: a page must not show what nobody measured."""
import json
import sys


class Refused(Exception):
    """A file that cannot be used; the text says which, what was expected, what came and what to do."""


def load(path, shown):
    """What is in the file at `path`, which messages call `shown`. Throws Refused."""
    try:
        return json.loads(path.read_text())
    except OSError as why:
        raise Refused(f"{shown} cannot be read: {why.strerror}; expected a file of tools/compare-peers or tutti-perf "
                      "--tune") from None
    except (ValueError, RecursionError) as why:
        refuse(shown, "the text", "JSON", str(why), "write the file anew with tools/compare-peers or tutti-perf --tune")


def refuse(shown, where, expected, came, advice):
    came = came if len(came) <= 120 else came[:117] + "..."
    raise Refused(f"{shown}: {where}: expected {expected}, got {came}; {advice}")


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def whole(least):
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_text(value):
    return isinstance(value, str) and bool(value) and value.isprintable()


TEXT = (is_text, "a text of one line")


def fault(value, shape, where):
    """The first difference, as (where, expected, came); None. A shape is (whether a value is one, what it is), a dict of
    shapes by key, or a list of one shape."""
    if isinstance(shape, tuple):
        return None if shape[0](value) else (where, shape[1], json.dumps(value))
    if isinstance(shape, list):
        if not isinstance(value, list):
            return where, "a list", json.dumps(value)
        return next((found for at, one in enumerate(value) if (found := fault(one, shape[0], f"{where}[{at}]"))), None)
    if not isinstance(value, dict):
        return where, "an object", json.dumps(value)
    for key, inner in shape.items():
        name = f"{where}.{key}" if where else key
        if key not in value:
            return name, "to be there", "nothing"
        if found := fault(value[key], inner, name):
            return found
    return None
