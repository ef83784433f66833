"""Layer Ensembles: every layer has K options, and every combination of them is a member.

Oleksienko & Iosifidis, "Layer Ensembles", IEEE MLSP 2023. Randomized prior networks: Osband, Aslanides &
Cassirer, NeurIPS 2018.

Options of different layers are chosen independently, so that K networks' worth of weights make K^N
members, which overlap. Training draws some of them for every batch; a fixed random layer ensemble, the
prior, is added with the same draw.

    z_q ~ Categorical(K_q),    q = 1 … N                                          (1)
    L = 1/S Σ_s 1/B Σ_b ℓ(f(x_b; θ[z_s]), y_b)                                    (training, §III)
    f_z(x) = f(x; θ[z]) + β f(x; φ[z]),    φ drawn once, no gradient              (priors, §III)

    symbol   here
    N        the layers with weights, norms aside: ensemble.sites
    K_q      options, for each layer
    z        a row: one option per site
    S        train_draws
    J        draws, if the K^N members are more
    β        prior_scale

Cost: K networks to store, 2 K with priors; S passes in a training step. To predict, every layer runs once
for each different combination of the options up to it.
Deviations: weights of norms are shared by the options of a layer, as in the authors' code for images. Their
running statistics are not, as one statistic over the outputs of several options fits none of them: there
is one for each option of the layer that feeds the norm. Where several layers feed it, as on a residual
branch, there is one for each combination of their options, or, for more than 32 combinations, for each option
of the last of them (`statistics`). The authors
draw as many members per step as there are; here it is `train_draws`, by default the passes of a deep
ensemble of five. Their noise on the targets of each option of the first layer is left out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from pluribus.axes import Between, OneOf
from pluribus.conversion_record import LayerRecord
from pluribus.errors import ConversionError, UnreadableError
from pluribus.mechanisms.graph.feeds import find_feeds
from pluribus.mechanisms.members.code import PlainCode
from pluribus.mechanisms.members.combinations import keep_rows
from pluribus.mechanisms.members.index import Combinations
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.options import OptionTensors, draw_options, tie_sites
from pluribus.mechanisms.members.prior import AnyMembers, WithPrior
from pluribus.mechanisms.network.dry_run import derived_seed
from pluribus.mechanisms.network.fresh import PRIOR_SEED, fresh_modules
from pluribus.mechanisms.network.layers import is_norm, there_are
from pluribus.mechanisms.network.network import Network
from pluribus.method import Built, LayerChoice, Method
from pluribus.ranges import LARGEST, MOST_DRAWS, MOST_MEMBERS
from pluribus.recipe import COPIES_LR, Recipe
from pluribus.settings import setting

MOST_COMBINATIONS = 32
"""Statistics of a norm that several layers feed: more would each see too few batches to settle."""


@dataclass(frozen=True)
class LayerEnsembles(Method):
    """K options for every layer, combined freely.

    Rows of eval mode are all combinations, the first layer's option changing most slowly, if there are at
    most `draws`, and else `draws` different ones that are kept. `ensemble(x, members=[(0, 2, 1), …])` runs
    those with these options, in the order of `ensemble.sites`.

    Args:
        options: How many options a layer has, at least 1; may differ from layer to layer; 1 is shared.
        prior_scale: Factor of the fixed random prior network, at least 0; 0 is none.
        draws: How many members in prediction at most, at least 1.
        train_draws: How many random members in a training step, at least 1.
        start: `fresh` initialises every option anew, from the model's own initialisers or by calling
            the factory again; `copy` starts all options from the model's weights. May differ from layer
            to layer.
        statistics: `option` keeps running statistics of norms for each option of the layers that feed the
            norm directly; `shared` keeps one for all, as in the authors' code.
        settle_prior: Whether BatchNorm layers of prior networks take the statistics of the first training
            batch, or keep the mean 0 and variance 1 they are made with.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> ensemble = pluribus.convert(model, LayerEnsembles(options=3)).eval()
        >>> ensemble.sites, ensemble(torch.zeros(7, 3)).shape
        (('0', '2'), torch.Size([9, 7, 2]))
    """

    options: int = setting(5, at_least=1, at_most=MOST_MEMBERS, search=Between(2, 5))
    prior_scale: float = setting(1.0, at_least=0, at_most=LARGEST, search=Between(0.0, 1.0))
    draws: int = setting(125, at_least=1, at_most=MOST_DRAWS, search=OneOf((4, 8, 16)))
    train_draws: int = setting(5, at_least=1, at_most=MOST_DRAWS)
    start: str = setting("fresh", choices=("fresh", "copy"))
    statistics: str = setting("option", choices=("option", "shared"))
    settle_prior: bool = setting(True)

    version: ClassVar[int] = 2
    per_layer: ClassVar[frozenset[str]] = frozenset({"options", "start"})

    @classmethod
    def upgrade(cls, values: dict[str, Any], version: int) -> dict[str, Any]:
        return values if version > 1 else {"statistics": "shared", "settle_prior": False} | values

    def recipe(self) -> Recipe:
        # An option learns beside partners that change from step to step. Three times the steps took the
        # validation NLL on digits from .124 and .129 to .069 and .074, where one network has .067 and .084.
        # Options that start as copies of one another fit from the first step on (.074 with the usual steps).
        has_strangers = self.options > 1 and self.start == "fresh"
        if has_strangers:
            return Recipe(longer=3.0)
        return Recipe(tuning_lr=COPIES_LR) if self.start == "copy" else Recipe()

    @property
    def on_trained(self) -> str:
        # A prior changes every prediction.
        return "kept" if self.start == "copy" and not self.prior_scale else "retrain"

    def for_trained(self) -> Self:
        # A prior would be added to what the network has learnt.
        prior_scale = 0.0 if self.prior_scale == type(self).prior_scale else self.prior_scale
        return replace(self, start="copy", prior_scale=prior_scale)

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        # Find the layers with options.
        chosen = [choice for choice in choices if _has_options(choice)]
        if not chosen:
            raise ConversionError(
                "LayerEnsembles must have a trained layer that is no norm, got no chosen layer of this kind. "
                + there_are([choice.site for choice in choices])
            )
        wanted = _wanted(chosen)
        sites = tie_sites({choice.site.name: _names(choice) for choice in chosen})

        # Make the tensors.
        own, notes = draw_options(network, wanted, seed)
        counts = {site: wanted[names[0]][0] for site, names in sites.items()}
        fed = self._fed(network, choices, sites, counts, notes)
        own |= _statistics(network, fed, counts)

        # Make the members.
        learnt = self._members(network, own, sites, fed, seed)
        members: AnyMembers = learnt
        if self.prior_scale:
            prior = self._prior(network, wanted, sites, fed, seed)
            members = WithPrior(learnt, prior, self.prior_scale)

        # Record what happened.
        rows = tuple(_row(choice, own) for choice in choices)
        return Built(members, rows, tuple(notes))

    def _prior(
        self,
        network: Network,
        wanted: Mapping[str, tuple[int, str]],
        sites: Mapping[str, Sequence[str]],
        fed: Mapping[str, Sequence[str]],
        seed: int,
    ) -> Members:
        """Return the fixed random layer ensemble φ, with as many options as the one that learns."""
        counts = {site: wanted[names[0]][0] for site, names in sites.items()}
        fresh = {name: (count, "fresh") for name, (count, _) in wanted.items()}
        options, _ = draw_options(network, fresh, seed + PRIOR_SEED)
        # Tensors without options, such as norms, are the prior's own too.
        (shared,), _ = fresh_modules(network, 1, seed + PRIOR_SEED)
        fixed = Network(shared, output=network.output)
        options |= _statistics(fixed, fed, counts)
        # The same seed as the learnt ensemble: member z adds the prior of the same z.
        return self._members(fixed, options, sites, fed, seed)

    def _members(
        self,
        network: Network,
        own: Mapping[str, Tensor],
        sites: Mapping[str, Sequence[str]],
        fed: Mapping[str, Sequence[str]],
        seed: int,
    ) -> Members:
        """Return members that are named by one option per site."""
        tensors = OptionTensors(network, own, sites, fed=fed)
        generator = torch.Generator().manual_seed(derived_seed(seed, 0))
        kept = keep_rows(list(tensors.sizes.values()), self.draws, generator)
        index = Combinations(tensors.sizes, kept, self.train_draws)
        code = PlainCode.of(network.module, network.output)
        # Members share the options of their first layers, which is worth a plan.
        return Members(index, tensors, code, lowers=True)

    def _fed(
        self,
        network: Network,
        choices: Sequence[LayerChoice],
        sites: Mapping[str, Sequence[str]],
        counts: Mapping[str, int],
        notes: list[str],
    ) -> dict[str, tuple[str, ...]]:
        """Return the sites whose options a running statistic follows, by its name.

        Args:
            network: With an example, by which the data flow is read.
            choices: What the user wants of every layer.
            sites: By site, the names of its tensors.
            counts: By site, how many options it has.
            notes: Gets a note where the data flow cannot be read.
        """
        norm_of = _norms(choices)
        if self.statistics == "shared" or not norm_of:
            return {}
        site_of: dict[str, str] = {}
        for site, names in sites.items():
            site_of |= dict.fromkeys(names, site)
        try:
            feeds = find_feeds(network, site_of, norm_of)
        except (ConversionError, UnreadableError) as error:
            notes.append(f"running statistics are shared by all options: {error}")
            return {}
        fed = {}
        for name, norm in norm_of.items():
            feeding = feeds[norm]
            if _combinations(feeding, counts) > MOST_COMBINATIONS:
                feeding = feeding[-1:]
            if feeding:
                fed[name] = feeding
        return fed


def _norms(choices: Sequence[LayerChoice]) -> dict[str, str]:
    """Map the name of each running statistic of a chosen norm to the norm's name."""
    norms: dict[str, str] = {}
    for choice in choices:
        if choice.method and is_norm(choice.site):
            norms |= dict.fromkeys(choice.site.statistics, choice.site.name)
    return norms


def _combinations(sites: Sequence[str], counts: Mapping[str, int]) -> int:
    """Return how many combinations of options some sites have."""
    return math.prod(counts[site] for site in sites)


def _names(choice: LayerChoice) -> tuple[str, ...]:
    """Return the names of the tensors in which the options of a layer differ."""
    return (*choice.site.trained, *choice.site.statistics)


def _has_options(choice: LayerChoice) -> bool:
    """Return True for chosen layers with something to train; norms are shared, as in the authors' code."""
    return bool(choice.method and choice.site.trained) and not is_norm(choice.site)


def _wanted(choices: Sequence[LayerChoice]) -> dict[str, tuple[int, str]]:
    """Map the name of each tensor to how many options it has and how they start.

    Raises:
        ConversionError: Two layers hold one tensor and differ in their settings.
    """
    wanted: dict[str, tuple[int, str]] = {}
    for choice in choices:
        assert isinstance(choice.method, LayerEnsembles)
        how = (choice.method.options, choice.method.start)
        for name in _names(choice):
            if wanted.setdefault(name, how) != how:
                raise ConversionError(
                    f"layers that hold {name} must have the same options and start, got {how} in "
                    f"{choice.site} and {wanted[name]} before it. Give all of them the same overrides."
                )
    return wanted


def _statistics(
    network: Network,
    fed: Mapping[str, Sequence[str]],
    counts: Mapping[str, int],
) -> dict[str, Tensor]:
    """Return the statistics of every combination of options, which start alike, `[combinations, ...]`."""
    held = network.tensors()
    found = {}
    for name, feeding in fed.items():
        start = held[name].detach()
        found[name] = torch.stack([start] * _combinations(feeding, counts))
    return found


def _row(choice: LayerChoice, own: Mapping[str, Tensor]) -> LayerRecord:
    """Record how many options a layer has, or why it has none."""
    site = choice.site
    if not isinstance(choice.method, LayerEnsembles):
        return LayerRecord(site.names, site.kind, "shared", choice.reason)
    if not _has_options(choice):
        several = [len(own[name]) for name in site.statistics if name in own]
        became = f"shared, with {several[0]} running statistics" if several else "shared"
        return LayerRecord(site.names, site.kind, became, "norm" if is_norm(site) else "frozen")
    options, start = choice.method.options, choice.method.start
    plural = "s" * (options > 1)
    return LayerRecord(site.names, site.kind, f"{options} option{plural}, start {start}")
