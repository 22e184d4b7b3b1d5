# SPDX-License-Identifier: Apache-2.0
"""Ranks for the tests: forked processes, each with the default group "tutti" and one of Gloo."""

import datetime
import faulthandler
import multiprocessing
import os
import tempfile
import time
import traceback

os.environ.setdefault("OMP_NUM_THREADS", "1")
import torch
import torch.distributed as dist

import tutti.torch  # noqa: F401  (registers the backend)

SEED = int(os.environ.get("TUTTI_TEST_SEED") or time.time_ns() % 1_000_000)


_folder = None  # of this rank's job


def shared_folder():
    """An empty folder of the job's ranks, which run() removes when all of them have ended.

    Not before: a FileStore that is dropped while its file is removed waits some minutes for the file.
    """
    return os.path.join(_folder, "shared")


def _rank(function, rank, ranks, folder, seconds, patience, pipe):
    global _folder
    _folder = folder
    faulthandler.dump_traceback_later(0.95 * patience)  # where it hangs
    torch.set_num_threads(1)  # a fork is without its parent's threads
    try:
        dist.init_process_group("tutti", init_method=f"file://{folder}/store", rank=rank, world_size=ranks,
                                timeout=datetime.timedelta(seconds=seconds))
        answer = function(rank)
        if dist.is_initialized():
            dist.destroy_process_group()
        pipe.send(("done", answer))
    except BaseException:
        pipe.send(("failed", traceback.format_exc()))
    finally:
        pipe.close()
        os._exit(0)


def run(ranks, function, seconds=60, lost=(), patience=100):
    """The answers of function(rank) on all ranks, None from those that are meant to be lost. Raises what failed.

    The groups' timeout is that many seconds. A rank without an answer hangs when the patience, in seconds, is over.
    """
    name = getattr(function, "__name__", function)
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "shared"))
        pipes, processes = [], []
        for rank in range(ranks):
            mine, theirs = context.Pipe(False)
            process = context.Process(target=_rank, args=(function, rank, ranks, folder, seconds, patience, theirs))
            process.start()
            theirs.close()
            pipes.append(mine)
            processes.append(process)
        answers, failures, end = [], [], time.monotonic() + patience
        for rank, pipe in enumerate(pipes):
            try:
                if not pipe.poll(max(0, end - time.monotonic())):
                    kind, answer = "failed", "hangs"
                else:
                    kind, answer = pipe.recv()
            except EOFError:
                kind, answer = ("done", None) if rank in lost else ("failed", "ended without an answer")
            if kind == "failed":
                failures.append(f"{name}: rank {rank} of {ranks} (TUTTI_TEST_SEED={SEED}): {answer}")
            answers.append(answer)
        for process in processes:
            process.join(1 if failures else 20)
            if process.is_alive():
                failures.append(f"{name}: process {process.pid} does not end")
                process.kill()
    if failures:
        raise AssertionError("\n".join(failures))
    return answers


def gloo(members=None):
    """A group of Gloo beside the default one."""
    return dist.new_group(members, backend="gloo")


def backend(group):
    """The group as tutti.torch made it, which torch keeps behind one of its own."""
    return group._get_backend(torch.device("cpu"))


def equal(mine, expected, what):
    if mine.dtype != expected.dtype or mine.shape != expected.shape or not torch.equal(mine, expected):
        raise AssertionError(f"{what}: {mine.dtype} {mine.flatten()[:8]}, "
                             f"expected {expected.dtype} {expected.flatten()[:8]}")
