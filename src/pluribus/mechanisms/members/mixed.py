"""Mixed: tensors whose numbers are mixed from a few options, by an assignment that follows from a seed."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from pluribus.mechanisms.members.mixture import (
    Mixture,
    draw_assignment,
    draw_batch,
    mix,
    option_probabilities,
)
from pluribus.mechanisms.members.tensors import Tensors
from pluribus.mechanisms.members.tree import divide
from pluribus.mechanisms.network.dry_run import ALIKE, derived_seed
from pluribus.mechanisms.network.network import Network

NOISE = 1 << 20
"""Offset that keeps the random numbers of noise apart from those of assignments."""


class Mixed(Tensors):
    """Draws from mixtures; a row is a seed, from which its assignments and its noise follow.

    Args:
        network: Whose tensors these are.
        own: By name, the options of each tensor that has some, `[options, ...]`; all others are shared.
        sites: By name of the site, the names of its tensors.
        mixtures: By site, how its options are mixed.
    """

    def __init__(
        self,
        network: Network,
        own: Mapping[str, Tensor],
        sites: Mapping[str, Sequence[str]],
        mixtures: Mapping[str, Mixture],
    ) -> None:
        super().__init__(*divide(network, own))
        self.sites = {site: tuple(names) for site, names in sites.items()}
        self.mixtures = dict(mixtures)

    def of(self, rows: Iterable[int]) -> Iterator[dict[str, Tensor]]:
        shared, own = self.parts()
        for row in rows:
            yield {**shared, **dict(self._drawn(row, own))}

    def keys(self, row: int) -> dict[str, Hashable]:
        return dict.fromkeys((name for names in self.sites.values() for name in names), row)

    def _drawn(self, row: int, own: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Yield the tensors of one row, those that are assigned together by the same random numbers."""
        tensor = 0
        for position, (site, names) in enumerate(self.sites.items()):
            mixture = self.mixtures[site]
            for name in names:
                stream = {"network": 0, "layer": position}.get(mixture.assignment, tensor)
                generator = torch.Generator().manual_seed(derived_seed(row, stream))
                assignment = draw_assignment(mixture, own[name].shape[1:], generator)
                mixed = mix(own[name], assignment.to(own[name].device), mixture.rate)
                if mixture.noise:
                    generator.manual_seed(derived_seed(row, NOISE + tensor))
                    noise = torch.randn(mixed.shape, generator=generator, **ALIKE)
                    mixed = mixed + mixture.noise * noise.to(mixed)
                tensor += 1
                yield name, mixed

    def why_not_mixed(self, rows: Sequence[int | None]) -> str:
        return "rows are drawn for the whole batch" if any(row is not None for row in rows) else ""

    def mixed(self, rows: Sequence[int | None], sizes: Sequence[int]) -> dict[str, Tensor]:
        shared, own = self.parts()
        return {**shared, **draw_batch(own, self.sites, self.mixtures, sum(sizes))}

    def probabilities(self) -> dict[str, tuple[float, ...]]:
        """Map the name of a tensor with options to how probable these are."""
        return option_probabilities(self.sites, self.mixtures)
