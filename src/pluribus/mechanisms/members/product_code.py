"""Code of members whose weights are products, for plans and graphs that keep the factors apart."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pluribus.mechanisms.members.caller import Caller
from pluribus.mechanisms.members.code import Code, LoweredCode, plain_module
from pluribus.mechanisms.members.index import Row
from pluribus.mechanisms.members.products import Products
from pluribus.mechanisms.members.skeleton import Modes
from pluribus.mechanisms.members.tensors import Tensors
from pluribus.mechanisms.members.tree import named_tensors, plant
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.outputs import Output

NETWORK = "network."
"""Where `NetworkOfProducts` holds the network."""


class ProductCode(Code):
    """The user's code as it is; where `Products` are not merged, a graph computes them from their factors."""

    @classmethod
    def of(cls, module: nn.Module, output: Output = None) -> "ProductCode":
        """Return the code of a network."""
        return cls(Caller(module, output))

    def call(self, tensors: dict[str, Tensor], row: Row, inputs: Inputs, modes: Modes) -> Tensor:
        return self.caller(tensors, inputs, modes)

    def with_caller(self, caller: Caller) -> "ProductCode":
        return ProductCode(caller)

    def as_module(self, tensors: Tensors, row: Row) -> nn.Module:
        return plain_module(self.caller, tensors, row)

    def lowered(self, tensors: Tensors, module: nn.Module, inputs: Inputs) -> LoweredCode:
        if not isinstance(tensors, Products) or tensors.merge:
            return super().lowered(tensors, module, inputs)

        def of(rows: Sequence[int]) -> Iterator[dict[str, Tensor]]:
            for row in rows:
                shared, own = tensors.parts()
                found = {f"{NETWORK}{name}": tensor for name, tensor in shared.items()}
                found |= {f"{NETWORK}{name}": tensor[row] for name, tensor in own.items()}
                for kind, factors in tensors.factors().items():
                    found |= {f"{kind}.{name}": factor[row] for name, factor in factors.items()}
                yield found

        def keys(row: int) -> dict[str, Hashable]:
            names = [f"{NETWORK}{name}" for name in tensors.parts()[1]]
            for kind in tensors.kinds:
                names += [f"{kind}.{name}" for name in tensors.changed()]
            return dict.fromkeys(names, row)

        return LoweredCode(NetworkOfProducts(module, tensors), of, keys, prefix=NETWORK)


class NetworkOfProducts(nn.Module):
    """A network that computes some of its weights from a shared one and factors, in every call.

    Args:
        network: The network of one row.
        tensors: Of all rows; the first row's factors are copied.
    """

    def __init__(self, network: nn.Module, tensors: Products) -> None:
        super().__init__()
        self.network = network
        self.kinds, self.product = tensors.kinds, tensors.product
        held, shared = dict(network.named_parameters()), tensors.parts()[0]
        for name in tensors.changed():
            # The row's network holds the product, which would be multiplied a second time.
            held[name].data.copy_(shared[name])
        for kind, factors in tensors.factors().items():
            self.add_module(kind, nn.Module())
            for name, factor in factors.items():
                plant(self.get_submodule(kind), name, nn.Parameter(factor[0].detach().clone()))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the network returns."""
        every = [named_tensors(self.get_submodule(kind)) for kind in self.kinds]
        held = dict(self.network.named_parameters())
        weights = {}
        for name in every[0]:
            factors = [one[name].unsqueeze(0) for one in every]
            weights[name] = self.product(held[name], *factors)[0]
        # Tied weights are replaced together.
        return torch.func.functional_call(self.network, weights, args, kwargs, tie_weights=True)
