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

import copy
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from pluribus.conversion_record import LayerRecord
from pluribus.errors import ConversionError
from pluribus.mechanisms.members.axis import split_batch
from pluribus.mechanisms.members.members import Binding, plant, take, tensors, uproot
from pluribus.mechanisms.network.dry_run import ALIKE, derived_seed
from pluribus.mechanisms.network.layers import there_are
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.torch_private import Convolution
from pluribus.method import Built, LayerChoice, Method
from pluribus.settings import LARGEST, MOST_MEMBERS, setting

MATRIX_LAYERS = (
    nn.Linear,
    nn.Bilinear,
    Convolution,
    nn.Embedding,
    nn.EmbeddingBag,
    nn.MultiheadAttention,
    nn.RNNBase,
)


def rank_one(weight: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Eq. (1) for several members.

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
    return weight * factor.view(members, a, b, *[1] * (weight.ndim - 2))


class RankOne(Binding):
    """Shared weights with a rank-1 factor for each member."""

    def __init__(self, network: Network, own: dict[str, Tensor], members: int) -> None:
        super().__init__(network, own, members)
        self.first, self.second = nn.Module(), nn.Module()

    def add(self, name: str, groups: int, std: float, generator: torch.Generator) -> None:
        """Gives the weight of that name its factors, drawn from N(1, std²)."""
        weight = tensors(self.shared)[name]
        for tree, size in ((self.first, weight.shape[0]), (self.second, weight.shape[1] * groups)):
            factor = 1 + std * torch.randn(self.members, size, generator=generator, **ALIKE)
            plant(tree, name, nn.Parameter(factor.to(weight)))

    def own_tensors(self, rows: slice | None = None) -> dict[str, Tensor]:
        shared, second, some = tensors(self.shared), tensors(self.second), rows or slice(None)
        weights = {
            name: rank_one(shared[name], first[some], second[name][some])
            for name, first in tensors(self.first).items()
        }
        return super().own_tensors(rows) | weights

    def bind(self, rows: Sequence[int]) -> Iterator[dict[str, Tensor]]:
        return self._bind_apart(rows)  # going back through one row must not free the products of others

    def choices(self, row: int) -> dict[str, Hashable]:
        return {**super().choices(row), **dict.fromkeys(tensors(self.first), row)}

    def shrink(self, rows: Sequence[int]) -> Self:
        small = super().shrink(rows)
        for tree in (small.first, small.second):
            take(tree, dict.fromkeys(tensors(tree), rows))
        return small

    @torch.no_grad()
    def freeze(self) -> Binding:
        frozen = copy.deepcopy(self).requires_grad_(False)
        products = self.own_tensors()
        for name in tensors(self.first):  # Eq. (1), once
            uproot(frozen.shared, name)
            plant(frozen.own, name, nn.Parameter(products[name].clone(), requires_grad=False))
        frozen.first, frozen.second = nn.Module(), nn.Module()
        return frozen


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

    members: int = setting(4, at_least=1, at_most=MOST_MEMBERS, remedy="Use members=1 for a single network.")
    std: float = setting(0.5, at_least=0, at_most=LARGEST)
    repeat: bool = setting(False)

    per_layer: ClassVar[frozenset[str]] = frozenset({"std"})

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        held = network.tensors()
        matrices = {choice.site: _matrices(choice, held) for choice in choices}
        if not any(matrices.values()):
            raise ConversionError(
                "BatchEnsemble needs a trained weight matrix, however: no chosen layer has one. "
                + there_are([choice.site for choice in choices])
            )
        own = {
            name: torch.stack([held[name].detach()] * self.members)
            for choice in choices
            for name in _own_names(choice, matrices[choice.site], held)
        }
        changed = network.allow_other_weights(name for names in matrices.values() for name in names)
        binding = RankOne(network, own, self.members)
        generator = torch.Generator().manual_seed(derived_seed(seed, 0))
        for choice in choices:
            for name in matrices[choice.site]:
                if name not in tensors(binding.first):  # tied weights have one factor
                    layer = choice.site.module
                    groups = layer.groups if isinstance(layer, Convolution) else 1
                    binding.add(name, groups, choice.method.std, generator)  # type: ignore[union-attr]
        factors = {f"{axis}.{name}" for axis in ("first", "second") for name in tensors(binding.first)}
        rows = tuple(_row(choice, matrices[choice.site], self.members) for choice in choices)
        notes = tuple(f"gradients of {name} are dense" for name in changed)
        return Built(binding, rows, notes, no_decay=frozenset(factors))

    def assign(self, batch: int, rows: Sequence[Any], progress: float) -> list[Tensor] | None:
        return None if self.repeat else split_batch(batch, len(rows))


def _matrices(choice: LayerChoice, held: dict[str, Tensor]) -> list[str]:
    """The trained matrices of a chosen layer; a bare parameter such as a class token `[1, 1, n]` is none."""
    known = isinstance(choice.site.module, MATRIX_LAYERS)

    def is_matrix(name: str) -> bool:
        shape = held[name].shape
        return len(shape) >= 2 and not _is_bias(name) and (known or min(shape[:2]) > 1)

    return [name for name in choice.site.trained if choice.method and is_matrix(name)]


def _is_bias(name: str) -> bool:
    """Attention has biases `bias_k` and `bias_v` of shape `[1, 1, n]`."""
    return name.rsplit(".", 1)[-1].startswith("bias")


def _own_names(choice: LayerChoice, matrices: list[str], held: dict[str, Tensor]) -> list[str]:
    """Biases of layers with factors (Eq. 2), and running statistics."""
    site = choice.site
    biases = [
        n for n in site.trained if matrices and (held[n].ndim == 1 or _is_bias(n)) and n not in matrices
    ]
    return biases + (list(site.statistics) if choice.method else [])


def _row(choice: LayerChoice, matrices: list[str], members: int) -> LayerRecord:
    site = choice.site
    if matrices:
        names = ", ".join(name.rsplit(".", 1)[-1] for name in matrices)
        return LayerRecord(site.names, site.kind, f"{members} rank-1 factors of {names}")
    became = f"shared, with {members} running statistics" if choice.method and site.statistics else "shared"
    frozen = site.parameters and not site.trained
    return LayerRecord(
        site.names, site.kind, became, choice.reason or ("frozen" if frozen else "not a matrix")
    )
