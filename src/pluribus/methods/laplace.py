"""Laplace: the last layer of a trained network becomes a Gaussian around its weights.

MacKay, "A practical Bayesian framework for backpropagation networks", Neural Computation 1992. For the last
layer alone: Daxberger et al., "Laplace redux: effortless Bayesian deep learning", NeurIPS 2021.

The network trains as usual, or is trained already. One pass over the training data gives the curvature of the
loss at its weights; the flatter the loss in a direction, the less the data say about it, and the more members
differ there.

    p(θ | data) ≈ N(θ̂, (H + τ I)⁻¹),    H = Σ_n Λ_n ⊗ φ_n φ_nᵀ                    (1)
    H ≈ N (1/N Σ_n Λ_n) ⊗ (1/N Σ_n φ_n φ_nᵀ)                                      (2), Kronecker
    log p(data | τ) = const − τ/2 |θ̂|² + P/2 log τ − 1/2 Σ_i log(λ_i + τ)         (3)

    symbol   here
    θ̂, P     weight and bias of the last layer, and how many numbers they are
    φ_n      features: what enters the last layer for sample n, and a one for the bias
    Λ_n      Likelihood.curvature: of the loss in the outputs of sample n
    τ        prior_precision; by default what maximises Eq. (3)
    λ_i      eigenvalues of H

Cost: one network in training and one pass over the data after it; to predict, one pass of the network and M
of its last layer. Deviation: predictions average draws, where the reference also offers closed forms.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from pluribus.axes import OneOf
from pluribus.conversion_record import LayerRecord
from pluribus.errors import ConversionError, InputError
from pluribus.mechanisms.graph.first_and_last import find_ends
from pluribus.mechanisms.members.code import PlainCode
from pluribus.mechanisms.members.drawn import Drawn, normal_numbers
from pluribus.mechanisms.members.index import Seeds
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.prior import AnyMembers
from pluribus.mechanisms.network.batches import Batches
from pluribus.mechanisms.network.dry_run import dry_run
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.layers import Site, there_are
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.outputs import select_output
from pluribus.method import Built, LayerChoice, Method
from pluribus.ranges import LARGEST, MOST_DRAWS
from pluribus.settings import setting

STRUCTURES = ("auto", "full", "kronecker")
MOST_FULL = 1000
"""Numbers of the last layer up to which `auto` keeps all of H: at 1000 its eigenvectors take 8 MB."""
PRECISIONS = (1e-4, 1e6)
"""Between which τ is sought."""
STEPS = 80
"""Of the search: a third apart on this range. The curve of Eq. (3) is so flat at its top that the best of
them has an evidence within 0.03 nats of it (a network of 24 numbers in its last layer, both structures)."""


def log_evidence(precision: float, squared_norm: float, eigenvalues: Tensor) -> float:
    """Compute Eq. (3) without its constant.

    Args:
        precision: τ.
        squared_norm: |θ̂|².
        eigenvalues: λ, of H.
    """
    occam = eigenvalues.numel() * math.log(precision) - (eigenvalues + precision).log().sum().item()
    return (occam - precision * squared_norm) / 2


def best_precision(squared_norm: float, eigenvalues: Tensor) -> float:
    """Return the τ of the greatest evidence among precisions at equal ratios."""
    low, high = (math.log(one) for one in PRECISIONS)
    candidates = [math.exp(low + (high - low) * step / STEPS) for step in range(STEPS + 1)]
    return max(candidates, key=lambda precision: log_evidence(precision, squared_norm, eigenvalues))


class LastLayer(Drawn):
    """The Gaussian of the last layer; a row is a seed, and None the weights that are trained.

    Args:
        network: Whose tensors these are.
        weight: Name of the last layer's weight, `[outputs, features, ...]`.
        bias: Name of its bias, or None.
        full: Whether H is kept whole, or as in Eq. (2).

    Attributes:
        values: λ, `[outputs, inputs]` with the bias among the inputs, or flat where H is whole.
        of_outputs: Eigenvectors of the mean Λ; of nothing where H is whole.
        of_inputs: Eigenvectors of the mean φφᵀ, or of H where it is whole.
        precision: τ.
        finished: Whether the data were seen since the weights changed last.
    """

    def __init__(self, network: Network, weight: str, bias: str | None, full: bool) -> None:
        super().__init__(network, [weight] if bias is None else [weight, bias])
        self.weight, self.bias, self.full = weight, bias, full
        like = self.parts()[0][weight].detach()
        outputs, inputs = like.shape[0], like[0].numel() + (bias is not None)
        sides = (0, outputs * inputs) if full else (outputs, inputs)
        self.values: Tensor
        self.of_outputs: Tensor
        self.of_inputs: Tensor
        self.precision: Tensor
        self.finished: Tensor
        self.register_buffer("values", like.new_ones(outputs, inputs))
        self.register_buffer("of_outputs", torch.eye(sides[0], dtype=like.dtype, device=like.device))
        self.register_buffer("of_inputs", torch.eye(sides[1], dtype=like.dtype, device=like.device))
        self.register_buffer("precision", like.new_ones(()))
        self.register_buffer("finished", torch.zeros((), dtype=torch.bool, device=like.device))

    def theta(self) -> Tensor:
        """Return θ̂, `[outputs, inputs]`, the bias last."""
        shared = self.parts()[0]
        weight = shared[self.weight].detach().flatten(1)
        if self.bias is None:
            return weight
        return torch.cat([weight, shared[self.bias].detach()[:, None]], 1)

    def draw(self, row: int | None) -> dict[str, Tensor]:
        """Return weight and bias of a seed, drawn from Eq. (1); nothing for None, which is in training."""
        if row is None:
            return {}
        if not self.finished:
            raise InputError(
                "Laplace must see the training data before it predicts, got none since the weights changed. "
                "Call train(...), or ensemble.finish(loader) after your own training."
            )
        theta = self.theta()
        noise = normal_numbers(theta.shape, row, 0, theta) / (self.values + self.precision).sqrt()
        if self.full:
            offset = (self.of_inputs @ noise.flatten()).view_as(theta)
        else:
            offset = self.of_outputs @ noise @ self.of_inputs.T
        theta = theta + offset
        inputs = theta.shape[1] - (self.bias is not None)
        weight = theta[:, :inputs].reshape(self.parts()[0][self.weight].shape)
        return {self.weight: weight} if self.bias is None else {self.weight: weight, self.bias: theta[:, -1]}

    def fit(self, curvatures: "Curvatures", precision: float | None) -> None:
        """Set the Gaussian from sums over the data."""
        theta = self.theta().double()
        if self.full:
            values, vectors = torch.linalg.eigh(curvatures.whole())
            values, left = values.view_as(theta), torch.eye(0)
        else:
            of_outputs, left = torch.linalg.eigh(curvatures.outputs)
            of_inputs, vectors = torch.linalg.eigh(curvatures.inputs)
            # Both are sums over the samples, so that their product has one count too many, Eq. (2).
            values = of_outputs[:, None] * of_inputs / curvatures.count
        # Rounding may leave eigenvalues just below zero.
        values = values.clamp(min=0)
        if precision is None:
            precision = best_precision(theta.square().sum().item(), values.flatten())
        self.values.copy_(values)
        self.of_outputs.copy_(left)
        self.of_inputs.copy_(vectors)
        self.precision.fill_(precision)
        self.finished.fill_(True)


class Curvatures:
    """Sums over the data from which H is made, in float64.

    Args:
        full: Whether H is made whole.
    """

    def __init__(self, full: bool) -> None:
        self.full, self.count = full, 0
        self.outputs = self.inputs = self.blocks = torch.zeros((), dtype=torch.float64)

    def add(self, features: Tensor, curvature: Tensor) -> None:
        """Add a batch of features `[n, inputs]` and of Λ `[n, outputs, outputs]`."""
        features, curvature = features.double(), curvature.double()
        self.count += len(features)
        if self.full:
            self.blocks = self.blocks + torch.einsum(
                "nab,nf,ng->afbg", curvature, features, features
            )  # Eq. (1)
        else:
            self.outputs = self.outputs + curvature.sum(0)
            self.inputs = self.inputs + features.T @ features

    def whole(self) -> Tensor:
        """Return H, `[outputs inputs, outputs inputs]`."""
        return self.blocks.flatten(2).flatten(0, 1)


@dataclass(frozen=True)
class Laplace(Method):
    """Draw the last layer of one trained network from a Gaussian around its weights.

    Needs no training beside the network's own: `ensemble.finish(loader)` passes once over the training data.

    Args:
        draws: How many draws are kept for prediction, at least 1.
        structure: Of the curvature: `full`, `kronecker`, or `auto`, which is full up to 1000 numbers.
        prior_precision: τ, above 0; None takes what maximises the evidence.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> x = torch.randn(20, 3)
        >>> ensemble = pluribus.convert(model, Laplace(draws=5), example=x)
        >>> ensemble.finish([x])
        >>> ensemble.eval()(x).shape
        torch.Size([5, 20, 2])
    """

    draws: int = setting(20, at_least=1, at_most=MOST_DRAWS, search=OneOf((4, 8, 16)))
    structure: str = setting("auto", choices=STRUCTURES)
    prior_precision: float | None = setting(None, kind=float, above=0, at_most=LARGEST)

    # The curvature of a frozen layer is known as well.
    own_weights: ClassVar[bool] = False

    @property
    def on_trained(self) -> str:
        return "approximate"

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        """Return members whose last layer is drawn."""
        sites = [choice.site for choice in choices if choice.method]
        layer = _last_layer(network, sites)
        weight, bias = _weight_and_bias(layer, network)
        held = network.tensors()
        numbers = held[weight].numel() + (held[bias].numel() if bias else 0)
        full = self.structure == "full" or (self.structure == "auto" and numbers <= MOST_FULL)
        tensors = LastLayer(network, weight, bias, full)
        # The network runs once for all draws of its last layer, which is worth a plan.
        code = PlainCode.of(network.module, network.output)
        members = Members(Seeds(self.draws, 1, seed, anonymous=True), tensors, code, lowers=True)
        layers = tuple(_record(choice, layer) for choice in choices)
        return Built(members, layers)

    def is_ready(self, members: AnyMembers) -> bool:
        """Return whether the data were seen."""
        return bool(_gaussian(members).finished)

    def after_step(self, members: AnyMembers, progress: float) -> None:
        """Forget the curvature: it was that of other weights."""
        _gaussian(members).finished.fill_(False)

    @torch.no_grad()
    def finish(self, members: AnyMembers, batches: Iterable[Inputs]) -> None:
        """Sum the curvature over the training data."""
        tensors = _gaussian(members)
        assert isinstance(batches, Batches)
        network = members.as_module(None)
        layer = network.get_submodule(tensors.weight.rpartition(".")[0])
        sums = Curvatures(tensors.full)
        for inputs in batches:
            features, outputs = _run_with_features(network, layer, inputs)
            if tensors.bias is not None:
                features = torch.cat([features, features.new_ones(len(features), 1)], 1)
            sums.add(features, batches.curvature(outputs))
        if not sums.count:
            raise InputError("finish must be given at least one batch, got none.")
        tensors.fit(sums, self.prior_precision)


def _gaussian(members: AnyMembers) -> LastLayer:
    """Return the tensors of members, which `build` made."""
    assert isinstance(members.tensors, LastLayer)
    return members.tensors


def _run_with_features(network: nn.Module, layer: nn.Module, inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Return what enters a layer, `[samples, features]`, and what the network returns, `[samples, outputs]`.

    Positions of a dense prediction count as samples.
    """
    seen: list[Tensor] = []
    handle = layer.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    try:
        outputs = network(*inputs.args, **inputs.keywords)
    finally:
        handle.remove()
    axis = 1 if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d) else -1
    features = seen[-1].movedim(axis, -1)
    return features.flatten(0, -2), outputs.movedim(axis, -1).flatten(0, -2)


def _last_layer(network: Network, sites: Sequence[Site]) -> Site:
    """Return the layer that makes the prediction.

    Raises:
        ConversionError: It is no linear layer, or something follows it.
    """
    last = find_ends(network, sites)[1]
    if last is None or not _is_linear(last.module):
        raise ConversionError(
            "Laplace must have a linear layer or a 1x1 convolution as the last, got "
            f"{last or 'none'}. " + there_are(sites)
        )
    seen: list[Tensor] = []
    handle = last.module.register_forward_hook(lambda module, given, output: seen.append(output))
    try:
        example = network.example.copy()
        with dry_run(network.module, training=False), torch.no_grad():
            output = select_output(network.module(*example.args, **example.keywords), network.output)
    finally:
        handle.remove()
    # Curvature is that of the outputs in the weights, which is known for a layer that makes them itself.
    if len(seen) != 1 or seen[0].shape != output.shape or not torch.equal(seen[0], output):
        raise ConversionError(
            f"Laplace must have a network that returns the output of its last layer, got one that changes "
            f"the output of {last}. Return logits, without a softmax after them."
        )
    return last


def _is_linear(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return set(layer.kernel_size) == {1} and layer.groups == 1
    return isinstance(layer, nn.Linear)


def _weight_and_bias(layer: Site, network: Network) -> tuple[str, str | None]:
    """Return the names of a layer's weight and bias."""
    held = network.tensors()
    names = sorted(layer.parameters, key=lambda name: held[name].ndim, reverse=True)
    return names[0], names[1] if len(names) > 1 else None


def _record(choice: LayerChoice, layer: Site) -> LayerRecord:
    site = choice.site
    if site is layer:
        return LayerRecord(site.names, site.kind, "drawn around its weights")
    return LayerRecord(site.names, site.kind, "shared", choice.reason or "not the last layer")
