# SPDX-License-Identifier: Apache-2.0
"""The digits, trained with the work shared in every way that torch has: equal to one process. Each program runs on two
and on four ranks."""

import collections
import unittest

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import (PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B,
                                          ScheduleInterleavedZeroBubble)
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from digits import BATCH, STEPS, adam, alone, as_one_process, batches, loss_of, network, sgd, share, train, whole
from programs import COMPILERS, WHILE_A_COMPILER_RUNS, DebuggedPrograms, add_tests, grid, line, named
from ranks import gloo, shared_folder

CPU = torch.device("cpu")


def ddp(rank):
    model = DistributedDataParallel(network(), bucket_cap_mb=0.01)  # several buckets
    train(model, sgd(model.parameters()), share())
    as_one_process(model.module)


def ddp_with_loader(rank):
    """The data come from two forked processes of each rank."""
    ranks, samples = dist.get_world_size(), [torch.cat(parts) for parts in zip(*batches())]
    data = torch.utils.data.TensorDataset(*samples)
    sampler = torch.utils.data.DistributedSampler(data, shuffle=False)
    model = DistributedDataParallel(network())
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH // ranks, sampler=sampler, num_workers=2)
    train(model, sgd(model.parameters()), data=loader)
    as_one_process(model.module)


def half_precision_hook(rank):
    """Gradients that travel with eleven bits."""
    model = DistributedDataParallel(network())
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    train(model, sgd(model.parameters()), share(), steps=5)
    as_one_process(model.module, steps=5, tolerance=5e-5)


def power_sgd(rank):
    """PowerSGD sends an approximation, which is the one that comes over Gloo."""
    def trained(group):
        model = DistributedDataParallel(network(), process_group=group)
        state = powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=2, start_powerSGD_iter=3)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        train(model, sgd(model.parameters()), share(), steps=20)
        assert state.total_numel_after_compression < 0.5 * state.total_numel_before_compression
        return model.module

    for mine, other in zip(trained(dist.group.WORLD).parameters(), trained(gloo()).parameters()):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-6)


def uneven_inputs(rank):
    """Join: a rank without data left adds nothing to the sum, which is still divided by the number of ranks."""
    ranks, steps = dist.get_world_size(), 3
    model = DistributedDataParallel(network())
    optimizer = sgd(model.parameters())
    with Join([model]):
        train(model, optimizer, share(), steps=steps + rank)
    expected = network()
    optimizer = sgd(expected.parameters())
    for step, (pixels, labels) in enumerate(batches(steps + ranks - 1)):
        optimizer.zero_grad()
        for other in range(max(0, step - steps + 1), ranks):
            part = share(other, ranks)
            (loss_of(expected(pixels[part]), labels[part]) / ranks).backward()
        optimizer.step()
    for mine, other in zip(model.module.parameters(), expected.parameters()):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-9)


def zero(rank):
    """ZeRO: each rank has the optimizer's state of its part of the parameters."""
    model = DistributedDataParallel(network())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    train(model, optimizer, share())
    as_one_process(model.module, adam)
    optimizer.consolidate_state_dict(to=0)
    if rank == 0:
        parts = optimizer.state_dict()["state"]
        assert sorted(parts) == list(range(8)), parts.keys()
        assert all(part["step"] == STEPS for part in parts.values()), parts


def sharded(mesh, prepare=lambda layer: None):
    model = network()
    for layer in model:
        if isinstance(layer, nn.Linear):
            prepare(layer)
            fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def fsdp2(rank):
    model = sharded(line())
    train(model, sgd(model.parameters()), share())
    as_one_process(model)


def fsdp2_of_compiled_layers(rank):
    model = sharded(line(), lambda layer: layer.compile(backend="aot_eager"))
    train(model, sgd(model.parameters()), share(), steps=10)
    as_one_process(model, steps=10)


def fsdp2_with_clipping(rank):
    """The norm of all gradients is that of one process."""
    model, reference = sharded(line()), network()
    optimizers = sgd(model.parameters()), sgd(reference.parameters())
    for pixels, labels in batches(10):
        loss_of(model(pixels[share()]), labels[share()]).backward()
        loss_of(reference(pixels), labels).backward()
        norms = [nn.utils.clip_grad_norm_(one.parameters(), 0.1) for one in (model, reference)]
        torch.testing.assert_close(whole(norms[0]), norms[1], rtol=1e-9, atol=0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    for mine, other in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(whole(mine), other.detach(), rtol=0, atol=1e-9)


def hybrid_fsdp2(rank):
    """Two replicas, each sharded."""
    model = sharded(grid("replicas", "shards"))
    train(model, sgd(model.parameters()), share())
    as_one_process(model)


PLAN = {"0": ColwiseParallel, "2": RowwiseParallel, "4": ColwiseParallel, "6": RowwiseParallel}


def tensor_parallel(rank):
    model = parallelize_module(network(), line(), {name: style() for name, style in PLAN.items()})
    train(model, sgd(model.parameters()))
    as_one_process(model)


def tensor_and_data_parallel(rank):
    """FSDP2 between the rows of a mesh, tensor parallel within them."""
    mesh = grid("data", "tensor")
    model = parallelize_module(network(), mesh["tensor"], {name: style() for name, style in PLAN.items()})
    fully_shard(model, mesh=mesh["data"])
    train(model, sgd(model.parameters()), share(mesh.get_local_rank("data"), 2))
    as_one_process(model)


def pipeline(kind, stages_of_a_rank, rank):
    """One or two stages on each rank, and two micro-batches for each rank."""
    ranks, modules = dist.get_world_size(), list(network().named_children())
    stages, count = [], ranks * stages_of_a_rank
    for index in range(rank, count, ranks):
        part = modules[index * len(modules) // count:(index + 1) * len(modules) // count]
        stages.append(PipelineStage(nn.Sequential(collections.OrderedDict(part)), index, count, CPU))
    schedule = kind(stages if stages_of_a_rank > 1 else stages[0], 2 * ranks, loss_fn=loss_of)
    parameters = [parameter for stage in stages for parameter in stage.submod.parameters()]
    optimizer = sgd(parameters) if parameters else None
    for pixels, labels in batches():
        schedule.step(*[pixels] if rank == 0 else [], **{"target": labels} if rank == ranks - 1 else {})
        if optimizer:
            optimizer.step()
            optimizer.zero_grad()
    for stage in stages:
        as_one_process(stage.submod)


def checkpoints(rank):
    """FSDP2's state, saved at once and beside the training, loaded into other shards and into one process."""
    model = sharded(line())
    optimizer = adam(model.parameters())
    train(model, optimizer, share(), steps=20)
    folder = shared_folder()
    state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
    checkpoint.save(state, checkpoint_id=f"{folder}/at once")
    saving = checkpoint.async_save(state, checkpoint_id=f"{folder}/beside", process_group=dist.new_group())
    train(model, optimizer, share(), steps=1)  # what is being saved is a copy
    saving.result()
    for name, mesh in (("at once", line()), ("beside", grid("replicas", "shards"))):
        other = sharded(mesh)
        continued = adam(other.parameters())
        state = dict(zip(("model", "optimizer"), get_state_dict(other, continued)))
        checkpoint.load(state, checkpoint_id=f"{folder}/{name}")
        set_state_dict(other, continued, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        as_one_process(other, adam, 20)
        train(other, continued, share(), steps=1)
        for mine, trained in zip(other.parameters(), model.parameters()):
            torch.testing.assert_close(whole(mine), whole(trained), rtol=0, atol=1e-9)
        if rank == 0:
            state = {"model": network().state_dict()}
            checkpoint.load(state, checkpoint_id=f"{folder}/{name}", no_dist=True)
            for key, parameter in alone(adam, 20).named_parameters():
                torch.testing.assert_close(state["model"][key], parameter.detach(), rtol=0, atol=1e-9)
        dist.barrier()


def compiled_ddp(backend, rank):
    model = network()
    parallel = DistributedDataParallel(model)
    train(torch.compile(parallel, backend=backend), sgd(model.parameters()), share(), steps=10)
    as_one_process(model, steps=10)


def counted(rank):
    """Tensor parallel has one all_reduce for each layer of the kind that adds."""
    model = parallelize_module(network(), line(), {name: style() for name, style in PLAN.items()})
    pixels, _ = next(batches())
    with CommDebugMode() as counts:
        model(pixels)
    found = {str(call).split(".")[-1]: count for call, count in counts.get_comm_counts().items()}
    assert found == {"all_reduce": 2}, found
    with CommDebugMode() as counts:
        dist.all_reduce(torch.ones(2))
    assert counts.get_total_counts() == 1, counts.get_comm_counts()


one_f_one_b = named(pipeline, "1f1b", Schedule1F1B, 1)


class Programs(unittest.TestCase):
    """A test for each of the programs above."""


class UnderTorchsDebuggingLayer(DebuggedPrograms):
    """TORCH_DISTRIBUTED_DEBUG=DETAIL"""


add_tests(Programs, [
    ddp, ddp_with_loader, half_precision_hook, power_sgd, uneven_inputs, zero, fsdp2, fsdp2_of_compiled_layers,
    fsdp2_with_clipping, hybrid_fsdp2, tensor_parallel, counted, tensor_and_data_parallel,
    named(pipeline, "gpipe", ScheduleGPipe, 1), one_f_one_b, named(pipeline, "interleaved", ScheduleInterleaved1F1B, 2),
    named(pipeline, "zero_bubble", ScheduleInterleavedZeroBubble, 2), checkpoints])
add_tests(Programs, [named(compiled_ddp, compiler, compiler) for compiler in COMPILERS], **WHILE_A_COMPILER_RUNS)
add_tests(UnderTorchsDebuggingLayer, [ddp, fsdp2, tensor_parallel, one_f_one_b])

if __name__ == "__main__":
    unittest.main()
