"""Channels last: the order in memory in which a CPU runs narrow convolutions fastest."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from pluribus.mechanisms.graph.builder import attribute
from pluribus.mechanisms.graph.fold_norms import Of
from pluribus.mechanisms.graph.operation import Operation
from pluribus.mechanisms.graph.operators import MEMORY_ORDER, operator_name
from pluribus.mechanisms.graph.program import Program

NARROW = 2e5
"""Weights of a convolution, on average, up to which channels come last on a CPU: ResNet-18 gains
with 1.4e5 and no more with 3.1e5 (benchmarks/packed_speed.py)."""

LAST = "channels last in memory"
"""The note of a frozen ensemble whose kernels are so."""


def _kernels(program: Program) -> set[str]:
    """Return the names of the weights of all two-dimensional convolutions."""
    kernels = map(_kernel, program.steps)
    return {program.held[kernel] for kernel in kernels if kernel is not None and kernel in program.held}


def _kernel(step: Node) -> Node | None:
    """Return the weight of a two-dimensional convolution; None for other steps."""
    if operator_name(step) != "conv2d":
        return None
    kernel: Node = Operation(step, "", "", "").argument("weight")
    return kernel


def is_narrow(program: Program, tensors: Mapping[str, Tensor]) -> bool:
    """Return whether convolutions are so narrow that a CPU runs them faster with channels last."""
    return _is_narrow(program.steps, [tensors[name] for name in _kernels(program)])


def _is_narrow(steps: Iterable[Node], kernels: Sequence[Tensor]) -> bool:
    # Other devices choose the order of memory by themselves.
    if not kernels or any(kernel.device.type != "cpu" for kernel in kernels):
        return False
    # An operator such as `view` depends on the order of channels in memory.
    if any(operator_name(step) in MEMORY_ORDER for step in steps):
        return False
    return sum(map(Tensor.numel, kernels)) / len(kernels) <= NARROW


def put_channels_last(modules: Sequence[GraphModule]) -> bool:
    """Put the channels of all kernels of graphs last in memory, and return whether they are so narrow.

    Args:
        modules: Their parameters are changed.
    """
    steps = [(module, step) for module in modules for step in module.graph.nodes]
    weights = [(module, _kernel(step)) for module, step in steps]
    kernels = [attribute(module, str(one.target)) for module, one in weights if one and one.op == "get_attr"]
    if not _is_narrow([step for _, step in steps], kernels):
        return False
    for kernel in kernels:
        kernel.data = kernel.data.contiguous(memory_format=torch.channels_last)
    return True


def with_channels_last(of: Of, program: Program) -> Of:
    """Return a function that yields the tensors of rows, kernels with their channels last in memory."""
    names = _kernels(program)

    def ordered(rows: Sequence[Any]) -> Iterator[Mapping[str, Tensor]]:
        # With the tensors themselves, as their memory must not be freed and used again meanwhile.
        known = dict[tuple[Any, ...], tuple[Tensor, Tensor]]()
        for values in of(rows):
            found = dict(values)
            for name in names:
                value = values[name]
                # Rows that share a weight must go on sharing it; another view of its memory is not it.
                key = (value.data_ptr(), value.shape, value.stride(), value.dtype)
                if key not in known:
                    known[key] = (value, value.contiguous(memory_format=torch.channels_last))
                found[name] = known[key][1]
            yield found

    return ordered
