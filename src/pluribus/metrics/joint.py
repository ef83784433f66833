"""Joint predictions: how probable several targets are together.

Osband et al., "Evaluating high-order predictive distributions in deep learning", UAI 2022. A member is one
belief about all inputs, so that a set of inputs is predicted by one member at a time:

    NLL(S) = -log Σ_m w_m Π_{i ∈ S} p_m(y_i | x_i)                                (1)

Members that vary together are told from noise by it: a prediction for one input at a time is the same for
both. With many dimensions two random inputs tell nothing of each other. Dyadic sampling therefore draws two
inputs and repeats them, at random, until a set is full.

    symbol   here
    S        a row of `sets`
    w, p_m   prediction.weights, and the members' probabilities or densities
"""

import torch
from torch import Generator, Tensor

from pluribus.errors import InputError
from pluribus.metrics.samples import average, exact, samples
from pluribus.prediction import DiscretePrediction, GaussianPrediction, gaussian_nll_per_sample
from pluribus.ranges import check

SIZE = 10
"""Inputs of a set in the paper."""


def dyadic_sets(count: int, sets: int = 1000, size: int = SIZE, anchors: int = 2, seed: int = 0) -> Tensor:
    """Return sets of positions, `[sets, size]`, each drawn from a few different inputs of its own.

    Args:
        count: How many inputs there are, at least `anchors`.
        sets: How many sets, at least 1.
        size: Positions of a set, at least 1; inputs come several times.
        anchors: Different inputs that a set is drawn from, at least 1.
        seed: Of the draws.
    """
    for name, value in (("count", count), ("sets", sets), ("size", size), ("anchors", anchors)):
        check(name, value, int, at_least=1)
    check("anchors", anchors, int, at_most=count)
    generator = Generator().manual_seed(seed)
    chosen = torch.stack([torch.randperm(count, generator=generator)[:anchors] for _ in range(sets)])
    return chosen.gather(1, torch.randint(anchors, (sets, size), generator=generator))


def joint_nll(
    prediction: DiscretePrediction | GaussianPrediction, target: Tensor, sets: Tensor | None = None
) -> float:
    """Compute the mean of Eq. (1) over sets, in nats for a whole set.

    Args:
        prediction: With probabilities or densities.
        target: As for `nll` or `gaussian_nll`, none of them missing.
        sets: Positions of the samples of each set, `[sets, size]`; None draws `dyadic_sets`.

    Example:
        >>> prediction = pluribus.Categorical().prediction(torch.tensor([[[9.0, 0]] * 4, [[0, 9.0]] * 4]))
        >>> target = torch.tensor([0, 0, 0, 0])
        >>> round(joint_nll(prediction, target, torch.tensor([[0, 1, 2, 3]])), 2)
        0.69
    """
    if not isinstance(prediction, DiscretePrediction | GaussianPrediction):
        raise InputError(
            f"joint_nll needs probabilities or densities, got {type(prediction).__name__}. "
            "Train with a likelihood that has them, such as gaussian."
        )
    count = len(target)
    prediction, target = samples(prediction, target)
    logs = _member_logs(prediction, target)
    if logs.shape[1] % count:
        raise InputError(f"joint_nll needs every target, got {logs.shape[1]} for {count} samples.")
    # Positions of a dense sample, or several targets, are predicted together with it.
    by_sample = logs.view(len(logs), count, -1).sum(2)
    chosen = dyadic_sets(count) if sets is None else sets
    _check_sets(chosen, count)
    together = by_sample[:, chosen].sum(2)
    weights = exact(prediction.weights).log()
    return average(-torch.logsumexp(together + weights[:, None], 0))


def _member_logs(prediction: DiscretePrediction | GaussianPrediction, target: Tensor) -> Tensor:
    """Return the logarithms of the members' probabilities or densities, `[members, samples]`."""
    if isinstance(prediction, DiscretePrediction):
        logs = exact(prediction.member_log_probabilities)
        return logs[:, torch.arange(len(target)), target.cpu()]
    means, variances = exact(prediction.means), exact(prediction.variances)
    return -gaussian_nll_per_sample(exact(target), means, variances).flatten(1)


def _check_sets(sets: Tensor, count: int) -> None:
    """Raise for anything that is no table of positions."""
    whole = not sets.is_floating_point() and sets.dtype != torch.bool
    if sets.ndim != 2 or not whole or not sets.numel() or not 0 <= int(sets.min()) <= int(sets.max()) < count:
        raise InputError(
            f"sets must be positions from 0 to {count - 1}, [sets, size], got {tuple(sets.shape)} of "
            f"{sets.dtype}. Use dyadic_sets({count})."
        )
