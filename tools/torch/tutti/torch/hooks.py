# SPDX-License-Identifier: Apache-2.0
"""Gradient buckets for models: of a program of its own, and of DistributedDataParallel.

    gradients = tutti.torch.gradients(model, wire="bfloat16", feedback=True)
    for data, wanted in batches:
        optimizer.zero_grad()
        loss(model(data), wanted).backward()           # buckets start within it
        gradients.wait()
        optimizer.step()

    model = DistributedDataParallel(model)
    model.register_comm_hook(None, tutti.torch.wire_hook("float16"))
"""

import contextlib

import torch
import torch.distributed

import tutti


def _communicator(group, name):
    """A communicator of the group's ranks; collective. Its operations have the group's timeout."""
    group = group or torch.distributed.group.WORLD
    if group == torch.distributed.GroupMember.NON_GROUP_MEMBER:
        raise ValueError(f"{name}: this rank is not in the group")
    rank, ranks = torch.distributed.get_rank(group), torch.distributed.get_world_size(group)
    place = [tutti.unique_id() if rank == 0 else None]
    torch.distributed.broadcast_object_list(place, torch.distributed.get_global_rank(group, 0), group=group)
    timeout = group._get_backend(torch.device("cpu")).options._timeout.total_seconds()
    return tutti.Communicator(place[0], rank, ranks, name=name, timeout=timeout)


def _type(tensor):
    return str(tensor.dtype).removeprefix("torch.").removesuffix("fn")


class ModelGradients:
    """The gradients of a model's parameters, averaged over the ranks. Made by gradients()."""

    def __init__(self, model, group, settings):
        self._parameters = [(name, one) for name, one in model.named_parameters() if one.requires_grad][::-1]
        if not self._parameters:
            raise ValueError("gradients: no parameter of the model requires a gradient")
        for name, one in self._parameters:
            if one.device.type != "cpu":
                raise NotImplementedError(f"gradients: parameter {name} is on {one.device}, expected cpu: use "
                                          "DistributedDataParallel for other devices")
        self._comm = _communicator(group, "gradients")
        try:
            self._set = self._comm.gradients({name: (one.numel(), _type(one)) for name, one in self._parameters},
                                             **settings)
        except BaseException:
            self._comm.close()
            raise
        self._marked = set()
        self._syncs = True
        self._hooks = [one.register_post_accumulate_grad_hook(lambda one, name=name: self._ready(name, one))
                       for name, one in self._parameters]

    def _ready(self, name, parameter):
        if not self._syncs:
            return
        if parameter.grad.layout != torch.strided:
            raise NotImplementedError(f"gradients: the gradient of {name} is sparse: use DistributedDataParallel")
        if not parameter.grad.is_contiguous():
            parameter.grad = parameter.grad.contiguous()
        self._set.ready(name, parameter.grad)
        self._marked.add(name)

    @contextlib.contextmanager
    def no_sync(self):
        """Backward passes in the block add to the gradients and are not averaged; the next one outside averages all."""
        before, self._syncs = self._syncs, False
        try:
            yield
        finally:
            self._syncs = before

    def wait(self):
        """Ends the step: every parameter's grad is the result. A parameter that the backward pass has not reached on
        this rank contributes what its grad has, or zeros, and gets the result too: the ranks' models stay equal."""
        for name, one in self._parameters:
            if name not in self._marked:
                if one.grad is None:
                    one.grad = torch.zeros_like(one)
                self._ready(name, one)
        self._set.wait()
        self._marked.clear()

    @property
    def facts(self):
        """As tutti.Gradients.facts."""
        return self._set.facts

    def close(self):
        """Takes the hooks off the parameters and ends the communicator; collective."""
        for hook in self._hooks:
            hook.remove()
        self._set.close()
        self._comm.close()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None and not self._comm.closed:
            self._comm.abort(f"the rank left by {kind.__name__}: {value}")
        self.close()


def gradients(model, *, group=None, thread=True, **settings):
    """Averages the gradients of the model's parameters over the ranks of the group while backward() computes: each
    parameter is marked as soon as its gradient is complete. Collective, and all ranks have the same model on the CPU
    with equal parameters. Returns an object with wait(), no_sync(), facts and close(); as a context manager it is
    closed at the end of the block.

    `thread`: a thread of its own advances buckets, since backward() keeps the caller busy. `settings`: op, wire,
    feedback, declared_order, bucket_bytes, first_bucket_bytes, order, algorithms and timeout, as of tutti.Communicator.gradients.
    """
    return ModelGradients(model, group, dict(settings, thread=thread))


class _Buckets:
    """DDP's buckets, each one a tensor of a set of gradients. DDP says only by its last bucket how many there are, and
    cuts others after its first iteration. So the set is made of the buckets of an iteration at its end, and serves as
    long as the next ones have the same; where they do not, the rest of the iteration waits for a new one."""

    def __init__(self, group, settings):
        self._comm = _communicator(group, "wire_hook")
        self._settings = settings
        self._set, self._shapes = None, []
        self._step = []  # of the iteration: (bucket, future)
        self._marked = 0  # how many of these are on their way

    def reduce(self, bucket):
        if bucket.index() == 0 and self._step:
            raise RuntimeError("wire_hook: the backward pass before this one ended without its last bucket, so other "
                               "ranks may still wait for it: end the program, or wrap the model and make the hook again")
        data, future = bucket.buffer(), torch.futures.Future()
        place, shape = len(self._step), (data.numel(), _type(data))
        self._step.append((data, future))
        if self._marked == place and self._shapes[place:place + 1] == [shape]:
            self._set.ready(place, data)
            self._marked += 1
        if bucket.is_last():
            self._finish()
        return future

    def _finish(self):
        if self._marked:
            for place in range(self._marked, len(self._shapes)):
                self._set.unused(place)
            self._set.wait()
        if self._marked < len(self._step):
            self._make_set()
            for place, (data, _) in enumerate(self._step):
                self._set.unused(place) if place < self._marked else self._set.ready(place, data)
            self._set.wait()
        done, self._step, self._marked = self._step, [], 0
        for data, future in done:
            future.set_result(data)

    def _make_set(self):
        if self._set is not None:
            self._set.close()
        self._shapes = [(data.numel(), _type(data)) for data, _ in self._step]
        # Each is a bucket of its own already.
        self._set = self._comm.gradients(self._shapes, thread=True, declared_order=True, bucket_bytes=1,
                                         first_bucket_bytes=1, **self._settings)


def wire_hook(wire, *, feedback=False, group=None):
    """A hook for DistributedDataParallel.register_comm_hook(None, hook): its buckets are averaged in a wire format,
    "plain", "float16", "bfloat16" or "float8", whose errors core/gradients/README.md bounds. All ranks get equal bits.
    `feedback`: the rounding error of a step is added in the next one. `group`: the model's. Collective."""
    buckets = _Buckets(group, {"wire": wire, "feedback": feedback})

    def hook(state, bucket):
        return buckets.reduce(bucket)

    return hook
