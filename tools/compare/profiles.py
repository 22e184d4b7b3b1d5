# SPDX-License-Identifier: Apache-2.0
"""Profiles: what one call of a contestant used of a process, the mean over calls and ranks; programs/loop.c measures it.
They show why one library is slower than another: it works longer, sleeps and is woken, or waits for its core."""
from checked_json import is_number
from runs import median

# "sleeps": voluntary context switches; "yields": involuntary ones, to which Linux also counts those of sched_yield.
NAMES = ("processor_us", "sleeps", "yields", "faults")
LEAST = 0.05  # switches and faults of a call, below which they explain nothing


def of_rounds(by_contestant):
    """By contestant the median of each figure over the rounds."""
    return {contestant: {name: median([one[name] for one in rounds]) for name in NAMES}
            for contestant, rounds in by_contestant.items()}


def written(by_contestant):
    """As a file has them: by contestant the figures, in the order of NAMES."""
    return {contestant: list(one.values()) for contestant, one in of_rounds(by_contestant).items()}


def read(by_contestant):
    """What was written, as of one round."""
    return {contestant: [dict(zip(NAMES, figures))] for contestant, figures in by_contestant.items()}


def are_profiles(value):
    """Whether a point of a file has profiles."""
    return isinstance(value, dict) and all(
        isinstance(one, list) and len(one) == len(NAMES) and all(is_number(used) and used >= 0 for used in one)
        for one in value.values())


def beside(tutti, other):
    """ "sleeps 0.0 / 1.2, processor 31 of 60 / 20 of 38 us" of two figures; "": none has a profile. The other may have
    none. Counts that are near 0 on both sides are left out."""
    figures = [figure for figure in (tutti, other) if figure.profile]
    if tutti not in figures:
        return ""
    told = [f"{name} " + " / ".join(f"{figure.profile[name]:.1f}" for figure in figures)
            for name in NAMES[1:] if any(figure.profile[name] >= LEAST for figure in figures)]
    processor = " / ".join(f"{_short(figure.profile['processor_us'])} of {_short(figure.us)}" for figure in figures)
    return ", ".join([*told, f"processor {processor} us"])


def _short(us):
    return f"{us:,.0f}" if us >= 100 else f"{us:.2g}"
