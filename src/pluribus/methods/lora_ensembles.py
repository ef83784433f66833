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

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from pluribus.axes import Between, OneOf
from pluribus.conversion_record import LayerRecord
from pluribus.errors import ConversionError
from pluribus.mechanisms.exits.pairs import check_where
from pluribus.mechanisms.graph.first_and_last import find_ends
from pluribus.mechanisms.members.axis import split_batch
from pluribus.mechanisms.members.index import Fixed
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.orders import assign_orders, count_orders
from pluribus.mechanisms.members.prior import AnyMembers
from pluribus.mechanisms.members.product_code import ProductCode
from pluribus.mechanisms.members.products import Products
from pluribus.mechanisms.members.reduction import REDUCTIONS, reduce_losses, trains_apart
from pluribus.mechanisms.network.dry_run import ALIKE, derived_seed
from pluribus.mechanisms.network.layers import Site, is_bias, is_norm, select, there_are
from pluribus.mechanisms.network.network import Network
from pluribus.method import Built, LayerChoice, Method
from pluribus.ranges import LARGEST, MOST_MEMBERS
from pluribus.recipe import Recipe
from pluribus.settings import setting

# A table that is indexed would get the gradient of a whole product for the few rows of a batch.
TABLES = (nn.Embedding, nn.EmbeddingBag)
TUNING_LR = 1e-3
"""Rate of a tuning: B starts at zero, so that members part slowly. In `benchmarks/trained.py` an epoch gave
them a mutual information of 0.0013 with orders of their own, and of 0.0002 with one order."""


def low_rank(weight: Tensor, down: Tensor, up: Tensor, alpha: float) -> Tensor:
    """Compute Eq. (1) for several members.

    Args:
        weight: W, `[out, ...]`; further axes count as one.
        down: A, `[members, r, in]`.
        up: B, `[members, out, r]`.
        alpha: α.

    Returns:
        `[members, out, ...]`.
    """
    change = alpha / down.shape[1] * (up @ down)
    return weight + change.view(len(down), *weight.shape)  # Eq. (1)


def draw_matrices(
    weight: Tensor, members: int, rank: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return A as `nn.Linear` starts and B of zeros, `[members, r, in]` and `[members, out, r]`."""
    outputs, inputs = weight.shape[0], weight[0].numel()
    # A matrix has no rank above its smaller side.
    rank = min(rank, outputs, inputs)
    uniform = torch.rand(members, rank, inputs, generator=generator, **ALIKE)
    down = (2 * uniform - 1) / math.sqrt(inputs)
    return down, torch.zeros(members, outputs, rank)


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
        shuffle_members: Whether each member goes through the training set in an order of its own: a batch is
            then one of each order after the other, and in a loop of one's own it is divided among members.
            None is no, and yes in `finetune`.
        merge: Whether frozen ensembles and exports hold a whole weight for each member, which runs fastest,
            or the shared weight once with the matrices, whose product each call computes.

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
    shuffle_members: bool | None = setting(None, kind=bool)
    merge: bool = setting(True)

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
        if not self.repeat:
            return split_batch(batch, len(rows))
        return assign_orders(batch, rows, self._shuffles)

    @property
    def _shuffles(self) -> bool:
        # A divided batch shows members different samples anyway.
        return bool(self.shuffle_members) and self.repeat

    @property
    def data_orders(self) -> int:
        return count_orders(self.members, self._shuffles)

    def recipe(self) -> Recipe:
        # A divided batch shows every member a part of the samples.
        return Recipe(longer=1.0 if self.repeat else 2.0, tuning_lr=TUNING_LR)

    @property
    def on_trained(self) -> str:
        return "kept"

    def for_trained(self) -> Self:
        # With one order, random matrices alone tell members apart, which takes long.
        return replace(self, shuffle_members=True) if self.shuffle_members is None else self

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
        product = partial(low_rank, alpha=self.alpha)
        tensors = Products(network, own, self.members, ("down", "up"), product, self.merge)
        generator = torch.Generator().manual_seed(derived_seed(seed, 0))
        for choice in chosen:
            _add_matrices(tensors, choice, matrices[choice.site], generator)
        if self.freeze_shared:
            tensors.shared.requires_grad_(False)
        # A network that came frozen has adapters and an output to train all the same.
        tensors.own.requires_grad_(True)

        # Make the members.
        code = ProductCode.of(network.module, network.output)
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
    tensors: Products, choice: LayerChoice, names: Sequence[str], generator: torch.Generator
) -> None:
    """Draw the matrices of a layer's weights."""
    assert isinstance(choice.method, LoRAEnsembles)
    shared, done = tensors.parts()[0], tensors.changed()
    for name in names:
        # Tied weights have one pair of matrices, and a weight that members own has none.
        if name in shared and name not in done:
            rank = choice.method.rank
            tensors.add(name, draw_matrices(shared[name], tensors.members, rank, generator))


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
