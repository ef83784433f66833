"""Products: shared weights that each member changes by factors of its own.

    W_m = product(W, factors of member m)

BatchEnsemble multiplies by an outer product of two vectors, LoRA adds a product of two thin matrices.
"""

import copy
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from pluribus.mechanisms.members.stacked import Stacked
from pluribus.mechanisms.members.tensors import Tensors
from pluribus.mechanisms.members.tree import divide, named_tensors, plant, take, uproot
from pluribus.mechanisms.network.network import Network

Product = Callable[..., Tensor]
"""Callback (weight, *factors `[members, ...]`) -> the weights of these members, `[members, *weight]`."""


class Products(Tensors):
    """Shared weights with factors for each member.

    Args:
        network: Whose tensors these are.
        own: By name, the other tensors that each member has for itself, `[members, ...]`.
        members: How many there are.
        kinds: Names of the factors, in the order in which `product` takes them. Each is a tree of tensors
            under this name, so that files and optimizers know them.
        product: Computes the weights of members.
        merge: Whether `resolved` stores the weights of all members, or the shared one and the factors.
        scales: Whether there are two kinds of factors, and a product is the weight with its first axis times
            the first and its second times the second, so that layers may scale outputs and inputs instead.
    """

    def __init__(
        self,
        network: Network,
        own: Mapping[str, Tensor],
        members: int,
        kinds: Sequence[str],
        product: Product,
        merge: bool = True,
        scales: bool = False,
    ) -> None:
        super().__init__(*divide(network, own))
        self.members, self.kinds, self.product, self.merge = members, tuple(kinds), product, merge
        self.scales = scales
        for kind in kinds:
            self.add_module(kind, nn.Module())

    def add(self, name: str, factors: Sequence[Tensor]) -> None:
        """Give the weight of that name its factors, `[members, ...]` each, in the order of `kinds`."""
        weight = self.parts()[0][name]
        for kind, factor in zip(self.kinds, factors, strict=True):
            plant(self.get_submodule(kind), name, nn.Parameter(factor.to(weight)))

    def changed(self) -> list[str]:
        """Return the names of the weights that have factors."""
        return list(named_tensors(self.get_submodule(self.kinds[0])))

    def factors(self) -> dict[str, dict[str, Tensor]]:
        """Map each kind of factor to the factors, by the name of their weight."""
        return {kind: named_tensors(self.get_submodule(kind)) for kind in self.kinds}

    def factor_names(self) -> list[str]:
        """Return the names of all factors as parameters of this module."""
        return [f"{kind}.{name}" for kind in self.kinds for name in self.changed()]

    def are_alike(self) -> bool:
        """Return whether there are several members, and all have the same factors."""
        every = [factor for factors in self.factors().values() for factor in factors.values()]
        return self.members > 1 and all(bool((factor == factor[:1]).all()) for factor in every)

    def _stack(self, rows: slice) -> dict[str, Tensor]:
        """Return the tensors that members have for themselves, of some of them, `[members, ...]`."""
        shared, own = self.parts()
        every = list(self.factors().values())
        found = {name: tensor[rows] for name, tensor in own.items()}
        for name in self.changed():
            found[name] = self.product(shared[name], *(factors[name][rows] for factors in every))
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
        return dict.fromkeys([*self.parts()[1], *self.changed()], row)

    def keep(self, rows: Sequence[int]) -> tuple["Products", Sequence[int]]:
        small = copy.deepcopy(self)
        small.members = len(rows)
        for tree in (small.own, *map(small.get_submodule, small.kinds)):
            take(tree, dict.fromkeys(named_tensors(tree), rows))
        return small, range(len(rows))

    def stacks(self, rows: Sequence[int]) -> bool:
        return tuple(rows) == tuple(range(self.members))

    def stacked(self) -> dict[str, Tensor]:
        return self._stack(slice(None))

    @torch.no_grad()
    def resolved(self, rows: Sequence[int]) -> Tensors:
        if not self.merge:
            return super().resolved(rows)
        products = self.stacked()
        shared, own = copy.deepcopy(self.shared), copy.deepcopy(self.own)
        for name in self.changed():
            # Computed once: resolved weights are not trained, so their factors stay.
            uproot(shared, name)
            plant(own, name, nn.Parameter(products[name].clone(), requires_grad=False))
        return Stacked(shared, own).requires_grad_(False)
