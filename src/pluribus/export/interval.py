"""Quantiles of a mixture of Gaussians, in operators that every export format has.

`GaussianPrediction.quantile` uses `log_ndtr`, which ONNX does not have. Here the distribution function is
written with `erf`, and the search has a fixed number of steps, so that it unrolls.
"""

import math
from statistics import NormalDist

import torch
from torch import Tensor

PARTS, STEPS = 32, 5
"""A step divides the bracket by 32; 32^-5 of the first one is below the rounding of float32. Bisection would
need five times as many operators, and the parts of a step are computed at once."""


def mixture_interval(
    means: Tensor, variances: Tensor, weights: Tensor, level: float
) -> tuple[Tensor, Tensor]:
    """Return both ends of the central interval with `level` of the probability, `[batch, ...]` each.

    Args:
        means: Of the members, `[members, batch, ...]`.
        variances: Likewise.
        weights: How much each member counts, `[members]`.
        level: In (0, 1).
    """
    # erf in float64 is missing in some runtimes, and float32 suffices for an interval.
    means, stds = means.float(), variances.float().sqrt()
    axes = [1] * (means.ndim - 1)
    weights = weights.float().reshape(-1, *axes)
    # Offsets from the centre keep their digits where the means are large.
    centre = (weights * means).sum(0)
    offsets, scales = means - centre, stds * math.sqrt(2)
    masses = ((1 - level) / 2, (1 + level) / 2)
    # The quantile of a mixture lies between those of its members.
    quantiles = [offsets + stds * NormalDist().inv_cdf(mass) for mass in masses]
    low = torch.stack([one.amin(0) for one in quantiles])
    width = torch.stack([one.amax(0) for one in quantiles]) - low
    wanted = torch.tensor(masses, device=means.device).reshape(-1, 1, *axes)
    shares = (torch.arange(1, PARTS, device=means.device) / PARTS).reshape(-1, *axes)
    for _ in range(STEPS):
        # [ends, parts, members, batch, ...]
        points = low.unsqueeze(1) + width.unsqueeze(1) * shares
        standard = (points.unsqueeze(2) - offsets) / scales
        below = (weights * (1 + torch.erf(standard)) / 2).sum(2) < wanted
        width = width / PARTS
        low = low + width * below.float().sum(1)
    ends = centre + low + width
    return ends[0], ends[1]
