"""Selective prediction: how wrong the answers are if only the most confident ones are given.

Geifman, Uziel & El-Yaniv, "Bias-reduced uncertainty estimation for deep neural classifiers", ICLR 2019.
Of n samples in the order of falling confidence, the first k have coverage k/n and a mean loss, their risk:

    risk(k) = 1/k Σ_i≤k loss_i                                                    (1)
    AURC = 1/n Σ_k risk(k)                                                        (2)
    E-AURC = AURC - AURC*,    AURC* with the samples in the order of rising loss  (3)

Deviations: samples of equal confidence come in no order, so each counts with their mean loss, which is the
expectation over all orders. AURC* is exact; the paper's r + (1 - r) log(1 - r) is its limit for large n.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from pluribus.errors import InputError
from pluribus.metrics.metric import Metric
from pluribus.metrics.samples import average, exact, samples
from pluribus.prediction import DiscretePrediction


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """The curves of a risk-coverage diagram, in double precision, each `[samples]`.

    Args:
        coverage: Share of samples answered, 1/n to 1.
        risk: Mean loss of these, the most confident ones.
        ideal: Mean loss of as many samples, those of the least loss.

    """

    coverage: Tensor
    risk: Tensor
    ideal: Tensor

    @property
    def area(self) -> float:
        """Compute Eq. (2)."""
        return average(self.risk)

    @property
    def excess(self) -> float:
        """Compute Eq. (3), at least 0."""
        # Rounding may go below.
        return max(self.area - average(self.ideal), 0.0)


def selective_risk(confidence: Tensor, losses: Tensor) -> RiskCoverage:
    """Compute Eq. (1) at every coverage, for confidences and losses of `[samples]`."""
    if confidence.shape != losses.shape or confidence.ndim != 1 or not len(confidence):
        raise InputError(
            "confidences and losses must be as many, at least 1, "
            f"got shapes {tuple(confidence.shape)} and {tuple(losses.shape)}. Flatten both."
        )
    losses = exact(losses)
    _, ties, sizes = torch.unique(-exact(confidence), return_inverse=True, return_counts=True)
    # Samples of one confidence are answered in no order: each counts with the mean of them.
    means = torch.bincount(ties, losses) / sizes
    answered = torch.arange(1, len(losses) + 1, dtype=torch.float64)
    risk, ideal = (
        values.cumsum(0) / answered for values in (means.repeat_interleave(sizes), losses.sort().values)
    )
    return RiskCoverage(answered / len(losses), risk, ideal)


def risk_coverage(prediction: DiscretePrediction, target: Tensor) -> RiskCoverage:
    """Compute the risk of a wrong label where only the most probable labels are given."""
    prediction, target = samples(prediction, target)
    return selective_risk(prediction.confidence, prediction.labels != target)


def aurc(prediction: DiscretePrediction, target: Tensor) -> float:
    """Compute the area under the risk-coverage curve, Eq. (2), in [0, 1]."""
    return risk_coverage(prediction, target).area


def excess_aurc(prediction: DiscretePrediction, target: Tensor) -> float:
    """Compute the part of that area that better confidence could take away, Eq. (3), in [0, 1]."""
    return risk_coverage(prediction, target).excess


PAPER = "Geifman et al., Bias-reduced uncertainty estimation for deep neural classifiers, ICLR 2019"

ROWS = (
    Metric(
        name="aurc",
        function=aurc,
        direction="lower",
        range=(0, 1),
        title="AURC",
        explanation="Error rate of the most confident answers, averaged over how many answers are given.",
        paper=PAPER,
        kinds=(DiscretePrediction,),
    ),
    Metric(
        name="excess_aurc",
        function=excess_aurc,
        direction="lower",
        range=(0, 1),
        title="Excess AURC",
        explanation="How far the AURC is above its least, reached if wrong answers are the least confident.",
        paper=PAPER,
        kinds=(DiscretePrediction,),
    ),
)
