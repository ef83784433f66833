"""Drawn: some tensors of a member follow from its seed."""

import copy
from abc import abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn

from pluribus.mechanisms.members.stacked import Stacked
from pluribus.mechanisms.members.tensors import Tensors
from pluribus.mechanisms.members.tree import divide, plant, uproot
from pluribus.mechanisms.network.dry_run import ALIKE, derived_seed
from pluribus.mechanisms.network.network import Network


class Drawn(Tensors):
    """Tensors of which some are drawn for each row; a row is a seed, or None for fresh random numbers.

    Args:
        network: Whose tensors these are.
        names: Of those that are drawn.
    """

    def __init__(self, network: Network, names: Sequence[str]) -> None:
        super().__init__(*divide(network, {}))
        self.names = tuple(names)

    @abstractmethod
    def draw(self, row: int | None) -> dict[str, Tensor]:
        """Return the drawn tensors of one row, by name; all of `names` for a seed."""

    def of(self, rows: Iterable[int | None]) -> Iterator[dict[str, Tensor]]:
        """Yield what all rows share with what is drawn for each."""
        shared = self.parts()[0]
        for row in rows:
            yield {**shared, **self.draw(row)}

    def keys(self, row: int | None) -> dict[str, Hashable]:
        """Return the seed as the key of everything that is drawn."""
        return {} if row is None else dict.fromkeys(self.names, row)

    @torch.no_grad()
    def resolved(self, rows: Sequence[int]) -> Stacked:
        """Return the drawn tensors of these rows, so that nothing is drawn at run time."""
        shared, own = copy.deepcopy(self.shared), nn.Module()
        each = [self.draw(row) for row in rows]
        for name in self.names:
            uproot(shared, name)
            value = torch.stack([drawn[name] for drawn in each])
            plant(own, name, nn.Parameter(value, requires_grad=False))
        return Stacked(shared, own).requires_grad_(False)


def normal_numbers(shape: Sequence[int], row: int | None, place: int, like: Tensor) -> Tensor:
    """Return standard normal numbers that follow from a seed, or fresh ones for None.

    Args:
        shape: Of the numbers.
        row: The seed.
        place: Numbers of different places are independent.
        like: A tensor of the precision and on the device of the result.
    """
    if row is None:
        return torch.randn(list(shape), dtype=like.dtype, device=like.device)
    generator = torch.Generator().manual_seed(derived_seed(row, place))
    return torch.randn(list(shape), generator=generator, **ALIKE).to(like)
