"""Variational neural networks: every layer gives a mean and a deviation, and draws its output.

Oleksiienko & Iosifidis, "Variational neural networks", 2022, arXiv:2207.01524.

A layer has two sets of weights. One gives the mean of its output, the other the deviation, which may have
either sign. One random number for each output unit, the same for all samples of a batch, makes a member:

    y = μ(x) + ε ∘ σ(x),    μ(x) = W_μ x + b_μ,  σ(x) = W_σ x + b_σ,  ε ~ N(0, I)           (1)
      = (W_μ + diag(ε) W_σ) x + b_μ + ε ∘ b_σ                                              (2), the same

The activation a that follows the layer can act on the mean, on the deviation, on the drawn output (the end),
or on several of these, and so can a norm between them:

    y = a_end(a_mean(μ(x)) + ε ∘ a_std(σ(x)))                                              (3)

    symbol     here
    W_μ, b_μ   the network's own weights
    W_σ, b_σ   deviations.<name>; <layer>.drawn_deviation for Eq. (3)
    c          factor: σ(x) is multiplied by it, or replaced (`global_std`)

Cost: two networks to store; one pass for each draw, as weights are added before they are used, Eq. (2). Where
Eq. (3) is more than Eq. (1), two passes for each draw.
Deviation: norms and activations act at the end, as in the network itself, unless set otherwise; the authors'
layers act on the mean.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from pluribus.axes import Between, OneOf
from pluribus.conversion_record import LayerRecord
from pluribus.errors import ConversionError
from pluribus.mechanisms.members.code import PlainCode
from pluribus.mechanisms.members.drawn import Drawn, normal_numbers
from pluribus.mechanisms.members.index import Seeds
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.tree import named_tensors, plant
from pluribus.mechanisms.network.drawn_outputs import (
    DEVIATION,
    NOISE,
    act_on_parts,
    draw_outputs,
    find_followed,
)
from pluribus.mechanisms.network.dry_run import ALIKE, derived_seed
from pluribus.mechanisms.network.layers import Site, is_norm, names_by_layer, there_are
from pluribus.mechanisms.network.network import Network
from pluribus.method import Built, LayerChoice, Method
from pluribus.ranges import LARGEST, MOST_DRAWS
from pluribus.settings import setting

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
"""Layers whose weights and biases have their output units on axis 0."""
# A bias of zeros has no scale of its own.
LEAST_SCALE = 0.1


def draw_units(mean: Tensor, deviation: Tensor, noise: Tensor) -> Tensor:
    """Compute Eq. (2) of one tensor.

    Args:
        mean: W_μ or b_μ, `[units, ...]`.
        deviation: W_σ or b_σ, `[units, ...]`.
        noise: ε, `[units]`.
    """
    return mean + noise.view(-1, *[1] * (mean.ndim - 1)) * deviation


class UnitNoise(Drawn):
    """A mean and a deviation of every weight, and one random number for each output unit.

    Args:
        network: Whose tensors these are; its weights are the means.
        layers: Names of the weights of each layer, which share their random numbers.
        factor: c, by which deviations are multiplied.
        fixed: Whether the deviation of every output is c itself, and nothing of it is learnt.
    """

    def __init__(self, network: Network, layers: Sequence[Sequence[str]], factor: float, fixed: bool) -> None:
        super().__init__(network, [*chain.from_iterable(layers)])
        self.layers = list(layers)
        self.factor, self.fixed, self.deviations = factor, fixed, nn.Module()

    def add(self, name: str, share: float, generator: torch.Generator) -> None:
        """Give the tensor of that name its deviation: normal numbers of a share of its root mean square."""
        mean = self.parts()[0][name].detach()
        if self.fixed:
            # A bias of ones alone makes σ(x) = c, whatever x is.
            value = torch.ones_like(mean) if mean.ndim == 1 else torch.zeros_like(mean)
        else:
            value = _random_deviation(mean, share, generator)
        plant(self.deviations, name, nn.Parameter(value, requires_grad=not self.fixed))

    def draw(self, row: int | None) -> dict[str, Tensor]:
        """Return the weights of a seed, or with fresh random numbers for None, Eq. (2)."""
        means, deviations, found = self.parts()[0], named_tensors(self.deviations), {}
        for noise, names in zip(self._numbers(row), self.layers, strict=True):
            for name in names:
                found[name] = draw_units(means[name], deviations[name], self.factor * noise)
        return found

    def index(self, row: int) -> Tensor:
        """Return all random numbers of a seed, `[units of all layers]`."""
        return torch.cat(self._numbers(row))

    def _numbers(self, row: int | None) -> list[Tensor]:
        """Return ε of each layer."""
        means, found = self.parts()[0], list[Tensor]()
        for place, names in enumerate(self.layers):
            first = means[names[0]]
            found.append(normal_numbers(first.shape[:1], row, place, first))
        return found


class OutputNoise(Drawn):
    """One random number for each output unit of each layer; all weights are shared.

    Args:
        network: Whose layers draw their outputs.
        names: Of the buffers that hold the numbers, in the order of the layers.
    """

    def draw(self, row: int | None) -> dict[str, Tensor]:
        """Return the numbers of a seed, or fresh ones for None."""
        held = self.parts()[0]
        return {
            name: normal_numbers(held[name].shape, row, place, held[name])
            for place, name in enumerate(self.names)
        }

    def index(self, row: int) -> Tensor:
        """Return all random numbers of a seed, `[units of all layers]`."""
        return torch.cat([*self.draw(row).values()])


ACTING = ("end", "mean", "std", "mean+std", "mean+end", "std+end", "mean+std+end")
"""Where norms and activations act."""


@dataclass(frozen=True)
class VNN(Method):
    """Members drawn by one random number for each output unit of each layer.

    Args:
        draws: How many draws are kept for prediction, at least 1.
        deviation: Where deviations start, as a share of each tensor's root mean square, at least 0.
        global_std: `none` learns deviations, `multiply` multiplies them by `factor`, `replace` makes every
            deviation `factor`, which learns nothing and needs biases.
        factor: c, above 0.
        train_draws: How many draws in a training step, at least 1.
        activation: On what an activation layer acts that follows a chosen one: `mean`, `std`, `end`, several
            joined by `+`, or `none`, which leaves it out. Activations in code between layers act at the end.
        norm: The same for a norm layer that follows. Norms on several parts have weights for each.
        per_sample: Whether training draws a number for each output of each sample, as the authors' code
            for images does; in prediction a member has one for each unit.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> ensemble = pluribus.convert(model, VNN(draws=5)).eval()
        >>> ensemble(torch.zeros(7, 3)).shape
        torch.Size([5, 7, 2])
    """

    draws: int = setting(16, at_least=1, at_most=MOST_DRAWS, search=OneOf((4, 8, 16)))
    deviation: float = setting(0.1, at_least=0, at_most=LARGEST, search=Between(0.01, 0.3, log=True))
    global_std: str = setting("none", choices=("none", "multiply", "replace"))
    factor: float = setting(2.0, above=0, at_most=LARGEST)
    train_draws: int = setting(1, at_least=1, at_most=MOST_DRAWS)
    activation: str = setting("end", choices=(*ACTING, "none"))
    norm: str = setting("end", choices=ACTING)
    per_sample: bool = setting(False)

    @property
    def on_trained(self) -> str:
        # A mean keeps its activation once, as in the network.
        once = all(len({"mean", "end"}.intersection(one.split("+"))) == 1 for one in self._acting)
        return "approximate" if once and self.global_std != "replace" else "retrain"

    @property
    def _acting(self) -> tuple[str, str]:
        return self.activation, self.norm

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        """Return members that are drawn unit by unit."""
        sites = [choice.site for choice in choices if choice.method]
        chosen = [site for site in sites if isinstance(site.module, LAYERS) and site.trained]
        if not chosen:
            raise ConversionError(
                "VNN must have a trained linear layer or convolution, got none. "
                + there_are([choice.site for choice in choices])
            )
        generator = torch.Generator().manual_seed(derived_seed(seed, 0))
        if self._acting != ("end", "end") or self.per_sample:
            return self._draw_outputs(network, choices, chosen, seed, generator)
        names = names_by_layer(chosen)
        network.allow_other_weights(chain.from_iterable(names))
        tensors = UnitNoise(network, names, self._factor, self._fixed)
        for name in tensors.names:
            tensors.add(name, self.deviation, generator)
        layers = tuple(_record(choice, chosen) for choice in choices)
        return Built(self._members(network, tensors, seed), layers)

    @property
    def _factor(self) -> float:
        return 1.0 if self.global_std == "none" else self.factor

    @property
    def _fixed(self) -> bool:
        return self.global_std == "replace"

    def _members(self, network: Network, tensors: Drawn, seed: int) -> Members:
        code = PlainCode.of(network.module, network.output)
        return Members(Seeds(self.draws, self.train_draws, seed, anonymous=True), tensors, code)

    def _draw_outputs(
        self,
        network: Network,
        choices: Sequence[LayerChoice],
        chosen: Sequence[Site],
        seed: int,
        generator: torch.Generator,
    ) -> Built:
        """Return members whose layers compute a mean and a deviation of their outputs, Eq. (3)."""
        draw_outputs(chosen, self._factor, self._fixed, self.per_sample)
        norms = [choice.site.module for choice in choices if is_norm(choice.site)]
        act_on_parts(network.module, norms, *self._acting)
        # The graph is that of the layers as they are now.
        network.become(network.module)
        if not self._fixed:
            for site in chosen:
                start_deviation(site.module, self.deviation, generator)
        tensors = OutputNoise(network, [f"{site.name}.{NOISE}".lstrip(".") for site in chosen])
        return Built(self._members(network, tensors, seed), self._acting_records(network, choices, chosen))

    def _acting_records(
        self, network: Network, choices: Sequence[LayerChoice], chosen: Sequence[Site]
    ) -> tuple[LayerRecord, ...]:
        """Return what became of each layer, and on what the activation behind it acts now."""
        followed = find_followed(network.module, network.example) if self.activation != "end" else set()
        records = []
        for choice in choices:
            record = _record(choice, chosen)
            if choice.site in chosen and choice.site.name in followed:
                record = replace(record, became=f"{record.became}, activation: {self.activation}")
            records.append(record)
        return tuple(records)


def start_deviation(layer: nn.Module, share: float, generator: torch.Generator) -> None:
    """Start the deviations of a layer's weights: normal numbers of a share of each root mean square."""
    means = dict(layer.named_parameters(recurse=False))
    for name, deviation in layer.get_submodule(DEVIATION).named_parameters():
        deviation.data.copy_(_random_deviation(means[name], share, generator))


def _random_deviation(mean: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Return normal numbers of a share of the root mean square of a tensor."""
    mean = mean.detach()
    scale = share * max(mean.square().mean().sqrt().item(), LEAST_SCALE)
    return scale * torch.randn(mean.shape, generator=generator, **ALIKE).to(mean)


def _record(choice: LayerChoice, chosen: Sequence[Any]) -> LayerRecord:
    site = choice.site
    if site in chosen:
        return LayerRecord(site.names, site.kind, "mean and deviation of every output")
    reason = "no linear layer or convolution" if site.parameters else "no parameters"
    return LayerRecord(site.names, site.kind, "shared", choice.reason or reason)
