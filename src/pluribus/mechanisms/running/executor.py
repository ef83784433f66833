"""Executors: how the operators of a plan are carried out, and versions of values as pieces of stacks."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from pluribus.mechanisms.graph.program import Program

aten: Any = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Piece:
    """One version of a value: the value itself, or its position in a stack.

    Attributes:
        whole: The value, or the stack.
        position: In the stack; None for the value itself.
        count: How many versions the stack has; 0 where nobody knows.
    """

    whole: Any
    position: int | None = None
    count: int = 0

    @property
    def value(self) -> Any:
        """Return the version alone."""
        if self.position is None:
            return self.whole
        return self.whole[self.position]


Values = Mapping[Node, Mapping[int, Piece]]
Pieces = Mapping[Node, Sequence[Piece]]


class Executor(ABC):
    """Carry out the operators of a plan: at once, or later."""

    batches_weights: ClassVar[bool] = False
    """Whether stacks of weights are made once, and not in every run."""

    @abstractmethod
    def call(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the value of an operator, or what stands for it."""

    @abstractmethod
    def like(self, node: Node, piece: Piece) -> Any:
        """Return a value of the shape of one version of a step's value."""

    @abstractmethod
    def step(self, program: Program, node: Node, values: Mapping[Node, Any]) -> Any:
        """Return what one step computes from the values of others."""

    def value(self, piece: Piece) -> Any:
        """Return a version alone."""
        if piece.position is None:
            return piece.whole
        return self.call(aten.select.int, piece.whole, 0, piece.position)

    def together(self, pieces: Sequence[Piece]) -> Any:
        """Return several versions as one tensor, `[versions, ...]`; copied only if they do not lie so."""
        whole, start = pieces[0].whole, pieces[0].position
        one_stack = start is not None and all(piece.whole is whole for piece in pieces)
        if not one_stack:
            # `unsqueeze` is a view, and `stack` would copy.
            if len(pieces) == 1:
                return self.call(aten.unsqueeze.default, self.value(pieces[0]), 0)
            return self.call(aten.stack.default, [self.value(piece) for piece in pieces])
        assert start is not None
        positions = [piece.position for piece in pieces]
        # Neighbours in a stack are a slice of it, which is a view too.
        if positions == list(range(pieces[0].count)):
            return whole
        if positions == list(range(start, start + len(positions))):
            return self.slice(whole, start, start + len(positions))
        index = self.constant(positions, whole)
        return self.call(aten.index_select.default, whole, 0, index)

    def slice(self, whole: Any, start: int, end: int) -> Any:
        """Return neighbours in a stack."""
        return self.call(aten.slice.Tensor, whole, 0, start, end)

    @abstractmethod
    def constant(self, numbers: Sequence[Any], beside: Any) -> Any:
        """Return whole numbers as a tensor on the device of another one."""


class Eager(Executor):
    """Run every operator at once."""

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    def like(self, node: Node, piece: Piece) -> Any:
        return piece.value

    def step(self, program: Program, node: Node, values: Mapping[Node, Any]) -> Any:
        return program.step(node, values)

    def constant(self, numbers: Sequence[Any], beside: Any) -> Any:
        return torch.tensor(numbers, device=beside.device)


EAGER = Eager()


@dataclass(frozen=True, slots=True)
class Task:
    """Several versions of one step.

    Attributes:
        node: The step.
        pieces: By argument, what each version is computed from; the data first, then the weights.
        varying: The arguments in which versions differ.
        executor: Carries out operators.
        apart: Whether each row of the block has a version of its own, so that later steps share nothing
            but weights.
    """

    node: Node
    pieces: Pieces
    varying: Sequence[Node]
    executor: Executor
    apart: bool = False

    def like(self, node: Node) -> Any:
        """Return a value of the shape of one version of an argument."""
        return self.executor.like(node, self.pieces[node][0])

    def call(self, argument: Callable[[Node], Any]) -> Any:
        """Run the step's operator.

        Args:
            argument: Returns the value of each step that it reads.
        """
        arguments, named = map_arg((self.node.args, self.node.kwargs), argument)
        return self.executor.call(self.node.target, *arguments, **named)

    def by_weights(self) -> list[list[int]]:
        """Return the positions of the versions with equal weights, each group in the order of memory."""
        data, *weights = self.pieces
        groups = defaultdict[tuple[int, ...], list[int]](list)
        for index in by_position(self.pieces[data]):
            key = tuple(id(self.pieces[weight][index]) for weight in weights)
            groups[key].append(index)
        return list(groups.values())


def by_position(pieces: Sequence[Piece]) -> list[int]:
    """Return the order in which versions lie in memory, so that `together` seldom copies."""
    # Stacks come in the order in which they first occur.
    stacks = dict[int, int]()
    places = list[tuple[int, int]]()
    for piece in pieces:
        stack = stacks.setdefault(id(piece.whole), len(stacks))
        places.append((stack, piece.position or 0))
    return sorted(range(len(pieces)), key=places.__getitem__)


def pieces_of(stack: Any, order: Sequence[int]) -> list[Piece]:
    """Return the versions on a stack, in the order of their numbers.

    Args:
        stack: `[versions, ...]`.
        order: The number of each version on the stack.
    """
    return [Piece(stack, place, len(order)) for place in inverse(order)]


def inverse(order: Sequence[int]) -> list[int]:
    """Return the permutation that undoes this one."""
    return sorted(range(len(order)), key=order.__getitem__)
