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
Deviations: norms, their running statistics included, are shared by the options of a layer, as in the
authors' code for images; of the draws of a training step the first updates the statistics. The authors
draw as many members per step as there are; here it is `train_draws`, by default the passes of a deep
ensemble of five. Their noise on the targets of each option of the first layer is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pluribus.conversion_record import LayerRecord
from pluribus.errors import ConversionError
from pluribus.mechanisms.members.code import PlainCode
from pluribus.mechanisms.members.combinations import keep_rows
from pluribus.mechanisms.members.index import Combinations
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.options import OptionTensors, draw_options, tie_sites
from pluribus.mechanisms.members.prior import AnyMembers, WithPrior
from pluribus.mechanisms.network.dry_run import derived_seed
from pluribus.mechanisms.network.fresh import PRIOR_SEED, fresh_modules
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.norms import is_norm
from pluribus.mechanisms.network.select import there_are
from pluribus.method import Built, LayerChoice, Method
from pluribus.settings import number, one_of, whole


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

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> ensemble = pluribus.convert(model, LayerEnsembles(options=3)).eval()
        >>> ensemble.sites, ensemble(torch.zeros(7, 3)).shape
        (('0', '2'), torch.Size([9, 7, 2]))
    """

    options: int = 5
    prior_scale: float = 1.0
    draws: int = 125
    train_draws: int = 5
    start: str = "fresh"

    per_layer: ClassVar[frozenset[str]] = frozenset({"options", "start"})

    def __post_init__(self) -> None:
        whole("options", self.options)
        number("prior_scale", self.prior_scale, least=0)
        whole("draws", self.draws)
        whole("train_draws", self.train_draws)
        one_of("start", self.start, ("fresh", "copy"))

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        chosen = [choice for choice in choices if _has_options(choice)]
        if not chosen:
            raise ConversionError(
                "LayerEnsembles needs a trained layer that is no norm, however: no chosen layer is one. "
                + there_are([choice.site for choice in choices])
            )
        wanted = _wanted(chosen)
        sites = tie_sites({choice.site.name: _names(choice) for choice in chosen})
        own, notes = draw_options(network, wanted, seed)
        learnt = self._members(network, own, sites, seed)
        members: AnyMembers = learnt
        if self.prior_scale:
            fresh = {name: (count, "fresh") for name, (count, _) in wanted.items()}
            options, _ = draw_options(network, fresh, seed + PRIOR_SEED)
            (shared,), _ = fresh_modules(network, 1, seed + PRIOR_SEED)
            prior = self._members(Network(shared, output=network.output), options, sites, seed)
            members = WithPrior(learnt, prior, self.prior_scale)
        return Built(members, tuple(map(_row, choices)), tuple(notes))

    def _members(
        self, network: Network, own: Mapping[str, Tensor], sites: Mapping[str, Sequence[str]], seed: int
    ) -> Members:
        tensors = OptionTensors(network, own, sites)
        generator = torch.Generator().manual_seed(derived_seed(seed, 0))
        kept = keep_rows(list(tensors.sizes.values()), self.draws, generator)
        index = Combinations(tensors.sizes, kept, self.train_draws)
        code = PlainCode.of(network.module, network.output)
        # Members share the options of their first layers, which is worth a plan.
        return Members(index, tensors, code, lowers=True)


def _names(choice: LayerChoice) -> tuple[str, ...]:
    """The tensors of a layer that its options differ in."""
    return (*choice.site.trained, *choice.site.statistics)


def _has_options(choice: LayerChoice) -> bool:
    return bool(choice.method and choice.site.trained) and not is_norm(choice.site)


def _wanted(choices: Sequence[LayerChoice]) -> dict[str, tuple[int, str]]:
    """By name of a tensor, how many options it has and how they start."""
    wanted: dict[str, tuple[int, str]] = {}
    for choice in choices:
        assert isinstance(choice.method, LayerEnsembles)
        how = (choice.method.options, choice.method.start)
        for name in _names(choice):
            if wanted.setdefault(name, how) != how:
                raise ConversionError(
                    f"layers that hold {name} must have the same options and start, however: {how} in "
                    f"{choice.site} and {wanted[name]} before it. Give all of them the same overrides."
                )
    return wanted


def _row(choice: LayerChoice) -> LayerRecord:
    site = choice.site
    if not isinstance(choice.method, LayerEnsembles):
        return LayerRecord(site.names, site.kind, "shared", choice.reason)
    if not _has_options(choice):
        return LayerRecord(site.names, site.kind, "shared", "norm" if is_norm(site) else "frozen")
    plural = "s" * (choice.method.options > 1)
    return LayerRecord(
        site.names, site.kind, f"{choice.method.options} option{plural}, start {choice.method.start}"
    )
