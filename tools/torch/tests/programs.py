# SPDX-License-Identifier: Apache-2.0
"""Programs as tests: each is a function of the rank and raises unless its result is right, on two and on four ranks."""

import functools
import os
import shutil
import unittest

import torch._inductor.compile_fx  # the slow imports come before the fork
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from ranks import run

torch._inductor.config.compile_threads = 1  # no pool of processes that outlives a rank
COMPILERS = ["aot_eager"] + (["inductor"] if shutil.which(os.environ.get("CXX", "g++")) else [])
WHILE_A_COMPILER_RUNS = {"seconds": 300, "patience": 400}


def add_tests(case, programs, **options):
    """A test for each of the programs, on two and on four ranks, which run() starts with the options."""
    def test_of(program):
        def test(self):
            for ranks in 2, 4:
                run(ranks, program, **options)
        return test

    for program in programs:
        setattr(case, f"test_{program.__name__}", test_of(program))


def named(program, name, *arguments):
    """The program with its first arguments."""
    one = functools.partial(program, *arguments)
    one.__name__ = f"{program.__name__}_{name}"
    return one


class DebuggedPrograms(unittest.TestCase):
    """TORCH_DISTRIBUTED_DEBUG=DETAIL puts a group of torch's own around each of Tutti's."""

    def setUp(self):
        dist.set_debug_level(dist.DebugLevel.DETAIL)
        self.addCleanup(dist.set_debug_level, dist.DebugLevel.OFF)


def line():
    """A mesh of all ranks."""
    return init_device_mesh("cpu", (dist.get_world_size(),))


def grid(*names):
    """A mesh of two rows, half of the ranks each."""
    return init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=names)
