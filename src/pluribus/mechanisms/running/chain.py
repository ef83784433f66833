"""Layers in a row, run for all members at once: a linear layer is one batched product.

`vmap` runs any code, at a price for every operator. Many small networks are a chain of known layers, and
for these the batched operators are called directly.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pluribus.mechanisms.members.axis import fork
from pluribus.mechanisms.members.tree import named_tensors
from pluribus.mechanisms.network.torch_private import has_hooks

ELEMENTWISE = (
    *(nn.Identity, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish),
    *(nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Hardswish, nn.Hardtanh),
)
"""Layers that do the same to every number, have no tensors, and know no mode."""


@dataclass(frozen=True)
class Link:
    """One layer of a chain, and the names of its tensors."""

    layer: nn.Module
    weight: str = ""
    bias: str = ""


def read_chain(module: nn.Module) -> list[Link]:
    """The layers of nested `nn.Sequential`s in order; empty where there is anything else."""
    names = {id(tensor): name for name, tensor in named_tensors(module).items()}
    links = list[Link]()
    for layer in _flat(module):
        if type(layer) is nn.Linear:
            held = [id(tensor) for tensor in (layer.weight, layer.bias) if tensor is not None]
            if not all(one in names for one in held):  # computed, not a tensor of the module's own
                return []
            links.append(Link(layer, names[id(layer.weight)], names.get(id(layer.bias), "")))
        elif type(layer) is nn.ReLU and links and links[-1].weight:
            links.append(Link(nn.ReLU(inplace=True)))  # nothing else looks at the product
        elif type(layer) in ELEMENTWISE or _flattens(layer):
            links.append(Link(layer))
        else:
            return []
    plain = all(_is_plain(layer) for layer in module.modules())
    return links if plain else []


def run_chain(
    chain: list[Link], own: Mapping[str, Tensor], shared: Mapping[str, Tensor], x: Tensor
) -> Tensor:
    """The outputs of all members, `[members, batch, ...]`.

    Args:
        chain: What `read_chain` found.
        own: The tensors that each member has for itself, `[members, ...]`.
        shared: The others.
        x: A batch for each member, `[members, batch, ...]`.
    """
    rows = {**{name: fork(tensor, len(x)) for name, tensor in shared.items()}, **own}
    for link in chain:
        if link.weight:
            x = _linear(x, rows[link.weight], rows.get(link.bias))
        else:
            x = x.flatten(2) if isinstance(link.layer, nn.Flatten) else link.layer(x)
    return x


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`[members, batch, ..., in]` to `[members, batch, ..., out]`."""
    samples = x if x.ndim == 3 else x.flatten(1, -2)
    y = torch.bmm(samples, weight.mT)
    if bias is not None:
        y.add_(bias.unsqueeze(1))
    return y if x.ndim == 3 else y.view(*x.shape[:-1], -1)


def _flat(module: nn.Module) -> Iterator[nn.Module]:
    if type(module) is nn.Sequential:
        for layer in module:
            yield from _flat(layer)
    else:
        yield module


def _flattens(layer: nn.Module) -> bool:
    return type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1)


def _is_plain(layer: nn.Module) -> bool:
    """Whether calling the layer is what its class says: no hooks, no forward of its own."""
    return "forward" not in vars(layer) and not has_hooks(layer)
