# SPDX-License-Identifier: Apache-2.0
"""Cells of a notebook (Jupyter and editors know "# %%"): ranks are threads of this process, and need no start.

    python3 tools/python/examples/notebook.py
"""
# %% Four ranks, each with rows of its own: the mean of the columns of all.
import numpy

import tutti


def column_means(comm: tutti.Communicator, rows: int) -> "list[float]":
    mine = numpy.random.default_rng(comm.rank).normal(loc=(1, 2, 3), size=(rows, 3))
    means = mine.mean(0)
    comm.all_reduce(means, op="avg")
    return [round(mean, 1) for mean in means.tolist()]


print("means of the columns:", tutti.run_threads(4, column_means, 10_000)[0])


# %% Names, dates, records: calls that only move elements take every type that numpy has, but objects.
def names(comm: tutti.Communicator) -> "list[str]":
    everyone = numpy.empty(comm.nranks, "U12")
    comm.all_gather(numpy.array([f"rank {comm.rank}"], "U12"), everyone)
    return [str(name) for name in everyone]


print("names:", tutti.run_threads(3, names)[0])


# %% Where the time goes: each kind of call with its algorithm. (pandas.DataFrame(rows) shows them as a table.)
def services(comm: tutti.Communicator) -> "list[str]":
    comm.all_reduce(numpy.ones(1000, "f4"))
    comm.barrier()
    return [f"{row['collective']} by {row['algorithm']}" for row in comm.services()]


print("served:", ", ".join(tutti.run_threads(4, services)[0]))

# %% A plan is what the ranks would do. As the last line of a cell it draws itself.
plan = tutti.Plan("ring", "all_reduce", 4)
print(plan.verify(), f"and 1 MiB a rank takes {1e6 * plan.seconds(1 << 20, bandwidth=1e10):.0f} us at 10 GB/s")
plan
