# SPDX-License-Identifier: Apache-2.0
"""torch's dumps of its flight recorder with Tutti's calls in them, where the recorder is on: see src/recorder.hpp."""

import functools
import json
import pickle

import torch.distributed
from torch._C import _distributed_c10d

_ranks = {}  # of groups by their names: the default group's ranks


def remember(options):
    """The ranks of a group that is being made, which may have ended when a dump is asked for."""
    _ranks[str(options.group_id)] = list(options.global_ranks_in_group) or list(range(options.group_size))


def install(recordings):
    """Puts what `recordings` gives, a function of whether stacks are wanted, into the dumps of torch."""
    pickled, text = _distributed_c10d._dump_fr_trace, _distributed_c10d._dump_fr_trace_json

    @functools.wraps(pickled)
    def dump(includeCollectives=None, includeStackTraces=None, onlyActive=None):
        whole = pickle.loads(pickled(includeCollectives, includeStackTraces, onlyActive))
        entries = recordings(includeStackTraces is not False)
        return pickle.dumps(_merged(whole, entries, includeCollectives is not False, onlyActive, False))

    @functools.wraps(text)
    def dump_json(includeCollectives=None, onlyActive=None):
        whole = json.loads(text(includeCollectives, onlyActive))
        return json.dumps(_merged(whole, recordings(False), includeCollectives is not False, onlyActive, True)).encode()

    _distributed_c10d._dump_fr_trace, _distributed_c10d._dump_fr_trace_json = dump, dump_json


def _merged(whole, entries, collectives, active, as_json):
    for group, ranks in torch.distributed.distributed_c10d._world.pg_group_ranks.items():
        if group != torch.distributed.GroupMember.NON_GROUP_MEMBER:  # other backends' groups, too
            _name_group(whole, group.group_name, group.group_desc, ranks)
    first_id = 1 + max(map(int, whole["pg_status"]), default=-1)  # torch numbers its groups, too
    for entry in entries:
        name, description = entry["process_group"]
        size, ranks = entry.pop("pg_size"), _ranks.get(name, ())
        ranks = ranks if len(ranks) == size else range(size)
        _name_group(whole, name, description, ranks)
        message = entry.pop("message")
        if message:
            _name_channel(whole, entry, ranks, *message)
        entry["pg_id"] += first_id
        _count(whole["pg_status"].setdefault(str(entry["pg_id"]), {}), entry, str if as_json else int)
        if as_json:
            for key in "time_discovered_started_ns", "time_discovered_completed_ns":
                entry[key] = entry[key] or 0
    if collectives:
        _add(whole, [entry for entry in entries if not (active and entry["state"] == "completed")])
    return whole


def _name_group(whole, name, description, ranks):
    whole["pg_config"].setdefault(name, {"name": name, "desc": description, "ranks": str(sorted(ranks))})


def _name_channel(whole, entry, ranks, source, target, tag):
    """The analyser pairs the calls of a group's ranks by their numbers. The messages from one rank to another with one tag
    are numbered by themselves on both of them, so they are a group of these two."""
    name, description = entry["process_group"]
    pair = [ranks[target]] if source < 0 else sorted([ranks[source], ranks[target]])
    source, target = ["any" if source < 0 else ranks[source], ranks[target]]
    name += f": {source} to {target}" + (f", tag {tag}" if tag else "")
    _name_group(whole, name, description, pair)
    entry["process_group"] = name, description
    here, there = pair.index(source) if source in pair else 0, pair.index(target)
    entry["profiling_name"] += f" {there}<-{here}" if entry["profiling_name"].endswith("recv") else f" {here}->{there}"


def _count(status, entry, kind):
    """The last collective of the group that has been called, that has begun and that is complete."""
    number = entry["collective_seq_id"]
    for key, states in (("last_enqueued_collective", ("scheduled", "started", "completed")),
                        ("last_started_collective", ("started", "completed")), ("last_completed_collective", ("completed",))):
        last = int(status.setdefault(key, kind(-1)))
        if not entry["is_p2p"] and entry["state"] in states:
            status[key] = kind(max(last, number))


def _add(whole, entries):
    """In the order of their calls. Both recorders number what they record, and drop the oldest."""
    theirs = whole.get("entries", [])
    if theirs and entries:
        first = theirs[0]["record_id"] + entries[0]["record_id"]
        entries = sorted(theirs + entries, key=lambda entry: entry["time_created_ns"])
        for number, entry in enumerate(entries):
            entry["record_id"] = first + number
    whole["entries"] = entries or theirs
