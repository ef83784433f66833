"""Likelihoods: the distribution of a target that a network's outputs stand for."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from pluribus.errors import ExportError, InputError, SettingError
from pluribus.mechanisms.members.axis import fold, fork, unfold
from pluribus.prediction import (
    BernoulliPrediction,
    CategoricalPrediction,
    GaussianPrediction,
    PointPrediction,
    Prediction,
    align,
    at_least_float32,
    gaussian_nll_per_sample,
)
from pluribus.ranges import nearest
from pluribus.settings import Settings, setting

# torch's own mark of a position without a class.
IGNORED = -100
# Keeps the density finite where a network is sure of itself.
VARIANCE_FLOOR = 1e-6
MISSING = "Drop these samples or fill in what is missing."
# How far a sum of half-precision probabilities may be from one.
ROUNDING = 1e-3


def check_finite(name: str, values: Tensor, remedy: str) -> None:
    """Raise where values are NaN or infinite, with their number."""
    # Neither is lost in a sum, and one number is read from a device in no time.
    if math.isfinite(values.sum().item()):
        return
    lost = values.numel() - int(values.isfinite().sum())
    if lost:
        raise InputError(
            f"{name} must be finite, but {lost} of {values.numel()} are NaN or infinite. {remedy}"
        )


def check_outputs(outputs: Tensor) -> None:
    """Raise where outputs have no member or no batch axis."""
    # The length of a tensor takes ten times as long as its shape.
    if outputs.ndim < 2 or not outputs.shape[0]:
        raise InputError(
            "outputs must be [members, batch, ...] with at least 1 member, "
            f"got shape {tuple(outputs.shape)}. Use fork to give a plain batch a member axis."
        )


def check_classes(outputs: Tensor) -> None:
    """Raise where outputs have no axis of at least two classes."""
    check_outputs(outputs)
    if outputs.ndim < 3 or outputs.shape[2] < 2:
        raise InputError(
            "Categorical outputs must be [members, batch, classes, ...] with at least 2 classes, "
            f"got shape {tuple(outputs.shape)}. Use Bernoulli for a single logit."
        )


def class_indices(target: Tensor, outputs: Tensor) -> Tensor:
    """Check indices `[batch, ...]`: one per sample or position, from 0, or -100 for a position to ignore."""
    wanted, classes = outputs[0, :, 0].shape, outputs.shape[2]
    if target.shape == outputs.shape[1:] and target.shape != wanted and classes > 1:
        raise InputError(
            f"class indices must have shape {tuple(wanted)}, got shape {tuple(target.shape)}, as "
            "one-hot targets have. Use target.argmax(1), or target.float() for probabilities."
        )
    target = align(target.long(), wanted)
    dense = target.ndim > 1
    known = (target >= 0) & (target < classes) | (target == IGNORED) & dense
    if not known.all():
        raise InputError(
            f"class indices must lie in 0 to {classes - 1}, "
            + f"or be {IGNORED} to be ignored, " * dense
            + f"got {target[~known][0].item()}. Number the classes from 0, or widen the last layer."
        )
    return target


def class_probabilities(target: Tensor, outputs: Tensor) -> Tensor:
    """Check probabilities, `[batch, classes, ...]`, that sum to one over the classes."""
    shape = tuple(outputs.shape[1:])
    if target.numel() != outputs[0].numel():
        raise InputError(
            f"class targets must be whole numbers, or probabilities of shape {shape}, "
            f"got {target.dtype} of shape {tuple(target.shape)}. Use target.long() for class indices."
        )
    target = align(target, shape).to(outputs.dtype)
    sums = target.sum(1)
    if not (target >= 0).all() or not ((sums - 1).abs() <= ROUNDING).all():
        raise InputError(
            "target probabilities must be at least 0 and sum to one over the classes, but they start at "
            f"{target.min():g} and sum to {sums.min():g} to {sums.max():g}. Use softmax on logits."
        )
    return target


def gaussian_parameters(outputs: Tensor, precision: float | None) -> tuple[Tensor, Tensor]:
    """Return means and variances of the members, `[members, batch, ...]` each.

    Without a precision, axis 2 holds the means and then as many raw variances, which softplus makes
    positive. With one, the outputs are the means, and every variance is `1 / precision`.
    """
    check_outputs(outputs)
    outputs = at_least_float32(outputs)
    if precision is not None:
        return outputs, outputs.new_tensor(1 / precision).expand_as(outputs)
    if outputs.ndim < 3 or outputs.shape[2] % 2:
        raise InputError(
            "Gaussian outputs must be [members, batch, means then raw variances, ...], an even number, "
            f"got shape {tuple(outputs.shape)}. Give the network two outputs per target, "
            "or the likelihood a precision."
        )
    means, raw = outputs.chunk(2, 2)
    return means, F.softplus(raw) + VARIANCE_FLOOR


def mixture(outputs: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return finite outputs, and weights `[members]` in the dtype of summaries; uniform unless given."""
    check_outputs(outputs)
    check_finite("outputs", outputs, "Lower the learning rate or normalise the inputs.")
    members, dtype = outputs.shape[0], torch.promote_types(outputs.dtype, torch.float32)
    if weights is None:
        return outputs, outputs.new_full((members,), 1 / members, dtype=dtype)
    if weights.shape != (members,) or not (weights >= 0).all() or abs(weights.sum().item() - 1) > ROUNDING:
        raise InputError(
            f"weights must be {members} numbers of at least 0 that sum to one, "
            f"got {weights.tolist()}. Divide them by their sum."
        )
    weights = weights.to(outputs.device, dtype)
    return outputs, weights / weights.sum()


def per_sample(values: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the mean over all axes but the first two, `[members, batch]`.

    Args:
        values: `[members, batch, ...]`.
        weights: Of the targets or positions of a sample, `[batch, ...]`; alike unless given. A sample without
            any weight has the mean 0.
    """
    if weights is not None:
        weights = fork(weights.reshape(values.shape[1:]).to(values.dtype), 1)
        total = per_sample(weights)
        return per_sample(values * weights) / total.masked_fill(total == 0, 1)
    if values.shape[2:].numel() == 1:
        return values.reshape(values.shape[:2])
    return values.flatten(2).mean(2)


def fill_missing(target: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return numbers with 0 in place of missing ones, and a mask of those that are there, None if all are.

    NaN stands for a missing number where a sample has several. A sample with one number must have it.
    """
    if not target.is_floating_point() or target[:1].numel() < 2:
        return target, None
    missing = target.isnan()
    if not missing.any():
        return target, None
    return target.masked_fill(missing, 0), ~missing


def joint_weights(present: Tensor | None, weights: Tensor | None) -> Tensor | None:
    """Return the weights of targets, 0 for those that are missing; None where all count alike."""
    if present is None or weights is None:
        return present if weights is None else weights
    return weights.reshape(present.shape) * present


@dataclass(frozen=True)
class Likelihood(Settings, ABC):
    """The distribution of a target that a network's outputs stand for."""

    @abstractmethod
    def losses(self, outputs: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
        """Compute the negative log-likelihood of each member on each sample, `[members, batch]`.

        What a sample has several of, targets or positions, is averaged. Missing ones are left out: NaN, or
        -100 for classes.

        Args:
            outputs: `[members, batch, ...]`.
            target: `[batch, ...]`.
            weights: Of the targets or positions in a sample's mean, at least 0, in the shape of the target
                (without the axis of classes); alike unless given.
        """

    @abstractmethod
    def prediction(self, outputs: Tensor, weights: Tensor | None = None) -> Prediction:
        """Read outputs `[members, batch, ...]` as one mixture.

        Weights, `[members]`, are at least 0 and sum to one; uniform unless given.
        """

    def curvature(self, outputs: Tensor) -> Tensor:
        """Return the Fisher information of outputs `[batch, outputs]`, `[batch, outputs, outputs]`.

        It is the expected second derivative of a sample's negative log-likelihood, positive semi-definite.
        Several targets of a sample count in full: their log-likelihoods add up. Laplace alone needs it, so
        that likelihoods outside this library may leave it out.
        """
        raise InputError(
            f"{type(self).__name__} must have the method `curvature` for Laplace, got none. Define it, or "
            "choose another method."
        )

    def unchecked(self, outputs: Tensor, weights: Tensor) -> Prediction:
        """Return the same as `prediction`, without a look at values, which an exported graph cannot take.

        Exports alone need it, so that likelihoods outside this library may leave it out.
        """
        raise ExportError(
            f"{type(self).__name__} must have the method `unchecked` to be exported, got none. "
            "Define it: the same as `prediction`, without checks of values."
        )


@dataclass(frozen=True)
class Categorical(Likelihood):
    """One of several classes: outputs are logits, `[members, batch, classes, ...]`.

    Targets are class indices, `[batch, ...]`, where -100 leaves out a position of a dense target, or
    probabilities, `[batch, classes, ...]`. Two sure members that disagree are undecided together:

    >>> prediction = Categorical().prediction(torch.tensor([[[99.0, 0.0]], [[0.0, 99.0]]]))
    >>> prediction.probabilities, prediction.mutual_information
    (tensor([[0.5000, 0.5000]]), tensor([0.6931]))
    """

    def losses(self, outputs: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
        check_classes(outputs)
        members, logits = len(outputs), at_least_float32(outputs)
        soft = target.is_floating_point()
        target = (class_probabilities if soft else class_indices)(target, logits)
        losses = unfold(F.cross_entropy(fold(logits), fold(fork(target, members)), reduction="none"), members)
        if weights is not None:
            present = None if soft else target != IGNORED
            return per_sample(losses, joint_weights(present, weights))
        counted = per_sample(fork(target != IGNORED, 1).to(losses.dtype))
        return per_sample(losses) / counted.masked_fill(counted == 0, 1)

    def prediction(self, outputs: Tensor, weights: Tensor | None = None) -> CategoricalPrediction:
        check_classes(outputs)
        return self.unchecked(*mixture(outputs, weights))

    def unchecked(self, outputs: Tensor, weights: Tensor) -> CategoricalPrediction:
        return CategoricalPrediction(outputs, weights)

    def curvature(self, outputs: Tensor) -> Tensor:
        probabilities = at_least_float32(outputs).softmax(1)
        # diag(p) − p pᵀ
        return probabilities.diag_embed() - probabilities[:, :, None] * probabilities[:, None]


@dataclass(frozen=True)
class Bernoulli(Likelihood):
    """Yes or no, once or for several labels: outputs are logits of yes, targets of the same shape in [0, 1].

    >>> prediction = Bernoulli().prediction(torch.tensor([[99.0], [-99.0]]), torch.tensor([0.75, 0.25]))
    >>> prediction.probabilities, prediction.labels
    (tensor([0.7500]), tensor([1]))
    """

    def losses(self, outputs: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
        check_outputs(outputs)
        logits = at_least_float32(outputs)
        target, present = fill_missing(align(target, logits.shape[1:]).to(logits.dtype))
        known = (target >= 0) & (target <= 1)
        if not known.all():
            raise InputError(
                f"Bernoulli targets must lie in 0 to 1, got {target[~known][0].item():g}. "
                "Use Categorical for classes."
            )
        target = fork(target, len(logits))
        losses = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
        return per_sample(losses, joint_weights(present, weights))

    def prediction(self, outputs: Tensor, weights: Tensor | None = None) -> BernoulliPrediction:
        return self.unchecked(*mixture(outputs, weights))

    def unchecked(self, outputs: Tensor, weights: Tensor) -> BernoulliPrediction:
        return BernoulliPrediction(outputs, weights)

    def curvature(self, outputs: Tensor) -> Tensor:
        yes = at_least_float32(outputs).sigmoid()
        return (yes * (1 - yes)).diag_embed()


@dataclass(frozen=True)
class Gaussian(Likelihood):
    """Numbers with noise: outputs hold means, and raw variances unless the precision is given.

    `precision` is 1 over the variance of the noise, above 0. Without it, axis 2 of the outputs holds the
    means of all targets, then as many raw variances. Members N(±1, 0.1²) are far apart together:

    >>> prediction = Gaussian(precision=100).prediction(torch.tensor([[1.0], [-1.0]]))
    >>> prediction.std, prediction.interval(0.9)
    (tensor([1.0050]), (tensor([-1.1282]), tensor([1.1282])))
    """

    precision: float | None = setting(None, kind=float, above=0)

    def losses(self, outputs: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
        target, present = fill_missing(target)
        check_finite("targets", target, MISSING)
        losses = gaussian_nll_per_sample(target, *gaussian_parameters(outputs, self.precision))
        return per_sample(losses, joint_weights(present, weights))

    def prediction(self, outputs: Tensor, weights: Tensor | None = None) -> GaussianPrediction:
        return self.unchecked(*mixture(outputs, weights))

    def unchecked(self, outputs: Tensor, weights: Tensor) -> GaussianPrediction:
        return GaussianPrediction(outputs, weights, *gaussian_parameters(outputs, self.precision))

    def curvature(self, outputs: Tensor) -> Tensor:
        _, variances = gaussian_parameters(outputs[None], self.precision)
        variance = variances[0]
        of_means = 1 / variance
        if self.precision is None:
            # The variance v has information 1 / (2 v²), and raw variances change it by their sigmoid.
            slope = at_least_float32(outputs).chunk(2, 1)[1].sigmoid()
            information = torch.cat([of_means, (slope / variance).square() / 2], 1)
        else:
            information = of_means
        return information.diag_embed()


@dataclass(frozen=True)
class Point(Likelihood):
    """Numbers without a model of noise: outputs and targets have one shape, the loss is the squared error.

    >>> Point().losses(torch.tensor([[1.0], [4.0]]), torch.tensor([2.0]))
    tensor([[1.],
            [4.]])
    """

    def losses(self, outputs: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
        check_outputs(outputs)
        target, present = fill_missing(target)
        check_finite("targets", target, MISSING)
        means = at_least_float32(outputs)
        errors = means - align(target, means.shape[1:]).to(means.dtype)
        return per_sample(errors.square(), joint_weights(present, weights))

    def prediction(self, outputs: Tensor, weights: Tensor | None = None) -> PointPrediction:
        return self.unchecked(*mixture(outputs, weights))

    def unchecked(self, outputs: Tensor, weights: Tensor) -> PointPrediction:
        return PointPrediction(outputs, weights, at_least_float32(outputs))

    def curvature(self, outputs: Tensor) -> Tensor:
        # The second derivative of a squared error: that of a Gaussian of variance 1/2.
        return (2 * torch.ones_like(at_least_float32(outputs))).diag_embed()


def likelihood(value: str | Likelihood) -> Likelihood:
    """Find a likelihood by its name: categorical, bernoulli, gaussian or point. Others pass through.

    >>> likelihood("gaussian")
    Gaussian(precision=None)
    """
    known = Likelihood.known()
    if isinstance(value, Likelihood):
        return value
    if not isinstance(value, str) or value not in known:
        raise SettingError(
            f"likelihood must be one of {', '.join(known)}, got {value!r}.{nearest(value, known)}"
        )
    return known[value]()
