"""The loss of the best constant prediction: what a model that learnt nothing reaches."""

import math

import torch
from torch import Tensor

from pluribus.ensemble import Ensemble
from pluribus.likelihood import Bernoulli, Categorical, Gaussian


def constant_loss(ensemble: Ensemble, target: Tensor) -> float:
    """Return the loss of the best prediction that is the same for all samples."""
    likelihood = ensemble.likelihood
    if isinstance(likelihood, Categorical) and not target.is_floating_point():
        counts = torch.bincount(target[target >= 0].flatten()).double()
        return float(torch.special.entr(counts / counts.sum()).sum())
    if isinstance(likelihood, Categorical):
        return float(torch.special.entr(target.double().mean(0)).sum())
    target = target.double().flatten(1) if target.ndim > 1 else target.double().unsqueeze(1)
    # Where samples have several targets, missing ones are NaN.
    mean = target.nanmean(0)
    if isinstance(likelihood, Bernoulli):
        share = mean
        return float((torch.special.entr(share) + torch.special.entr(1 - share)).mean())
    variance = (target - mean).square().nanmean(0).clamp(min=1e-12)
    if not isinstance(likelihood, Gaussian):
        return variance.mean().item()
    if likelihood.precision is None:
        return (0.5 * (2 * math.pi * math.e * variance).log()).mean().item()
    noise = 1 / likelihood.precision
    return (0.5 * (math.log(2 * math.pi * noise) + variance / noise)).mean().item()
