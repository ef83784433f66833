"""Flow: what every operator of the data flow does to channels.

Operators that move entries (`view`, `cat`, `transpose`, …) are run on the labels themselves. Sums of
products couple what they multiply and forget what they sum over. What no rule knows is refused.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from pluribus.errors import ConversionError
from pluribus.mechanisms.graph.export import Operation
from pluribus.mechanisms.widths.channels import Channels, Labelled, narrowed, varying


def _names(*lines: str) -> frozenset[str]:
    return frozenset(name for line in lines for name in line.split())


MOVES = _names(
    "view reshape _unsafe_view unflatten flatten permute transpose t numpy_T mT matrix_H adjoint squeeze",
    "unsqueeze slice select narrow split split_with_sizes chunk tensor_split unbind expand expand_as view_as",
    "repeat repeat_interleave roll flip movedim swapaxes pixel_shuffle pixel_unshuffle channel_shuffle",
    "unfold",
)
RESHAPES = _names("view reshape _unsafe_view unflatten view_as")
MIXES = _names("softmax log_softmax cumsum")
COPIES = MIXES | _names(
    "to contiguous clone alias detach detach_ dropout dropout_ feature_dropout alpha_dropout _to_copy",
    "feature_alpha_dropout type_as float double half lift_fresh_copy zeros_like ones_like full_like",
    "rand_like randn_like empty_like bernoulli bernoulli_",
)
CREATES = _names("zeros ones full arange rand randn empty new_zeros new_ones new_full new_empty eye")
REDUCES = _names(
    "mean sum amax amin max min var std norm linalg_vector_norm logsumexp prod any all argmax argmin"
)
ELEMENTWISE = _names("__and__ __or__ __xor__ masked_fill masked_fill_")
"""Those that torch does not tag as pointwise."""
SPATIAL = ("avg_pool", "max_pool", "adaptive_", "upsample_", "lp_pool", "reflection_pad", "replication_pad")
"""Beginnings of operators that see all positions of a channel, `[batch, channel, ...]`, alike."""
RULES: dict[str, Callable[["Flow", Operation], Any]] = {}
"""By operator, what it does to channels, where it needs a rule of its own."""


def rule(*operators: str) -> Callable[[Callable[["Flow", Operation], Any]], Any]:
    """Registers a function as the rule of some operators."""

    def register(function: Callable[["Flow", Operation], Any]) -> Callable[["Flow", Operation], Any]:
        RULES.update(dict.fromkeys(operators, function))
        return function

    return register


def hint(value: Any) -> Any:
    """The size that a symbolic size has in the example."""
    return value.node.hint if isinstance(value, torch.SymInt) else value


def shapes(value: Any) -> Any:
    """The shape of what a node computes; of several tensors, a tuple of them."""
    if isinstance(value, Tensor):
        return tuple(int(hint(size)) for size in value.shape)
    if isinstance(value, tuple | list):
        return [shapes(one) for one in value]
    return None


@dataclass
class Flow:
    """The channels of all values of a graph.

    Attributes:
        held: How many channels there were when only parameters and buffers had some; all others
            belong to tensors that the code creates.
        channels: The classes of channels.
        values: By node, the labels of what it computes.
        splits: Labels after a reshape; of those with several axes, all but the last must stay, as heads.
        blocks: Channels in so many blocks as there must be, `[blocks, size]`, such as groups.
    """

    operations: Mapping[Node, Operation]
    channels: Channels = field(default_factory=Channels)
    values: dict[Node, Any] = field(default_factory=dict)
    splits: list[Tensor] = field(default_factory=list)
    blocks: list[Tensor] = field(default_factory=list)
    held: int = 1

    def run(self, graph_module: GraphModule, inputs: Sequence[Any]) -> Any:
        """Follows a graph from the labels of its inputs to those of its outputs."""
        given = iter(inputs)
        for node in graph_module.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = next(given)
            elif node.op == "get_attr":
                held = getattr(graph_module, str(node.target))
                self.values[node] = Labelled(tuple(held.shape)) if isinstance(held, Tensor) else held
            elif node.op == "output":
                return self.resolve(node.args[0])
            else:
                self.values[node] = self._step(self.operations[node])
        return None

    def resolve(self, argument: Any) -> Any:
        """An argument with nodes replaced by what they compute."""
        if isinstance(argument, Node):
            value = self.values[argument]
            return hint(argument.meta["val"]) if value is None and "val" in argument.meta else value
        if isinstance(argument, list | tuple):
            return [self.resolve(one) for one in argument]
        return argument

    def argument(self, operation: Operation, name: str, default: Any = None) -> Any:
        """The operator's argument of that name, resolved."""
        return self.resolve(operation.argument(name, default))

    def shape(self, operation: Operation) -> Any:
        """The shape of the operator's result."""
        return shapes(operation.node.meta.get("val"))

    def elementwise(self, values: Sequence[Any], shape: Sequence[int]) -> Labelled:
        """An operator that broadcasts its operands."""
        rank = len(shape)
        operands = [
            (value, range(rank - len(value.shape), rank)) for value in values if isinstance(value, Labelled)
        ]
        return self.channels.join(operands, shape, range(rank))

    def _step(self, operation: Operation) -> Any:
        node, operator = operation.node, operation.operator
        arguments = [self.resolve(argument) for argument in (*node.args, *node.kwargs.values())]
        tensors = [one for one in _flat(arguments) if isinstance(one, Labelled)]
        shape = self.shape(operation)
        if operator == "<built-in function getitem>":
            return arguments[0][arguments[1]]
        if operator.startswith("wrap_with_set_grad_enabled"):
            return self.run(arguments[1], arguments[2:])
        if shape is None:
            return None
        if operator in RULES:
            return RULES[operator](self, operation)
        if operator in CREATES:
            return self.channels.fresh(shape)
        if operator in COPIES:
            return Labelled(shape, tensors[0].labels)
        if operator in MOVES:
            return self._move(operation, tensors[0], shape)
        if operator in REDUCES:
            return self._reduce(operation, tensors[0], shape)
        if operator.startswith(SPATIAL):
            return self.pool(tensors[0], shape)
        if torch.Tag.pointwise in getattr(node.target, "tags", ()) or operator in ELEMENTWISE:
            return self.elementwise(tensors, shape)
        if any(self._released(one).labels for one in tensors):
            raise self.refuse(operation)
        return _plain(shape)

    def _released(self, value: Labelled) -> Labelled:
        """The value with fixed sizes where no parameter's channels are concerned."""
        for label in value.labels:
            if not (self.channels.find(label).clamp(max=self.held) % self.held).any():
                self.channels.fix(label)
        return self.channels.labelled(value.shape, value.labels)

    def refuse(self, operation: Operation, why: str = "of which no rule is known") -> ConversionError:
        """What an operator raises after which widths cannot be told."""
        return ConversionError(
            "the widths of a network must be readable from its operators, however: "
            f"{place(operation)} runs {operation.operator}, {why}. {REMEDY}"
        )

    def _move(self, operation: Operation, value: Labelled, shape: Any) -> Any:
        node = operation.node
        arguments = [self.resolve(argument) for argument in node.args]
        named = {name: self.resolve(argument) for name, argument in node.kwargs.items()}
        several = isinstance(shape, list)
        parts: list[list[Tensor]] = [[] for _ in (shape if several else [shape])]
        for label in value.labels:
            full = label.expand(value.shape)
            full = full.contiguous() if operation.operator in RESHAPES else full
            moving = [full if one is value else _blank(one) for one in arguments]
            result = node.target(*moving, **named)  # type: ignore[operator]
            for part, moved in zip(parts, result if several else [result], strict=True):
                part.append(moved)
                if narrowed(moved).numel() == 1:  # picked by its number, which must stay
                    self.channels.fix(label)
        results = [
            self.channels.labelled(one, labels)
            for one, labels in zip(shape if several else [shape], parts, strict=True)
        ]
        for position, result in enumerate(results):
            last = [varying(label)[-1] for label in result.labels]
            if len(set(last)) < len(last):
                results[position] = self._released(result)
                if len(results[position].labels) > 1:
                    raise self.refuse(operation, "which mixes two kinds of channels")
        if operation.operator in RESHAPES:
            self.splits += [label for result in results for label in result.labels]
        return results if several else results[0]

    def _reduce(self, operation: Operation, value: Labelled, shape: Any) -> Any:
        if isinstance(shape, list):  # values and indices
            return [self._reduce(operation, value, one) for one in shape]
        axes = self.argument(operation, "dim")
        axes = range(len(value.shape)) if axes in (None, []) else axes
        summed = {axis % len(value.shape) for axis in (axes if not isinstance(axes, int) else [axes])}
        letters = range(len(value.shape))
        kept = [letter for letter in letters if letter not in summed]
        result = self.channels.join([(value, letters)], [value.shape[letter] for letter in kept], kept)
        if len(shape) == len(kept):
            return result
        return Labelled(shape, tuple(label.reshape(_unsqueezed(label, summed)) for label in result.labels))

    def pool(self, value: Labelled, shape: Any) -> Any:
        tied = self.channels.tie(value, range(2, len(value.shape)))
        if isinstance(shape, list):
            return [Labelled(tuple(one), tied.labels) for one in shape]
        return Labelled(shape, tied.labels)


REMEDY = (
    "Pass a factory that takes a width instead of the network: "
    "convert(build, ...), where build(1.0) is the network and build(0.5) one of half the width."
)


def place(operation: Operation) -> str:
    """The layer and the line of the user's code that run an operator."""
    source = f" ({operation.source})" if operation.source else ""
    return f"{operation.layer or 'the network itself'}{source}"


def _flat(values: Iterable[Any]) -> list[Any]:
    return [leaf for one in values for leaf in (_flat(one) if isinstance(one, list | tuple) else [one])]


def _plain(shape: Any) -> Any:
    if isinstance(shape, list):
        return [_plain(one) for one in shape]
    return Labelled(tuple(shape))


def _blank(argument: Any) -> Any:
    """A tensor argument that gives its shape only, as in `expand_as`."""
    return torch.zeros(argument.shape) if isinstance(argument, Labelled) else argument


def _unsqueezed(label: Tensor, axes: set[int]) -> list[int]:
    sizes = iter(label.shape)
    return [1 if axis in axes else next(sizes) for axis in range(label.ndim + len(axes))]
