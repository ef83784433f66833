"""Attributes: the numbers that layers keep about their own sizes, and how they follow the tensors."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.fx import Node

from pluribus.mechanisms.network.dry_run import dry_run
from pluribus.mechanisms.network.torch_private import Convolution, NormBase
from pluribus.mechanisms.widths.channels import Labelled
from pluribus.mechanisms.widths.groups import Group, Widths

Key = tuple[type, str]
"""A class of modules and one of its attributes: decided alike for all of them."""
Values = list[tuple[Any, Any]]
"""Objects that have an attribute, each with its new value."""
Shape = tuple[int, ...]
Seen = Mapping[str, Mapping[int, set[int]]]
"""By module, the sizes of what it computes, each with the new sizes that take its place."""

NORMS = (NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
# A norm without parameters and statistics has no tensor from which its size could be read.
NORM_SIZES = ("num_features", "num_channels", "normalized_shape")


def follow_tensors(module: nn.Module) -> None:
    """Set the sizes that torch's own layers keep to those of their tensors.

    Args:
        module: The network, whose tensors have their new sizes; changed in place.
    """
    # A weight that is computed may count how often it was, as spectral norm does.
    with dry_run(module, training=False):
        for layer in module.modules():
            for name, value in _sizes(layer).items():
                setattr(layer, name, value)


def _sizes(layer: nn.Module) -> dict[str, Any]:
    """Return the attributes of a layer that its tensors decide.

    A layer that is not torch's has none, and neither has a norm without parameters and statistics.
    """
    weight = getattr(layer, "weight", None)
    if weight is None:
        weight = getattr(layer, "running_mean", None)
    shape = tuple(weight.shape) if isinstance(weight, torch.Tensor) else ()
    for kind, sizes in SIZES.items():
        if isinstance(layer, kind):
            return sizes(layer, shape) if shape or kind in WITHOUT_WEIGHT else {}
    return {}


def _attention(layer: Any, shape: Shape) -> dict[str, Any]:
    """Return the sizes of attention.

    With separate projections, keys and values may have sizes of their own.
    """
    width = layer.out_proj.weight.shape[0]
    keys, values = width, width
    if layer.in_proj_weight is None:
        keys, values = layer.k_proj_weight.shape[1], layer.v_proj_weight.shape[1]
    return {
        "embed_dim": width,
        "head_dim": width // layer.num_heads,
        "kdim": keys,
        "vdim": values,
    }


def _recurrent(layer: Any, shape: Shape) -> dict[str, Any]:
    """Return the sizes of a recurrent layer; those of its first layer are those of all."""
    entering, recurrent = layer.get_parameter("weight_ih_l0"), layer.get_parameter("weight_hh_l0")
    return {"input_size": entering.shape[1], "hidden_size": recurrent.shape[1]}


def _convolution(layer: Any, shape: Shape) -> dict[str, Any]:
    """Return the sizes of a convolution with weights `[out, in / groups, ...]`, or transposed ones."""
    groups = layer.groups
    # In a depthwise convolution a group is a channel, and there are as many as channels.
    if 1 < groups == layer.in_channels:
        groups = shape[0] if layer.transposed else shape[0] // (layer.out_channels // groups)
    inputs, outputs = shape[1] * groups, shape[0]
    if layer.transposed:
        inputs, outputs = shape[0], shape[1] * groups
    return {"groups": groups, "in_channels": inputs, "out_channels": outputs}


def _group_norm(layer: Any, shape: Shape) -> dict[str, Any]:
    """Return the numbers of groups and channels of a norm."""
    # Where each channel is a group, there are as many groups as channels.
    alone = layer.num_groups == layer.num_channels
    return {"num_groups": shape[0] if alone else layer.num_groups, "num_channels": shape[0]}


def _linear(layer: Any, shape: Shape) -> dict[str, Any]:
    """Return the sizes of a linear layer."""
    return {"out_features": shape[0], "in_features": shape[1]}


def _embedding(layer: Any, shape: Shape) -> dict[str, Any]:
    """Return how many rows there are, and how long they are."""
    return {"num_embeddings": shape[0], "embedding_dim": shape[1]}


def _last_axes_norm(layer: Any, shape: Shape) -> dict[str, Any]:
    """Return the shape that a norm normalises over."""
    return {"normalized_shape": shape}


def _batch_norm(layer: Any, shape: Shape) -> dict[str, Any]:
    """Return the number of channels of a norm."""
    return {"num_features": shape[0]}


def _prelu(layer: Any, shape: Shape) -> dict[str, Any]:
    """Return the number of slopes."""
    return {"num_parameters": shape[0]}


SIZES: dict[type[nn.Module], Callable[[Any, Shape], dict[str, Any]]] = {
    nn.MultiheadAttention: _attention,
    nn.RNNBase: _recurrent,
    nn.Linear: _linear,
    Convolution: _convolution,
    NormBase: _batch_norm,
    nn.GroupNorm: _group_norm,
    nn.LayerNorm: _last_axes_norm,
    nn.RMSNorm: _last_axes_norm,
    nn.Embedding: _embedding,
    nn.EmbeddingBag: _embedding,
    nn.PReLU: _prelu,
}
# Their tensors have other names than `weight`.
WITHOUT_WEIGHT = (nn.MultiheadAttention, nn.RNNBase)


def sizes_seen(widths: Widths, sizes: Mapping[Group, int]) -> dict[str, dict[int, set[int]]]:
    """Return, by module, the sizes of what it computes, each with the new sizes that take its place.

    Args:
        widths: The groups of the network's channels.
        sizes: The new number of channels of every group.

    Returns:
        By name of a module, old sizes with new ones: several where one number stands for several widths,
        the old one among them where it stands for something that stays.
    """
    seen: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for node, operation in widths.operations.items():
        changes = list(_changes(widths, node, sizes))
        for operand in node.all_input_nodes:
            changes += _changes(widths, operand, sizes)
        # What a layer computes, all modules around it compute too.
        for name in _with_parents(operation.layer):
            for old, new in changes:
                seen[name][old].add(new)
    return seen


def _with_parents(name: str) -> list[str]:
    """Return the names of a module and of all modules around it.

    The module comes first, and the network itself, '', last.
    """
    names = [name]
    while name:
        name = name.rpartition(".")[0]
        names.append(name)
    return names


def _changes(widths: Widths, node: Node, sizes: Mapping[Group, int]) -> Iterator[tuple[int, int]]:
    """Yield the old and the new size of every axis of a value.

    Axes whose new size padding leaves open are left out.
    """
    value, tensor = widths.values.get(node), node.meta.get("val")
    if not isinstance(value, Labelled) or not isinstance(tensor, torch.Tensor):
        return
    for declared, old, new in zip(tensor.shape, value.shape, widths.shape(value, sizes), strict=True):
        # A symbolic size is the batch, which no attribute stands for.
        if isinstance(declared, int) and new is not None:
            yield old, new


def candidates(module: nn.Module, seen: Seen) -> tuple[dict[Key, Values], set[Key]]:
    """Return the attributes that may have to change, and those of which it is not certain.

    Args:
        module: The network, whose attributes have their old values.
        seen: What `sizes_seen` returned.

    Returns:
        By class and attribute, the objects that have it with their new values; and the doubtful ones of
        these keys, where a number stands for several sizes, of which only some change.
    """
    found: dict[Key, Values] = defaultdict(list)
    doubtful: set[Key] = set()
    known = _known_sizes(module)
    for name, layer in module.named_modules():
        changes = _nearest_changes(name, seen)
        for attribute, value in vars(layer).items():
            if not _is_own(layer, attribute, known[name]):
                continue
            new, certain = _changed(value, changes)
            if new == value:
                continue
            found[type(layer), attribute].append((layer, new))
            if not certain and attribute not in NORM_SIZES:
                doubtful.add((type(layer), attribute))
    return found, doubtful


def _known_sizes(module: nn.Module) -> dict[str, set[str]]:
    """Return, by name of a layer, its attributes that follow from its tensors.

    One dry run serves all layers, of which a large network has hundreds.

    Args:
        module: The network.
    """
    # A weight that is computed may count how often it was, as spectral norm does.
    with dry_run(module, training=False):
        return {name: set(_sizes(layer)) for name, layer in module.named_modules()}


def _nearest_changes(name: str, seen: Seen) -> Mapping[int, set[int]]:
    """Return the changes of a module, or of the nearest one around it that computes something.

    A module that computes nothing itself, such as a container, may still keep sizes of its children.
    """
    for one in _with_parents(name):
        if seen.get(one):
            return seen[one]
    return {}


def configured(module: nn.Module, seen: Seen) -> dict[Key, Values]:
    """Return the same for the config of a Hugging Face model, which its code may read.

    Args:
        module: The network.
        seen: What `sizes_seen` returned.
    """
    config = getattr(module, "config", None)
    if not hasattr(config, "to_dict"):
        return {}
    found: dict[Key, Values] = {}
    for attribute, value in vars(config).items():
        if attribute.startswith("_"):
            continue
        new, _ = _changed(tuple(value) if isinstance(value, list) else value, seen.get("", {}))
        if isinstance(value, list):
            new = list(new)
        if new != value:
            found[type(config), attribute] = [(config, new)]
    return found


def _is_own(layer: nn.Module, attribute: str, known: set[str]) -> bool:
    """Return whether an attribute is the user's, and no size that follows from tensors.

    Of torch's own layers, a norm without tensors alone keeps a size that nothing else tells.

    Args:
        layer: That has it.
        attribute: Its name.
        known: The attributes of the layer that follow from its tensors.
    """
    # Names with an underscore are torch's own state, and no settings.
    if attribute.startswith("_") or known:
        return False
    if attribute in NORM_SIZES and isinstance(layer, NORMS):
        return True
    if attribute == "num_groups" and isinstance(layer, nn.GroupNorm):
        return layer.num_groups == layer.num_channels
    return not type(layer).__module__.startswith("torch.")


def _changed(value: Any, changes: Mapping[int, set[int]]) -> tuple[Any, bool]:
    """Return the new value of an attribute, and whether no other is possible.

    Args:
        value: The old one; a size, a tuple of sizes or the scale of attention may change.
        changes: Old sizes, each with the new ones that take its place.
    """
    if isinstance(value, tuple) and {type(one) for one in value} == {int}:
        pairs = [_changed(one, changes) for one in value]
        return tuple(new for new, _ in pairs), all(certain for _, certain in pairs)
    # `type` and not `isinstance`: True is an int, and stands for no size; 1 is everywhere.
    if type(value) is int and value > 1:
        return _changed_size(value, changes)
    if type(value) is float and 0 < value < 1:
        return _changed_scale(value, changes), True
    return value, True


def _changed_size(size: int, changes: Mapping[int, set[int]]) -> tuple[int, bool]:
    """Return the size that takes the place of another, and whether it does everywhere.

    Where several may, the smallest is tried first; the proof of the resized network decides.
    """
    others = sorted(changes.get(size, set()) - {size})
    if not others:
        return size, True
    return others[0], changes[size] == {others[0]}


def _changed_scale(scale: float, changes: Mapping[int, set[int]]) -> float:
    """Return the scale of attention, `size ** -0.5`, for the new size; other numbers stay.

    Code computes it once, when it is built, and keeps it as a number.
    """
    size = round(scale**-2)
    others = sorted(changes.get(size, set()) - {size})
    if not others or scale != size**-0.5:
        return scale
    return float(others[0] ** -0.5)
