"""The option bank: several options of a network's tensors, and which of them a row takes.

A *site* is a group of tensors that are chosen together, and a row is one option for each site:

    θ(z) = (θ_1[z_1], …, θ_N[z_N]),    z_q ∈ {0, …, K_q − 1}

What the sites are is the assignment: one site for each layer makes a layer ensemble, one site with all
tensors a deep ensemble, one with those of the last layers a deep sub-ensemble.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Generator, Tensor, nn

from pluribus.errors import InputError
from pluribus.mechanisms.members.members import Binding, columns_of, stack_modules, tensors
from pluribus.mechanisms.network.dry_run import derived_seed
from pluribus.mechanisms.network.fresh import fresh_modules
from pluribus.mechanisms.network.network import Network

Options = tuple[int, ...]
"""A row: one option for each site."""


def all_rows(sizes: Sequence[int]) -> list[Options]:
    """Every row, the choice of the first site changing most slowly."""
    return list(itertools.product(*map(range, sizes)))


def draw_rows(sizes: Sequence[int], count: int, generator: Generator | None = None) -> list[Options]:
    """Independent rows, each choice uniform."""
    columns = [torch.randint(size, (count,), generator=generator).tolist() for size in sizes]
    return list(zip(*columns, strict=True))


def keep_rows(sizes: Sequence[int], draws: int, generator: Generator) -> list[Options]:
    """All rows where there are at most `draws`, and else so many different ones, drawn uniformly."""
    if math.prod(sizes) <= draws:
        return all_rows(sizes)
    kept: dict[Options, None] = {}
    while len(kept) < draws:
        kept |= dict.fromkeys(draw_rows(sizes, draws, generator))
    return list(kept)[:draws]


class OptionBank(Binding):
    """K options for each site; a row is a tuple of one option per site.

    Args:
        network: Whose tensors these are.
        own: By name, the options of each tensor that has some, `[options, ...]`; all others are shared.
        sites: By name of the site, the names of its tensors, all with the same number of options.
        draws: How many different rows are kept for eval mode; all there are, if these are fewer.
        train_draws: How many rows there are in training, drawn afresh for every call.
        seed: Of the rows that are kept.
        fed: By name of a tensor that follows from the options of several sites, such as a running statistic,
            these sites. It has one value for each combination of their options, the first site's option
            changing most slowly.
    """

    planned: ClassVar[bool] = True

    def __init__(
        self,
        network: Network,
        own: Mapping[str, Tensor],
        sites: Mapping[str, Sequence[str]],
        draws: int,
        train_draws: int,
        seed: int,
        fed: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        super().__init__(network, own, members=0)
        places = {site: place for place, site in enumerate(sites)}
        self._fed = {name: tuple(places[site] for site in feeding) for name, feeding in (fed or {}).items()}
        self.train_draws = train_draws
        self._names = {site: tuple(names) for site, names in sites.items()}
        generator = torch.Generator().manual_seed(derived_seed(seed, 0))
        kept = keep_rows(self.options, draws, generator)
        self.kept: Tensor
        self.register_buffer("kept", torch.tensor(kept))

    @property
    def members(self) -> int:
        return len(self._kept_rows())

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(self._names)

    @property
    def options(self) -> Options:
        """How many options each site has."""
        own = tensors(self.own)
        return tuple(len(own[names[0]]) for names in self._names.values())

    def rows(self, training: bool = False) -> Sequence[Options]:
        return self.draw(self.train_draws, training) if training else self._kept_rows()

    def pick(self, members: Sequence[Any]) -> Sequence[Options]:
        several = isinstance(members, tuple) and all(type(member) is int for member in members)
        if several and len(members) == len(self.sites) > 1:
            raise InputError(
                f"members must be a list of rows, however: {members!r}, which may be rows or options of one. "
                f"Pass {list(members)} for the former, [{members!r}] for the latter."
            )
        super().pick([member for member in members if type(member) is int])
        kept = self._kept_rows()
        return [kept[member] if type(member) is int else self._checked(member) for member in members]

    def draw(self, draws: int, training: bool = False) -> Sequence[Options]:
        return draw_rows(self.options, draws)

    def choices(self, row: Options) -> dict[str, Hashable]:
        return dict(self._taken(row))

    def _taken(self, row: Options) -> dict[str, int]:
        """Return, by name, which value a row takes of every tensor that has several."""
        chosen = zip(self._names.values(), row, strict=True)
        taken = {name: option for names, option in chosen for name in names}
        if self._fed:
            options = self.options
            taken |= {name: _combination(row, options, places) for name, places in self._fed.items()}
        return taken

    def covering_rows(self) -> list[Options]:
        """Return rows that together take every value of every tensor."""
        options = self.options
        rows = [tuple(number % count for count in options) for number in range(max(options))]
        for places in dict.fromkeys(self._fed.values()):
            for combination in all_rows([options[place] for place in places]):
                row = dict(enumerate(rows[0])) | dict(zip(places, combination, strict=True))
                rows.append(tuple(row.values()))
        return list(dict.fromkeys(rows))

    def bind(self, rows: Sequence[Options]) -> Iterator[dict[str, Tensor]]:
        shared = self.shared_tensors()
        columns = {name: columns_of(tensor) for name, tensor in tensors(self.own).items()}
        for row in rows:
            yield {**shared, **{name: columns[name][option] for name, option in self._taken(row).items()}}

    def stacked_rows(self) -> None:
        return None

    def shrink(self, rows: Sequence[int]) -> Self:
        small = super().shrink(rows)
        columns = [column.unique(return_inverse=True)[1] for column in self._columns(rows)]
        small.kept = torch.stack(columns, 1).to(self.kept.device)
        return small

    def _used(self, rows: Sequence[int]) -> dict[str, Sequence[int]]:
        kept = [column.unique().tolist() for column in self._columns(rows)]
        used: dict[str, Sequence[int]] = {}
        for names, options in zip(self._names.values(), kept, strict=True):
            used |= dict.fromkeys(names, options)
        every = self.options
        for name, places in self._fed.items():
            # Options are numbered anew, so all combinations of those that stay are kept, in their order.
            combinations = itertools.product(*(kept[place] for place in places))
            taken = [dict(zip(places, combination, strict=True)) for combination in combinations]
            used[name] = [_combination(one, every, places) for one in taken]
        return used

    def _columns(self, rows: Sequence[int]) -> Tensor:
        """The options that these rows of eval mode take, `[sites, rows]`."""
        return torch.tensor(self._kept_rows())[list(rows)].T

    def _kept_rows(self) -> list[Options]:
        return [tuple(row) for row in self.kept.tolist()]

    def _checked(self, row: Any) -> Options:
        """A row that a user names by its options."""
        options = self.options
        fits = isinstance(row, Sequence) and len(row) == len(options)
        if not fits or not all(type(a) is int and 0 <= a < b for a, b in zip(row, options, strict=True)):
            counts = ", ".join(f"{site!r}: {count}" for site, count in zip(self.sites, options, strict=True))
            raise InputError(
                f"members must be positions from 0 to {self.members - 1}, or name one option for each site, "
                f"counted from 0 (options are {counts}), however: {row!r}."
            )
        return tuple(row)


def _combination(row: Options | Mapping[int, int], options: Options, places: Sequence[int]) -> int:
    """Return the number of a combination of the options at some places, the first changing most slowly."""
    number = 0
    for place in places:
        number = number * options[place] + row[place]
    return number


def tie_sites(layers: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The sites of layers with these tensors; layers with a tensor in common are one, named by the first."""
    sites: dict[str, list[str]] = {}
    for layer, names in layers.items():
        tied = [site for site, held in sites.items() if not set(held).isdisjoint(names)]
        together = [name for site in tied for name in sites[site]]
        for site in tied[1:]:
            del sites[site]
        sites[tied[0] if tied else layer] = list(dict.fromkeys([*together, *names]))
    return sites


def draw_options(
    network: Network, wanted: Mapping[str, tuple[int, str]], seed: int
) -> tuple[dict[str, Tensor], list[str]]:
    """Options of some tensors of a network, each set of them from one module.

    Args:
        network: Whose tensors these are; embeddings with sparse gradients get dense ones.
        wanted: By name, how many options a tensor has, and whether they start `fresh` or as a `copy`.
        seed: Of fresh weights.

    Returns:
        By name, `[options, ...]`, and notes for the conversion.
    """
    groups = defaultdict[tuple[int, str], set[str]](set)
    for name, how in wanted.items():
        groups[how].add(name)
    fresh = max((count for count, start in groups if start == "fresh"), default=0)
    modules, redrawn = fresh_modules(network, fresh, seed)
    own: dict[str, Tensor] = {}
    for (count, start), names in groups.items():
        own |= stack_modules(modules[:count] if start == "fresh" else [network.module] * count, names)
    notes = [f"bare parameters redrawn with their mean and deviation: {', '.join(redrawn)}"] * bool(redrawn)
    notes += [f"gradients of {name} are dense" for name in network.allow_other_weights(own)]
    return own, notes


def start_alike(network: Network, own: Mapping[str, Tensor]) -> bool:
    """Whether there are several options and all of them are equal; statistics always start so."""
    held = network.tensors()
    trained = [value for name, value in own.items() if isinstance(held[name], nn.Parameter)]
    return any(len(value) > 1 for value in own.values()) and all(
        bool((value == value[:1]).all()) for value in trained
    )
