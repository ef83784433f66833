"""Calibration: what is said with confidence p should be right in a share p of cases.

Guo, Pleiss, Sun & Weinberger, "On calibration of modern neural networks", ICML 2017, Eq. (3) and (5).
Samples are put into bins by the confidence of their label, and each bin's gap is weighed by its size:

    gap_b = |accuracy(B_b) - confidence(B_b)|
    ECE = Σ_b |B_b|/n gap_b                                                       (3)
    MCE = max_b gap_b                                                             (5)

A norm q joins both, (Σ_b |B_b|/n gap_b^q)^(1/q): ECE at 1, MCE at infinity.

    variant                 bins
    Guo et al.              15 of equal width
    ensemble model          20 of equal width, those of at most 5 samples dropped; Chang, Yao, Williams-King
      patching              & Lipson, "Ensemble model patching", 2019, App. D.2
    adaptive                15 of equal size; Mukhoti et al., "Calibrating deep neural networks using focal
                            loss", NeurIPS 2020
    class-conditional       15 of equal width for the samples of each predicted label, averaged over all
                            classes; Ferianc, Fan & Rodrigues, "SAE", BMVC 2024

A bin is an interval (a, b]; a confidence of 0 is in the first. Choices where the papers are silent: the n
of Eq. (3) counts the samples of dropped bins too; equal confidences are never parted among bins of equal
size, so that the order of the samples does not matter.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from pluribus.errors import InputError
from pluribus.metrics.metric import Metric
from pluribus.metrics.samples import exact, samples
from pluribus.prediction import DiscretePrediction
from pluribus.ranges import check, invalid

# Returns the edges of some bins for confidences `[samples]`.
Spacing = Callable[[Tensor, int], Tensor]


@dataclass(frozen=True, eq=False)
class Reliability:
    """The bars of a reliability diagram, in double precision.

    Args:
        edges: Ends of the intervals (a, b] from 0 to 1, ascending, `[bins + 1]`.
        counts: Samples in each bin, `[bins]`, whole numbers.
        confidence: Mean confidence of each bin, `[bins]`; NaN in an empty one.
        accuracy: Share of right labels in each bin, `[bins]`; NaN in an empty one.

    """

    edges: Tensor
    counts: Tensor
    confidence: Tensor
    accuracy: Tensor

    @property
    def gaps(self) -> Tensor:
        """Compute the distance of accuracy and confidence, `[bins]`, in [0, 1]; NaN in an empty bin."""
        return (self.accuracy - self.confidence).abs()

    def error(self, norm: float = 1.0, least: int = 1) -> float:
        """Compute the norm of the gaps, in [0, 1], over bins of at least `least` samples; NaN without one.

        A norm of 1 is the expected error, `math.inf` the greatest.
        """
        check("least", least, int, at_least=1)
        if not norm >= 1:
            raise invalid("norm", "a number, at least 1", norm)
        kept = self.counts >= least
        gaps, shares = self.gaps[kept], exact(self.counts[kept]) / self.counts.sum()
        if not len(gaps):
            return math.nan
        error = gaps.max() if norm == math.inf else (shares * gaps**norm).sum() ** (1 / norm)
        return error.item()


def equal_width(confidence: Tensor, bins: int) -> Tensor:
    """Return edges of bins of one width, `[bins + 1]`."""
    # Rounded as the confidences are: 0.6 in float32 lies above 0.6 in float64, and so in the next bin.
    return (torch.arange(bins + 1, dtype=torch.float64) / bins).to(confidence)


def equal_size(confidence: Tensor, bins: int) -> Tensor:
    """Return edges, `[bins + 1]`, of bins that share the samples evenly as far as equal confidences allow."""
    # The last sample of each bin but the last one.
    ends = (torch.arange(1, bins) * len(confidence) + bins - 1) // bins - 1
    inner = confidence.sort().values[ends.to(confidence.device)]
    return torch.cat((inner.new_zeros(1), inner, inner.new_ones(1)))


def binned(confidence: Tensor, correct: Tensor, edges: Tensor) -> Reliability:
    """Put samples into bins by their confidence.

    Args:
        confidence: Probabilities, `[samples]`, in [0, 1].
        correct: Whether the outcome came true, `[samples]`.
        edges: Ends of the intervals (a, b], ascending from 0 to 1, `[bins + 1]`.

    """
    confidence, edges = confidence.detach().contiguous(), edges.detach()
    outside = ~((confidence >= 0) & (confidence <= 1))
    if outside.any():
        raise InputError(
            f"confidences must lie in 0 to 1, got {confidence[outside][0].item():g}. "
            "Use probabilities, not logits."
        )
    place, bins = torch.bucketize(confidence, edges[1:-1]).cpu(), len(edges) - 1
    counts = torch.bincount(place, minlength=bins)
    means = (torch.bincount(place, exact(values), bins) / counts for values in (confidence, correct))
    return Reliability(exact(edges), counts, *means)


def reliability(
    prediction: DiscretePrediction, target: Tensor, bins: int = 15, spacing: Spacing = equal_width
) -> Reliability:
    """Compute the reliability diagram of the most probable outcomes.

    Bins are spaced by `equal_width` or `equal_size`.

    >>> prediction = pluribus.Bernoulli().prediction(torch.tensor([[2.0, 3.0, -4.0]]))
    >>> reliability(prediction, torch.tensor([1, 0, 0]), bins=5).accuracy
    tensor([   nan,    nan,    nan,    nan, 0.6667], dtype=torch.float64)
    """
    check("bins", bins, int, at_least=1)
    prediction, target = samples(prediction, target)
    confidence = prediction.confidence
    return binned(confidence, prediction.labels == target, spacing(confidence, bins))


def ece(
    prediction: DiscretePrediction, target: Tensor, bins: int = 15, norm: float = 1.0, least: int = 1
) -> float:
    """Compute the expected calibration error, Eq. (3), in [0, 1]; bins of fewer than `least` are dropped."""
    return reliability(prediction, target, bins).error(norm, least)


def mce(prediction: DiscretePrediction, target: Tensor, bins: int = 15, least: int = 1) -> float:
    """Compute the maximum calibration error, Eq. (5), in [0, 1]; bins of fewer than `least` are dropped."""
    return ece(prediction, target, bins, math.inf, least)


def adaptive_ece(prediction: DiscretePrediction, target: Tensor, bins: int = 15) -> float:
    """Compute the expected calibration error with bins of equal size, in [0, 1]."""
    return reliability(prediction, target, bins, equal_size).error()


def class_conditional_ece(prediction: DiscretePrediction, target: Tensor, bins: int = 15) -> float:
    """Average over all classes the error of the samples so labelled, in [0, 1]; 0 for a class never given."""
    check("bins", bins, int, at_least=1)
    prediction, target = samples(prediction, target)
    confidence, labels = prediction.confidence, prediction.labels
    correct, edges = labels == target, equal_width(confidence, bins)
    given = [labels == label for label in torch.unique(labels)]
    errors = [binned(confidence[own], correct[own], edges).error() for own in given]
    return sum(errors) / prediction.log_probabilities.shape[1]


GUO = "Guo et al., On calibration of modern neural networks, ICML 2017"
PATCHING = "Chang et al., Ensemble model patching, 2019"

_row = partial(Metric, direction="lower", range=(0, 1), kinds=(DiscretePrediction,))

ROWS = (
    _row(
        name="ece",
        function=ece,
        title="ECE",
        explanation="How far confidence and accuracy are apart on average, in 15 bins of confidence.",
        paper=GUO,
    ),
    _row(
        name="mce",
        function=mce,
        title="MCE",
        explanation="How far confidence and accuracy are apart at worst, in 15 bins of confidence.",
        paper=GUO,
    ),
    _row(
        name="ece_20",
        function=partial(ece, bins=20, least=6),
        title="ECE, 20 bins",
        explanation="How far confidence and accuracy are apart on average, in 20 bins, those of at most 5 "
        "samples left out.",
        paper=PATCHING,
    ),
    _row(
        name="mce_20",
        function=partial(mce, bins=20, least=6),
        title="MCE, 20 bins",
        explanation="How far confidence and accuracy are apart at worst, in 20 bins, those of at most 5 "
        "samples left out.",
        paper=PATCHING,
    ),
    _row(
        name="adaptive_ece",
        function=adaptive_ece,
        title="Adaptive ECE",
        explanation="How far confidence and accuracy are apart on average, in 15 bins that hold equally "
        "many samples.",
        paper="Mukhoti et al., Calibrating deep neural networks using focal loss, NeurIPS 2020",
    ),
    _row(
        name="class_conditional_ece",
        function=class_conditional_ece,
        title="Class-conditional ECE",
        explanation="How far confidence and accuracy are apart on average, for each predicted class alone.",
        paper="Ferianc, Fan & Rodrigues, SAE: Single architecture ensemble neural networks, BMVC 2024",
    ),
)
