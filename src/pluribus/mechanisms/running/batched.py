"""Batched: small networks whose members are stacked run with one operator for all members."""

import torch
from torch import Tensor, nn

from pluribus.mechanisms.members.axis import fork, join
from pluribus.mechanisms.members.caller import CAUGHT, Caller, check_batch
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.running.chain import Link, read_chain, run_chain
from pluribus.mechanisms.running.engine import Engine, Job
from pluribus.mechanisms.running.looped import Looped

STACKED_LAYERS = (nn.Linear, nn.LayerNorm, nn.Identity)
"""Layers with tensors for which stacking pays: others, as convolutions, are slower under vmap."""
STACKED_ROWS = 8
"""Rows from which small networks are stacked: 4 gained nothing, 20 did, in between was not measured."""
STACKED_WORK = 1e8
"""Multiply-adds of one row up to which they are; around 3e7 it is a draw (benchmarks/stacking.py)."""


class Batched(Engine):
    """Run all members at once: a chain of layers by batched products, other code under `torch.vmap`."""

    def why_not(self, job: Job) -> str:
        if len(job.rows) < STACKED_ROWS:
            return f"fewer than {STACKED_ROWS} rows"
        if job.memory is not None or job.members.code.one_pass or job.members.code.is_random:
            return "rows are no stack of tensors"
        caller = job.members.code.caller
        reason = why_not_stacked(caller)
        if reason:
            return reason
        if job.inputs[0].batch * weights_of(caller) > STACKED_WORK:
            return "the network or the batch is large"
        if not job.members.tensors.stacks(job.rows):
            return "rows are no stack of tensors"
        if not job.together:
            return self._why_not_apart(job, caller)
        refused: str = caller.cache.get(("vmap", job.training, torch.is_grad_enabled()), "")
        return refused

    def _why_not_apart(self, job: Job, caller: Caller) -> str:
        if not all(_is_chain(caller, one) for one in job.inputs):
            return "rows have batches of their own, and the network is no chain of layers"
        shapes = {one.args[0].shape for one in job.inputs}
        return "rows have batches of different shapes" if len(shapes) > 1 else ""

    def run(self, job: Job) -> Tensor | list[Tensor]:
        own, shared = job.members.tensors.stacked(), job.members.tensors.parts()[0]
        caller = job.members.code.caller
        try:
            if not job.together:
                stack = join([one.args[0] for one in job.inputs])
                return list(run_chain(_chain(caller), own, shared, stack))
            (inputs,) = job.inputs
            if not _is_chain(caller, inputs):
                return _run_vmap(caller, own, shared, job)
            outputs = run_chain(_chain(caller), own, shared, fork(inputs.args[0], len(job.rows)))
            check_batch(outputs.shape[1:], inputs)
            return outputs
        except CAUGHT as error:
            # The code does something that vmap cannot, or fails anyhow: then the loop tells where.
            looped = Looped().run(job)
            if job.together:
                kind = ("vmap", job.training, torch.is_grad_enabled())
                caller.cache[kind] = str(error).splitlines()[0]
            return looped


def _run_vmap(caller: Caller, own: dict[str, Tensor], shared: dict[str, Tensor], job: Job) -> Tensor:
    loan, inputs = caller.borrow(job.modes), job.inputs[0].copy()

    def row(tensors: dict[str, Tensor]) -> Tensor:
        module = loan.skeleton.fill({**shared, **tensors})
        return caller.prediction(module(*inputs.args, **inputs.keywords), inputs)

    # Code that hooks saved tensors (gradient checkpointing) would run rows again outside of vmap.
    with torch.autograd.graph.disable_saved_tensors_hooks("checkpointing cannot be stacked"):
        return torch.vmap(row)(own)


def why_not_stacked(caller: Caller) -> str:
    """Return which layer of the network keeps its rows from being stacked; empty where none does."""
    if "stacked" not in caller.cache:
        caller.cache["stacked"] = _first_other_layer(caller.module)
    found: str = caller.cache["stacked"]
    return found


def _first_other_layer(module: nn.Module) -> str:
    for name, layer in module.named_modules():
        own = (*layer.parameters(recurse=False), *layer.buffers(recurse=False))
        if own and not isinstance(layer, STACKED_LAYERS):
            return f"{name or 'the network itself'} is a {type(layer).__name__}"
    return ""


def weights_of(caller: Caller) -> int:
    """Return how many weights the network has."""
    if "weights" not in caller.cache:
        caller.cache["weights"] = sum(parameter.numel() for parameter in caller.module.parameters())
    found: int = caller.cache["weights"]
    return found


def _chain(caller: Caller) -> list[Link]:
    if "chain" not in caller.cache:
        caller.cache["chain"] = read_chain(caller.module)
    found: list[Link] = caller.cache["chain"]
    return found


def _is_chain(caller: Caller, inputs: Inputs) -> bool:
    """Return whether the network is a chain of known layers, and takes these inputs as one."""
    plain = caller.output is None and len(inputs.args) == 1 and not inputs.kwargs
    return plain and isinstance(inputs.args[0], Tensor) and bool(_chain(caller))
