"""Channels last: the order in memory in which a CPU runs narrow convolutions fastest."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from pluribus.mechanisms.graph.fold_norms import Of
from pluribus.mechanisms.graph.operators import MEMORY_ORDER, operator_name
from pluribus.mechanisms.graph.program import Program

NARROW = 2e5
"""Weights of a convolution, on average, up to which channels come last on a CPU: ResNet-18 gains
with 1.4e5 and no more with 3.1e5 (benchmarks/packed_speed.py)."""


def _kernels(program: Program) -> set[str]:
    """Return the names of the weights of all two-dimensional convolutions."""
    names = set[str]()
    for node in program.steps:
        weight = node.args[1] if operator_name(node) == "conv2d" else None
        if isinstance(weight, Node) and weight in program.held:
            names.add(program.held[weight])
    return names


def is_narrow(program: Program, tensors: Mapping[str, Tensor]) -> bool:
    """Return whether convolutions are so narrow that a CPU runs them faster with channels last."""
    weights = [tensors[name] for name in _kernels(program)]
    # Other devices choose the order of memory by themselves.
    if not weights or any(weight.device.type != "cpu" for weight in weights):
        return False
    # An operator such as `view` depends on the order of channels in memory.
    if any(operator_name(node) in MEMORY_ORDER for node in program.steps):
        return False
    return sum(map(Tensor.numel, weights)) / len(weights) <= NARROW


def with_channels_last(of: Of, program: Program) -> Of:
    """Return a function that yields the tensors of rows, kernels with their channels last in memory."""
    names = _kernels(program)

    def ordered(rows: Sequence[Any]) -> Iterator[Mapping[str, Tensor]]:
        # With the tensors themselves, as their memory must not be freed and used again meanwhile.
        known = dict[int, tuple[Tensor, Tensor]]()
        for values in of(rows):
            found = dict(values)
            for name in names:
                value = values[name]
                # Rows that share a weight must go on sharing it.
                if value.data_ptr() not in known:
                    last = value.contiguous(memory_format=torch.channels_last)
                    known[value.data_ptr()] = (value, last)
                found[name] = known[value.data_ptr()][1]
            yield found

    return ordered
