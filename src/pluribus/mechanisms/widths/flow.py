"""Flow: what every operator of the data flow does to channels.

Operators that move entries (`view`, `cat`, `transpose`, …) are run on the labels themselves. Sums of
products couple what they multiply and forget what they sum over. An operator without a rule is refused.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from pluribus.errors import ConversionError
from pluribus.mechanisms.graph.operation import Operation
from pluribus.mechanisms.graph.operators import (
    COPIES,
    CREATIONS,
    MOVES,
    REDUCTIONS,
    SPLITTING,
    UNTAGGED_POINTWISE,
    is_pointwise,
    is_spatial,
)
from pluribus.mechanisms.network.torch_private import size_in_example, tree_leaves
from pluribus.mechanisms.widths.channels import FIXED, Channels, Labelled, narrowed, varying

Rule = Callable[["Flow", Operation], Any]
"""Computes the labels of an operator's result; several results are a list."""
RULES: dict[str, Rule] = {}
"""Rules by operator. Those of families are at the end of this file, those of single ones in `rules.py`."""

REMEDY = (
    "Pass a factory that takes a width instead of the network: "
    "convert(build, ...), where build(1.0) is the network and build(0.5) one of half the width."
)

GETITEM = "<built-in function getitem>"
# torch.export wraps a region under `torch.no_grad` in a graph of its own (torch 2.6 to 2.13).
NO_GRAD_REGION = "wrap_with_set_grad_enabled"


def rule(*operators: str) -> Callable[[Rule], Rule]:
    """Register a function as the rule of some operators."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(operators, function))
        return function

    return register


def shapes(value: Any) -> Any:
    """Return the shape that a node's value has in the example; a list of them for several tensors."""
    if isinstance(value, Tensor):
        return tuple(int(size_in_example(size)) for size in value.shape)
    if isinstance(value, tuple | list):
        return [shapes(one) for one in value]
    return None


@dataclass
class Flow:
    """The channels of all values of a graph.

    Attributes:
        operations: The operators of the graph, by node.
        channels: The classes of channels.
        values: By node, the labels of what it computes.
        splits: Labels after a reshape; of those with several axes, all but the last must stay, as heads.
        blocks: Channels in so many blocks as there must be, `[blocks, size]`, such as groups.
        held: How many channels there were when only parameters and buffers had some; all others
            belong to tensors that the code creates.
    """

    operations: Mapping[Node, Operation]
    channels: Channels = field(default_factory=Channels)
    values: dict[Node, Any] = field(default_factory=dict)
    splits: list[Tensor] = field(default_factory=list)
    blocks: list[Tensor] = field(default_factory=list)
    held: int = 1

    def run(self, graph_module: GraphModule, inputs: Sequence[Any]) -> Any:
        """Follow a graph from the labels of its inputs to those of its outputs.

        Args:
            graph_module: The network's graph, or that of a region inside of it.
            inputs: The labels of its placeholders, in their order; None for what is no tensor.

        Returns:
            The labels of the outputs, in the structure of the graph's output node.
        """
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
        """Return an argument with nodes replaced by what they compute."""
        if isinstance(argument, Node):
            value = self.values[argument]
            # A size has no labels; the one of the example stands for it.
            if value is None and "val" in argument.meta:
                return size_in_example(argument.meta["val"])
            return value
        if isinstance(argument, list | tuple):
            return [self.resolve(one) for one in argument]
        return argument

    def argument(self, operation: Operation, name: str, default: Any = None) -> Any:
        """Return the operator's argument of that name, with nodes replaced by what they compute.

        Args:
            operation: The operator.
            name: Of the argument in its schema.
            default: Where the operator has no such argument.
        """
        return self.resolve(operation.argument(name, default))

    def shape(self, operation: Operation) -> Any:
        """Return the shape of the operator's result.

        Returns:
            Sizes in the example; a list of shapes for several results; None for what is no tensor.
        """
        return shapes(operation.node.meta.get("val"))

    def elementwise(self, values: Sequence[Any], shape: Sequence[int]) -> Labelled:
        """Return the labels of a result to which all operands are broadcast.

        Args:
            values: The operands; those that are no tensors carry no channels.
            shape: Of the result.
        """
        rank = len(shape)
        tensors = [value for value in values if isinstance(value, Labelled)]
        operands = [(value, range(rank - len(value.shape), rank)) for value in tensors]
        return self.channels.join(operands, shape, range(rank))

    def pool(self, value: Labelled, shape: Any) -> Any:
        """Return the labels after an operator that sees all positions of a channel alike.

        Args:
            value: The operator's input, `[batch, channel, ...]`.
            shape: Of the result, or a list of the shapes of several results.
        """
        tied = self.channels.tie(value, range(2, len(value.shape)))
        # Pooling that returns indices too has two results of one shape.
        return _per_result(shape, lambda one: Labelled(tuple(one), tied.labels))

    def refuse(self, operation: Operation, why: str = "for which there is no rule") -> ConversionError:
        """Return the error of an operator after which widths cannot be told.

        Args:
            operation: The operator, with its place in the user's code.
            why: What is wrong with it, as the end of a sentence.
        """
        return ConversionError(
            "expected a network whose widths can be read from its operators, got "
            f"{operation.operator} in {place(operation)}, {why}. {REMEDY}"
        )

    def _step(self, operation: Operation) -> Any:
        """Return the labels of what one operator computes; None for sizes and other numbers."""
        if operation.operator == GETITEM:
            values, position = (self.resolve(argument) for argument in operation.node.args)
            return values[position]
        if operation.operator.startswith(NO_GRAD_REGION):
            # Its arguments are the switch, the graph, and the inputs of the graph.
            _, graph, *inputs = (self.resolve(argument) for argument in operation.node.args)
            return self.run(graph, inputs)
        if self.shape(operation) is None:
            return None
        return self._rule_of(operation)(self, operation)

    def _rule_of(self, operation: Operation) -> Rule:
        """Return the rule of an operator.

        Families that grow with torch are told by their prefix or their tag, and not by name.
        """
        if operation.operator in RULES:
            return RULES[operation.operator]
        if is_spatial(operation.operator):
            return Flow._pool
        if is_pointwise(operation.node.target):
            return Flow._pointwise
        return Flow._unknown

    def _tensors(self, operation: Operation) -> list[Labelled]:
        """Return the tensors among an operator's arguments, those in lists included."""
        node = operation.node
        arguments = [self.resolve(argument) for argument in (*node.args, *node.kwargs.values())]
        return [one for one in tree_leaves(arguments) if isinstance(one, Labelled)]

    def _create(self, operation: Operation) -> Labelled:
        """Return the labels of a tensor that the code creates."""
        # Its sizes may have been read from a tensor whose width changes: they are free until something
        # couples them to channels.
        return self.channels.fresh(self.shape(operation))

    def _copy(self, operation: Operation) -> Labelled:
        """Return the labels of the operator's first tensor, whose shape the result has."""
        return Labelled(self.shape(operation), self._tensors(operation)[0].labels)

    def _pool(self, operation: Operation) -> Any:
        """Return the labels of an operator that pools, resizes or mirrors positions."""
        return self.pool(self._tensors(operation)[0], self.shape(operation))

    def _pointwise(self, operation: Operation) -> Labelled:
        """Return the labels of an operator that treats every entry by itself."""
        return self.elementwise(self._tensors(operation), self.shape(operation))

    def _unknown(self, operation: Operation) -> Any:
        """Return results of fixed sizes for an operator without a rule.

        Raises:
            ConversionError: Channels of a parameter reach it, so that their number could not change.
        """
        # An unknown operator does no harm where all sizes are fixed.
        if any(self._released(one).labels for one in self._tensors(operation)):
            raise self.refuse(operation)
        return _per_result(self.shape(operation), lambda one: Labelled(tuple(one)))

    def _released(self, value: Labelled) -> Labelled:
        """Return the value with fixed sizes where no parameter's channels are concerned.

        A tensor that the code creates has channels of its own, in case they meet those of a parameter.
        Where they did not, its size is a number in the code.
        """
        for label in value.labels:
            classes = self.channels.find(label)
            # Parameters got their channels first. Padding counts as theirs: it may stand for any channel.
            of_parameters = (classes != FIXED) & (classes < self.held)
            if not of_parameters.any():
                self.channels.fix(label)
        return self.channels.labelled(value.shape, value.labels)

    def _move(self, operation: Operation) -> Any:
        """Run an operator that moves entries on the labels of its tensor."""
        value, shape = self._tensors(operation)[0], self.shape(operation)
        several = isinstance(shape, list)
        part_shapes = shape if several else [shape]
        part_labels: list[list[Tensor]] = [[] for _ in part_shapes]
        for label in value.labels:
            moved = self._moved(operation, value, label)
            for labels, part in zip(part_labels, moved if several else [moved], strict=True):
                labels.append(part)
                # A single channel was picked by its number, which must stay what it is.
                if narrowed(part).numel() == 1:
                    self.channels.fix(label)
        results = []
        for one, labels in zip(part_shapes, part_labels, strict=True):
            results.append(self._unmixed(operation, self.channels.labelled(one, labels)))
        if operation.operator in SPLITTING:
            for result in results:
                self.splits += result.labels
        return results if several else results[0]

    def _moved(self, operation: Operation, value: Labelled, label: Tensor) -> Any:
        """Return the label of a value after the operator was run on it.

        The operator moves entries and changes none, so that running it on the label tells which channel
        each entry of the result carries.
        """
        full = label.expand(value.shape)
        # `view` refuses a tensor that was expanded.
        if operation.operator in SPLITTING:
            full = full.contiguous()
        arguments = [self.resolve(argument) for argument in operation.node.args]
        named = {name: self.resolve(argument) for name, argument in operation.node.kwargs.items()}
        moving = [full if one is value else _blank(one) for one in arguments]
        return operation.node.target(*moving, **named)  # type: ignore[operator]

    def _unmixed(self, operation: Operation, result: Labelled) -> Labelled:
        """Return the result of a move; refuse one axis that carries channels of two kinds."""
        last = [varying(label)[-1] for label in result.labels]
        if len(set(last)) == len(last):
            return result
        # Where one kind comes from a tensor of the code, its size may stay.
        result = self._released(result)
        if len(result.labels) > 1:
            raise self.refuse(operation, "which mixes two kinds of channels")
        return result

    def _reduce(self, operation: Operation) -> Any:
        """Return the labels after a sum, a mean, an extremum or the like over some axes."""
        value, shape = self._tensors(operation)[0], self.shape(operation)
        # Some return values and indices, which have one shape.
        return _per_result(shape, lambda one: self._reduced(operation, value, one))

    def _reduced(self, operation: Operation, value: Labelled, shape: tuple[int, ...]) -> Labelled:
        """Return the labels of one result of a reduction."""
        rank = len(value.shape)
        summed = _reduced_axes(self.argument(operation, "dim"), rank)
        letters = range(rank)
        kept = [letter for letter in letters if letter not in summed]
        kept_shape = [value.shape[letter] for letter in kept]
        result = self.channels.join([(value, letters)], kept_shape, kept)
        if len(shape) == len(kept):
            return result
        # With `keepdim=True`, an axis of size 1 takes the place of each that was summed over.
        labels = []
        for label in result.labels:
            for axis in sorted(summed):
                label = label.unsqueeze(axis)
            labels.append(label)
        return Labelled(shape, tuple(labels))


def place(operation: Operation) -> str:
    """Return the layer and the line of the user's code that run an operator."""
    source = f" ({operation.source})" if operation.source else ""
    return f"{operation.layer or 'the network itself'}{source}"


def _per_result(shape: Any, label: Callable[[tuple[int, ...]], Labelled]) -> Any:
    """Return the labels of an operator's result from its shape; a list of them for several results."""
    if isinstance(shape, list):
        return [_per_result(one, label) for one in shape]
    return label(shape)


def _blank(argument: Any) -> Any:
    """Return a tensor for an argument that gives its shape only, as in `expand_as`."""
    return torch.zeros(argument.shape) if isinstance(argument, Labelled) else argument


def _reduced_axes(axes: Any, rank: int) -> set[int]:
    """Return the axes that a reduction sums over; without any given, it is all of them."""
    if axes in (None, []):
        return set(range(rank))
    if isinstance(axes, int):
        return {axes % rank}
    return {axis % rank for axis in axes}


# Families whose members torch names one by one; rules of single operators are registered over these.
RULES.update(dict.fromkeys(CREATIONS, Flow._create))
RULES.update(dict.fromkeys(COPIES, Flow._copy))
RULES.update(dict.fromkeys(MOVES, Flow._move))
RULES.update(dict.fromkeys(REDUCTIONS, Flow._reduce))
RULES.update(dict.fromkeys(UNTAGGED_POINTWISE, Flow._pointwise))
