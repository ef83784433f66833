"""Binding: member z is a set of tensors for the user's own code.

A `Binding` keeps the network's tensors, those that all members share and those that each member has
for itself (`[members, ...]`), and gives the complete set of any member. A `Skeleton` is the user's
code without tensors: filled with a member's set it is that member. The tensors stay in it until the
next filling, so code that runs the network again during backward (gradient checkpointing) finds
them; after `torch.func.functional_call` it would find the wrong ones.
"""

import copy
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from pluribus.errors import InputError
from pluribus.mechanisms.network.dry_run import derived_seed
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.torch_private import child_table, parameter_table
from pluribus.settings import check

SEEDS = 1 << 40
"""How many seeds there are to draw from."""

Surrounding = Callable[[nn.Module, int], AbstractContextManager[Any]]
"""Of a module and a batch size, the context in which the module runs as one row."""


@dataclass(frozen=True)
class Stage:
    """Rows as their data flow is read: code in which all that tells rows apart is a tensor.

    Attributes:
        module: The code.
        bind: Of rows, the complete tensors of one after the other, by their names in `module`.
        choices: Of a row, which value it takes of every tensor that rows have for themselves.
        prefix: What names in `module` begin with that are the network's.
    """

    module: nn.Module
    bind: Callable[[Sequence[Any]], Iterator[dict[str, Tensor]]]
    choices: Callable[[Any], dict[str, Hashable]]
    prefix: str = ""


class Binding(nn.Module):
    """The tensors of all members. Subclasses change what a row is, or how it gets its tensors.

    Args:
        network: Whose tensors these are.
        own: By name, the tensors that each member has for itself, `[members, ...]`; all others are
            shared.
        members: How many members there are.

    Attributes:
        planned: Whether rows share so much that reading the data flow pays with the first run.
        at_once: Whether one run of the code, which is then `Tapped`, gives all rows.
    """

    planned: ClassVar[bool] = False
    at_once: ClassVar[bool] = False

    def __init__(self, network: Network, own: Mapping[str, Tensor], members: int) -> None:
        super().__init__()
        self._members = members
        self.prior: Binding | None = None
        self.prior_scale = 0.0
        self.shared, self.own = nn.Module(), nn.Module()
        persistent = network.persistent()
        for name, tensor in network.tensors().items():
            tree, value = (self.shared, tensor.detach().clone())
            if name in own:
                tree, value = self.own, reorder(own[name], memory_order(tensor))
            if isinstance(tensor, nn.Parameter):
                value = nn.Parameter(value, tensor.requires_grad)
            plant(tree, name, value, persistent=name in persistent)

    def freeze(self) -> "Binding":
        """The same tensors for inference: no gradients, and nothing left to compute before a run."""
        return copy.deepcopy(self).requires_grad_(False)

    def add_prior(self, prior: "Binding", scale: float) -> None:
        """Adds `scale` times the output of a fixed network, the same row of `prior`, to every row."""
        self.prior, self.prior_scale = prior.requires_grad_(False), scale

    def shrink(self, rows: Sequence[int]) -> Self:
        """A copy with these rows of eval mode alone, in this order, without what no other row uses."""
        small = copy.deepcopy(self)
        small._members = len(rows)
        take(small.own, self._used(rows))
        if self.prior is not None:
            small.prior = self.prior.shrink(rows)
        return small

    def _used(self, rows: Sequence[int]) -> dict[str, Sequence[int]]:
        """Of every tensor that rows have for themselves, what these rows need along axis 0."""
        return dict.fromkeys(tensors(self.own), rows)

    @property
    def members(self) -> int:
        """How many rows there are in eval mode."""
        return self._members

    def weights(self, draws: int | None = None) -> Tensor:
        """How much each row of eval mode counts, `[members]`, or would with the first `draws` alone."""
        first = self.members if draws is None else draws
        check("draws", first, int, at_least=1, at_most=self.members)
        return (torch.arange(self.members) < first) / first

    def count_draws(self, rows: Sequence[Any]) -> int:
        """How many draws some rows stand for: equal ones may be one row."""
        return len(rows)

    @property
    def sites(self) -> tuple[str, ...]:
        """The layers of which a row chooses one option each, in the order of its choices."""
        return ()

    def rows(self, training: bool = False) -> Sequence[Any]:
        """Return the rows of `ensemble(x)` in train or in eval mode."""
        return range(self.members)

    def covering_rows(self) -> Sequence[Any]:
        """Return rows that together take every value of every tensor."""
        return range(self.members)

    def pick(self, members: Sequence[Any]) -> Sequence[Any]:
        """The rows that a user names by their positions in eval mode."""
        for member in members:
            if type(member) is not int or not 0 <= member < self.members:
                raise InputError(
                    f"members must be positions from 0 to {self.members - 1}, however: {member!r}."
                )
        return members

    def draw(self, draws: int, training: bool = False) -> Sequence[Any]:
        """Return fresh rows; only where rows are random."""
        raise InputError(
            f"draws= is for methods whose members are random, however: this one has {self.members} "
            "fixed members. Leave draws out, or name rows with members=[...]."
        )

    def shared_tensors(self) -> dict[str, Tensor]:
        """The tensors that all rows have in common."""
        return tensors(self.shared)

    def own_tensors(self, rows: slice | None = None) -> dict[str, Tensor]:
        """The tensors of some rows or of all, `[rows, ...]`."""
        own = tensors(self.own)
        return own if rows is None else {name: tensor[rows] for name, tensor in own.items()}

    def bind(self, rows: Sequence[Any]) -> Iterator[dict[str, Tensor]]:
        """The complete tensors of one row after the other."""
        columns = {name: columns_of(tensor) for name, tensor in self.own_tensors().items()}
        for row in rows:
            yield {**self.shared_tensors(), **{name: column[row] for name, column in columns.items()}}

    def _bind_apart(self, rows: Sequence[Any]) -> Iterator[dict[str, Tensor]]:
        for row in rows:
            own = self.own_tensors(slice(row, row + 1))
            yield {**self.shared_tensors(), **{name: tensor[0] for name, tensor in own.items()}}

    def choices(self, row: Any) -> dict[str, Hashable]:
        """Of every tensor that rows have for themselves, which value a row takes: equal choices of
        two rows are the same tensor.
        """
        return dict.fromkeys(tensors(self.own), row)

    align = 1
    """What widths of rows that are cut out by their masks are rounded to."""

    @property
    def masks(self) -> frozenset[str]:
        """Names of the tensors that are masks of ones and zeros on channels."""
        return frozenset()

    def mix(self, rows: Sequence[Any], sizes: Sequence[int]) -> dict[str, Tensor] | None:
        """The tensors of one training batch of so many samples of each row; None where rows take turns."""
        return None

    def stage(self, module: nn.Module, inputs: Inputs) -> Stage:
        """Rows for a plan.

        Args:
            module: One row of eval mode as a plain module.
            inputs: One batch, to run it with.
        """
        return Stage(module, self.bind, self.choices)

    def stacked_rows(self) -> Sequence[Any] | None:
        """The rows that `own_tensors` gives all at once; None where rows are no set of tensors."""
        return range(self.members)

    def surrounding(self, row: Any) -> Surrounding | None:
        """What surrounds a run of this row, besides its tensors; `stage` makes tensors of that."""
        return None

    @property
    def kind(self) -> str:
        """Which case of its method this is; empty where there is one alone."""
        return ""

    def readings(self) -> dict[str, float]:
        """What has been learnt besides weights, by name, for the record of training."""
        return {}

    def alone(self, module: nn.Module, row: Any) -> nn.Module:
        """What of a network with this row's tensors is the row alone; may change it."""
        return module

    def recall(self, rows: Sequence[int], saved: Mapping[str, Tensor]) -> None:
        """Sets which rows these were when they were saved, as saved tensors tell, before `shrink`."""

    def prune(self, module: nn.Module, merge: bool) -> "tuple[nn.Module, Binding]":
        """The network and its tensors without what no row of eval mode needs; may change `module`.

        Args:
            module: The network.
            merge: Whether inputs that are the same in prediction become one, for inference alone.
        """
        return module, self


class SeededBinding(Binding):
    """Rows that are seeds: kept ones in eval mode, and fresh ones in training.

    Args:
        network: Whose tensors these are.
        own: By name, the tensors that are not simply shared, `[..., ...]`; subclasses make rows of them.
        draws: How many seeds are kept.
        train_draws: How many rows there are in training.
        seed: Of the seeds.
    """

    def __init__(
        self, network: Network, own: Mapping[str, Tensor], draws: int, train_draws: int, seed: int
    ) -> None:
        super().__init__(network, own, draws)
        self.train_draws = train_draws
        generator = torch.Generator().manual_seed(derived_seed(seed, 0))
        self.seeds: Tensor
        self.register_buffer("seeds", torch.randint(SEEDS, (draws,), generator=generator))

    def rows(self, training: bool = False) -> Sequence[int | None]:
        return self.draw(self.train_draws, training) if training else self.seeds.tolist()

    def pick(self, members: Sequence[Any]) -> Sequence[int]:
        return self.seeds[list(super().pick(members))].tolist()

    def draw(self, draws: int, training: bool = False) -> Sequence[int | None]:
        return torch.randint(SEEDS, (draws,)).tolist()

    def shrink(self, rows: Sequence[int]) -> Self:
        small = super().shrink(rows)
        small.seeds = self.seeds[list(rows)]
        return small

    def stacked_rows(self) -> None:
        return None


def columns_of(tensor: Tensor) -> Sequence[Tensor]:
    """What lies along axis 0, piece by piece.

    Parameters are taken apart by one unbind, whose backward stacks once; slices would each add a zero of
    the full size.
    """
    # Buffers are updated in place, which torch allows on single views only.
    if not tensor.requires_grad:
        return [tensor[row] for row in range(len(tensor))]
    if tensor.is_contiguous():
        return tensor.unbind()
    # Taken apart in the order of memory, so that backward stacks in that order too.
    axes = memory_order(tensor[0])
    inverse = sorted(range(tensor.ndim), key=axes.__getitem__)
    return [row.permute([axis - 1 for axis in inverse[1:]]) for row in tensor.permute(axes).unbind()]


def memory_order(row: Tensor) -> tuple[int, ...]:
    """The axes of `[members, ...]`, slowest first, where every member lies in memory as `row` does."""
    axes = sorted(range(row.ndim), key=row.stride, reverse=True)
    return (0, *(axis + 1 for axis in axes))


def plant(tree: nn.Module, name: str, tensor: Tensor, persistent: bool = True) -> None:
    """Registers a tensor under a dotted name, making a module for each part of it."""
    *path, last = name.split(".")
    for part in path:
        if part not in child_table(tree):
            tree.add_module(part, nn.Module())
        tree = tree.get_submodule(part)
    if isinstance(tensor, nn.Parameter):
        tree.register_parameter(last, tensor)
    else:
        tree.register_buffer(last, tensor, persistent)


def reorder(tensor: Tensor, axes: Sequence[int]) -> Tensor:
    """The same tensor, in memory with these axes, slowest first."""
    inverse = sorted(range(len(axes)), key=axes.__getitem__)
    return tensor.permute(*axes).contiguous().permute(*inverse)


def take(tree: nn.Module, kept: Mapping[str, Sequence[int]]) -> None:
    """Leaves of every tensor of a tree only what is kept along axis 0, in that order."""
    for name, tensor in tensors(tree).items():
        tensor.data = reorder(tensor.data[list(kept[name])], memory_order(tensor[0]))


def uproot(tree: nn.Module, name: str) -> None:
    """Takes a parameter out again."""
    path, _, last = name.rpartition(".")
    del parameter_table(tree.get_submodule(path))[last]


def tensors(tree: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers of a module by name."""
    return {**dict(tree.named_parameters()), **dict(tree.named_buffers())}


def stack_modules(modules: Sequence[nn.Module], names: set[str]) -> dict[str, Tensor]:
    """The named tensors of modules of one architecture, `[modules, ...]` each."""
    columns = [tensors(module) for module in modules]
    return {name: torch.stack([column[name].detach() for column in columns]) for name in names}


def share_among(weights: Tensor, rows: Sequence[int]) -> Tensor:
    """How much some rows count among themselves, of the weights of all; alike where none of them counts."""
    chosen = weights[list(rows)]
    return chosen / chosen.sum() if chosen.any() else torch.full_like(chosen, 1 / len(chosen))
