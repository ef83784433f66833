"""LoRA ensembles: one trained network, and low-rank changes of its weights for each member.

Hu et al., "LoRA: low-rank adaptation of large language models", ICLR 2022. As ensembles: Wang, Aitchison &
Rudolph, "LoRA ensembles for large language model fine-tuning", 2023, arXiv:2310.00035.

The weights of a trained network stay as they are. Each member adds a product of two thin matrices to every
chosen weight, which is all that it trains; the last layer is its own.

    W_m = W + α/r B_m A_m,    A_m: r × in,  B_m: out × r                          (1)

    symbol   here
    M        members
    r, α     rank, alpha
    A, B     down, up: A starts random, B at zero, so that every member starts as the network

Cost: one network and M r (in + out) numbers for each chosen layer to store; M passes to predict. A training
step is M passes without gradients of the shared weights; with `repeat=False` members divide the batch, and it
is one. Deviations: convolutions are matrices `[out, in · kernel]`, and the paper's dropout on the adapters'
inputs is left out. A member normalises by running statistics of its own in BatchNorm.
"""

import copy
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pluribus.axes import Between, OneOf
from pluribus.conversion_record import LayerRecord
from pluribus.errors import ConversionError
from pluribus.mechanisms.exits.pairs import check_where
from pluribus.mechanisms.graph.first_and_last import find_ends
from pluribus.mechanisms.members.axis import split_batch
from pluribus.mechanisms.members.code import PlainCode
from pluribus.mechanisms.members.index import Fixed
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.prior import AnyMembers
from pluribus.mechanisms.members.reduction import REDUCTIONS, reduce_losses, trains_apart
from pluribus.mechanisms.members.stacked import Stacked
from pluribus.mechanisms.members.tensors import Tensors
from pluribus.mechanisms.members.tree import divide, named_tensors, plant, take, uproot
from pluribus.mechanisms.network.dry_run import ALIKE, derived_seed
from pluribus.mechanisms.network.layers import Site, is_bias, is_norm, select, there_are
from pluribus.mechanisms.network.network import Network
from pluribus.method import Built, LayerChoice, Method
from pluribus.ranges import LARGEST, MOST_MEMBERS
from pluribus.recipe import Recipe
from pluribus.settings import setting

# A table that is indexed would get the gradient of a whole product for the few rows of a batch.
TABLES = (nn.Embedding, nn.EmbeddingBag)


def low_rank(weight: Tensor, down: Tensor, up: Tensor, scale: float) -> Tensor:
    """Compute Eq. (1) for several members.

    Args:
        weight: W, `[out, ...]`; further axes count as one.
        down: A, `[members, r, in]`.
        up: B, `[members, out, r]`.
        scale: α/r.

    Returns:
        `[members, out, ...]`.
    """
    change = scale * (up @ down)
    return weight + change.view(len(down), *weight.shape)  # Eq. (1)


class LowRank(Tensors):
    """Shared weights with a low-rank change for each member.

    Args:
        network: Whose tensors these are.
        own: By name, the other tensors that each member has for itself, `[members, ...]`.
        members: How many there are.
        alpha: α of Eq. (1).
    """

    def __init__(self, network: Network, own: Mapping[str, Tensor], members: int, alpha: float) -> None:
        super().__init__(*divide(network, own))
        self.members, self.alpha = members, alpha
        self.down, self.up = nn.Module(), nn.Module()

    def add(self, name: str, rank: int, generator: torch.Generator) -> None:
        """Give the weight of that name its matrices: A as `nn.Linear` starts, B zero."""
        weight = self.parts()[0][name].detach()
        outputs, inputs = weight.shape[0], weight[0].numel()
        # A matrix has no rank above its smaller side.
        rank = min(rank, outputs, inputs)
        uniform = torch.rand(self.members, rank, inputs, generator=generator, **ALIKE)
        down = (2 * uniform - 1) / math.sqrt(inputs)
        plant(self.down, name, nn.Parameter(down.to(weight)))
        plant(self.up, name, nn.Parameter(weight.new_zeros(self.members, outputs, rank)))

    def _stack(self, rows: slice) -> dict[str, Tensor]:
        """Return the tensors that members have for themselves, of some of them, `[members, ...]`."""
        shared, own = self.parts()
        up = named_tensors(self.up)
        found = {name: tensor[rows] for name, tensor in own.items()}
        for name, down in named_tensors(self.down).items():
            scale = self.alpha / down.shape[1]
            found[name] = low_rank(shared[name], down[rows], up[name][rows], scale)
        return found

    def of(self, rows: Iterable[int]) -> Iterator[dict[str, Tensor]]:
        for row in rows:
            # Row by row: going back through one row must not free the products of others.
            own = self._stack(slice(row, row + 1))
            tensors = dict(self.parts()[0])
            for name, tensor in own.items():
                tensors[name] = tensor[0]
            yield tensors

    def keys(self, row: int) -> dict[str, Hashable]:
        return dict.fromkeys([*self.parts()[1], *named_tensors(self.down)], row)

    def keep(self, rows: Sequence[int]) -> tuple["LowRank", Sequence[int]]:
        small = copy.deepcopy(self)
        small.members = len(rows)
        for tree in (small.own, small.down, small.up):
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
        for name in named_tensors(self.down):
            # Eq. (1) is computed once: frozen weights are not trained.
            uproot(shared, name)
            plant(own, name, nn.Parameter(products[name].clone(), requires_grad=False))
        return Stacked(shared, own).requires_grad_(False)


@dataclass(frozen=True)
class LoRAEnsembles(Method):
    """Members that change a trained network by low-rank matrices of their own.

    Every member starts as the network: before training the ensemble predicts what the network does.

    Args:
        members: How many members, at least 1.
        rank: r of the matrices, at least 1; at most the smaller side of a weight.
        alpha: α, above 0; the product is scaled by α/r.
        where: Name patterns of the layers that get matrices, unless `include` picks them; None is every layer
            with a matrix but embeddings and the last layer.
        own_output: Whether each member has its own copy of the last layer, trained whole; else it gets
            matrices like other layers.
        freeze_shared: Whether the network's own weights stay as they are; else they train too.
        repeat: In training, whether every member sees every sample, at M times the cost, or each sample one
            member, so that a step costs one pass.
        reduction: Of the members' losses: `sum`, `mean`, or `auto`, which is the sum where the shared weights
            are frozen.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> ensemble = pluribus.convert(model, LoRAEnsembles(members=5, rank=2), example=torch.zeros(1, 3))
        >>> x = torch.randn(7, 3)
        >>> torch.allclose(ensemble(x), model(x).expand(5, 7, 2))
        True
    """

    members: int = setting(
        4,
        at_least=1,
        at_most=MOST_MEMBERS,
        remedy="Use members=1 for a single network.",
        search=Between(2, 8),
    )
    rank: int = setting(4, at_least=1, at_most=4096, search=OneOf((2, 4, 8, 16)))
    alpha: float = setting(8.0, above=0, at_most=LARGEST)
    where: str | tuple[str, ...] | None = None
    own_output: bool = setting(True)
    freeze_shared: bool = setting(True)
    repeat: bool = setting(True)
    reduction: str = setting("auto", choices=REDUCTIONS)

    per_layer: ClassVar[frozenset[str]] = frozenset({"rank"})
    # A frozen layer is what adapters are for.
    own_weights: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_where(self)

    def why_skipped(self, site: Site) -> str:
        return "" if site.parameters or site.statistics else "no parameters"

    def is_separate(self, members: AnyMembers) -> bool:
        return trains_apart(self.reduction, members)

    def combine(self, losses: Tensor, shares: Tensor, members: AnyMembers, progress: float) -> Tensor:
        return reduce_losses(losses, shares, self.reduction, members)

    def assign(self, batch: int, rows: Sequence[Any], progress: float) -> list[Tensor] | None:
        return None if self.repeat else split_batch(batch, len(rows))

    def recipe(self) -> Recipe:
        # A divided batch shows every member a part of the samples.
        return Recipe() if self.repeat else Recipe(longer=2.0)

    @property
    def on_trained(self) -> str:
        return "kept"

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        # Find the layers.
        sites = [choice.site for choice in choices]
        output = find_ends(network, sites)[1] if self.own_output else None
        chosen = self._chosen(choices, output)
        held = network.tensors()
        matrices = {choice.site: _matrices(choice.site, held) for choice in chosen}
        if not any(matrices.values()):
            raise ConversionError(
                "LoRAEnsembles must have a weight matrix to adapt, got no chosen layer with one besides the "
                "last. Choose others with where=, or set own_output=False. " + there_are(sites)
            )

        # Make the tensors.
        own = self._own(choices, output, held)
        changed = network.allow_other_weights(name for names in matrices.values() for name in names)
        tensors = LowRank(network, own, self.members, self.alpha)
        generator = torch.Generator().manual_seed(derived_seed(seed, 0))
        for choice in chosen:
            _add_matrices(tensors, choice, matrices[choice.site], generator)
        if self.freeze_shared:
            tensors.shared.requires_grad_(False)
        # A network that came frozen has adapters and an output to train all the same.
        tensors.own.requires_grad_(True)

        # Make the members.
        code = PlainCode.of(network.module, network.output)
        members = Members(Fixed(self.members), tensors, code)

        # Record what happened.
        layers = tuple(self._record(choice, matrices.get(choice.site, []), own) for choice in choices)
        notes = tuple(f"gradients of {name} are dense" for name in changed)
        return Built(members, layers, notes)

    def _chosen(self, choices: Sequence[LayerChoice], output: Site | None) -> list[LayerChoice]:
        """Return the layers that get matrices: those that `include` picks, or that `where` names, or all.

        Args:
            choices: All layers.
            output: The last layer where each member has its own, which needs no matrices.
        """
        sites = [choice.site for choice in choices if choice.method]
        picked = [choice.site for choice in choices if choice.picked]
        if not picked and self.where is not None:
            picked = select(sites, self.where, "where")
        elif not picked:
            picked = [site for site in sites if not isinstance(site.module, TABLES)]
        wanted = set(picked) - {output}
        return [choice for choice in choices if choice.site in wanted]

    def _own(
        self, choices: Sequence[LayerChoice], output: Site | None, held: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return what each member has for itself besides matrices: the output and running statistics.

        Args:
            choices: All layers.
            output: The last layer where each member has its own.
            held: The network's tensors by name.
        """
        own = {}
        for choice in choices:
            if not choice.method:
                continue
            names = list(choice.site.statistics)
            if choice.site is output:
                # A weight that another layer holds too, as an embedding, stays shared.
                names += [name for name in choice.site.parameters if name not in choice.site.tied]
            for name in names:
                own[name] = torch.stack([held[name].detach()] * self.members)
        return own

    def _record(self, choice: LayerChoice, matrices: Sequence[str], own: Mapping[str, Tensor]) -> LayerRecord:
        """Record which matrices of a layer are adapted, or why none is.

        Args:
            choice: The layer.
            matrices: Names of its weights that have matrices.
            own: What each member has for itself.
        """
        site = choice.site
        if matrices:
            names = ", ".join(name.rsplit(".", 1)[-1] for name in matrices)
            return LayerRecord(site.names, site.kind, f"{self.members} low-rank changes of {names}")
        if own.keys() & set(site.parameters):
            return LayerRecord(site.names, site.kind, f"{self.members} copies")
        became = "shared"
        if own.keys() & set(site.statistics):
            became = f"shared, with {self.members} running statistics"
        return LayerRecord(site.names, site.kind, became, choice.reason or "not chosen")


def _add_matrices(
    tensors: LowRank, choice: LayerChoice, names: Sequence[str], generator: torch.Generator
) -> None:
    """Draw the matrices of a layer's weights."""
    assert isinstance(choice.method, LoRAEnsembles)
    shared, done = tensors.parts()[0], named_tensors(tensors.down)
    for name in names:
        # Tied weights have one pair of matrices, and a weight that members own has none.
        if name in shared and name not in done:
            tensors.add(name, choice.method.rank, generator)


def _matrices(site: Site, held: Mapping[str, Tensor]) -> list[str]:
    """Return the names of the weight matrices of a layer; norms have none.

    Args:
        site: The layer.
        held: The network's tensors by name.
    """
    found = []
    for name in site.parameters:
        if _is_matrix(held[name]) and not is_bias(name) and not is_norm(site):
            found.append(name)
    return found


def _is_matrix(weight: Tensor) -> bool:
    """Return whether a low-rank change of a weight means anything.

    A vector has no rank to lower. A bare parameter such as a class token `[1, 1, n]` has several axes, and is
    a vector all the same.
    """
    return weight.is_floating_point() and weight.ndim > 1 and min(len(weight), weight[0].numel()) > 1
