"""Prior networks: fixed random networks whose outputs are added to the members'.

A prior network never trains, so its BatchNorm layers would keep the statistics they are made with, mean 0
and variance 1, which fit nothing: what should be a random function is nearly constant. They are therefore
settled once, on the first training batch, and fixed from then on.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from pluribus.mechanisms.members.members import Binding, tensors
from pluribus.mechanisms.members.skeleton import materialise
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.torch_private import BatchNorm

FEWEST = 2
"""Samples that a batch must have for statistics."""

NORMS = BatchNorm


def is_unsettled(module: nn.Module, prior: Binding) -> bool:
    """Return whether the prior network has BatchNorm statistics and none of them has seen a batch."""
    if not any(isinstance(layer, NORMS) and layer.running_mean is not None for layer in module.modules()):
        return False
    held = {**tensors(prior.shared), **tensors(prior.own)}
    counts = [held[name] for name in _counters(module)]
    return bool(counts) and not any(bool(count.any()) for count in counts)


@torch.no_grad()
def settle(
    module: nn.Module, prior: Binding, inputs: Inputs, run: Callable[[nn.Module, Inputs], object]
) -> None:
    """Set the statistics of all prior networks to those of one batch.

    Args:
        module: The network's code.
        prior: The tensors of the prior networks.
        inputs: One batch; fewer than two samples change nothing.
        run: Calls a network on the batch.
    """
    if inputs.batch < FEWEST:
        return
    for row in prior.covering_rows():
        (values,) = prior.bind([row])
        network = materialise(module, values).eval()
        for layer in network.modules():
            if isinstance(layer, NORMS):
                layer.training = True
                layer.momentum = None  # the average over all batches: rows that share a statistic count alike
        run(network, inputs)
        _write_statistics(network, values)


def _counters(module: nn.Module) -> list[str]:
    """Return the names of the counters of batches."""
    return [name for name, _ in module.named_buffers() if name.split(".")[-1] == "num_batches_tracked"]


def _write_statistics(network: nn.Module, values: dict[str, Tensor]) -> None:
    """Copy buffers back into the tensors that the network was made from."""
    for name, buffer in network.named_buffers():
        if name in values:
            values[name].copy_(buffer)
