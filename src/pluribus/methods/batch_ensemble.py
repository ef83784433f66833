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
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pluribus.conversion_record import LayerRecord
from pluribus.errors import ConversionError
from pluribus.mechanisms.members.axis import split_batch
from pluribus.mechanisms.members.code import PlainCode
from pluribus.mechanisms.members.index import Fixed
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.stacked import Stacked
from pluribus.mechanisms.members.tensors import Tensors
from pluribus.mechanisms.members.tree import divide, named_tensors, plant, take, uproot
from pluribus.mechanisms.network.dry_run import ALIKE, derived_seed
from pluribus.mechanisms.network.layers import there_are
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.torch_private import Convolution
from pluribus.method import Built, LayerChoice, Method
from pluribus.recipe import Recipe
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


class RankOne(Tensors):
    """Shared weights with a rank-1 factor for each member.

    Args:
        network: Whose tensors these are.
        own: By name, the other tensors that each member has for itself, `[members, ...]`.
        members: How many there are.
    """

    def __init__(self, network: Network, own: dict[str, Tensor], members: int) -> None:
        super().__init__(*divide(network, own))
        self.members = members
        self.first, self.second = nn.Module(), nn.Module()

    def add(self, name: str, groups: int, std: float, generator: torch.Generator) -> None:
        """Give the weight of that name its factors, drawn from N(1, std²)."""
        weight = self.parts()[0][name]
        for tree, size in ((self.first, weight.shape[0]), (self.second, weight.shape[1] * groups)):
            factor = 1 + std * torch.randn(self.members, size, generator=generator, **ALIKE)
            plant(tree, name, nn.Parameter(factor.to(weight)))

    def _stack(self, rows: slice) -> dict[str, Tensor]:
        """Return the tensors that members have for themselves, Eq. (1), of some of them, `[members, ...]`."""
        shared, own = self.parts()
        second = named_tensors(self.second)
        found = {name: tensor[rows] for name, tensor in own.items()}
        for name, first in named_tensors(self.first).items():
            found[name] = rank_one(shared[name], first[rows], second[name][rows])
        return found

    def of(self, rows: Iterable[int]) -> Iterator[dict[str, Tensor]]:
        for row in rows:
            # Row by row: going back through one row must not free the products of others.
            own = self._stack(slice(row, row + 1))
            yield {**self.parts()[0], **{name: tensor[0] for name, tensor in own.items()}}

    def keys(self, row: int) -> dict[str, Hashable]:
        return dict.fromkeys([*self.parts()[1], *named_tensors(self.first)], row)

    def keep(self, rows: Sequence[int]) -> tuple["RankOne", Sequence[int]]:
        small = copy.deepcopy(self)
        small.members = len(rows)
        for tree in (small.own, small.first, small.second):
            take(tree, dict.fromkeys(named_tensors(tree), rows))
        return small, range(len(rows))

    def stacks(self, rows: Sequence[int]) -> bool:
        return tuple(rows) == tuple(range(self.members))

    def stacked(self) -> dict[str, Tensor]:
        return self._stack(slice(None))

    @torch.no_grad()
    def resolved(self, rows: Sequence[int]) -> Stacked:
        products = self.stacked()
        shared, own = copy.deepcopy(self.shared), copy.deepcopy(self.own)
        for name in named_tensors(self.first):  # Eq. (1), once
            uproot(shared, name)
            plant(own, name, nn.Parameter(products[name].clone(), requires_grad=False))
        return Stacked(shared, own).requires_grad_(False)


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

    def recipe(self) -> Recipe:
        # A divided batch shows every member a part of the samples: shared weights see all, own ones few.
        return Recipe() if self.repeat else Recipe(longer=2.0)

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
        tensors = RankOne(network, own, self.members)
        generator = torch.Generator().manual_seed(derived_seed(seed, 0))
        for choice in choices:
            for name in matrices[choice.site]:
                if name not in named_tensors(tensors.first):  # tied weights have one factor
                    layer = choice.site.module
                    groups = layer.groups if isinstance(layer, Convolution) else 1
                    tensors.add(name, groups, choice.method.std, generator)  # type: ignore[union-attr]
        names = list(named_tensors(tensors.first))
        factors = {f"tensors.{axis}.{name}" for axis in ("first", "second") for name in names}
        rows = tuple(_row(choice, matrices[choice.site], self.members) for choice in choices)
        notes = tuple(f"gradients of {name} are dense" for name in changed)
        code = PlainCode.of(network.module, network.output)
        members = Members(Fixed(self.members), tensors, code)
        return Built(members, rows, notes, no_decay=frozenset(factors))

    def assign(self, batch: int, rows: Sequence[Any], progress: float) -> list[Tensor] | None:
        return None if self.repeat else split_batch(batch, len(rows))


def _matrices(choice: LayerChoice, held: dict[str, Tensor]) -> list[str]:
    """The trained matrices of a chosen layer; a bare parameter such as a class token `[1, 1, n]` is none."""
    known = isinstance(choice.site.module, MATRIX_LAYERS)

    def is_matrix(name: str) -> bool:
        shape = held[name].shape
        return len(shape) >= 2 and not _is_added(name) and (known or min(shape[:2]) > 1)

    return [name for name in choice.site.trained if choice.method and is_matrix(name)]


def _is_added(name: str) -> bool:
    """Return whether a layer adds a tensor as it is: a bias, `bias_k` and `bias_v` of attention among them.

    A table of biases that a layer indexes, such as Swin's `relative_position_bias_table`, is a matrix here.
    """
    return name.rsplit(".", 1)[-1].startswith("bias")


def _own_names(choice: LayerChoice, matrices: list[str], held: dict[str, Tensor]) -> list[str]:
    """Biases of layers with factors (Eq. 2), and running statistics."""
    site = choice.site
    biases = [
        n for n in site.trained if matrices and (held[n].ndim == 1 or _is_added(n)) and n not in matrices
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
