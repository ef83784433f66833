"""Module builder: a `torch.fx` module under construction, with its tensors and its choices of channels."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, GraphModule, Node

from pluribus.mechanisms.masks.positions import MustBeWhole, Part

aten = torch.ops.aten


class ModuleBuilder:
    """Build a module step by step.

    Args:
        device: Device of the tensors that choose channels.

    Attributes:
        graph: The steps so far.
        root: Holds the tensors and submodules that steps read.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.graph, self.root = Graph(), nn.Module()
        self._held = 0
        # By value, axis and positions, the node that picks them.
        self._picked: dict[tuple[Node, int, tuple[int, ...]], Node] = {}

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """Add the call of a function."""
        return self.graph.call_function(target, args, kwargs)

    def hold(self, tensor: Tensor, copied: bool = False) -> Node:
        """Give the module a tensor of its own: a parameter if it holds real numbers, else a buffer.

        Args:
            tensor: The values.
            copied: Whether nobody else holds the tensor, so that it needs no copy.
        """
        name = f"tensor_{self._held}"
        self._held += 1
        # Members share no memory with the ensemble, which may be trained on.
        value = tensor if copied else tensor.clone()
        if tensor.is_floating_point():
            self.root.register_parameter(name, nn.Parameter(value, requires_grad=False))
        else:
            self.root.register_buffer(name, value)
        return self.graph.get_attr(name)

    def hold_module(self, name: str, module: nn.Module) -> Node:
        """Give the module a submodule, once."""
        if not hasattr(self.root, name):
            self.root.add_module(name, module)
        return self.graph.get_attr(name)

    def fit(self, value: Node, shape: tuple[int, ...], there: Part, wanted: Part) -> Node:
        """Return the positions that are wanted of those that are there; missing ones are zero.

        Args:
            value: What is there.
            shape: Shape of the whole value.
            there: The part that `value` is.
            wanted: The part to return.

        Raises:
            MustBeWhole: the two parts lie along different axes.
        """
        given = wanted or there
        if given is None:
            return value
        axis = given.axis
        if there is not None and there.axis != axis:
            raise MustBeWhole
        has, wants = _chosen(there, shape[axis]), _chosen(wanted, shape[axis])
        if torch.equal(has, wants):
            return value
        missing = int(has.sum())
        places = torch.cumsum(has, 0) - 1
        places[~has] = missing
        index = places[wants]
        if bool((index == missing).any()):
            # One zero behind the last position serves all that are missing.
            padding = [0, 0] * (len(shape) - 1 - axis) + [0, 1]
            value = self.call(aten.constant_pad_nd.default, value, padding, 0.0)
        return self._pick(value, axis, index)

    def _pick(self, value: Node, axis: int, index: Tensor) -> Node:
        """Return positions of a value along an axis."""
        start = int(index[0]) if len(index) else 0
        end = start + len(index)
        # A slice is a view, and costs nothing.
        if torch.equal(index, torch.arange(start, end)):
            return self.call(aten.slice.Tensor, value, axis, start, end)
        # Layers that read one value under one mask, such as query, key and value, share what is picked.
        key = value, axis, tuple(index.tolist())
        if key not in self._picked:
            held = self.hold(index.to(self.device))
            self._picked[key] = self.call(aten.index_select.default, value, axis, held)
        return self._picked[key]

    def finish(self, results: list[Any]) -> GraphModule:
        """Return the module that computes some results, a list."""
        self.graph.output(results)
        return GraphModule(self.root, self.graph)


def _chosen(part: Part, size: int) -> Tensor:
    """Return whether each position is in a part, on the CPU: the graph is built there."""
    return torch.ones(size, dtype=torch.bool) if part is None else part.chosen.cpu()
