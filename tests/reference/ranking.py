"""Greedy forward selection, Eqs. (3) and (4) of the Layer Ensembles paper: every set is evaluated anew."""

import torch
from torch.distributions import Normal, kl_divergence

from pluribus.metrics import METRICS

RIDGE = 1e-3


def quality(likelihood, outputs, target, metric):
    """The metric of one set of members, `[members, batch, ...]`, by the library's own functions."""
    prediction = likelihood.prediction(outputs)
    if metric == "kl":
        means = prediction.means.reshape(len(outputs), -1)
        model = Normal(means.mean(0), means.std(0, correction=0) + RIDGE)
        return kl_divergence(Normal(target[..., 0], target[..., 1] + RIDGE), model).mean().item()
    known = "gaussian_nll" if metric == "nll" and "nll" not in names(prediction) else metric
    return METRICS[known](prediction, target)


def names(prediction):
    return {name for name, metric in METRICS.items() if metric.suits(prediction)}


def rank(likelihood, outputs, target, metric, counts=None):
    """The order of the members, each there as often as it counts, and the quality of every nested set."""
    counts = torch.ones(len(outputs), dtype=torch.long) if counts is None else counts
    higher = metric in METRICS and METRICS[metric].direction == "higher"
    order, scores = [], []
    for _ in range(len(outputs)):
        best = None
        for candidate in range(len(outputs)):
            if candidate in order:
                continue
            chosen = torch.tensor([*order, candidate])
            repeated = chosen.repeat_interleave(counts[chosen])
            score = quality(likelihood, outputs[repeated], target, metric)
            better = best is None or (
                score > best[1] if higher else score < best[1]
            )  # strict: the first wins
            best = (candidate, score) if better else best
        order.append(best[0])
        scores.append(best[1])
    return order, scores
