"""Bayes by Backprop: every weight is a Gaussian, whose mean and deviation are learnt.

Blundell, Cornebise, Kavukcuoglu & Wierstra, "Weight uncertainty in neural networks", ICML 2015.

A training step draws weights from the Gaussians and follows the gradient through the draw. A divergence from
the prior keeps deviations from vanishing; every draw is a member.

    θ = μ + softplus(ρ) ∘ z,    z ~ N(0, I)                                       (1)
    L = E_q[−log p(y | x, θ)] + β/T KL(q(θ) ‖ p(θ))                               (2)
    p(θ) = N(0, σ_p²)    or    π N(0, σ_p²) + (1 − π) N(0, σ_2²)                  (3)

    symbol   here
    μ        the network's own weights, which are shared by all members
    ρ        deviations.<name>, by inverse softplus
    σ_p      prior_deviation
    π, σ_2   mixture, second_deviation
    β        rises from 0 to 1 over the share `anneal` of training
    T        dataset_size

Cost: two networks to store; a training step of one network and of its variances; one pass for each draw.
Deviation: where a layer's outputs can be drawn in place of its weights (local reparameterisation), training
draws them for each sample; the paper draws weights. Norms keep their weights.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pluribus.axes import Between, OneOf
from pluribus.conversion_record import LayerRecord
from pluribus.errors import ConversionError
from pluribus.mechanisms.members.code import PlainCode
from pluribus.mechanisms.members.drawn import Drawn, normal_numbers
from pluribus.mechanisms.members.index import Seeds
from pluribus.mechanisms.members.local_noise import LocalNoise
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.prior import AnyMembers
from pluribus.mechanisms.members.skeleton import Skeleton, blank
from pluribus.mechanisms.members.tree import named_tensors, plant
from pluribus.mechanisms.network.dry_run import dry_run
from pluribus.mechanisms.network.layers import is_norm, there_are
from pluribus.mechanisms.network.network import Network
from pluribus.method import Built, LayerChoice, Method
from pluribus.ranges import LARGEST, MOST_DRAWS
from pluribus.settings import setting

# A tensor of zeros, as most biases at first, has no scale of its own.
LEAST_SCALE = 0.1


def gaussian_divergence(mean: Tensor, deviation: Tensor, prior: float) -> Tensor:
    """Compute KL(N(μ, σ²) ‖ N(0, σ_p²)), summed over all numbers.

    Args:
        mean: μ.
        deviation: σ, above 0.
        prior: σ_p.
    """
    ratio = deviation / prior
    return (ratio.square() / 2 + (mean / prior).square() / 2 - ratio.log() - 0.5).sum()


def mixture_divergence(
    mean: Tensor, deviation: Tensor, weights: Tensor, share: float, first: float, second: float
) -> Tensor:
    """Estimate KL(q ‖ p) for the mixture of Eq. (3) by one draw: log q(θ) − log p(θ), summed.

    Args:
        mean: μ.
        deviation: σ, above 0.
        weights: θ, drawn from q.
        share: π.
        first: σ_p.
        second: σ_2.
    """
    of_q = -((weights - mean) / deviation).square() / 2 - deviation.log()
    parts = []
    for part, width in ((share, first), (1 - share, second)):
        parts.append(math.log(part / width) - (weights / width).square() / 2)
    # Both densities lack the same constant, log √(2π).
    return (of_q - torch.logaddexp(*parts)).sum()


class GaussianWeights(Drawn):
    """A mean and a deviation of every chosen weight.

    Args:
        network: Whose tensors these are; its weights are the means.
        names: Of the weights that are drawn.
        deviation: Where deviations start, as a share of each tensor's root mean square.
    """

    def __init__(self, network: Network, names: Sequence[str], deviation: float) -> None:
        super().__init__(network, names)
        self.deviations, self.local = nn.Module(), False
        for name in names:
            mean = self.parts()[0][name].detach()
            start = deviation * max(mean.square().mean().sqrt().item(), LEAST_SCALE)
            # softplus(ρ) is the deviation.
            rho = torch.full_like(mean, start + math.log(-math.expm1(-start)))
            plant(self.deviations, name, nn.Parameter(rho))

    def gaussians(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Return μ and σ of each weight by name."""
        means = self.parts()[0]
        return {name: (means[name], F.softplus(rho)) for name, rho in named_tensors(self.deviations).items()}

    def draw(self, row: int | None) -> dict[str, Tensor]:
        """Return the weights of a seed, Eq. (1); for None fresh ones, or such that outputs are drawn."""
        found = dict[str, Tensor]()
        for place, (name, (mean, deviation)) in enumerate(self.gaussians().items()):
            if row is None and self.local:
                found[name] = LocalNoise.of(mean, deviation)
            else:
                found[name] = mean + deviation * normal_numbers(mean.shape, row, place, mean)
        return found


@dataclass(frozen=True)
class BayesByBackprop(Method):
    """Members drawn from Gaussians over the weights, which are learnt.

    Args:
        draws: How many draws are kept for prediction, at least 1.
        deviation: Where deviations start, as a share of each tensor's root mean square, above 0.
        prior_deviation: σ_p of the prior, above 0.
        mixture: π, the share of the prior's first Gaussian, above 0 and at most 1; 1 is one Gaussian.
        second_deviation: σ_2 of the second, above 0.
        anneal: Share of training over which the divergence rises to its full weight, in [0, 1].
        train_draws: How many draws in a training step, at least 1.
        local: Whether training draws the outputs of layers where that is possible.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> ensemble = pluribus.convert(model, BayesByBackprop(draws=5), example=torch.zeros(2, 3))
        >>> ensemble.eval()(torch.zeros(7, 3)).shape
        torch.Size([5, 7, 2])
    """

    draws: int = setting(16, at_least=1, at_most=MOST_DRAWS, search=OneOf((4, 8, 16)))
    deviation: float = setting(0.1, above=0, at_most=LARGEST, search=Between(0.01, 0.3, log=True))
    prior_deviation: float = setting(1.0, above=0, at_most=LARGEST)
    mixture: float = setting(1.0, above=0, at_most=1)
    second_deviation: float = setting(0.01, above=0, at_most=LARGEST)
    anneal: float = setting(0.0, at_least=0, at_most=1)
    train_draws: int = setting(1, at_least=1, at_most=MOST_DRAWS)
    local: bool = setting(True)

    per_layer: ClassVar[frozenset[str]] = frozenset()

    @property
    def on_trained(self) -> str:
        return "approximate"

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        """Return members whose weights are drawn."""
        names = dict[str, None]()
        for choice in choices:
            if choice.method and not is_norm(choice.site):
                names |= dict.fromkeys(choice.site.trained)
        if not names:
            raise ConversionError(
                "BayesByBackprop must have a trained layer besides norms, got none. "
                + there_are([choice.site for choice in choices])
            )
        network.allow_other_weights(names)
        tensors = GaussianWeights(network, [*names], self.deviation)
        notes = []
        if self.local:
            why_not = _why_not_local(network, tensors)
            tensors.local = not why_not
            if why_not:
                notes.append(f"training draws weights, not outputs: {why_not}")
        code = PlainCode.of(network.module, network.output)
        members = Members(Seeds(self.draws, self.train_draws, seed, anonymous=True), tensors, code)
        layers = tuple(_record(choice, names) for choice in choices)
        # Decay of ρ would widen the Gaussians; the divergence is what keeps them in place.
        no_decay = frozenset(f"tensors.deviations.{name}" for name in names)
        return Built(members, layers, tuple(notes), no_decay)

    def penalty(self, members: AnyMembers, batch: int, dataset_size: int, progress: float) -> Tensor | float:
        """Return β/T times the divergence, Eq. (2)."""
        tensors = members.tensors
        assert isinstance(tensors, GaussianWeights)
        weight = 1.0 if progress >= self.anneal else progress / self.anneal
        total: Tensor | float = 0.0
        for mean, deviation in tensors.gaussians().values():
            total = total + self._divergence(mean, deviation)
        return weight / dataset_size * total

    def _divergence(self, mean: Tensor, deviation: Tensor) -> Tensor:
        """Return the divergence of one tensor from the prior, Eq. (3)."""
        if self.mixture == 1:
            return gaussian_divergence(mean, deviation, self.prior_deviation)
        weights = mean + deviation * torch.randn_like(mean)
        widths = self.prior_deviation, self.second_deviation
        return mixture_divergence(mean, deviation, weights, self.mixture, *widths)


def _why_not_local(network: Network, tensors: GaussianWeights) -> str:
    """Return why outputs cannot be drawn in place of weights; empty where a run of the example did it."""
    skeleton, inputs = Skeleton(blank(network.module)), network.example.copy()
    tensors.local = True
    module = skeleton.fill(next(iter(tensors.of([None]))))
    try:
        with dry_run(module, training=False), torch.no_grad():
            module(*inputs.args, **inputs.keywords)
    # Code may refuse such a tensor in any way; weights are drawn then.
    except Exception as error:
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    finally:
        tensors.local = False
    return ""


def _record(choice: LayerChoice, names: dict[str, Any]) -> LayerRecord:
    site = choice.site
    if any(name in names for name in site.trained):
        return LayerRecord(site.names, site.kind, "Gaussian weights")
    reason = "frozen" if site.frozen else "a norm" if site.parameters else "no parameters"
    return LayerRecord(site.names, site.kind, "shared", choice.reason or reason)
