"""Predictions of an ensemble on a batch: every member's outputs, and their summary as one mixture.

    p(y | x) = Σ_m w_m p_m(y | x)

Probabilities and densities are averaged, never logits. A likelihood checks the outputs and builds the
prediction. Summaries are `[batch, ...]`, in at least float32, and computed when first used.

A calibration corrects the mixture and leaves the members alone: a temperature T acts on the mean
probabilities, a scale s on the variance around the mean,

    p_T(c) ∝ p(c)^(1/T),    y − μ  →  √s (y − μ).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn.functional import logsigmoid, one_hot
from torch.special import log_ndtr, ndtri

from pluribus.calibration_record import MAHALANOBIS, SCORES, Calibration
from pluribus.distance import distance, outputs_side_by_side
from pluribus.errors import InputError
from pluribus.notebook import MOST_ROWS, html_table
from pluribus.ranges import check, invalid

SLICE_BYTES = 16 << 20
"""Bytes of outputs of which summaries are computed at a time; temporary tensors take several times that."""


def at_least_float32(values: Tensor) -> Tensor:
    """Return values in at least float32."""
    # The usual case first: a conversion to the same type takes as long as a small operator.
    if values.dtype == torch.float32:
        return values
    # Half precision loses sums, logarithms and variances.
    return values.to(torch.promote_types(values.dtype, torch.float32))


def align(target: Tensor, shape: Sequence[int]) -> Tensor:
    """Give a target the shape `[batch, ...]`; only axes of size one may differ, nothing is broadcast."""
    wanted, given = ([*sizes[:1], *(n for n in sizes[1:] if n != 1)] for sizes in (shape, target.shape))
    if wanted != given:
        raise InputError(
            f"targets must have shape {tuple(shape)}, axes of size one aside, "
            f"got shape {tuple(target.shape)}. Give one target per sample and output."
        )
    return target.reshape(tuple(shape))


def entropy(logs: Tensor, axis: int) -> Tensor:
    """Compute the entropy, in nats, of the distributions whose log-probabilities lie along an axis."""
    # The clamp makes 0 log 0 zero, where it would be NaN.
    return (logs.exp() * -logs.clamp(min=torch.finfo(logs.dtype).min)).sum(axis)


def at_temperature(logs: Tensor, temperature: float) -> Tensor:
    """Return log-probabilities `[batch, outcomes, ...]` at a temperature."""
    # At 1 nothing is computed, so that nothing is rounded.
    return logs if temperature == 1 else (logs / temperature).log_softmax(1)


def gaussian_nll_per_sample(target: Tensor, means: Tensor, variances: Tensor) -> Tensor:
    """Compute minus the log-density of a target under every member, `[members, batch, ...]`."""
    errors = align(target, means.shape[1:]).to(means.dtype) - means
    return (errors.square() / variances + variances.log() + math.log(2 * math.pi)) / 2


def flat_table(summaries: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, list[Any]]:
    """Return summaries `[batch]` or `[batch, outputs]` as columns by name."""
    columns = {}
    for name, values in summaries.items():
        if values.ndim > 2:
            raise InputError(
                f"a table is flat, got a prediction whose {name} has shape {values.shape}. Use numpy()."
            )
        stem, parts = "p" if name == "probabilities" else f"{name}_", np.atleast_2d(values.T)
        for i, part in enumerate(parts):
            columns[f"{stem}{i}" if len(parts) > 1 else stem.rstrip("_")] = part.tolist()
    return columns


@dataclass(frozen=True, eq=False, repr=False)
class Prediction(ABC):
    """The outputs of all members on a batch, and the mixture that they form.

    `members` are the network's raw outputs, `[members, batch, ...]`; `weights`, `[members]`, are at
    least 0 and sum to one. The length is the batch; `prediction[index]` holds some of its samples,
    a single one still as a batch. `spent`, `[batch]`, are the multiply-adds that each sample took, where
    samples leave the network early; else None. `calibration` is what the summaries are corrected by, or None.
    """

    members: Tensor
    weights: Tensor
    spent: Tensor | None = field(default=None, kw_only=True)
    calibration: Calibration | None = field(default=None, kw_only=True)
    summaries: ClassVar[tuple[str, ...]]

    def __repr__(self) -> str:
        shape = f", outputs of shape {tuple(self.members.shape[2:])}" * (self.members.ndim > 2)
        return f"{type(self).__name__}({len(self)} samples by {len(self.members)} members{shape})"

    def _repr_html_(self) -> str:
        """Return the summaries of each sample as a table for notebooks; of images and the like, shapes."""
        first, left = self[:MOST_ROWS], len(self) - MOST_ROWS
        try:
            columns = first.table()
        except InputError:
            shapes = [(name, tuple(values.shape)) for name, values in self.numpy().items()]
            return html_table(repr(self), ("summary", "shape"), shapes)
        rows = zip(*columns.values(), strict=True)
        notes = [f"and {left} more rows"] if left > 0 else []
        return html_table(repr(self), tuple(columns), rows, notes)

    def __len__(self) -> int:
        return self.members.shape[1]

    def __getitem__(self, index: int | slice | Tensor) -> Self:
        if not isinstance(index, slice):
            index = torch.as_tensor(index, device=self.members.device).reshape(-1)
        spent = None if self.spent is None else self.spent[index]
        return replace(self, spent=spent, **{n: values[:, index] for n, values in self.batched().items()})

    @classmethod
    def concatenate(cls, predictions: Sequence[Self]) -> Self:
        """Join batches that the same members predicted."""
        kinds = {f"{type(p).__name__} {[*p.members.shape[2:]]} by {p.weights.tolist()}" for p in predictions}
        if len(kinds) != 1:
            raise InputError(
                "predictions must be of one kind and by the same weights, got "
                f"{' and '.join(sorted(kinds)) or 'none'}. Join what one ensemble predicted."
            )
        if len({id(one.calibration) for one in predictions}) != 1:
            raise InputError(
                "predictions must have one calibration, got several. Join their raw predictions."
            )
        batched = [one.batched() for one in predictions]
        spent = [one.spent for one in predictions if one.spent is not None]
        joined: dict[str, Any] = {name: torch.cat([one[name] for one in batched], 1) for name in batched[0]}
        return replace(predictions[0], spent=torch.cat(spent) if spent else None, **joined)

    def weighted(self, weights: Tensor) -> Self:
        """Return the same members with other weights, `[members]`, which are divided by their sum.

        Members without weight are left out. A calibration is dropped: it was fitted with other weights.
        """
        fits = isinstance(weights, Tensor) and weights.shape == self.weights.shape
        if not fits or not (weights >= 0).all() or not weights.sum() > 0:
            came = weights.tolist() if isinstance(weights, Tensor) else weights
            raise InputError(
                f"weights must be a tensor of {len(self.weights)} numbers of at least 0, not all of them 0, "
                f"got {came!r}."
            )
        weights = weights.to(self.weights)
        raw = self.raw
        kept = {name: values[weights > 0] for name, values in raw.batched().items()}
        return replace(raw, weights=weights[weights > 0] / weights.sum(), **kept)

    @property
    def raw(self) -> Self:
        """The same prediction without its calibration."""
        return self if self.calibration is None else replace(self, calibration=None)

    def calibrated(self, calibration: Calibration | None) -> Self:
        """Return the same prediction with another calibration, or with none."""
        return replace(self.raw, calibration=calibration)

    def rescaled(self, mean: Tensor, std: Tensor) -> Self:
        """Return numbers of standardised targets in the units of the data; classes as they are.

        Args:
            mean: What was subtracted from the targets.
            std: What they were divided by.
        """
        return self

    @property
    def ood_score(self) -> Tensor:
        """How strange each sample is, `[batch]`, by the score that the calibration chose.

        It is read from the raw prediction; positions, labels and targets of a sample are averaged.
        """
        self._calibrated_number("ood_score", "threshold")
        assert self.calibration is not None
        return self.raw.score(self.calibration.score, self.calibration)

    @property
    def flagged(self) -> Tensor:
        """Samples that are strange, `[batch]`, bool: their score is above the calibrated threshold."""
        return self.ood_score > self._calibrated_number("flagged", "threshold")

    def score(self, name: str, calibration: Calibration | None = None) -> Tensor:
        """Compute an out-of-distribution score of each sample, `[batch]`, higher for a stranger one.

        Args:
            name: One of `calibration_record.SCORES` that suits the prediction, or `mahalanobis`.
            calibration: Has the parameters of `mahalanobis`, and the unit of numbers.
        """
        if name == MAHALANOBIS:
            return self._distance(calibration)
        summary, sign = SCORES[name]
        values: Tensor = sign * getattr(self, summary)
        if name in ("variance", "epistemic_variance") and calibration and calibration.unit is not None:
            values = values / calibration.unit.to(values).square()
        return values.flatten(1).mean(1) if values.ndim > 1 else values

    def _distance(self, calibration: Calibration | None) -> Tensor:
        features = outputs_side_by_side(self.members, self.weights)
        if features is None or calibration is None or calibration.means is None:
            raise InputError("mahalanobis must be fitted, got no calibration with it. Use calibrate(data).")
        assert calibration.whitening is not None
        found = distance(features, calibration.means, calibration.whitening)
        return found.to(self.weights)

    def _calibrated_number(self, wanted: str, part: str) -> float:
        """Return a number of the calibration; raise `InputError` where there is none."""
        number: float | None = getattr(self.calibration, part, None)
        if number is None:
            raise InputError(
                f"{wanted} must be calibrated, got a prediction without calibration. "
                "Call ensemble.calibrate(validation_data), then predict again."
            )
        return number

    def to(self, where: torch.device | torch.dtype | str) -> Self:
        """Move to a device or a dtype; summaries stay in at least float32."""
        spent = self.spent
        if spent is not None and not isinstance(where, torch.dtype):
            spent = spent.to(where)
        moved = {name: v.to(where) for name, v in (self.batched() | {"weights": self.weights}).items()}
        kept: dict[str, Any] = {}
        for name, values in moved.items():
            kept[name] = values if name == "members" else at_least_float32(values)
        return replace(self, spent=spent, **kept)

    def numpy(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return all summaries by name, each `[batch, ...]`."""
        return {name: getattr(self, name).detach().cpu().numpy() for name in self.summaries}

    def table(self) -> dict[str, list[Any]]:
        """Return columns for a `pandas.DataFrame`, a row per sample: `labels`, `p0`, `p1`; `mean_0`."""
        return flat_table(self.numpy()) | self._calibrated_columns()

    def _calibrated_columns(self) -> dict[str, list[Any]]:
        """Return the columns that a calibrated prediction has besides its summaries."""
        if self.calibration is None or self.calibration.threshold is None:
            return {}
        return {"ood_score": self.ood_score.tolist(), "flagged": self.flagged.tolist()}

    def batched(self) -> dict[str, Any]:
        """Return the tensors `[members, batch, ...]` by name."""
        names = (one.name for one in fields(self) if one.name not in ("weights", "spent", "calibration"))
        return {name: getattr(self, name) for name in names}

    def _by_slices(self, compute: Callable[[Self], Tensor]) -> Tensor:
        """Compute a summary for some samples at a time, so that temporary tensors stay small.

        Args:
            compute: Returns the summary of a prediction, `[batch, ...]`; no sample depends on another.
        """
        members, count, *positions = self.members.shape
        # A graph that is exported has any number of samples, and runs them at once.
        if not isinstance(count, int):
            return compute(self)
        size = members * math.prod(positions) * self.members.element_size()
        step = max(1, SLICE_BYTES // max(1, size))
        if step >= count:
            return compute(self)
        return torch.cat([compute(self[start : start + step]) for start in range(0, count, step)])

    def _average(self, values: Tensor) -> Tensor:
        # Not a matrix product: autocast and TF32 would round it to three digits.
        return (values.movedim(0, -1) * self.weights).sum(-1)

    def _log_average(self, logs: Tensor) -> Tensor:
        return (logs.movedim(0, -1) + self.weights.log()).logsumexp(-1)


class DiscretePrediction(Prediction, ABC):
    """A distribution over outcomes, `member_log_probabilities`, `[members, batch, outcomes, ...]`."""

    shown: ClassVar[int | slice]
    summaries = (
        *("probabilities", "labels", "confidence", "max_logit"),
        *("entropy", "expected_entropy", "mutual_information", "variation_ratio"),
    )

    @abstractmethod
    def _labels(self, values: Tensor, axis: int) -> Tensor:
        """Outcomes of the greatest values."""

    @abstractmethod
    def _log_probabilities(self, outputs: Tensor) -> Tensor:
        """Compute the log-probabilities of outputs `[members, batch, ...]` in at least float32."""

    @cached_property
    def member_log_probabilities(self) -> Tensor:
        """Logarithms of each member's probabilities of all outcomes, `[members, batch, outcomes, ...]`."""
        return self._log_probabilities(at_least_float32(self.members))

    @property
    def member_probabilities(self) -> Tensor:
        """Each member's `probabilities`, `[members, batch, ...]`."""
        return self.member_log_probabilities[:, :, self.shown].exp()

    @property
    def probabilities(self) -> Tensor:
        """Mean of the members' probabilities of the outcomes `shown`, at the calibrated temperature."""
        return self.log_probabilities[:, self.shown].exp()

    @cached_property
    def log_probabilities(self) -> Tensor:
        """Logarithms of the probabilities of all outcomes, `[batch, outcomes, ...]`."""
        temperature = 1.0 if self.calibration is None else self.calibration.temperature
        return at_temperature(self._pooled, temperature)

    @cached_property
    def _pooled(self) -> Tensor:
        """Logarithms of the mean probabilities before any calibration, `[batch, outcomes, ...]`."""
        # Rounding may go above zero.
        return self._by_slices(lambda part: part._log_average(part.member_log_probabilities).clamp(max=0))

    @property
    def member_labels(self) -> Tensor:
        """Each member's own most probable outcome, `[members, batch, ...]`."""
        return self._labels(self.member_log_probabilities, 2)

    @property
    def labels(self) -> Tensor:
        """The most probable outcome."""
        return self._labels(self.log_probabilities, 1)

    @property
    def confidence(self) -> Tensor:
        """Probability of the most probable outcome, in [1/outcomes, 1]."""
        return self.log_probabilities.amax(1).exp()

    @cached_property
    def entropy(self) -> Tensor:
        """Total uncertainty: the entropy of `probabilities` in nats, in [0, log outcomes]."""
        return entropy(self.log_probabilities, 1)

    @cached_property
    def expected_entropy(self) -> Tensor:
        """Aleatoric uncertainty: the mean of the members' entropies in nats, in [0, `raw.entropy`].

        A calibration does not change it.
        """
        return self._by_slices(lambda part: part._average(entropy(part.member_log_probabilities, 2)))

    @property
    def mutual_information(self) -> Tensor:
        """Epistemic uncertainty: `raw.entropy - expected_entropy`, at least 0, 0 where all members agree.

        A calibration does not change it: a temperature acts on the mean, and members have no part in it.
        """
        return (entropy(self._pooled, 1) - self.expected_entropy).clamp(min=0)  # rounding may go below

    @property
    def variation_ratio(self) -> Tensor:
        """Share of members whose own label is not the most voted one, in [0, 1 - 1/outcomes]."""
        return self._by_slices(lambda part: part._variation_ratio())

    def _variation_ratio(self) -> Tensor:
        votes = one_hot(self.member_labels, self.member_log_probabilities.shape[2])
        return (1 - self._average(votes).amax(-1)).clamp(min=0)

    @property
    def sets(self) -> Tensor:
        """Outcomes in the conformal set of each sample, `[batch, outcomes, ...]`, bool.

        The truth is in it with at least the calibrated level. A set may be empty where no outcome is
        probable enough. Yes-or-no predictions have the outcomes no and yes.
        """
        quantile = self._calibrated_number("sets", "quantile")
        return 1 - self.log_probabilities.exp() <= quantile

    def _calibrated_columns(self) -> dict[str, list[Any]]:
        columns = super()._calibrated_columns()
        if self.calibration is None or self.calibration.quantile is None:
            return columns
        # `[batch, outcomes, labels]`; one column for each label, most often one.
        sets = self.sets.flatten(2) if self.sets.ndim > 2 else self.sets.unsqueeze(2)
        for label in range(sets.shape[2]):
            name = f"set_{label}" if sets.shape[2] > 1 else "set"
            rows = sets[..., label].tolist()
            columns[name] = [" ".join(str(i) for i, inside in enumerate(row) if inside) for row in rows]
        return columns


class CategoricalPrediction(DiscretePrediction):
    """One of several classes: `probabilities`, `[batch, classes, ...]`, of logits of that shape."""

    shown = slice(None)  # every class

    def _labels(self, values: Tensor, axis: int) -> Tensor:
        return values.argmax(axis)

    def _log_probabilities(self, outputs: Tensor) -> Tensor:
        return outputs.log_softmax(2)

    @property
    def max_logit(self) -> Tensor:
        """Maximum over the classes of the members' mean logit."""
        return self._by_slices(lambda part: part._average(at_least_float32(part.members)).amax(1))


class BernoulliPrediction(DiscretePrediction):
    """No (0) or yes (1): `probabilities` of yes, `[batch, ...]`, of logits of that shape."""

    shown = 1  # yes

    def _labels(self, values: Tensor, axis: int) -> Tensor:
        return (values.select(axis, 1) >= values.select(axis, 0)).long()

    def _log_probabilities(self, outputs: Tensor) -> Tensor:
        return torch.stack((logsigmoid(-outputs), logsigmoid(outputs)), 2)

    @property
    def max_logit(self) -> Tensor:
        """Magnitude of the members' mean logit, which is the logit of the answer it favours."""
        return self._average(at_least_float32(self.members)).abs()


@dataclass(frozen=True, eq=False, repr=False)
class ContinuousPrediction(Prediction, ABC):
    """Numbers: the members' `means`, `[members, batch, ...]`, and a variance around them."""

    means: Tensor
    summaries: ClassVar[tuple[str, ...]] = ("mean", "std", "variance", "epistemic")

    @cached_property
    def mean(self) -> Tensor:
        return self._by_slices(lambda part: part._average(part.means))

    @cached_property
    def epistemic(self) -> Tensor:
        """Variance between the members' means."""
        return self._by_slices(lambda part: part._average((part.means - part.mean).square()))

    @property
    @abstractmethod
    def variance(self) -> Tensor:
        """Variance of the mixture."""

    @property
    def std(self) -> Tensor:
        return self.variance.sqrt()

    def rescaled(self, mean: Tensor, std: Tensor) -> Self:
        calibration = self.calibration
        if calibration is not None:
            # It was fitted in the units of the network.
            calibration = replace(calibration, unit=std)
        means = self.means * std.to(self.means) + mean.to(self.means)
        return replace(self, means=means, calibration=calibration)

    @abstractmethod
    def interval(self, level: float | None = None) -> tuple[Tensor, Tensor]:
        """Both ends, `[batch, ...]` each, of an interval that holds the target with probability `level`."""

    def _calibrated_columns(self) -> dict[str, list[Any]]:
        columns = super()._calibrated_columns()
        if self.calibration is None or self.calibration.quantile is None:
            return columns
        for name, end in zip(("low", "high"), self.interval(), strict=True):
            parts = end.flatten(1).T if end.ndim > 1 else end.unsqueeze(0)
            for i, part in enumerate(parts):
                columns[f"{name}_{i}" if len(parts) > 1 else name] = part.tolist()
        return columns


class PointPrediction(ContinuousPrediction):
    """Numbers without a model of noise: all variance is between members."""

    @property
    def variance(self) -> Tensor:
        return self.epistemic

    def interval(self, level: float | None = None) -> tuple[Tensor, Tensor]:
        """Both ends of the conformal interval, which is equally wide for all samples.

        Args:
            level: None, or the level of the calibration: there is no model of noise for others.
        """
        width = self.mean.new_tensor(self._calibrated_number("interval", "quantile"))
        assert self.calibration is not None
        fitted, unit = self.calibration.level, self.calibration.unit
        if level is not None and level != fitted:
            raise invalid("level", f"None or {fitted}, the calibrated level of Point", level)
        if unit is not None:
            width = width * unit.to(width)
        return self.mean - width, self.mean + width


@dataclass(frozen=True, eq=False, repr=False)
class GaussianPrediction(ContinuousPrediction):
    """A mixture of one Gaussian per member, with `means` and `variances`, `[members, batch, ...]`."""

    variances: Tensor
    summaries = (*ContinuousPrediction.summaries, "aleatoric")

    @property
    def raw(self) -> Self:
        """The same prediction without its calibration."""
        if self.calibration is None:
            return self
        return replace(self._stretched(1 / self.calibration.variance_scale), calibration=None)

    def calibrated(self, calibration: Calibration | None) -> Self:
        """Return the same prediction with another calibration, or with none.

        The mixture is stretched around its mean, so that its members' means and variances change.
        """
        scale = 1.0 if calibration is None else calibration.variance_scale
        return replace(self.raw._stretched(scale), calibration=calibration)

    def rescaled(self, mean: Tensor, std: Tensor) -> Self:
        variances = self.variances * std.to(self.variances).square()
        return replace(super().rescaled(mean, std), variances=variances)

    def _stretched(self, scale: float) -> Self:
        """Return the mixture with its variance multiplied and its mean kept."""
        # At 1 nothing is computed, so that nothing is rounded.
        if scale == 1:
            return self
        means = self.mean + math.sqrt(scale) * (self.means - self.mean)
        return replace(self, means=means, variances=scale * self.variances)

    @cached_property
    def aleatoric(self) -> Tensor:
        """Mean of the members' variances: the noise they see in the data."""
        return self._by_slices(lambda part: part._average(part.variances))

    @property
    def variance(self) -> Tensor:
        return self.aleatoric + self.epistemic  # the mean square less the squared mean would cancel

    def log_prob(self, target: Tensor) -> Tensor:
        """Log-density of each target on its own, `[batch, ...]`."""
        return self._log_average(-gaussian_nll_per_sample(target, self.means, self.variances))

    def cdf(self, target: Tensor) -> Tensor:
        """Probability of each target or less, `[batch, ...]`, in [0, 1]."""
        target = align(target, self.mean.shape).to(self.mean.dtype)
        return self._log_average(log_ndtr((target - self.means) / self.variances.sqrt())).exp().clamp(max=1)

    def interval(self, level: float | None = None) -> tuple[Tensor, Tensor]:
        """Both ends of an interval that holds the target with probability `level`.

        Args:
            level: In (0, 1): the central interval of the mixture. None: the calibrated level, and the ends
                are moved so that as many validation targets were inside.
        """
        if level is not None:
            return self._central(level)
        moved = self._calibrated_number("interval", "quantile") * self.std
        low, high = self._central(self._calibrated_number("interval", "level"))
        return low - moved, high + moved

    def _central(self, level: float) -> tuple[Tensor, Tensor]:
        if not 0 < level < 1:
            raise invalid("level", "above 0 and below 1", level)
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    @torch.no_grad()
    def quantile(self, probability: float) -> Tensor:
        """Values whose `cdf` is a probability in (0, 1), by bisection between the members' quantiles."""
        if not 0 < probability < 1:
            raise invalid("probability", "above 0 and below 1", probability)
        # The upper tail is the lower one of -y, where a small mass is not rounded away.
        sign, mass = (1, probability) if probability <= 0.5 else (-1, 1 - probability)
        means, stds = sign * self.means, self.variances.sqrt()
        ends = means + stds * float(ndtri(torch.tensor(mass, dtype=torch.float64)))
        low, high = ends.amin(0), ends.amax(0)
        for _ in range(64):  # 2^-64 of the first bracket is below the rounding of any float
            middle = low + (high - low) / 2
            below = self._log_average(log_ndtr((middle - means) / stds)) < math.log(mass)
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return sign * high

    def sample(self, n: int, generator: Generator | None = None) -> Tensor:
        """Draws, `[n, batch, ...]`; within one, all targets of a sample come from the same member."""
        check("n", n, int, at_least=1)
        rows, weights = torch.arange(len(self), device=self.means.device), self.weights.expand(len(self), -1)
        choice = torch.multinomial(weights, n, replacement=True, generator=generator).T
        stds = self.variances.sqrt()
        return torch.normal(self.means[choice, rows], stds[choice, rows], generator=generator)
