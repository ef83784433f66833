"""Dropout written out: masks are given, units are visited one by one."""

import math

import torch
from torch import Tensor, nn


def dropped(values: Tensor, keep: Tensor, rate: float) -> Tensor:
    """Each unit is 0 where it is dropped, and scaled by 1 / (1 − rate) where it is kept."""
    keep = keep.expand_as(values)
    units = [v / (1 - rate) if k else v * 0 for v, k in zip(values.flatten(), keep.flatten(), strict=True)]
    return torch.stack(units).view_as(values)


def attention(query: Tensor, key: Tensor, value: Tensor, keep: Tensor, rate: float) -> Tensor:
    """Attention of `[batch, heads, sequence, size]` whose weights are dropped, target by target."""
    output = torch.zeros(*query.shape[:3], value.shape[3], dtype=query.dtype)
    keep = keep.expand(*query.shape[:3], key.shape[2])
    for b, h, t in torch.cartesian_prod(*map(torch.arange, query.shape[:3])).tolist():
        scores = torch.stack([query[b, h, t] @ source / math.sqrt(query.shape[3]) for source in key[b, h]])
        for source, weight in enumerate(dropped(scores.softmax(0), keep[b, h, t], rate)):
            output[b, h, t] += weight * value[b, h, source]
    return output


def recurrent(layer: nn.RNNBase, x: Tensor, keeps: list[Tensor], rate: float) -> Tensor:
    """A layered RNN as single layers of torch in a row, units dropped in between; the top's outputs."""
    ways = 1 + layer.bidirectional
    for depth in range(layer.num_layers):
        if depth:
            x = dropped(x, keeps[depth - 1], rate)
        settings = {"proj_size": layer.proj_size} if layer.proj_size else {}
        single = type(layer)(
            x.shape[-1], layer.hidden_size, batch_first=True, bidirectional=layer.bidirectional, **settings
        ).to(x.dtype)
        names = [name for name, _ in single.named_parameters()]
        per_layer = len(layer._flat_weights_names) // layer.num_layers
        own = layer._flat_weights_names[depth * per_layer : (depth + 1) * per_layer]
        assert len(names) == len(own) == per_layer
        assert per_layer % ways == 0
        single.load_state_dict({a: getattr(layer, b) for a, b in zip(names, own, strict=True)})
        x = single(x)[0]
    return x
