"""Layers that give a mean and a deviation of their output and draw it, with activations on either of them.

    y = a_end(n_end(a_mean(n_mean(μ(x))) + ε ∘ a_std(n_std(σ(x)))))                         (1)

The layer itself gives μ. A copy of it, attached to it, gives σ, and a buffer holds ε. Hooks put them
together, so that the layer stays what it is. The drawn output keeps its parts, and a norm or an activation
that is called with it, in the user's own code, acts on the parts that it is meant for.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from pluribus.errors import ConversionError
from pluribus.mechanisms.network.dry_run import accepting, dry_run
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.layers import Site

PLACES = ("mean", "std", "end")
"""Where an activation or a norm acts."""
ACTIVATIONS = (
    *(nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.RReLU, nn.ReLU6, nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU),
    *(nn.Mish, nn.Softplus, nn.Softsign, nn.Tanh, nn.Sigmoid, nn.LogSigmoid, nn.Hardtanh, nn.Hardsigmoid),
    *(nn.Hardswish, nn.Hardshrink, nn.Softshrink, nn.Tanhshrink),
)
DEVIATION, NOISE = "drawn_deviation", "drawn_noise"
"""Names that a layer's copy and its buffer have in the layer."""
PARTS = "_pluribus_parts"
"""Attribute of a drawn output that holds its parts until something else than a norm has read it."""


@dataclass(frozen=True)
class Parts:
    """Parts of a drawn output.

    Attributes:
        layer: The name of the layer that drew it.
        mean: μ.
        deviation: σ.
        noise: ε, by which the deviation is multiplied.
    """

    layer: str
    mean: Tensor
    deviation: Tensor
    noise: Tensor

    def drawn(self) -> Tensor:
        """Return μ + ε ∘ σ."""
        return self.mean + self.noise * self.deviation


def twin(place: str) -> str:
    """Return the name that a norm's copy for another place has in the norm."""
    return f"drawn_{place}"


class DrawOutput:
    """Hook of a layer: return a drawn output in place of the mean.

    Args:
        name: Of the layer.
        axes: How many axes follow that of the units.
        factor: Multiplies the deviation.
        fixed: Whether the deviation is the factor itself.
        per_sample: Whether training draws a number for each output of each sample.
    """

    def __init__(self, name: str, axes: int, factor: float, fixed: bool, per_sample: bool) -> None:
        self.name, self.axes, self.factor = name, axes, factor
        self.fixed, self.per_sample = fixed, per_sample

    def __call__(self, layer: nn.Module, args: Any, kwargs: Any, mean: Tensor) -> Tensor:
        deviation = torch.ones_like(mean) if self.fixed else getattr(layer, DEVIATION)(*args, **kwargs)
        if self.per_sample and layer.training:
            noise = torch.randn_like(mean)
        else:
            noise = getattr(layer, NOISE).view(-1, *[1] * self.axes)
        parts = Parts(self.name, mean, deviation, self.factor * noise)
        return _holding(parts.drawn(), parts)


class ActOnParts:
    """Hooks of a norm or an activation: act on the parts of a drawn output, Eq. (1).

    Args:
        places: Of `PLACES`, in their order; none leaves a drawn output as it is.
        is_norm: Whether an activation may follow that acts on the parts too.
    """

    def __init__(self, places: Sequence[str], is_norm: bool) -> None:
        self.places, self.is_norm = tuple(places), is_norm

    def attach(self, layer: nn.Module) -> None:
        """Put the hooks before and behind a layer."""
        layer.register_forward_pre_hook(self.choose)
        layer.register_forward_hook(self.combine)

    def choose(self, layer: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Give the layer itself the part at its first place, so that a norm sees every batch once."""
        parts = _parts_of(args)
        if parts is None or not self.places:
            return args
        first = {"mean": parts.mean, "std": parts.deviation}.get(self.places[0], args[0])
        return (_holding(first, parts), *args[1:])

    def combine(self, layer: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        """Return the drawn output of the changed parts."""
        parts = _parts_of(args)
        if parts is None:
            return output

        def changed(place: str, values: Tensor) -> Tensor:
            if place not in self.places:
                return values
            if place == self.places[0]:
                return output
            found: Tensor = getattr(layer, twin(place), layer).forward(values)
            return found

        mean, deviation = changed("mean", parts.mean), changed("std", parts.deviation)
        parts = replace(parts, mean=mean, deviation=deviation)
        drawn = changed("end", parts.drawn())
        # An activation at the end has read the sum, so that nothing acts on its parts any more.
        return _holding(drawn, parts) if self.is_norm and "end" not in self.places else drawn


def _parts_of(args: tuple[Any, ...]) -> Parts | None:
    """Return the parts of a layer's first input; None where it is no drawn output."""
    parts = getattr(args[0], PARTS, None) if args else None
    return parts if isinstance(parts, Parts) else None


def _holding(values: Tensor, parts: Parts) -> Tensor:
    """Return the same values as a tensor that holds parts."""
    holding = values.view_as(values)
    setattr(holding, PARTS, parts)
    return holding


def draw_outputs(sites: Sequence[Site], factor: float, fixed: bool, per_sample: bool) -> None:
    """Let layers of a network draw their outputs.

    Args:
        sites: Linear layers and convolutions, of a copy of the user's network.
        factor: Multiplies deviations.
        fixed: Whether every deviation is the factor itself.
        per_sample: Whether training draws a number for each output of each sample.
    """
    for site in sites:
        layer = site.module
        if is_parametrized(layer):
            raise ConversionError(
                f"{site} must have plain weights to draw its outputs, got a parametrisation. "
                f"Leave it out: exclude={site.name!r}."
            )
        weight = layer.weight
        assert isinstance(weight, Tensor)
        if not fixed:
            layer.add_module(DEVIATION, copy.deepcopy(layer))
        layer.register_buffer(NOISE, weight.new_zeros(len(weight)))
        hook = DrawOutput(site.name, weight.ndim - 2, factor, fixed, per_sample)
        layer.register_forward_hook(hook, with_kwargs=True)


def act_on_parts(module: nn.Module, norms: Sequence[nn.Module], activation: str, norm: str) -> None:
    """Let activations and norms of a network act on the parts of drawn outputs.

    Args:
        module: A copy of the user's network.
        norms: Its norms.
        activation: Of `PLACES`, joined by `+`, or `none`.
        norm: The same for norms.
    """
    for layer in [one for one in module.modules() if isinstance(one, ACTIVATIONS)]:
        if hasattr(layer, "inplace"):
            # It would write into a part that is read again.
            layer.inplace = False
        ActOnParts(_split(activation), False).attach(layer)
    places = _split(norm)
    for one in norms:
        # Statistics and weights of a mean are not those of a deviation.
        copies = {place: copy.deepcopy(one) for place in places[1:]}
        for place, other in copies.items():
            one.add_module(twin(place), other)
        ActOnParts(places, True).attach(one)


def find_followed(module: nn.Module, example: Inputs) -> set[str]:
    """Return the names of the layers whose drawn outputs go to an activation, by a run of the example."""
    found = set[str]()

    def note(layer: nn.Module, args: tuple[Any, ...]) -> None:
        parts = _parts_of(args)
        if parts is not None:
            found.add(parts.layer)

    activations = [one for one in module.modules() if isinstance(one, ACTIVATIONS)]
    # Before the hooks that act, which take the parts away.
    handles = [one.register_forward_pre_hook(note, prepend=True) for one in activations]
    given = example.copy()
    try:
        with accepting(example), dry_run(module, training=False), torch.no_grad():
            module(*given.args, **given.keywords)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _split(places: str) -> list[str]:
    return [] if places == "none" else places.split("+")
