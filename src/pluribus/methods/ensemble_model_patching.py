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
Deviations: options start from the network's own values, a little perturbed, unless they start fresh. Each
sample of a training batch has a draw of its own, where the paper draws for the batch: running statistics,
which all options share, then fit what norms see in training, and every option learns in every step (the
method's page has the measurements; `per_sample=False` is the paper's form). A network with no noise σ, the
default, keeps equal draws of EMP as one row with a weight; the shared layers never have noise. Misprints: the
last sum of (6) is over shared layers; the running mean of Algorithm 1 divides by s + 1 where it means s.
"""

from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from glob import escape
from typing import Any, ClassVar, Self

import torch
from torch import Generator, Tensor

from pluribus.axes import Between, OneOf
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
from pluribus.mechanisms.network.trained_norms import has_trained_norm
from pluribus.method import Built, LayerChoice, Method
from pluribus.ranges import LARGEST, MOST_DRAWS, MOST_MEMBERS, invalid, nearest
from pluribus.recipe import Recipe
from pluribus.settings import setting

ROUNDING = 1e-6  # how far a sum of probabilities may be from one
WORDS = ("norm", "input", "output")
"""Words of `where`, besides what selects layers."""
FRESH, TRAINED = 0.01, 0.3
"""How far options start from one another, in deviations of a tensor, in new networks and in trained ones. New
networks predict best with the first, trained ones with the second (see the method's page)."""
MEASURED = 4
"""Patched layers of the network that the second was measured on. In deeper ones noise adds up from layer to
layer, and all layers together get as much of it."""
PERTURBED = 1 << 21
"""Offset that keeps the seed of perturbations apart from those of fresh weights."""


def perturb(options: Tensor, relative: float, generator: Generator) -> Tensor:
    """Add noise to options `[options, ...]`: `relative` times the standard deviation of each option.

    An option whose numbers are all equal has no deviation; its noise is `relative` times 1.
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
    """Compute Eq. (6), the divergence from the prior up to a constant, in nats.

    Args:
        weights: All that is learnt, by name: `[options, ...]` where it is in `mixing`.
        mixing: By name, how probable the options are.
        tau: Precision of the prior on weights.
        rho: Precision of the prior on biases.
    """
    total = torch.zeros(())
    for name, weight in weights.items():
        numbers = _real(weight)
        precision = rho if is_bias(name) else tau
        # A shared tensor is one option that is taken always, which makes both sums of Eq. (6) one.
        shares = numbers.new_tensor(mixing.get(name, (1.0,)))
        squares = numbers.square().reshape(len(shares), -1).sum(1)
        total = total + precision / 2 * (shares * squares).sum()  # Eq. (6)
    return total


def squared_norm(weights: Mapping[str, Tensor]) -> Tensor:
    """Compute Σ ‖·‖² over all that is learnt, all options alike, as in Appendix C."""
    total = torch.zeros(())
    for weight in weights.values():
        total = total + _real(weight).square().sum()
    return total


def _real(weight: Tensor) -> Tensor:
    """Return a tensor of real numbers; a complex number becomes two."""
    return torch.view_as_real(weight) if weight.is_complex() else weight


def patch_overhead(options: int, channels: int = 0, weights: int = 0) -> int:
    """Return the number of added parameters, §3.3.

    Args:
        options: K, at least 1.
        channels: Sum of the channels of all patched norms.
        weights: Numbers in all other patched tensors.
    """
    return (options - 1) * (2 * channels + weights)


@dataclass(frozen=True)
class Patching(Method, ABC):
    """Patch a few layers: all of EMP and ECMP but what takes one option as a whole."""

    options: int = setting(5, at_least=1, at_most=MOST_MEMBERS, search=Between(2, 6))
    where: Selector = ("norm", "output")
    draws: int = setting(100, at_least=1, at_most=MOST_DRAWS, search=OneOf((4, 8, 16)))
    perturbation: float | None = setting(None, kind=float, at_least=0, at_most=LARGEST)
    start: str = setting("copy", choices=("copy", "fresh"))
    probabilities: tuple[float, ...] | None = None
    noise: float = setting(0.0, at_least=0, at_most=LARGEST)
    train_draws: int = setting(1, at_least=1, at_most=MOST_DRAWS)
    divide: bool = setting(False)
    per_sample: bool | None = setting(None, kind=bool)
    objective: str = setting("decay", choices=("decay", "kl"))
    decay: float = setting(1e-3, at_least=0)
    weight_precision: float = setting(1.0, at_least=0)
    bias_precision: float = setting(1.0, at_least=0)
    freeze_shared: bool = setting(False)

    version: ClassVar[int] = 2
    per_layer: ClassVar[frozenset[str]] = frozenset({"options", "perturbation", "probabilities", "start"})
    depends_on_example: ClassVar[bool] = True
    assignment: ClassVar[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("where", "probabilities"):
            # Files hold lists; settings compare and hash as tuples.
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        if not self._selectors or not all(map(is_selector, self._selectors)):
            kinds = f"{', '.join(WORDS)}, name patterns, layer types and predicates"
            raise invalid("where", f"of {kinds}, at least one", self.where)
        if self.divide and self.per_sample:
            raise invalid("divide", "False where every sample has a draw of its own", self.divide)
        if not _are_probabilities(self.mixing, self.options):
            raise invalid("probabilities", f"{self.options} numbers above 0 that sum to one", self.mixing)

    @property
    def on_trained(self) -> str:
        if self.start == "fresh":
            return "retrain"
        # Options start apart by a share of each tensor's deviation.
        return "kept" if self.perturbation == 0 and not self.noise else "approximate"

    def for_trained(self) -> Self:
        return replace(self, start="copy")

    @classmethod
    def upgrade(cls, values: dict[str, Any], version: int) -> dict[str, Any]:
        # Version 1 drew for whole batches unless the user said otherwise.
        return values if version > 1 else {"per_sample": False} | values

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        # Find the layers to patch.
        chosen = self._patched(network, choices)
        settings = _settings(chosen)
        sites = tie_sites({choice.site.name: choice.site.trained for choice in chosen})

        # Make the options.
        usual = self._usual_distance(network, chosen)
        own, notes = _perturbed_options(network, settings, usual, seed)
        notes += self._notes(network, chosen, own)
        if self.freeze_shared:
            _freeze_all_but(own, network)
        mixtures = {}
        for site, names in sites.items():
            mixing = settings[names[0]].mixing
            mixtures[site] = Mixture(self.assignment, mixing, noise=self.noise)
        per_sample, why = self._draws_per_sample(network, sites)
        if why:
            notes.append(f"draws of training are for whole batches: {why}")

        # Make the members, and record what happened.
        members = self._members(network, own, sites, mixtures, per_sample, seed)
        rows = tuple(self._row(choice, own) for choice in choices)
        return Built(members, rows, tuple(notes))

    def _usual_distance(self, network: Network, chosen: Sequence[LayerChoice]) -> float:
        """Return how far options start from one another where no setting tells."""
        sites = [choice.site for choice in chosen]
        # One layer of a network without norms learns from any start, and copies of it would stay one.
        alone = len(sites) == 1 and not is_norm(sites[0])
        if not alone and not has_trained_norm(network, sites):
            return FRESH
        return TRAINED * min(1.0, MEASURED / len(sites))

    def _draws_per_sample(self, network: Network, sites: Mapping[str, Sequence[str]]) -> tuple[bool, str]:
        """Return whether each sample of a training batch has draws of its own, and why not if nobody said."""
        if self.per_sample:
            _refuse_apart(network, sites)
            return True, ""
        if self.per_sample is False or self.divide:
            return False, ""
        why = _why_apart(network, [name for names in sites.values() for name in names])
        return not why, why

    def _notes(
        self,
        network: Network,
        chosen: Sequence[LayerChoice],
        own: Mapping[str, Tensor],
    ) -> list[str]:
        """Return notes on patches that the user may not expect."""
        notes = []
        # Who picks layers with `include` knows what they are.
        expected = [choice for choice in chosen if choice.picked or is_norm(choice.site)]
        if "norm" in self._selectors and not expected:
            notes.append("no norm is patched")
        if start_alike(network, own):
            notes.append("options start alike, and only the draws of training tell them apart")
        return notes

    def _members(
        self,
        network: Network,
        own: Mapping[str, Tensor],
        sites: Mapping[str, Sequence[str]],
        mixtures: Mapping[str, Mixture],
        per_sample: bool,
        seed: int,
    ) -> Members:
        """Return members that are named by options, or by seeds where options alone do not make them."""
        code = PlainCode.of(network.module, network.output)
        # Options of whole layers can be named and shared; noise or single numbers follow from a seed.
        if self.assignment != "layer" or self.noise:
            index: Index = Seeds(self.draws, self.train_draws, seed, anonymous=per_sample)
            return Members(index, Mixed(network, own, sites, mixtures), code, lowers=True)
        tensors = OptionTensors(network, own, sites, mixtures)
        probabilities = [mixtures[site].probabilities for site in sites]
        generator = torch.Generator().manual_seed(derived_seed(seed, 1))
        kept, shares = keep_draws(probabilities, self.draws, generator)
        # The dtype of the network, by which a file is read.
        dtype = next(iter(own.values())).dtype
        index = Combinations(
            tensors.sizes,
            kept,
            self.train_draws,
            torch.tensor(shares, dtype=dtype),
            probabilities,
            anonymous=per_sample,
        )
        # What precedes the first patch is the same for all members, which is worth a plan.
        return Members(index, tensors, code, lowers=True)

    @property
    def mixing(self) -> tuple[float, ...]:
        """Return the probability of each option."""
        return uniform(self.options) if self.probabilities is None else self.probabilities

    def resolved(self, sites: Sequence[Site]) -> Self:
        if self._is_named:
            return self
        where: list[str] = []
        for one in self._selectors:
            if isinstance(one, str):
                where.append(one)
            else:
                where += map(_exactly, select(sites, one, "where"))

        # Two selectors may pick the same layer, which is named once.
        unique = tuple(dict.fromkeys(where))
        return replace(self, where=unique)

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
        # The objective has a prior of its own, so the paper has no decay besides. Twice the steps help
        # on digits and harm on Fashion-MNIST (see the method's page), and are no part of the recipe.
        return Recipe(longer=2.0 if self.divide else 1.0, weight_decay=0.0)

    def penalty(self, members: AnyMembers, batch: int, dataset_size: int, progress: float) -> Tensor | float:
        tensors = members.tensors
        assert isinstance(tensors, Mixed | OptionTensors)
        learnt = {}
        for name, weight in (*tensors.own.named_parameters(), *tensors.shared.named_parameters()):
            if weight.requires_grad:
                learnt[name] = weight
        if self.objective == "kl":
            tau, rho = self.weight_precision, self.bias_precision
            return divergence(learnt, tensors.probabilities(), tau, rho) / dataset_size  # Eq. (9)
        if not self.decay:
            return 0.0
        return self.decay / batch * squared_norm(learnt)  # App. C

    def _patched(
        self,
        network: Network,
        choices: Sequence[LayerChoice],
    ) -> list[LayerChoice]:
        """Return the layers to patch: those that `include` picks, or else those that `where` names.

        Args:
            network: The network, whose data flow tells its first and last layer.
            choices: All layers.

        Raises:
            ConversionError: None of them is trained.
        """
        sites = [choice.site for choice in choices]
        where = {choice.site for choice in choices if choice.picked}
        if not where:
            for one in self._selectors:
                where.update(_named(one, network, sites))
        chosen = []
        for choice in choices:
            if choice.method and choice.site.trained and choice.site in where:
                chosen.append(choice)
        if not chosen:
            raise ConversionError(
                f"{type(self).__name__} must have a trained layer to patch, got where={self.where!r}, "
                f"which picks none of the selected layers. {there_are(sites)}"
            )
        return chosen

    def _row(self, choice: LayerChoice, own: Mapping[str, Tensor]) -> LayerRecord:
        """Record how many options a layer has, or why it has none.

        Args:
            choice: The layer.
            own: By name, the options of each patched tensor.
        """
        site = choice.site
        patched = [name for name in site.parameters if name in own]
        if not patched:
            reason = choice.reason or self._why_shared(choice)
            return LayerRecord(site.names, site.kind, "shared", reason)
        each = " for each element" * (self.assignment == "element")
        return LayerRecord(site.names, site.kind, f"{len(own[patched[0]])} options{each}")

    def _why_shared(self, choice: LayerChoice) -> str:
        """Return the reason for which a layer that could be converted has no options.

        Args:
            choice: The layer.
        """
        site = choice.site
        if site.frozen:
            return "frozen"
        if not site.parameters:
            return "no parameters"
        # `norm` names the norms that eval mode reads, so this one is read in training alone.
        if "norm" in self._selectors and is_norm(site):
            return "not read in eval mode"
        return "not in where" + ", whatever overrides say" * choice.overridden


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
            deviation, or of 1 for a tensor of equal numbers; at least 0, which is neutral. None is 0.01; in a
            network with trained norms 0.3, or 1.2 over the number of patched layers if that is less; and 0.3
            where one layer that is no norm is patched alone. May differ from layer to layer.
        start: `copy` starts options from the network's values, `fresh` initialises each anew.
        probabilities: Of the options, above 0, summing to one; None is uniform.
        noise: Standard deviation of Gaussian noise on the patches, at least 0. With noise a row is a seed.
        train_draws: How many draws in a training step, at least 1.
        divide: Whether each draw of a training step sees its own part of the batch, of at least two
            samples, in place of all of it.
        per_sample: Whether each sample of a training batch has draws of its own, in one pass, in place of
            draws for all; patches are then norms, linear layers and convolutions. None does so where the
            network allows it.
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


def _are_probabilities(given: object, options: int) -> bool:
    """Return True for so many numbers above 0 that sum to one."""
    if not isinstance(given, tuple) or len(given) != options:
        return False
    for one in given:
        if not isinstance(one, int | float) or not one > 0:
            return False
    return abs(sum(given) - 1) <= ROUNDING


def _exactly(site: Site) -> str:
    """Return a pattern that matches this layer's name alone, and that is none of the words."""
    if site.name in WORDS:
        # A layer called `norm` is not every norm: `[n]orm` matches the same name and is no word.
        return f"[{site.name[0]}]{site.name[1:]}"
    return escape(site.name)


def _named(pattern: str, network: Network, sites: Sequence[Site]) -> list[Site]:
    """Return the layers that a word or a pattern of `where` stands for.

    Raises:
        ConversionError: A pattern matches no layer. A word may; a network may have no norms.
    """
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
    """Map the name of each tensor to the settings of the layer that holds it.

    Raises:
        ConversionError: Two layers hold one tensor and differ in their settings.
    """
    found: dict[str, Any] = {}
    for choice in chosen:
        for name in choice.site.trained:
            if found.setdefault(name, choice.method) != choice.method:
                raise ConversionError(
                    f"layers that hold {name} must have the same settings, got {choice.method} in "
                    f"{choice.site} and {found[name]} before it. Give all of them the same overrides."
                )
    return found


def _perturbed_options(
    network: Network,
    settings: Mapping[str, Any],
    usual: float,
    seed: int,
) -> tuple[dict[str, Tensor], list[str]]:
    """Draw the options of each tensor, a little apart from one another; return them with notes.

    Args:
        network: Whose tensors these are.
        settings: By name of the tensor, the settings of its layer.
        usual: How far options start from one another where no setting tells.
        seed: Of fresh weights and perturbations.
    """
    wanted = {name: (one.options, one.start) for name, one in settings.items()}
    drawn, notes = draw_options(network, wanted, seed)
    # One generator for all tensors, in this order: the order is part of what a seed means.
    generator = torch.Generator().manual_seed(derived_seed(seed, PERTURBED))
    own, untold = {}, set[float]()
    for name, one in settings.items():
        far = one.perturbation
        if far is None:
            far = {"copy": usual, "fresh": FRESH}[one.start]
            untold.add(far)
        own[name] = perturb(drawn[name], far, generator)
    if untold - {FRESH}:
        notes.append(f"options start {usual:.2g} deviations apart (perturbation)")
    return own, notes


def _freeze_all_but(own: Mapping[str, Tensor], network: Network) -> None:
    """Stop the training of every parameter that has no options."""
    for name, parameter in network.module.named_parameters():
        if name not in own:
            parameter.requires_grad_(False)


def _refuse_apart(network: Network, sites: Mapping[str, Sequence[str]]) -> None:
    """Raise if the patches of samples cannot differ within a batch, and name the first such layer."""
    together: list[str] = []
    for names in sites.values():
        together += names
    why = _why_apart(network, together)
    if not why:
        return
    culprit = ", ".join(sites)
    for site, names in sites.items():
        reason = _why_apart(network, names)
        if reason:
            culprit, why = site, reason
            break
    raise ConversionError(
        "patches must be able to differ within a batch for per_sample=True, got those of "
        f"{culprit or 'the network itself'}, which cannot: {why.rstrip('.')}. Leave it out of where=, or "
        "draw for the whole batch."
    )


def _why_apart(network: Network, names: Sequence[str]) -> str:
    """Return the reason for which these tensors must not differ from sample to sample, empty if they may.

    The first half of the example gets one set of values, the second half another; each half must then have
    the outputs of a whole batch with its values.

    Args:
        network: With an example, whose batch is cut in halves.
        names: The tensors that would differ.
    """
    held = network.tensors()
    generator = torch.Generator().manual_seed(0)
    half = network.example.batch // 2
    rest = network.example.batch - half
    first, second = (_nearby(held, names, generator) for _ in range(2))
    mixed = {}
    for name in names:
        each = torch.stack([first[name]] * half + [second[name]] * rest)
        mixed[name] = each.as_subclass(PerSample)
    return why_apart(network, {**held, **first}, {**held, **second}, {**held, **mixed})


def _nearby(
    held: Mapping[str, Tensor],
    names: Sequence[str],
    generator: Generator,
) -> dict[str, Tensor]:
    """Return perturbed copies of some tensors."""
    # Far enough apart that a layer which mixes samples changes the outputs by more than rounding.
    return {name: perturb(held[name].detach()[None], 0.5, generator)[0] for name in names}
