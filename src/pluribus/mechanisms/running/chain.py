"""Chain: run layers in a row for all members at once, a linear layer as one batched product.

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

# Only layers without tensors and without a mode: they do the same with an axis of members as without.
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
    """Return the layers of nested `nn.Sequential`s in order.

    Args:
        module: The network.

    Returns:
        One link for each layer; empty where there is any layer that is not known.
    """
    # A hook, or a forward of a layer's own, may do anything.
    if not all(_is_plain(layer) for layer in module.modules()):
        return []
    names = {id(tensor): name for name, tensor in named_tensors(module).items()}
    links = list[Link]()
    for layer in _flat(module):
        after_product = bool(links) and bool(links[-1].weight)
        link = _link(layer, names, after_product)
        if link is None:
            return []
        links.append(link)
    return links


def _link(layer: nn.Module, names: Mapping[int, str], after_product: bool) -> Link | None:
    """Return a layer as part of a chain; None for a layer that is not known.

    Args:
        layer: The layer.
        names: By id, the names of the module's tensors.
        after_product: Whether the layer before it is linear.
    """
    if type(layer) is nn.Linear:
        return _linear_link(layer, names)
    # Nothing else reads the product, so it may be overwritten, which spares a tensor.
    if type(layer) is nn.ReLU and after_product:
        return Link(nn.ReLU(inplace=True))
    if type(layer) in ELEMENTWISE or _flattens(layer):
        return Link(layer)
    return None


def _linear_link(layer: nn.Linear, names: Mapping[int, str]) -> Link | None:
    """Return a linear layer as part of a chain; None if its weight or bias is computed.

    Args:
        layer: The layer.
        names: By id, the names of the module's tensors.
    """
    weight = names.get(id(layer.weight))
    bias = "" if layer.bias is None else names.get(id(layer.bias))
    # A computed tensor, as of a parametrization, is none of the module's own.
    if weight is None or bias is None:
        return None
    return Link(layer, weight, bias)


def run_chain(
    chain: list[Link], own: Mapping[str, Tensor], shared: Mapping[str, Tensor], x: Tensor
) -> Tensor:
    """Return the outputs of all members, `[members, batch, ...]`.

    Args:
        chain: What `read_chain` found.
        own: The tensors that each member has for itself, `[members, ...]`.
        shared: The others.
        x: A batch for each member, `[members, batch, ...]`.
    """
    rows = {name: fork(tensor, len(x)) for name, tensor in shared.items()}
    rows |= own
    for link in chain:
        if link.weight:
            x = _linear(x, rows[link.weight], rows.get(link.bias))
        elif isinstance(link.layer, nn.Flatten):
            # Behind the axes of members and of samples.
            x = x.flatten(2)
        else:
            x = link.layer(x)
    return x


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Apply the linear layer of each member to the member's own values.

    Args:
        x: `[members, batch, ..., in]`.
        weight: `[members, out, in]`.
        bias: `[members, out]`, or None.

    Returns:
        `[members, batch, ..., out]`.
    """
    # `bmm` takes three axes; the further ones of a sample are as good as samples.
    samples = x if x.ndim == 3 else x.flatten(1, -2)
    y = torch.bmm(samples, weight.mT)
    if bias is not None:
        y.add_(bias.unsqueeze(1))
    return y if x.ndim == 3 else y.view(*x.shape[:-1], -1)


def _flat(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers of nested `nn.Sequential`s in order."""
    if type(module) is nn.Sequential:
        for layer in module:
            yield from _flat(layer)
    else:
        yield module


def _flattens(layer: nn.Module) -> bool:
    """Return whether a layer flattens all axes but that of the samples."""
    return type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1)


def _is_plain(layer: nn.Module) -> bool:
    """Return whether calling the layer runs the forward of its class and nothing else."""
    return "forward" not in vars(layer) and not has_hooks(layer)
