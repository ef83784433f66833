"""Categories as learnt vectors: the first layer of a network for tables with codes.

A code is the place of a category among those of its column, from 1; 0 stands for a blank or an unseen
category.
"""

import math
from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor, nn

from pluribus.errors import SettingError
from pluribus.ranges import check

MOST_NUMBERS = 50
"""Longest vector of a category; beyond it fast.ai found no gain in tables."""


def vector_size(categories: int) -> int:
    """Return how many numbers stand for each of so many categories: fast.ai's rule of thumb for tables."""
    return min(MOST_NUMBERS, max(2, round(1.6 * math.pow(categories, 0.56))))


class Codes(nn.Module):
    """Replace each code among the inputs by a learnt vector; the other numbers go through a linear layer.

    The linear layer is there for methods with several inputs, such as MIMO: each of these enters by
    layers with weights.

    Args:
        inputs: Numbers per sample, at least 1.
        codes: Number of categories of each code, by its place among the inputs.

    Shape:
        `[batch, ...]` with `inputs` numbers per sample, to `[batch, width]`.

    Example:
        >>> layer = Codes(3, {1: 10})
        >>> layer(torch.tensor([[0.5, 7.0, -1.0]])).shape, layer.width
        (torch.Size([1, 8]), 8)
    """

    def __init__(self, inputs: int, codes: Mapping[int, int]) -> None:
        super().__init__()
        for place, categories in codes.items():
            check("place of a code", place, int, at_least=0, at_most=inputs - 1)
            check("categories", categories, int, at_least=1)
        if not codes:
            raise SettingError("codes must name at least one place, got none. Use mlp without codes.")
        self.places = tuple(sorted(codes))
        self.counts = tuple(codes[place] for place in self.places)
        # The vector of 0 stays zero, so that an unseen category adds nothing instead of untrained numbers.
        self.tables = nn.ModuleList(
            nn.Embedding(count + 1, vector_size(count), padding_idx=0) for count in self.counts
        )
        numbers = inputs - len(codes)
        self.numbers = nn.Linear(numbers, numbers) if numbers else None
        self.width = numbers + sum(map(vector_size, self.counts))
        ends = (-1, *self.places, inputs)
        self.between = tuple((before + 1, after) for before, after in pairwise(ends) if after > before + 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        parts = []
        if self.numbers is not None:
            parts.append(self.numbers(torch.cat([x[:, start:end] for start, end in self.between], 1)))
        for place, count, table in zip(self.places, self.counts, self.tables, strict=True):
            # Inputs with noise, as calibration and shifted data have them, lie between codes or beyond.
            parts.append(table(x[:, place].round().clamp(0, count).long()))
        return torch.cat(parts, 1)
