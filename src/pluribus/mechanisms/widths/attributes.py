"""The numbers that layers keep about their own sizes, and how they follow the tensors."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.fx import Node

from pluribus.mechanisms.network.dry_run import dry_run
from pluribus.mechanisms.widths.channels import Labelled
from pluribus.mechanisms.widths.groups import Group, Widths

Key = tuple[type, str]
"""A class of modules and one of its attributes: decided alike for all of them."""
Values = list[tuple[Any, Any]]
"""Objects that have an attribute, each with its new value."""
NORMS = (nn.modules.batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
NORM_SIZES = ("num_features", "num_channels", "normalized_shape")


def follow_tensors(module: nn.Module) -> None:
    """Sets the sizes that torch's own layers keep to those of their tensors."""
    with dry_run(module, training=False):  # a weight that is computed may count how often it was
        for layer in module.modules():
            for name, value in _sizes(layer).items():
                setattr(layer, name, value)


def _sizes(layer: nn.Module) -> dict[str, Any]:
    weight = getattr(layer, "weight", None)
    weight = getattr(layer, "running_mean", None) if weight is None else weight
    shape = tuple(weight.shape) if isinstance(weight, torch.Tensor) else ()
    match layer:
        case nn.MultiheadAttention():
            return _attention(layer)
        case nn.RNNBase():
            entering, recurrent = (layer.get_parameter(f"weight_{one}_l0") for one in ("ih", "hh"))
            return {"input_size": entering.shape[1], "hidden_size": recurrent.shape[1]}
        case _ if not shape:
            return {}
        case nn.Linear():
            return {"out_features": shape[0], "in_features": shape[1]}
        case nn.modules.conv._ConvNd():
            return _convolution(layer, shape)
        case nn.modules.batchnorm._NormBase():
            return {"num_features": shape[0]}
        case nn.GroupNorm():
            alone = layer.num_groups == layer.num_channels  # each channel is a group
            return {"num_groups": shape[0] if alone else layer.num_groups, "num_channels": shape[0]}
        case nn.LayerNorm() | nn.RMSNorm():
            return {"normalized_shape": shape}
        case nn.Embedding() | nn.EmbeddingBag():
            return {"num_embeddings": shape[0], "embedding_dim": shape[1]}
        case nn.PReLU():
            return {"num_parameters": shape[0]}
    return {}


def _attention(layer: nn.MultiheadAttention) -> dict[str, int]:
    width = layer.out_proj.weight.shape[0]
    one = layer.in_proj_weight is not None
    return {
        "embed_dim": width,
        "head_dim": width // layer.num_heads,
        "kdim": width if one else layer.k_proj_weight.shape[1],
        "vdim": width if one else layer.v_proj_weight.shape[1],
    }


def _convolution(layer: nn.modules.conv._ConvNd, shape: tuple[int, ...]) -> dict[str, int]:
    groups = layer.groups
    if 1 < groups == layer.in_channels:  # depthwise: a group is a channel
        groups = shape[0] if layer.transposed else shape[0] // (layer.out_channels // groups)
    inputs, outputs = (shape[0], shape[1] * groups) if layer.transposed else (shape[1] * groups, shape[0])
    return {"groups": groups, "in_channels": inputs, "out_channels": outputs}


def sizes_seen(widths: Widths, sizes: Mapping[Group, int]) -> dict[str, dict[int, set[int]]]:
    """By module, the sizes of what it computes, each with the new sizes that take its place."""
    seen: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for node, operation in widths.operations.items():
        parts = operation.layer.split(".") if operation.layer else []
        names = [".".join(parts[:count]) for count in range(len(parts) + 1)]
        for one in (node, *node.all_input_nodes):
            for old, new in _changes(widths, one, sizes):
                for name in names:
                    seen[name][old].add(new)
    return seen


def _changes(widths: Widths, node: Node, sizes: Mapping[Group, int]) -> Iterator[tuple[int, int]]:
    value, tensor = widths.values.get(node), node.meta.get("val")
    if not isinstance(value, Labelled) or not isinstance(tensor, torch.Tensor):
        return
    for declared, old, new in zip(tensor.shape, value.shape, widths.shape(value, sizes), strict=True):
        if isinstance(declared, int) and new is not None:
            yield old, new


def candidates(
    module: nn.Module, seen: Mapping[str, Mapping[int, set[int]]]
) -> tuple[dict[Key, Values], set[Key]]:
    """The attributes that may have to change, with new values by the object that has them, and those
    of which it is not certain.
    """
    found: dict[Key, Values] = defaultdict(list)
    doubtful: set[Key] = set()
    for name, layer in module.named_modules():
        changes = seen.get(name, {})
        while not changes and name:
            name = name.rpartition(".")[0]
            changes = seen.get(name, {})
        with dry_run(layer, training=False):
            known = set(_sizes(layer))
        for attribute, value in vars(layer).items():
            if attribute.startswith("_") or not _is_own(layer, attribute, known):
                continue
            new, certain = _changed(value, changes)
            if new != value:
                found[type(layer), attribute].append((layer, new))
                if not certain and attribute not in NORM_SIZES:
                    doubtful.add((type(layer), attribute))
    return found, doubtful


def configured(module: nn.Module, seen: Mapping[str, Mapping[int, set[int]]]) -> dict[Key, Values]:
    """The like in the config of a Hugging Face model, which its code may read."""
    config = getattr(module, "config", None)
    found: dict[Key, Values] = {}
    for attribute, value in vars(config).items() if hasattr(config, "to_dict") else ():
        listed = isinstance(value, list)
        new, _ = _changed(tuple(value) if listed else value, seen.get("", {}))
        new = list(new) if listed else new
        if new != value and not attribute.startswith("_"):
            found[type(config), attribute] = [(config, new)]
    return found


def _is_own(layer: nn.Module, attribute: str, known: set[str]) -> bool:
    """Whether an attribute is not one of torch's, whose sizes are known from tensors."""
    if attribute in NORM_SIZES and isinstance(layer, NORMS):
        return not known
    if attribute == "num_groups" and isinstance(layer, nn.GroupNorm):
        return not known and layer.num_groups == layer.num_channels
    return not type(layer).__module__.startswith("torch.") and not known


def _changed(value: Any, changes: Mapping[int, set[int]]) -> tuple[Any, bool]:
    """The new value of an attribute, and whether no other is possible."""
    if isinstance(value, tuple) and value and all(type(one) is int for one in value):
        pairs = [_changed(one, changes) for one in value]
        return tuple(new for new, _ in pairs), all(certain for _, certain in pairs)
    if type(value) is int and value > 1:
        others = sorted(changes.get(value, set()) - {value})
        return (others[0], changes[value] == {others[0]}) if others else (value, True)
    if type(value) is float and 0 < value < 1:
        size = round(value**-2)  # as the scale of attention
        others = sorted(changes.get(size, set()) - {size})
        if value == size**-0.5 and others:
            return others[0] ** -0.5, True
    return value, True
