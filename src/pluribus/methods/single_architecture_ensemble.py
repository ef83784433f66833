"""Single Architecture Ensemble: early exits, multi-input multi-output and everything between, learnt.

Ferianc, Fan & Rodrigues, "SAE: single architecture ensemble neural networks", BMVC 2024.

N samples enter one network together, every depth has an exit, and how much each input prefers a depth is a
categorical distribution that is learnt with the weights. In training K depths are sampled for each input
by a relaxation; in prediction all slots get the same sample and the K most preferred exits of each answer.

    L = Σ_i E_q[ℓ(f_i^d(x_1, …, x_N), y_i)] + α(t) Σ_i KL(q_i ‖ uniform)                     (3)
    q_i = θ_i = softmax(l_i / T(t)),    KL(q_i ‖ uniform) = Σ_j θ_ij log(D θ_ij) = log D − H(θ_i)
    E_q[ℓ_i] ≈ 1/K Σ_j w_ij ℓ_ij,    w_i a relaxed draw of K depths: z = l_i / T + Gumbel noise, then K times
          w += p = softmax(z / T),  z += log(1 − p)                                          (top-K)
    p(y | x) = 1/N Σ_i Σ_j θ*_ij p(y | f_ij(x, …, x)),    θ*_i of the K greatest logits alone

    symbol     here
    N, K, D    inputs, exits, depths
    l          Pairs.logits, zero at first
    θ, θ*      Pairs.preferences, ensemble.weights
    w          relaxed_top_k()
    α, T, i    alpha, temperature, input_repetition: linear in progress, from start to end

Cost: one network up to the deepest exit that is used, with a wider first and last layer, and a head for each
exit that is used.
Deviations: the expectation has weights that sum to one, as in the paper; the authors' code sums to K
(`weighting="exits"`). The authors' code draws from softmax(l) and not from q (`draw_from="logits"`), and
cools to T = 0.01, where one exit has all weight: here T ends at 0.5. Half of a batch is the same in all slots
by default; the method's page has the measurements. The batch is the unit of one draw, as in both. Exits
whose weight is below 1e-6 are no rows of eval mode and cost nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from pluribus.axes import DEPTHS, Between, Ends
from pluribus.mechanisms.exits.pairs import (
    HEADS,
    Pairs,
    build_exits,
    check_where,
    depth_divergence,
    preferences,
    slot_orders,
)
from pluribus.mechanisms.members.prior import AnyMembers
from pluribus.mechanisms.network.network import Network
from pluribus.method import Built, LayerChoice, Method
from pluribus.prediction import at_least_float32
from pluribus.ranges import LARGEST, MOST_MEMBERS, check, invalid
from pluribus.recipe import Recipe
from pluribus.settings import searched, setting

SMALL = 1e-8
"""Keeps logarithms finite."""
COLDEST = 1e-6
"""The lowest temperature: one that half precision still tells from 0."""

Span = tuple[float, float]
"""The values at the start and at the end of training."""
FIRST_VERSION: dict[str, Any] = {
    "alpha": (0.0, 0.0),
    "temperature": (1.0, 0.01),
    "input_repetition": (0.0, 0.0),
    "draw_from": "logits",
}
"""Defaults of version 1, where they differ."""


def relaxed_top_k(
    logits: Tensor, exits: int, temperature: float, generator: Generator | None = None
) -> Tensor:
    """Draw `exits` depths, relaxed, without replacement for each input (top-K).

    Args:
        logits: `[inputs, depths]`.
        exits: K, from 1 to the number of depths.
        temperature: Above 0; towards 0 the draw becomes ones and zeros.
        generator: Of random numbers on the CPU.

    Returns:
        `[inputs, depths]`, at least 0, in at least float32; sums to K for each input.
    """
    logits = at_least_float32(logits)
    uniform = torch.rand(logits.shape, generator=generator).to(logits)
    # Minus log of minus log of uniform numbers is Gumbel noise.
    scores = logits - torch.log(-torch.log(uniform + SMALL) + SMALL)
    drawn = picked = torch.zeros_like(logits)
    for _ in range(exits):
        scores = scores + torch.log((1 - picked).clamp(min=SMALL))
        picked = (scores / temperature).softmax(1)
        drawn = drawn + picked  # (top-K)
    return drawn


def interpolate(span: Span, progress: float) -> float:
    """Interpolate linearly between the values at the start and at the end of training."""
    start, end = span
    return start * (1 - progress) + end * progress


@dataclass(frozen=True)
class SAE(Method):
    """N inputs at once, and for each of them K exits that are learnt.

    Rows of eval mode are `inputs` × `exits`, those of the first input first; `ensemble.weights` holds
    the weight of each, and `ensemble.case` names the case of the paper.

    Args:
        inputs: How many samples enter together, at least 1.
        exits: How many exits of each input answer in prediction, from 1 to the number of depths.
        where: Names or patterns of the modules to exit after; None finds the ends of blocks or stages.
        alpha: Weight of the divergence from the uniform prior at the start and at the end of training, at
            least 0.
        temperature: Of the preferences and of the draws, at the start and at the end; at least 1e-6.
        input_repetition: Share of a training batch that is the same in all slots, at the start and at the
            end; in [0, 1].
        batch_repetition: How often a training batch is repeated where there are several inputs, at least 1.
        weighting: Whether weights of an input's losses sum to `one`, as in the paper, or to the number of
            `exits`, as in the authors' code.
        start: Of the first and last layer where there are several inputs: `fresh` initialises them, `copy`
            keeps the network's weights, so that with the same sample in every slot the last exit computes
            what the network did.
        draw_from: Whether training draws depths from the `preferences` q = softmax(l / T) of Eq. (3), or from
            softmax(l), the `logits` alone, as the authors' code does.
        fit_weights: Fit how much each exit counts on the validation data, when the ensemble is calibrated;
            shrunk towards equal weights.
        heads: Of images inside of the network: `narrow` ones have at most the channels of its last image,
            `wide` ones as many as its last layer reads, as before version 3 of these settings.

    Example:
        >>> layers = [torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()) for _ in range(3)]
        >>> model = torch.nn.Sequential(*layers, torch.nn.Linear(8, 2))
        >>> ensemble = pluribus.convert(model, SAE(inputs=2, exits=2)).eval()
        >>> ensemble(torch.zeros(7, 8)).shape, ensemble.case
        (torch.Size([4, 7, 2]), 'in_between')
    """

    # The ranges of a search are those of Sec. 4: 1 ≤ N ≤ 4, 1 ≤ K ≤ D, and the ends of three schedules.
    inputs: int = setting(2, at_least=1, at_most=MOST_MEMBERS, search=Between(1, 4))
    exits: int = setting(2, at_least=1, at_most=MOST_MEMBERS, search=Between(1, DEPTHS))
    where: str | tuple[str, ...] | None = None
    alpha: Span = field(default=(0.0, 0.0), metadata=searched(Ends(Between(0.0, 1.0), Between(0.0, 1.0))))
    # The paper has T in (0, 1]; below 0.01 one exit has all weight, whatever was learnt.
    temperature: Span = field(
        default=(1.0, 0.5),
        metadata=searched(Ends(Between(0.01, 1.0, log=True), Between(0.01, 1.0, log=True))),
    )
    input_repetition: Span = field(
        default=(0.5, 0.5), metadata=searched(Ends(Between(0.0, 1.0), Between(0.0, 1.0)))
    )
    batch_repetition: int = setting(2, at_least=1, at_most=MOST_MEMBERS)
    weighting: str = setting("one", choices=("one", "exits"))
    start: str = setting("fresh", choices=("copy", "fresh"))
    draw_from: str = setting("preferences", choices=("preferences", "logits"))
    fit_weights: bool = setting(False)
    heads: str = setting("narrow", choices=HEADS)

    version: ClassVar[int] = 3
    added: ClassVar[Mapping[int, Mapping[str, Any]]] = MappingProxyType(
        {2: FIRST_VERSION, 3: {"heads": "wide"}}
    )
    own_weights: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_where(self)
        for name in ("alpha", "temperature", "input_repetition"):
            # Files hold lists; settings compare and hash as tuples.
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        _check_span("alpha", self.alpha, at_least=0, at_most=LARGEST)
        _check_span("temperature", self.temperature, at_least=COLDEST, at_most=LARGEST)
        _check_span("input_repetition", self.input_repetition, at_least=0, at_most=1)

    def assign(self, batch: int, rows: Sequence[Any], progress: float) -> list[Tensor]:
        repetition = interpolate(self.input_repetition, progress)
        orders = slot_orders(batch, self.inputs, repetition, self.batch_repetition)
        return [orders[slot] for slot, _ in rows]

    def combine(self, losses: Tensor, shares: Tensor, members: AnyMembers, progress: float) -> Tensor:
        index = members.index
        assert isinstance(index, Pairs)
        if not members.training or index.chosen is not None:
            return index.mean(losses)
        temperature = interpolate(self.temperature, progress)
        index.temperature.fill_(temperature)
        # Gumbel noise added to l / T is a draw from q; added to l it is one from softmax(l), whatever T is.
        scores = index.logits / temperature if self.draw_from == "preferences" else index.logits
        drawn = relaxed_top_k(scores, self.exits, temperature)
        weights = drawn / self.exits if self.weighting == "one" else drawn
        return (weights.flatten() * losses).sum()  # Eq. (3)

    def recipe(self) -> Recipe:
        # Slots share the network and learn more slowly than it does alone: twice the steps took the
        # validation NLL from .170 to .095 on digits, where one network has .099 after the usual 500 steps.
        return Recipe(longer=2.0) if self.inputs > 1 else Recipe()

    def penalty(self, members: AnyMembers, batch: int, dataset_size: int, progress: float) -> Tensor | float:
        index = members.index
        assert isinstance(index, Pairs)
        alpha = interpolate(self.alpha, progress)
        theta = preferences(index.logits, interpolate(self.temperature, progress))
        return alpha * depth_divergence(theta).sum() if alpha else 0.0  # Eq. (3)

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        return build_exits(
            network,
            choices,
            seed,
            inputs=self.inputs,
            exits=self.exits,
            where=self.where,
            start=self.start,
            learnt=True,
            heads=self.heads,
        )


def _check_span(name: str, span: object, at_least: float, at_most: float) -> None:
    """Raise unless there are two numbers, for the start and the end of training."""
    if not isinstance(span, tuple) or len(span) != 2:
        raise invalid(name, "a pair of numbers, for the start and the end of training", span)
    for when, value in zip(("start", "end"), span, strict=True):
        check(f"{name} at the {when}", value, float, at_least=at_least, at_most=at_most)
