"""Eq. (2) of BatchEnsemble as it is printed: inputs times r, the shared layer, outputs times s, plus a bias.

    y = ((x ∘ r) Wᵀ) ∘ s + b

Written out for every kind of layer, with torch's own layers inside and no weight ever multiplied.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def linear(x: Tensor, weight: Tensor, r: Tensor, s: Tensor, b: Tensor) -> Tensor:
    return ((x * r) @ weight.T) * s + b


def channels(factor: Tensor, x: Tensor) -> Tensor:
    """A factor of the channels of `[batch, channels, ...]`."""
    return factor.view(1, -1, *[1] * (x.ndim - 2))


def convolution(
    x: Tensor, weight: Tensor, r: Tensor, s: Tensor, b: Tensor, groups: int, dilation: int
) -> Tensor:
    """The groups one after the other, each on its own channels."""
    parts = [
        F.conv2d(own, part, dilation=dilation)
        for own, part in zip((x * channels(r, x)).chunk(groups, 1), weight.chunk(groups), strict=True)
    ]
    y = torch.cat(parts, 1)
    return y * channels(s, y) + channels(b, y)


def transposed_convolution(
    x: Tensor, weight: Tensor, r: Tensor, s: Tensor, b: Tensor, groups: int, stride: int
) -> Tensor:
    """Likewise; the weight has the inputs on axis 0."""
    parts = [
        F.conv_transpose2d(own, part, stride=stride)
        for own, part in zip((x * channels(r, x)).chunk(groups, 1), weight.chunk(groups), strict=True)
    ]
    y = torch.cat(parts, 1)
    return y * channels(s, y) + channels(b, y)


def embedding(x: Tensor, weight: Tensor, r: Tensor, s: Tensor) -> Tensor:
    """A one-hot vector times a matrix: r belongs to the words, s to the features."""
    words = F.one_hot(x, len(weight)).to(weight)
    return ((words * r) @ weight) * s


def attention(
    x: Tensor, heads: int, inner: tuple[Tensor, Tensor, Tensor, Tensor], outer: tuple[Tensor, ...]
) -> Tensor:
    """Self-attention on `[batch, sequence, size]`; `inner` and `outer` are weight, r, s and b."""
    query, key, value = linear(x, *inner).chunk(3, -1)
    size = x.shape[-1] // heads
    mixed = []
    for head in range(heads):
        own = slice(head * size, (head + 1) * size)
        scores = query[..., own] @ key[..., own].transpose(1, 2) / size**0.5
        mixed.append(scores.softmax(-1) @ value[..., own])
    return linear(torch.cat(mixed, -1), *outer)


def lstm(x: Tensor, inner: tuple[Tensor, ...], recurrent: tuple[Tensor, ...]) -> Tensor:
    """One layer on `[batch, sequence, size]`, step by step: all hidden states."""
    hidden = cell = x.new_zeros(len(x), recurrent[0].shape[1])
    states = []
    for step in x.unbind(1):
        gates = linear(step, *inner) + linear(hidden, *recurrent)
        entry, forget, change, exit = gates.chunk(4, -1)
        cell = forget.sigmoid() * cell + entry.sigmoid() * change.tanh()
        hidden = exit.sigmoid() * cell.tanh()
        states.append(hidden)
    return torch.stack(states, 1)
