"""Options: several values of some tensors, of which a row takes one for each site.

A *site* is a group of tensors that are chosen together, and a row is one option for each site:

    θ(z) = (θ_1[z_1], …, θ_N[z_N]),    z_q ∈ {0, …, K_q − 1}

The assignment of tensors to sites makes the method: one site for each layer is a layer ensemble, one site
with all tensors a deep ensemble, one with those of the last layers a deep sub-ensemble.
"""

import copy
import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from torch import Tensor, nn

from pluribus.mechanisms.members.combinations import Options, all_rows
from pluribus.mechanisms.members.mixture import Mixture, draw_batch, option_probabilities
from pluribus.mechanisms.members.tensors import Tensors
from pluribus.mechanisms.members.tree import columns_of, divide, stack_modules, take
from pluribus.mechanisms.network.fresh import fresh_modules
from pluribus.mechanisms.network.network import Network


class OptionTensors(Tensors):
    """K options for each site; a row is a tuple of one option per site.

    Args:
        network: Whose tensors these are.
        own: By name, the options of each tensor that has some, `[options, ...]`; all others are shared.
        sites: By name of the site, the names of its tensors, all with the same number of options.
        mixtures: By site, how probable its options are, for samples that have draws of their own.
        fed: By name of a tensor that follows from the options of several sites, such as a running statistic,
            these sites. It has one value for each combination of their options, the first site's option
            changing most slowly.
    """

    def __init__(
        self,
        network: Network,
        own: Mapping[str, Tensor],
        sites: Mapping[str, Sequence[str]],
        mixtures: Mapping[str, Mixture] | None = None,
        fed: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        super().__init__(*divide(network, own))
        self.sites = {site: tuple(names) for site, names in sites.items()}
        places = {site: place for place, site in enumerate(sites)}
        self.fed = dict[str, tuple[int, ...]]()
        for name, feeding in (fed or {}).items():
            self.fed[name] = tuple(places[site] for site in feeding)
        self.mixtures = dict(mixtures or {})

    @property
    def sizes(self) -> dict[str, int]:
        """Return how many options each site has."""
        own = self.parts()[1]
        return {site: len(own[names[0]]) for site, names in self.sites.items()}

    def of(self, rows: Iterable[Options]) -> Iterator[dict[str, Tensor]]:
        shared, own = self.parts()
        # Unbound once, as indexing a tensor costs more than indexing a list.
        columns = {name: columns_of(tensor) for name, tensor in own.items()}
        for row in rows:
            tensors = dict(shared)
            for name, option in self._chosen(row).items():
                tensors[name] = columns[name][option]
            yield tensors

    def keys(self, row: Options) -> dict[str, Hashable]:
        return dict(self._chosen(row))

    def _chosen(self, row: Options) -> dict[str, int]:
        """Map each tensor that has several values to the number of the one that a row takes.

        Args:
            row: One option for each site.
        """
        chosen: dict[str, int] = {}
        for names, option in zip(self.sites.values(), row, strict=True):
            chosen |= dict.fromkeys(names, option)
        # Sizes are read from tensors; most ensembles need none.
        if self.fed:
            sizes = tuple(self.sizes.values())
            for name, places in self.fed.items():
                chosen[name] = combination_number(row, sizes, places)
        return chosen

    def covering_rows(self, rows: Sequence[Options]) -> list[Options]:
        sizes = list(self.sizes.values())
        # The k-th row takes the k-th option of every site, from the start again where there are fewer, so
        # that the rows of the longest site cover all others.
        found = list[Options]()
        for number in range(max(sizes)):
            found.append(tuple(number % size for size in sizes))
        # A tensor that several sites feed has a value for each combination of their options.
        for places in dict.fromkeys(self.fed.values()):
            for combination in all_rows([sizes[place] for place in places]):
                row = dict(enumerate(found[0])) | dict(zip(places, combination, strict=True))
                found.append(tuple(row.values()))
        return list(dict.fromkeys(found))

    def keep(self, rows: Sequence[Options]) -> tuple["OptionTensors", Sequence[Options]]:
        small = copy.deepcopy(self)
        used = list[list[int]]()
        kept = dict[str, Sequence[int]]()
        for place, (site, names) in enumerate(self.sites.items()):
            options = sorted({row[place] for row in rows})
            used.append(options)
            kept |= dict.fromkeys(names, options)
            if site in self.mixtures:
                small.mixtures[site] = _keep_options(self.mixtures[site], options)
        sizes = tuple(self.sizes.values())
        for name, places in self.fed.items():
            # Options are numbered anew, so all combinations of those that stay are kept, in their order.
            numbers = list[int]()
            for combination in itertools.product(*(used[place] for place in places)):
                taken = dict(zip(places, combination, strict=True))
                numbers.append(combination_number(taken, sizes, places))
            kept[name] = numbers
        take(small.own, kept)
        renumbered = list[Options]()
        for row in rows:
            new = [options.index(option) for options, option in zip(used, row, strict=True)]
            renumbered.append(tuple(new))
        return small, renumbered

    def why_not_mixed(self, rows: Sequence[Options | None]) -> str:
        # A row that is None stands for a draw of each sample.
        if set(rows) - {None}:
            return "rows are drawn for the whole batch"
        return ""

    def mixed(self, rows: Sequence[Options | None], sizes: Sequence[int]) -> dict[str, Tensor]:
        shared, own = self.parts()
        return {**shared, **draw_batch(own, self.sites, self.mixtures, sum(sizes))}

    def probabilities(self) -> dict[str, tuple[float, ...]]:
        """Map the name of a tensor with options to how probable these are."""
        return option_probabilities(self.sites, self.mixtures)


def _keep_options(mixture: Mixture, options: Sequence[int]) -> Mixture:
    """Return a mixture of some options alone; their probabilities sum to one again.

    Args:
        mixture: How probable all options are.
        options: The numbers of those that stay.
    """
    left = [mixture.probabilities[option] for option in options]
    probabilities = tuple(one / sum(left) for one in left)
    return replace(mixture, probabilities=probabilities)


def combination_number(row: Options | Mapping[int, int], sizes: Sequence[int], places: Sequence[int]) -> int:
    """Return the number of a combination of options, the first place changing most slowly.

    Args:
        row: The option at each place.
        sizes: How many options there are at each place.
        places: The places that count.
    """
    number = 0
    for place in places:
        number = number * sizes[place] + row[place]
    return number


def tie_sites(layers: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the sites of layers with these tensors; layers that share one are one, named by the first.

    Args:
        layers: By name of the layer, the names of its tensors.
    """
    sites: dict[str, list[str]] = {}
    for layer, names in layers.items():
        tied = [site for site, held in sites.items() if not set(held).isdisjoint(names)]
        # A layer may tie sites that had nothing in common before; the first of them takes all.
        joined = list[str]()
        for site in tied:
            joined += sites[site]
        for site in tied[1:]:
            del sites[site]
        first = next(iter(tied), layer)
        sites[first] = list(dict.fromkeys([*joined, *names]))
    return sites


def draw_options(
    network: Network, wanted: Mapping[str, tuple[int, str]], seed: int
) -> tuple[dict[str, Tensor], list[str]]:
    """Return options of some tensors of a network, each set of them from one module.

    Args:
        network: Whose tensors these are; embeddings with sparse gradients get dense ones.
        wanted: By name, how many options a tensor has, and whether they start `fresh` or as a `copy`.
        seed: For fresh weights.

    Returns:
        By name, `[options, ...]`, and notes for the conversion.
    """
    groups = defaultdict[tuple[int, str], set[str]](set)
    for name, how in wanted.items():
        groups[how].add(name)
    # One list of fresh modules serves all tensors, so that options of one number belong together.
    fresh = max((count for count, start in groups if start == "fresh"), default=0)
    modules, redrawn = fresh_modules(network, fresh, seed)
    own: dict[str, Tensor] = {}
    for (count, start), names in groups.items():
        sources = modules[:count] if start == "fresh" else [network.module] * count
        own |= stack_modules(sources, names)
    notes = list[str]()
    if redrawn:
        notes.append(f"bare parameters redrawn with their mean and deviation: {', '.join(redrawn)}")
    for name in network.allow_other_weights(own):
        notes.append(f"gradients of {name} are dense")
    return own, notes


def start_alike(network: Network, own: Mapping[str, Tensor]) -> bool:
    """Return whether there are several options and all of them are equal.

    Args:
        network: Whose tensors these are.
        own: By name, the options of each tensor that has some, `[options, ...]`.
    """
    held = network.tensors()
    most_options = max(map(len, own.values()), default=0)
    if most_options < 2:
        return False
    for name, value in own.items():
        # Running statistics start alike however the weights do.
        if isinstance(held[name], nn.Parameter) and not bool((value == value[:1]).all()):
            return False
    return True
