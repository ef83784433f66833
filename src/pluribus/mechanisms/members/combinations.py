"""Combinations: rows that take one option of each site, all of them or some that are drawn.

θ(z) = (θ_1[z_1], …, θ_N[z_N]),    z_q ∈ {0, …, K_q − 1}
"""

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Generator

from pluribus.mechanisms.members.mixture import Mixture, draw_assignment

Options = tuple[int, ...]
"""A row: one option for each site."""


def all_rows(sizes: Sequence[int]) -> list[Options]:
    """Return every row, the choice of the first site changing most slowly."""
    return list(itertools.product(*map(range, sizes)))


def draw_rows(sizes: Sequence[int], count: int, generator: Generator | None = None) -> list[Options]:
    """Return independent rows, each choice uniform."""
    columns = [torch.randint(size, (count,), generator=generator).tolist() for size in sizes]
    return list(zip(*columns, strict=True))


def keep_rows(sizes: Sequence[int], draws: int, generator: Generator) -> list[Options]:
    """Return all rows where there are at most `draws`, and else so many different ones, drawn uniformly."""
    if math.prod(sizes) <= draws:
        return all_rows(sizes)
    kept: dict[Options, None] = {}
    while len(kept) < draws:
        kept |= dict.fromkeys(draw_rows(sizes, draws, generator))
    return list(kept)[:draws]


def choose_rows(
    probabilities: Sequence[Sequence[float]], count: int, generator: Generator | None = None
) -> list[Options]:
    """Return independent rows, options as probable as given for each site."""
    mixtures = [Mixture("element", tuple(one)) for one in probabilities]
    columns = [draw_assignment(mixture, [count], generator).tolist() for mixture in mixtures]
    return list(zip(*columns, strict=True))


def keep_draws(
    probabilities: Sequence[Sequence[float]], draws: int, generator: Generator
) -> tuple[list[Options], list[float]]:
    """Return rows, and the share of each, which sum to one.

    All rows, each with its probability, where there are at most `draws`; else so many independent draws
    with equal shares, of which some may be the same row.
    """
    sizes = [len(one) for one in probabilities]
    if math.prod(sizes) > draws:
        return choose_rows(probabilities, draws, generator), [1 / draws] * draws
    rows = all_rows(sizes)
    shares = [math.prod(p[k] for p, k in zip(probabilities, row, strict=True)) for row in rows]
    return rows, shares
