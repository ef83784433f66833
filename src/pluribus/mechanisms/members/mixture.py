"""The family of ensembles in which the numbers of a network are mixed from a few options.

Chang, Yao, Williams-King & Lipson, "Ensemble model patching", 2019, Eq. (1): a tensor has K options M_k, and
an assignment Z says which number is taken from which.

    W = Σ_k 1[Z = k] ∘ (M_k + σ ε_k),    Z ~ Categorical(p),    ε_k ~ N(0, I)                   (1)

Table 2 of the paper, and what else is a case of it:

    method              what takes one option   options   rate of a further one, zero
    explicit ensemble   the network             K         0
    layer ensemble      a layer                 K         0
    EMP                 a patched layer         K         0
    ECMP                an element of one       K         0
    dropout             an input of a layer     1         p, biases kept
    DropConnect         an element              1         p, biases kept

    symbol   here
    Z        draw_assignment()
    p        Mixture.probabilities, Mixture.rate
    σ        Mixture.noise
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Generator, Tensor

from pluribus.mechanisms.members.per_sample import PerSample
from pluribus.mechanisms.members.sample_draws import sample_draws
from pluribus.mechanisms.network.dry_run import ALIKE

ASSIGNMENTS = ("network", "layer", "unit", "element")
"""What takes one option as a whole: all tensors, those of a layer, an input of a layer, a single number."""


@dataclass(frozen=True)
class Mixture:
    """How a row's tensors are put together from their options, Eq. (1).

    Attributes:
        assignment: What takes one option as a whole, one of `ASSIGNMENTS`.
        probabilities: How probable each option is; they sum to one.
        rate: Probability of a further option that is zero, at least 0 and below 1. Everything else is
            divided by 1 − rate, as in dropout, so that the mean stays what it is.
        noise: Standard deviation of what is added to every number, at least 0.
    """

    assignment: str
    probabilities: tuple[float, ...]
    rate: float = 0.0
    noise: float = 0.0


def uniform(options: int) -> tuple[float, ...]:
    """Return the same probability for each option."""
    return (1 / options,) * options


def draw_assignment(mixture: Mixture, shape: Sequence[int], generator: Generator | None = None) -> Tensor:
    """Return which option each number of a tensor takes, counted from 0; -1 is zero.

    Args:
        mixture: How options are mixed.
        shape: Of the tensor; a layer's inputs are on axis 1.
        generator: Of random numbers on the CPU, which are the same for every device and precision.

    Returns:
        Whole numbers that broadcast to `shape`: one for each number, input, or one alone.
    """
    alone = [size if axis == 1 else 1 for axis, size in enumerate(shape)]
    drawn = {"element": list(shape), "unit": alone}.get(mixture.assignment, [1] * len(shape))
    chances = torch.rand(drawn, generator=generator, **ALIKE)
    return torch.bucketize(chances, _edges(mixture), right=True) - 1


@lru_cache
def _edges(mixture: Mixture) -> Tensor:
    """Return where the options begin in [0, 1), behind zero."""
    below = itertools.accumulate((0.0, *mixture.probabilities[:-1]))
    return torch.tensor([mixture.rate + (1 - mixture.rate) * edge for edge in below], **ALIKE)


def mix(options: Tensor, assignment: Tensor, rate: float = 0.0) -> Tensor:
    """Compute Eq. (1) without noise.

    Args:
        options: `[options, ...]`.
        assignment: Broadcasts to `[...]`; -1 is zero.
        rate: How probable zeros are.
    """
    index = assignment.clamp(min=0) if rate else assignment
    several = len(options) > 1
    mixed = options.gather(0, index.expand(options.shape[1:])[None])[0] if several else options[0]
    return mixed * (assignment >= 0).to(mixed) / (1 - rate) if rate else mixed


def draw_each(options: Mapping[str, Tensor], mixture: Mixture, batch: int) -> dict[str, Tensor]:
    """Return the tensors of one site for every sample of a batch, each sample by a draw of its own.

    Args:
        options: By name, `[options, ...]`.
        mixture: Of these options, for a layer or for its elements.
        batch: How many samples there are.

    Returns:
        By name, `[batch, ...]`.
    """
    by_layer, drawn = mixture.assignment == "layer", dict[str, Tensor]()
    draws, together = sample_draws(batch), None
    if by_layer:
        together = draws.take(draw_assignment(replace(mixture, assignment="element"), [draws.count]))
    for name, own in options.items():
        if together is not None:
            taken = own[together.clamp(min=0).to(own.device)]
            where = together.view(-1, *[1] * (own.ndim - 1)).to(own.device)
            values = mix(taken[None], where, mixture.rate)
        else:
            each = own.unsqueeze(1).expand(-1, batch, *own.shape[1:])
            assignment = draws.take(draw_assignment(mixture, [draws.count, *own.shape[1:]]))
            values = mix(each, assignment.to(own.device), mixture.rate)
        if mixture.noise:
            like = values.new_empty((draws.count, *values.shape[1:]))
            values = values + mixture.noise * draws.take(torch.randn_like(like))
        drawn[name] = values.as_subclass(PerSample)
    return drawn


def draw_batch(
    own: Mapping[str, Tensor],
    sites: Mapping[str, Sequence[str]],
    mixtures: Mapping[str, Mixture],
    batch: int,
) -> dict[str, Tensor]:
    """Return the tensors of all sites for every sample of a batch, by name, `[batch, ...]`."""
    found: dict[str, Tensor] = {}
    for site, names in sites.items():
        found |= draw_each({name: own[name] for name in names}, mixtures[site], batch)
    return found


def option_probabilities(
    sites: Mapping[str, Sequence[str]], mixtures: Mapping[str, Mixture]
) -> dict[str, tuple[float, ...]]:
    """Map the name of a tensor to how probable its options are."""
    return {name: mixtures[site].probabilities for site, names in sites.items() for name in names}
