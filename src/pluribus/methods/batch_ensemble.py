"""BatchEnsemble: one weight matrix, and a rank-1 factor of it for each member.

Wen, Tran & Ba, "BatchEnsemble: an alternative approach to efficient ensemble and lifelong learning",
ICLR 2020.

    W_m = W ∘ (s_m r_mᵀ)                                                          (1)
    y = ((x ∘ r_m) Wᵀ) ∘ s_m + b_m                                                (2), the same

    symbol   here
    M        members
    s, r     first, second: the factors of the weight's axes 0 and 1 (transposed convolutions have
             inputs on axis 0)

Cost: M passes of the network, its parameters and M (in + out) more for each layer. In training a
batch is divided among the members, so that a step has the multiply-adds of one pass.
Deviations: r and s start from N(1, std²) as in the authors' code. Eq. (1) is used for every matrix
of the network, those of embeddings, attention and recurrent layers included. A member normalises by
statistics of its own in BatchNorm; their affine parameters are shared as in the paper.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from pluribus.axes import Between
from pluribus.conversion_record import LayerRecord
from pluribus.errors import ConversionError
from pluribus.mechanisms.members.axis import split_batch
from pluribus.mechanisms.members.code import PlainCode
from pluribus.mechanisms.members.index import Fixed
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.products import Products
from pluribus.mechanisms.network.dry_run import ALIKE, derived_seed
from pluribus.mechanisms.network.layers import Site, there_are
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.torch_private import Convolution
from pluribus.method import Built, LayerChoice, Method
from pluribus.ranges import LARGEST, MOST_MEMBERS
from pluribus.recipe import Recipe
from pluribus.settings import setting

MATRIX_LAYERS = (
    nn.Linear,
    nn.Bilinear,
    Convolution,
    nn.Embedding,
    nn.EmbeddingBag,
    nn.MultiheadAttention,
    nn.RNNBase,
)

TUNING_STD = 0.1
"""Greatest deviation of factors with which a trained network still predicts nearly as before."""


def rank_one(weight: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Compute Eq. (1) for several members.

    Args:
        weight: `[a, b, ...]`; with g groups, element (i, j) belongs to entry (i g // a) b + j of axis 1.
        first: Factors of axis 0, `[members, a]`.
        second: Factors of axis 1 of all groups, `[members, g b]`.

    Returns:
        `[members, a, b, ...]`.
    """
    members, (a, b) = len(first), weight.shape[:2]
    groups = second.shape[1] // b
    second = second.view(members, groups, 1, b).expand(-1, -1, a // groups, -1).reshape(members, a, b)
    factor = first.unsqueeze(2) * second  # s rᵀ
    # Kernels of convolutions have further axes, along which the factor is constant.
    return weight * factor.view(members, a, b, *[1] * (weight.ndim - 2))  # Eq. (1)


def draw_factors(
    weight: Tensor, members: int, groups: int, std: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return s and r of a weight for all members, `[members, ...]` each, drawn from N(1, std²)."""
    outputs, inputs = weight.shape[0], weight.shape[1] * groups
    first = torch.randn(members, outputs, generator=generator, **ALIKE)
    second = torch.randn(members, inputs, generator=generator, **ALIKE)
    return 1 + std * first, 1 + std * second


@dataclass(frozen=True)
class BatchEnsemble(Method):
    """Members that share all weights up to a rank-1 factor.

    Args:
        members: How many members, at least 1.
        std: Standard deviation of the initial factors around 1, at least 0; 0 is neutral.
        repeat: In training, whether every member sees every sample, at M times the cost (the batch
            is repeated), or each sample one member (the batch is divided, as in the paper).

    Example:
        >>> ensemble = pluribus.convert(torch.nn.Linear(3, 2), BatchEnsemble(members=5))
        >>> ensemble(torch.zeros(7, 3)).shape
        torch.Size([5, 7, 2])
    """

    members: int = setting(
        4,
        at_least=1,
        at_most=MOST_MEMBERS,
        remedy="Use members=1 for a single network.",
        search=Between(2, 8),
    )
    std: float = setting(0.5, at_least=0, at_most=LARGEST, search=Between(0.05, 1.0))
    repeat: bool = setting(False)

    per_layer: ClassVar[frozenset[str]] = frozenset({"std"})

    def recipe(self) -> Recipe:
        # A divided batch shows every member a part of the samples: shared weights see all, own ones few.
        return Recipe() if self.repeat else Recipe(longer=2.0)

    @property
    def on_trained(self) -> str:
        if not self.std:
            return "kept"
        if self.std <= TUNING_STD:
            return "approximate"
        # Factors of deviation 0.5, the default, leave nothing of what the weights had learnt.
        return "retrain"

    def for_trained(self) -> Self:
        if self.std != type(self).std:
            return self
        return replace(self, std=TUNING_STD)

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        # Find the matrices.
        held = network.tensors()
        matrices = {choice.site: _matrices(choice, held) for choice in choices}
        names = list(chain.from_iterable(matrices.values()))
        if not names:
            sites = [choice.site for choice in choices]
            raise ConversionError(
                "BatchEnsemble must have a trained weight matrix to convert, got no chosen layer with one. "
                + there_are(sites)
            )

        # Make the tensors.
        own = self._own(choices, matrices, held)
        changed = network.allow_other_weights(names)
        tensors = Products(network, own, self.members, ("first", "second"), rank_one, scales=True)
        generator = torch.Generator().manual_seed(derived_seed(seed, 0))
        for choice in choices:
            _add_factors(tensors, choice, matrices[choice.site], generator)

        # Make the members.
        code = PlainCode.of(network.module, network.output)
        members = Members(Fixed(self.members), tensors, code)

        # Record what happened.
        rows = tuple(_row(choice, matrices[choice.site], self.members) for choice in choices)
        notes = list(map("gradients of {} are dense".format, changed))
        if self.repeat and tensors.are_alike():
            notes.append("members start alike and see the same samples, so that they stay alike")
        # Decay would pull factors to 0 and so the members' weights, where they should stay around 1.
        no_decay = frozenset(f"tensors.{name}" for name in tensors.factor_names())
        return Built(members, rows, tuple(notes), no_decay=no_decay)

    def _own(
        self,
        choices: Sequence[LayerChoice],
        matrices: Mapping[Site, Sequence[str]],
        held: Mapping[str, Tensor],
    ) -> dict[str, Tensor]:
        """Return the tensors besides factors that each member has for itself, `[members, ...]`."""
        own = {}
        for choice in choices:
            for name in _own_names(choice, matrices[choice.site], held):
                own[name] = torch.stack([held[name].detach()] * self.members)
        return own

    def assign(self, batch: int, rows: Sequence[Any], progress: float) -> list[Tensor] | None:
        return None if self.repeat else split_batch(batch, len(rows))


def _add_factors(
    tensors: Products,
    choice: LayerChoice,
    matrices: Sequence[str],
    generator: torch.Generator,
) -> None:
    """Draw the factors of a layer's matrices."""
    layer = choice.site.module
    for name in matrices:
        assert isinstance(choice.method, BatchEnsemble)
        # Tied weights have one factor.
        if name not in tensors.changed():
            weight = tensors.parts()[0][name]
            groups = layer.groups if isinstance(layer, Convolution) else 1
            # The lengths that weight norm keeps of a kernel may have no axis of channels, `[1, 1, k]`.
            if len(weight) % groups:
                groups = 1
            tensors.add(name, draw_factors(weight, tensors.members, groups, choice.method.std, generator))


def _matrices(choice: LayerChoice, held: Mapping[str, Tensor]) -> list[str]:
    """Return the names of the trained matrices of a chosen layer."""
    if not choice.method:
        return []
    # A bare parameter such as a class token `[1, 1, n]` has two axes and is no matrix.
    least = 0 if isinstance(choice.site.module, MATRIX_LAYERS) else 2
    found = []
    for name in choice.site.trained:
        shape = held[name].shape
        if len(shape) < 2 or _is_added(name):
            continue
        if min(shape[:2]) >= least:
            found.append(name)
    return found


def _is_added(name: str) -> bool:
    """Return True for tensors that a layer adds as they are: biases, `bias_k`, `bias_v` of attention.

    A table of biases that a layer indexes, such as Swin's `relative_position_bias_table`, is a matrix here.
    """
    return name.rsplit(".", 1)[-1].startswith("bias")


def _own_names(
    choice: LayerChoice,
    matrices: Sequence[str],
    held: Mapping[str, Tensor],
) -> list[str]:
    """Return the names of the biases of layers with factors, and of running statistics."""
    if not choice.method:
        return []
    names = []
    # Eq. (2) has a bias for each member; layers without factors, such as norms, share theirs.
    for name in choice.site.trained if matrices else ():
        if name in matrices:
            continue
        if held[name].ndim == 1 or _is_added(name):
            names.append(name)
    return names + list(choice.site.statistics)


def _row(choice: LayerChoice, matrices: Sequence[str], members: int) -> LayerRecord:
    """Record which matrices of a layer have factors, or why none has."""
    site = choice.site
    if matrices:
        names = ", ".join(name.rsplit(".", 1)[-1] for name in matrices)
        return LayerRecord(site.names, site.kind, f"{members} rank-1 factors of {names}")
    became = "shared"
    if choice.method and site.statistics:
        became = f"shared, with {members} running statistics"
    reason = "not a matrix"
    if site.parameters and not site.trained:
        reason = "frozen"
    return LayerRecord(site.names, site.kind, became, choice.reason or reason)
