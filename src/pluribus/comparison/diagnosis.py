"""doctor: defects of a trained ensemble that its scores alone do not explain, each with a remedy.

Losses are read on a scale from the best constant prediction (baseline) to what the ensemble reaches, so that
thresholds hold for classes and numbers of any unit.
"""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pluribus.comparison.constant_prediction import constant_loss
from pluribus.comparison.labelled_batches import labelled_batches
from pluribus.ensemble import Ensemble
from pluribus.errors import InputError
from pluribus.likelihood import Categorical
from pluribus.mechanisms.exits.pairs import Pairs
from pluribus.mechanisms.members.prior import WithPrior
from pluribus.mechanisms.members.reduction import shares_nothing
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.method import Method
from pluribus.prediction import DiscretePrediction, GaussianPrediction
from pluribus.training.budget import LATE, is_scored_early

COLLAPSED = 1e-3
"""Least spread of members over that of samples: below it they are one network but for rounding."""

ALIKE = 0.1
"""Spread of members over that of samples below which their mean is no better than one of them, unless they
disagree by a part of what they are unsure of. On digits, SWAG's draws had 0.017, EMP's options that start 1 %
apart 0.056, and an NLL 0.1 % below that of one draw. Independent networks have 0.13 and more, also where data
leave them nothing to disagree about."""

LEAST_SHARE = 0.005
"""Share of the members' disagreement in all uncertainty above which a small spread counts all the same: where
noise is small too, as for a function that is known to a percent. EMP's options that start 1 % apart had
0.0015 on digits, and 0.028 where they start 30 % apart."""

LEARNT = 0.05
"""Gain over the baseline, in nats or shares of the variance, below which nothing was learnt to compare."""

LOST = 0.1
"""Share of the gain over the baseline that is lost in eval mode where statistics do not fit. Layer ensembles
whose combinations share statistics lost 0.12 to 0.2 on digits. Sound ensembles of every other method that has
running statistics lost at most 0.03."""

MOST_ROWS = 8
"""Members that are run in train mode: as many as show whether statistics fit."""

HURTS = 0.1
"""Share of the gain over the baseline that is won by leaving out an exit."""

LEAST_WEIGHT = 0.01
"""Weight of an exit, of its even share, below which nobody uses it."""

MOST_NUMBERS = 2**25
"""Outputs that are looked at; those of images have one for every pixel and class."""

START_APART = 'Start members apart: start="fresh", a larger perturbation, or more options.'

DROPPING = ("mc_dropout", "drop_connect")
"""Methods whose members differ by what they drop."""

SPREADING = {
    **dict.fromkeys(DROPPING, "Set a larger rate."),
    "swag": "Draw members further apart: a larger scale, snapshots from an earlier start, or smaller "
    "batches; in a tuning also a larger lr.",
    "laplace": "Set a smaller prior_precision, or calibrate the one network: the data leave its last layer "
    "no freedom.",
}
"""Remedies of `collapsed` where members do not start apart, by method."""

LONGER = "Tune for more epochs or with a larger lr"
OWN_ORDERS = "shuffle_members=True, so that each member goes through the data in an order of its own"
"""Remedies where members start as one trained network. To start them apart would discard what it learnt."""

GAP = 0.1
"""Greatest distance of confidence and accuracy, besides three standard errors."""


@dataclass(frozen=True)
class Finding:
    """A defect.

    Attributes:
        code: A short name for programs: `collapsed`, `broken_member`.
        message: What was found, with its numbers.
        remedy: What to do.
    """

    code: str
    message: str
    remedy: str


@dataclass(frozen=True)
class Evidence:
    """The ensemble, the data and the predictions that all checks read.

    Attributes:
        ensemble: In eval mode.
        batches: Inputs and targets.
        outputs: In eval mode, `[members, batch, ...]`.
        target: All targets.
        losses: The mean loss of each member, `[members]`.
        baseline: The loss of the best constant prediction.
        history: Rows of the training, if known.
    """

    ensemble: Ensemble
    batches: Sequence[tuple[Inputs, Tensor]]
    outputs: Tensor
    target: Tensor
    losses: Tensor
    baseline: float
    history: Sequence[Mapping[str, float]]

    @property
    def kind(self) -> str:
        """The method."""
        return self.ensemble.method.kind()

    @property
    def gain(self) -> float:
        """Return the gain of the median member over the baseline."""
        return self.baseline - self.losses.median().item()


def doctor(
    ensemble: Ensemble, data: Any, *, history: Sequence[Mapping[str, float]] | None = None
) -> list[Finding]:
    """Return the defects of a trained ensemble; an empty list where none was found.

    Args:
        ensemble: It is the same afterwards.
        data: `(x, y)`, a `Split`, a `Task` (its validation data), or a loader of such pairs; not what was
            trained on.
        history: What `train` returned.

    Example:
        >>> ensemble = pluribus.convert(torch.nn.Linear(3, 2), DeepEnsembles(members=2, start="copy"))
        >>> [one.code for one in doctor(ensemble, (torch.randn(50, 3), torch.arange(50) % 2))]
        ['collapsed']
    """
    if not isinstance(ensemble, Ensemble):
        raise InputError(f"doctor expects an Ensemble, got {type(ensemble).__name__}. Use convert(...).")
    training = ensemble.training
    batches = labelled_batches(data, ensemble.device, ensemble.members.code.forward)
    try:
        return _examine(ensemble.eval(), batches, history or ())
    finally:
        ensemble.train(training)


@torch.no_grad()
def _examine(
    ensemble: Ensemble, batches: list[tuple[Inputs, Tensor]], history: Sequence[Mapping[str, float]]
) -> list[Finding]:
    outputs = _outputs(ensemble, batches)
    batches = batches[: len(outputs)]
    joined = torch.cat(outputs, 1)
    if broken := list(not_finite(ensemble, joined)):
        # Nothing else can be computed.
        return broken
    target = torch.cat([y for _, y in batches])
    losses = ensemble.likelihood.losses(joined, target).mean(1)
    baseline = constant_loss(ensemble, target)
    evidence = Evidence(ensemble, batches, joined, target, losses, baseline, history)
    return [finding for check in CHECKS for finding in check(evidence)]


def _outputs(ensemble: Ensemble, batches: Sequence[tuple[Inputs, Tensor]]) -> list[Tensor]:
    """Return the outputs of the first batches: of one shape, and no more than memory holds with ease."""
    outputs: list[Tensor] = []
    numbers = 0
    for inputs, _ in batches:
        found = ensemble(*inputs.args, **inputs.keywords)
        numbers += found.numel()
        # Texts of another length have outputs of another shape.
        if outputs and (numbers > MOST_NUMBERS or found.shape[2:] != outputs[0].shape[2:]):
            break
        outputs.append(found)
    return outputs


def not_finite(ensemble: Ensemble, outputs: Tensor) -> Iterator[Finding]:
    """Find weights or outputs that are NaN or infinite."""
    wrong = [name for name, tensor in ensemble.state_dict().items() if not _is_finite(tensor)]
    bad = [row for row, output in enumerate(outputs) if not _is_finite(output)]
    if not wrong and not bad:
        return
    where = f"tensors {', '.join(wrong[:3])}" if wrong else f"outputs of members {bad[:8]}"
    remedy = "Train again with a lower lr or with clip=1.0; check the inputs for missing values."
    yield Finding(
        code="not_finite",
        message=f"{where} are NaN or infinite",
        remedy=remedy,
    )


def collapsed(evidence: Evidence) -> Iterator[Finding]:
    """Find members that compute the same."""
    outputs = evidence.outputs.flatten(2) if evidence.outputs.ndim > 2 else evidence.outputs.unsqueeze(2)
    if len(outputs) < 2:
        return
    apart = outputs.std(0).mean().item()
    moving = outputs.mean(0).std(0).mean().item()
    if apart > ALIKE * moving:
        return
    if apart > COLLAPSED * moving and _disagreement(evidence) > LEAST_SHARE:
        return
    if evidence.kind in DROPPING and apart <= COLLAPSED * moving:
        message = f"{len(outputs)} draws are the same: nothing is dropped in eval mode"
        yield Finding(
            code="dropout_off",
            message=message,
            remedy="Set a rate above 0, or include layers that have weights.",
        )
        return
    message = (
        f"{len(outputs)} members differ by {apart:.2g}, while samples differ by {moving:.2g}: "
        "they are hardly more than one"
    )
    yield Finding(
        code="collapsed",
        message=message,
        remedy=_how_to_spread(evidence.ensemble.method),
    )


def _how_to_spread(method: Method) -> str:
    """Return the remedy for members that hardly differ."""
    if method.on_trained != "kept" or "shuffle_members" not in method.to_dict():
        return SPREADING.get(method.kind(), START_APART)
    return f"{LONGER}." if method.data_orders > 1 else f"{LONGER}, with {OWN_ORDERS}."


def _disagreement(evidence: Evidence) -> float:
    """Return the share of the members' disagreement in all uncertainty; 1 where noise is unknown."""
    likelihood, members = evidence.ensemble.likelihood, len(evidence.outputs)
    # Weights say which members count, and not how far they are apart.
    even = torch.full((members,), 1 / members, device=evidence.outputs.device)
    prediction = likelihood.prediction(evidence.outputs, even)
    if isinstance(prediction, DiscretePrediction):
        total, between = prediction.entropy, prediction.mutual_information
    elif isinstance(prediction, GaussianPrediction):
        total, between = prediction.variance, prediction.epistemic
    else:
        return 1.0
    return (between.mean() / total.mean().clamp(min=torch.finfo(total.dtype).tiny)).item()


def untrained(evidence: Evidence) -> Iterator[Finding]:
    """Find an ensemble that predicts before it was trained, though its method does not keep a network."""
    method = evidence.ensemble.method
    if evidence.ensemble.conversion.on_trained != "retrain" or evidence.ensemble.trained:
        return
    loss = evidence.losses.median().item()
    message = (
        f"{type(method).__name__} does not keep a trained network, and saw no training batch; members have a "
        f"loss of {loss:.3g}, a constant {evidence.baseline:.3g}"
    )
    yield Finding(
        code="untrained",
        message=message,
        remedy="Train the ensemble, or take a method that keeps the network: pluribus methods lists them.",
    )


def broken_member(evidence: Evidence) -> Iterator[Finding]:
    """Find members that are worse than a constant, while most are better."""
    # Exits may be weak early on; `useless_exits` weighs what they do to the whole.
    if evidence.gain < LEARNT or len(set(_depths(evidence.ensemble))) > 1:
        return
    worst = (evidence.losses > evidence.baseline).nonzero().flatten().tolist()
    for row in worst:
        loss, usual = evidence.losses[row].item(), evidence.losses.median().item()
        message = (
            f"member {row} has a loss of {loss:.3g}, a constant {evidence.baseline:.3g}, others {usual:.3g}"
        )
        yield Finding(
            code="broken_member",
            message=message,
            remedy="Leave it out with shrink, or train again with another seed.",
        )


def wrong_statistics(evidence: Evidence) -> Iterator[Finding]:
    """Find running statistics that do not fit: train mode is far better than eval mode on the same batch."""
    names = [name for name, _ in evidence.ensemble.named_buffers()]
    if not any("running_mean" in name for name in names):
        return
    # Train mode writes statistics, so a copy runs.
    twin = copy.deepcopy(evidence.ensemble)
    twin.calibration = None
    inputs, target = evidence.batches[0]
    # The same members, as some methods have others in training.
    members = range(min(len(evidence.outputs), MOST_ROWS))
    outputs = twin.train()(*inputs.args, members=[*members], **inputs.keywords)
    trained = twin.likelihood.losses(outputs, target).mean().item()
    before = evidence.outputs[: len(members), : len(target)]
    evaluated = twin.likelihood.losses(before, target).mean().item()
    gain = evidence.baseline - trained
    if gain < LEARNT or evaluated - trained < LOST * gain:
        return
    message = f"the loss is {trained:.3g} with statistics of the batch, {evaluated:.3g} with running ones"
    remedy = (
        "Train longer, run batches in train mode without steps, keep statistics per member, or take norms "
        "without running statistics (GroupNorm, LayerNorm)."
    )
    yield Finding(
        code="statistics",
        message=message,
        remedy=remedy,
    )


def missing_exits(evidence: Evidence) -> Iterator[Finding]:
    """Find fewer exits in use than the method was set to: those without weight are no rows."""
    method, rows = evidence.ensemble.method, _depths(evidence.ensemble)
    exits, inputs = getattr(method, "exits", None), getattr(method, "inputs", 1)
    if exits is None or evidence.ensemble.shrunk_to is not None:
        return
    if len(rows) < exits * inputs:
        message = f"{exits} exits of each input were to be used, but only {len(rows)} of {exits * inputs} are"
        yield Finding(
            code="unused_exit",
            message=message,
            remedy="End at a higher temperature, raise alpha, or set fewer exits.",
        )


def useless_exits(evidence: Evidence) -> Iterator[Finding]:
    """Find exits that have next to no weight, or without which the ensemble is better."""
    depths, weights = _depths(evidence.ensemble), evidence.ensemble.weights
    kinds = sorted(set(depths))
    if len(kinds) < 2:
        return
    whole = _pooled_loss(evidence, weights)
    for depth in kinds:
        inside = torch.tensor([one == depth for one in depths], device=weights.device)
        share = weights[inside].sum().item()
        if share < LEAST_WEIGHT / len(kinds):
            message = f"exit {depth + 1} has a weight of {share:.2g}, and still runs"
            yield Finding(
                code="unused_exit",
                message=message,
                remedy="Leave it out with shrink, or ask for fewer exits.",
            )
            continue
        left = weights.masked_fill(inside, 0)
        better = whole - _pooled_loss(evidence, left / left.sum())
        if better > HURTS * max(evidence.baseline - whole, LEARNT):
            message = f"without exit {depth + 1} the loss falls by {better:.3g} from {whole:.3g}"
            yield Finding(
                code="hurting_exit",
                message=message,
                remedy="Set fit_weights=True, leave it out with shrink, train longer, or name later exits.",
            )


def inert_prior(evidence: Evidence) -> Iterator[Finding]:
    """Find prior networks whose norms never saw a batch, so that they are nearly constant."""
    members = evidence.ensemble.members
    if isinstance(members, WithPrior) and members.is_unsettled():
        message = "prior networks have BatchNorm layers without statistics, and are nearly constant"
        yield Finding(
            code="inert_prior",
            message=message,
            remedy="Train with settle_prior=True.",
        )


def divided_gradient(evidence: Evidence) -> Iterator[Finding]:
    """Find members that share nothing, and yet were trained by the mean of their losses."""
    ensemble, count = evidence.ensemble, len(evidence.outputs)
    averaged = getattr(ensemble.method, "reduction", "auto") == "mean"
    if not averaged or count < 2 or not shares_nothing(ensemble.members):
        return
    message = (
        f"members share nothing, and the mean of their losses gives each 1/{count} of its gradient: SGD "
        f"learns at 1/{count} of lr, and with Adam weight decay counts {count} times"
    )
    yield Finding(
        code="divided_gradient",
        message=message,
        remedy='Train again with reduction="auto", which sums the losses.',
    )


def still_improving(evidence: Evidence) -> Iterator[Finding]:
    """Find a best epoch in the last twentieth of training."""
    scores = [row.get("validation_nll", math.nan) for row in evidence.history]
    if not is_scored_early(scores):
        return
    known = [(score, epoch) for epoch, score in enumerate(scores, 1) if not math.isnan(score)]
    if known and min(known)[1] > LATE * len(scores):
        message = f"epoch {min(known)[1]} of {len(scores)} was the best on validation data"
        yield Finding(
            code="still_improving",
            message=message,
            remedy="Train for more steps.",
        )


def wrong_confidence(evidence: Evidence) -> Iterator[Finding]:
    """Find confidence that is far from accuracy."""
    ensemble = evidence.ensemble
    prediction = ensemble.likelihood.prediction(evidence.outputs, ensemble.weights)
    prediction = prediction.calibrated(ensemble.calibration)
    if not isinstance(prediction, DiscretePrediction) or evidence.target.is_floating_point():
        return
    counted = evidence.target >= 0
    right = (prediction.labels == evidence.target)[counted].double()
    accuracy, confidence = right.mean().item(), prediction.confidence[counted].mean().item()
    chance = 3 * math.sqrt(0.25 / len(right))
    if abs(confidence - accuracy) > GAP + chance:
        message = f"mean confidence is {confidence:.2f}, accuracy {accuracy:.2f}"
        remedy = "Calibrate it: ensemble.calibrate(validation_data)."
        yield Finding(
            code="confidence",
            message=message,
            remedy=remedy,
        )


CHECKS: tuple[Callable[[Evidence], Iterator[Finding]], ...] = (
    untrained,
    collapsed,
    broken_member,
    wrong_statistics,
    missing_exits,
    useless_exits,
    inert_prior,
    divided_gradient,
    still_improving,
    wrong_confidence,
)


def _pooled_loss(evidence: Evidence, weights: Tensor) -> float:
    """Return the loss of the mixture: of its probabilities, or of its mean."""
    likelihood = evidence.ensemble.likelihood
    prediction = likelihood.prediction(evidence.outputs, weights)
    if isinstance(prediction, DiscretePrediction) and isinstance(likelihood, Categorical):
        # Log-probabilities are logits of themselves.
        return likelihood.losses(prediction.log_probabilities.unsqueeze(0), evidence.target).mean().item()
    mean = torch.einsum("m,m...->...", weights.to(evidence.outputs), evidence.outputs)
    return likelihood.losses(mean.unsqueeze(0), evidence.target).mean().item()


def _depths(ensemble: Ensemble) -> list[int]:
    """Return the exit of each row; empty where the ensemble has no exits."""
    index = ensemble.members.index
    return [depth for _, depth in index.rows(training=False)] if isinstance(index, Pairs) else []


def _is_finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(tensor.isfinite().all())
