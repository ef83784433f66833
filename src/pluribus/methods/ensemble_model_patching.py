"""Ensemble Model Patching: a few small layers have K options, and everything else is shared.

Chang, Yao, Williams-King & Lipson, "Ensemble model patching: a parameter-efficient variational Bayesian
neural network", 2019.

The patches, most often norms and the output, are mixed anew in every pass: EMP takes one option for a whole
layer, ECMP one for every single number. As K^N or more networks share nearly all weights, a Bayesian network
costs a few percent more parameters, and trains like the network itself.

    θ_i = M_i[z_i],    z_i ~ Categorical(p)                                       (4), EMP
    θ_ih = M_ih[z_ih],    z_ih ~ Categorical(p) for every number h                (5), ECMP
    KL(q ‖ prior) ≈ Σ_patched Σ_k p_k (τ/2 ‖M_k‖² + ρ/2 ‖m_k‖²)
                    + Σ_shared (τ/2 ‖M‖² + ρ/2 ‖m‖²)                              (6)
    L = −1/S Σ_s mean_n log p(y_n | x_n, θ_s) + KL / N                            (9) over N
    L = −1/S Σ_s mean_n log p(y_n | x_n, θ_s) + λ Σ ‖·‖²,  λ = 0.001 / batch      (App. C)
    overhead = (K − 1) (2 Σ channels of patched norms + Σ numbers of other patches)  (§3.3)

    symbol   here
    K, p     options, probabilities
    Λ_p      where
    S        train_draws in training, draws in prediction
    τ, ρ     weight_precision, bias_precision
    λ        decay / batch
    N        dataset_size, of ensemble.loss

Cost: (K − 1) times the patched parameters more than one network, and its passes: one in a training step, as
many as there are different draws in prediction, less what they share.
Deviations: options start from the network's own values, a little perturbed, unless they start fresh. Running
statistics are shared by all options. A network with no noise σ, the default, keeps equal draws of EMP as
one row with a weight; the shared layers never have noise. Misprints: the last sum of (6) is over shared
layers; the running mean of Algorithm 1 divides by s + 1 where it means s.
"""

from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from glob import escape
from typing import Any, ClassVar, Self

import torch
from torch import Generator, Tensor

from pluribus.conversion_record import LayerRecord
from pluribus.errors import ConversionError
from pluribus.mechanisms.graph.first_and_last import find_ends, order_of_run
from pluribus.mechanisms.members.axis import split_batch
from pluribus.mechanisms.members.code import PlainCode
from pluribus.mechanisms.members.combinations import keep_draws
from pluribus.mechanisms.members.index import Combinations, Index, Seeds
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.mixed import Mixed
from pluribus.mechanisms.members.mixture import Mixture, uniform
from pluribus.mechanisms.members.options import OptionTensors, draw_options, start_alike, tie_sites
from pluribus.mechanisms.members.per_sample import PerSample, why_apart
from pluribus.mechanisms.members.prior import AnyMembers
from pluribus.mechanisms.network.dry_run import derived_seed
from pluribus.mechanisms.network.layers import (
    Selector,
    Site,
    is_bias,
    is_norm,
    is_selector,
    select,
    there_are,
)
from pluribus.mechanisms.network.network import Network
from pluribus.method import Built, LayerChoice, Method
from pluribus.recipe import Recipe
from pluribus.settings import LARGEST, MOST_DRAWS, MOST_MEMBERS, invalid, nearest, setting

ROUNDING = 1e-6  # how far a sum of probabilities may be from one
WORDS = ("norm", "input", "output")
"""What `where` may say besides what selects layers."""
PERTURBED = 1 << 21
"""Offset that keeps the seed of perturbations apart from those of fresh weights."""


def perturb(options: Tensor, relative: float, generator: Generator) -> Tensor:
    """Options `[options, ...]` with noise of `relative` times the standard deviation of each, or times 1
    where all of its numbers are equal.
    """
    if options.is_complex():
        return torch.view_as_complex(perturb(_real(options), relative, generator))
    numbers = options.reshape(len(options), -1)
    constant = numbers.amax(1) == numbers.amin(1)
    scale = numbers.double().std(1, correction=0).masked_fill(constant, 1)
    noise = torch.randn(numbers.shape, generator=generator, dtype=torch.float64).to(numbers.device)
    return (numbers + relative * scale.unsqueeze(1) * noise).to(options).reshape(options.shape)


def divergence(
    weights: Mapping[str, Tensor], mixing: Mapping[str, Sequence[float]], tau: float, rho: float
) -> Tensor:
    """Eq. (6), the divergence from the prior up to a constant, in nats.

    Args:
        weights: All that is learnt, by name: `[options, ...]` where it is in `mixing`.
        mixing: By name, how probable the options are.
        tau: Precision of the prior on weights.
        rho: Precision of the prior on biases.
    """
    total = torch.zeros(())
    for name, weight in weights.items():
        numbers = _real(weight)
        shares = numbers.new_tensor(mixing.get(name, (1.0,)))
        squares = numbers.square().reshape(len(shares), -1).sum(1)
        total = total + (rho if is_bias(name) else tau) / 2 * (shares * squares).sum()
    return total


def squared_norm(weights: Mapping[str, Tensor]) -> Tensor:
    """Σ ‖·‖² over all that is learnt, all options alike, as Appendix C has it."""
    return sum((_real(weight).square().sum() for weight in weights.values()), start=torch.zeros(()))


def _real(weight: Tensor) -> Tensor:
    """Its numbers; a complex one is two."""
    return torch.view_as_real(weight) if weight.is_complex() else weight


def patch_overhead(options: int, channels: int = 0, weights: int = 0) -> int:
    """§3.3: parameters added by patched norms of so many channels together, and by other patches."""
    return (options - 1) * (2 * channels + weights)


@dataclass(frozen=True)
class Patching(Method, ABC):
    """What EMP and ECMP have in common: all but what takes one option as a whole."""

    options: int = setting(5, at_least=1, at_most=MOST_MEMBERS)
    where: Selector = ("norm", "output")
    draws: int = setting(100, at_least=1, at_most=MOST_DRAWS)
    perturbation: float = setting(0.01, at_least=0, at_most=LARGEST)
    start: str = setting("copy", choices=("copy", "fresh"))
    probabilities: tuple[float, ...] | None = None
    noise: float = setting(0.0, at_least=0, at_most=LARGEST)
    train_draws: int = setting(1, at_least=1, at_most=MOST_DRAWS)
    divide: bool = setting(False)
    per_sample: bool = setting(False)
    objective: str = setting("decay", choices=("decay", "kl"))
    decay: float = setting(1e-3, at_least=0)
    weight_precision: float = setting(1.0, at_least=0)
    bias_precision: float = setting(1.0, at_least=0)
    freeze_shared: bool = setting(False)

    per_layer: ClassVar[frozenset[str]] = frozenset({"options", "perturbation", "probabilities", "start"})
    depends_on_example: ClassVar[bool] = True
    assignment: ClassVar[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("where", "probabilities"):
            if isinstance(getattr(self, name), list):  # as a file gives it
                object.__setattr__(self, name, tuple(getattr(self, name)))
        if not self._selectors or not all(map(is_selector, self._selectors)):
            kinds = f"{', '.join(WORDS)}, name patterns, layer types and predicates"
            raise invalid("where", f"of {kinds}, at least one", self.where)
        if self.divide and self.per_sample:
            raise invalid("divide", "False where every sample has a draw of its own", self.divide)
        if not _are_probabilities(self.mixing, self.options):
            raise invalid("probabilities", f"{self.options} numbers above 0 that sum to one", self.mixing)

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        chosen = self._patched(network, choices)
        settings = _settings(chosen)
        sites = tie_sites({choice.site.name: choice.site.trained for choice in chosen})
        own, notes = draw_options(network, {n: (m.options, m.start) for n, m in settings.items()}, seed)
        generator = torch.Generator().manual_seed(derived_seed(seed, PERTURBED))
        own = {name: perturb(own[name], settings[name].perturbation, generator) for name in settings}
        if "norm" in self._selectors and not any(is_norm(c.site) or c.picked for c in chosen):
            notes.append("no norm is patched")
        if start_alike(network, own):
            notes.append("options start alike, and only the draws of training tell them apart")
        if self.freeze_shared:
            for name, parameter in network.module.named_parameters():
                parameter.requires_grad_(name in own and parameter.requires_grad)
        mixtures = {
            site: Mixture(self.assignment, settings[names[0]].mixing, noise=self.noise)
            for site, names in sites.items()
        }
        if self.per_sample:
            _refuse_apart(network, sites)
        members = self._members(network, own, sites, mixtures, seed)
        return Built(members, tuple(self._row(choice, own) for choice in choices), tuple(notes))

    def _members(
        self,
        network: Network,
        own: Mapping[str, Tensor],
        sites: Mapping[str, Sequence[str]],
        mixtures: Mapping[str, Mixture],
        seed: int,
    ) -> Members:
        code = PlainCode.of(network.module, network.output)
        # Options of whole layers can be named and shared; noise or single numbers follow from a seed.
        if self.assignment != "layer" or self.noise:
            index: Index = Seeds(self.draws, self.train_draws, seed, anonymous=self.per_sample)
            return Members(index, Mixed(network, own, sites, mixtures), code, lowers=True)
        tensors = OptionTensors(network, own, sites, mixtures)
        probabilities = [mixtures[site].probabilities for site in sites]
        generator = torch.Generator().manual_seed(derived_seed(seed, 1))
        kept, shares = keep_draws(probabilities, self.draws, generator)
        dtype = next(iter(own.values())).dtype  # that of the network, by which a file is read
        index = Combinations(
            tensors.sizes,
            kept,
            self.train_draws,
            torch.tensor(shares, dtype=dtype),
            probabilities,
            anonymous=self.per_sample,
        )
        # What precedes the first patch is the same for all members, which is worth a plan.
        return Members(index, tensors, code, lowers=True)

    @property
    def mixing(self) -> tuple[float, ...]:
        """How probable each option is."""
        return uniform(self.options) if self.probabilities is None else self.probabilities

    def resolved(self, sites: Sequence[Site]) -> Self:
        where = [
            name
            for one in self._selectors
            for name in ([one] if isinstance(one, str) else map(_exactly, select(sites, one, "where")))
        ]
        return self if self._is_named else replace(self, where=tuple(dict.fromkeys(where)))

    def to_dict(self) -> dict[str, Any]:
        if not self._is_named:
            kinds = f"{', '.join(WORDS)} or name patterns where a file is written"
            raise invalid("where", f"{kinds}, as convert(...).method has it", self.where)
        return super().to_dict()

    @property
    def _selectors(self) -> tuple[Any, ...]:
        return self.where if isinstance(self.where, tuple) else (self.where,)

    @property
    def _is_named(self) -> bool:
        return all(isinstance(one, str) for one in self._selectors)

    def assign(self, batch: int, rows: Sequence[Any], progress: float) -> list[Tensor] | None:
        return split_batch(batch, len(rows)) if self.divide else None

    def recipe(self) -> Recipe:
        # The objective has a prior of its own, so the paper has no decay besides.
        return Recipe(longer=2.0 if self.divide else 1.0, weight_decay=0.0)

    def penalty(self, members: AnyMembers, batch: int, dataset_size: int, progress: float) -> Tensor | float:
        tensors = members.tensors
        assert isinstance(tensors, Mixed | OptionTensors)
        learnt = {
            name: weight
            for tree in (tensors.own, tensors.shared)
            for name, weight in tree.named_parameters()
            if weight.requires_grad
        }
        if self.objective == "kl":
            tau, rho = self.weight_precision, self.bias_precision
            return divergence(learnt, tensors.probabilities(), tau, rho) / dataset_size  # Eq. (9)
        return self.decay / batch * squared_norm(learnt) if self.decay else 0.0  # App. C

    def _patched(self, network: Network, choices: Sequence[LayerChoice]) -> list[LayerChoice]:
        """The layers to patch: those that `include` picks, or else those that `where` names."""
        sites = [choice.site for choice in choices]
        where = {choice.site for choice in choices if choice.picked}
        if not where:
            where = {site for one in self._selectors for site in _named(one, network, sites)}
        chosen = [c for c in choices if c.method and c.site in where and c.site.trained]
        if not chosen:
            raise ConversionError(
                f"{type(self).__name__} must have a trained layer to patch, however: where={self.where!r} "
                f"and the selection leave none. {there_are(sites)}"
            )
        return chosen

    def _row(self, choice: LayerChoice, own: Mapping[str, Tensor]) -> LayerRecord:
        site = choice.site
        patched = [name for name in site.parameters if name in own]
        if not patched:
            outside = "not in where" + ", whatever overrides say" * choice.overridden
            if "norm" in self._selectors and is_norm(site):
                outside = "not read in eval mode"
            left = "frozen" if site.frozen else outside if site.parameters else "no parameters"
            return LayerRecord(site.names, site.kind, "shared", choice.reason or left)
        each = " for each element" * (self.assignment == "element")
        return LayerRecord(site.names, site.kind, f"{len(own[patched[0]])} options{each}")


@dataclass(frozen=True)
class EMP(Patching):
    """K options for each patched layer; a member takes one of them for every patch.

    Rows of eval mode are `draws` kept draws, of which equal ones are one row with a greater weight, or all
    combinations if these are no more. `ensemble(x, members=[(0, 2, …), …])` runs those with these options, in
    the order of `ensemble.sites`.

    Args:
        options: How many options a patched layer has, at least 1; may differ from layer to layer.
        where: The layers that are patched, unless `include` picks them: `norm` (every normalisation that the
            prediction depends on), `input` and `output` (the first and the last other layer with weights),
            name patterns, layer types and predicates of name and layer as for `include`, or several of these.
            `ensemble.method` has the names of what types and predicates pick, so that it goes to files.
        draws: How many draws in prediction, at least 1.
        perturbation: How far options start from one another: noise as a share of each tensor's standard
            deviation, or of 1 for a tensor of equal numbers; at least 0, which is neutral. May differ from
            layer to layer.
        start: `copy` starts options from the network's values, `fresh` initialises each anew.
        probabilities: Of the options, above 0, summing to one; None is uniform.
        noise: Standard deviation of Gaussian noise on the patches, at least 0. With noise a row is a seed.
        train_draws: How many draws in a training step, at least 1.
        divide: Whether each draw of a training step sees its own part of the batch, of at least two
            samples, in place of all of it.
        per_sample: Whether each sample of a training batch has draws of its own, in one pass, in place of
            draws for all; patches are then norms, linear layers and convolutions.
        objective: What is added to the losses: `decay` is the paper's simplification, `kl` Eq. (6).
        decay: Factor of the squared norm of all parameters, over the size of the batch; at least 0.
        weight_precision: Of the Gaussian prior on weights for `kl`, at least 0.
        bias_precision: Of that on biases and shifts.
        freeze_shared: Whether only the patches are trained.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
        >>> ensemble = pluribus.convert(model, EMP(options=3)).eval()
        >>> ensemble.sites, ensemble(torch.zeros(7, 3)).shape
        (('1', '2'), torch.Size([9, 7, 2]))
    """

    assignment: ClassVar[str] = "layer"


@dataclass(frozen=True)
class ECMP(Patching):
    """K options for each number of the patched layers; a member takes one of them for every number.

    Rows of eval mode are `draws` kept seeds. The settings are those of `EMP`.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
        >>> ensemble = pluribus.convert(model, ECMP(options=3, draws=20)).eval()
        >>> ensemble(torch.zeros(7, 3)).shape
        torch.Size([20, 7, 2])
    """

    assignment: ClassVar[str] = "element"


def _are_probabilities(given: Any, options: int) -> bool:
    """Whether these are so many numbers above 0 that sum to one."""
    numbers = isinstance(given, tuple) and all(isinstance(one, int | float) and one > 0 for one in given)
    return numbers and len(given) == options and abs(sum(given) - 1) <= ROUNDING


def _exactly(site: Site) -> str:
    """A pattern that this layer's name alone matches, and that is none of the words."""
    return f"[{site.name[0]}]{site.name[1:]}" if site.name in WORDS else escape(site.name)


def _named(pattern: str, network: Network, sites: Sequence[Site]) -> list[Site]:
    """The layers that a word or a pattern of `where` stands for; a network may be without norms."""
    if pattern == "norm":
        norms = [site for site in sites if is_norm(site) and site.parameters]
        ran = order_of_run(network, norms)
        return norms if ran is None else ran
    if pattern in WORDS:
        end = find_ends(network, sites)[WORDS.index(pattern) - 1]
        return [end] if end else []
    try:
        return select(sites, pattern, "where")
    except ConversionError as error:
        words = f"Its words are {', '.join(WORDS)}." + nearest(pattern, WORDS)
        raise ConversionError(f"{error} {words}") from None


def _settings(chosen: Sequence[LayerChoice]) -> dict[str, Any]:
    """By name of a tensor, the settings of the layer that holds it."""
    found: dict[str, Any] = {}
    for choice in chosen:
        for name in choice.site.trained:
            if found.setdefault(name, choice.method) != choice.method:
                raise ConversionError(
                    f"layers that hold {name} must have the same settings, however: {choice.method} in "
                    f"{choice.site} and {found[name]} before it. Give all of them the same overrides."
                )
    return found


def _refuse_apart(network: Network, sites: Mapping[str, Sequence[str]]) -> None:
    """Raises where the patches of samples cannot differ within a batch, with the first layer that is why."""
    together = [name for names in sites.values() for name in names]
    if not (why := _why_apart(network, together)):
        return
    alone = ((site, _why_apart(network, names)) for site, names in sites.items())
    site, why = next(((site, reason) for site, reason in alone if reason), (", ".join(sites), why))
    raise ConversionError(
        "per_sample=True needs patches that may differ within a batch, however: those of "
        f"{site or 'the network itself'} cannot: {why.rstrip('.')}. Leave it out of where=, or draw for the "
        "whole batch."
    )


def _why_apart(network: Network, names: Sequence[str]) -> str:
    """Why these tensors may not differ from sample to sample; empty where they may."""
    held, generator = network.tensors(), torch.Generator().manual_seed(0)
    half = network.example.batch // 2
    first, second = (
        {name: perturb(held[name].detach()[None], 0.5, generator)[0] for name in names} for _ in range(2)
    )
    each = {
        name: torch.stack([first[name]] * half + [second[name]] * (network.example.batch - half))
        for name in names
    }
    mixed = {name: values.as_subclass(PerSample) for name, values in each.items()}
    return why_apart(network, {**held, **first}, {**held, **second}, {**held, **mixed})
