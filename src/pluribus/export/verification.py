"""Verification: an exported file computes what `predict` computes, on fresh inputs of several sizes."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pluribus.errors import ExportError, PluribusError
from pluribus.export.file_format import Dynamic, FileFormat, Run
from pluribus.export.fresh_inputs import fresh_inputs, resized
from pluribus.export.outputs import widening
from pluribus.export.source import Source
from pluribus.export.tracing import SizeRule
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.prediction import ContinuousPrediction, DiscretePrediction, GaussianPrediction, Prediction

BATCHES = (1, 2, 7)
LARGE_LOGIT = 20.0
"""Size of logits above which float32 rounds them by more than 1e-5, after the operators of a network."""


@dataclass(frozen=True)
class Verified:
    """The result of a verification.

    Attributes:
        calls: The inputs that were compared, in words.
        largest: By output, the largest difference, as a share of the tolerance's scale.
    """

    calls: tuple[str, ...]
    largest: dict[str, float]


def verify(
    path: Path,
    form: FileFormat,
    source: Source,
    outputs: list[str],
    dynamic: Dynamic,
    level: float,
    rules: Mapping[str, SizeRule],
) -> Verified:
    """Run a file twice on fresh inputs of several sizes, and compare it with `predict`.

    Args:
        path: The file.
        form: Its format.
        source: What was exported.
        outputs: The names that the file must have.
        dynamic: Its free sizes.
        level: Of its interval.
        rules: The sizes that each of its free sizes may have.

    Raises:
        ExportError: The file fails, or computes something else.
    """
    run = _opened(path, form)
    calls, largest = list[str](), dict.fromkeys(outputs, 0.0)
    for inputs, prediction in _calls(source, dynamic, rules):
        calls.append(str(inputs))
        came = _run_twice(run, source, inputs)
        if not set(outputs) <= set(came):
            raise ExportError(f"the file must have the outputs {outputs}, got {sorted(came)}.")
        for name in outputs:
            error = difference(name, came[name], prediction, level)
            if not error <= form.tolerance:
                raise ExportError(
                    f"the file must compute what predict computes within {form.tolerance:g}, got {name} that "
                    f"differs by {error:.1e} for inputs {inputs}. It was deleted. Export to another format, "
                    "or use ensemble.freeze()."
                )
            largest[name] = max(largest[name], error)
    for name, rule in rules.items():
        for beyond in rule.beyond():
            _check_beyond(run, form, source, dynamic, level, name, beyond)
    return Verified(tuple(calls), largest)


def _opened(path: Path, form: FileFormat) -> Run:
    """Return a function that runs a file; raise `ExportError` where its runtime cannot load it."""
    try:
        return form.open(path)
    except PluribusError:
        raise
    # Every runtime has errors of its own: onnxruntime has no convolution in double precision, for example.
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        raise ExportError(
            f"the file must be loaded by its runtime, got {type(error).__name__}: {first[:300]}. It was "
            "deleted. Export in single precision, ensemble.float(), or to another format."
        ) from error


def _calls(
    source: Source, dynamic: Dynamic, rules: Mapping[str, SizeRule]
) -> Iterator[tuple[Inputs, Prediction]]:
    """Yield fresh inputs with their predictions, for several batch sizes and other free sizes."""
    for batch in BATCHES:
        inputs = fresh_inputs(source.example, batch)
        yield inputs, source.predict(inputs)
    if dynamic:
        yield _other_sizes(source, dynamic, rules)


def _other_sizes(
    source: Source, dynamic: Dynamic, rules: Mapping[str, SizeRule]
) -> tuple[Inputs, Prediction]:
    """Return inputs whose free sizes are halved, or doubled where the network cannot take that."""
    tensors, reasons = source.tensors(source.example), list[str]()
    for factor in (0.5, 2.0):
        sizes = {}
        for name, axes in dynamic.items():
            shape = tensors[name].shape
            sizes[name] = {axis: max(round(shape[axis] * factor), 1) for axis in axes}
        inputs = fresh_inputs(resized(source.example, tensors, sizes), BATCHES[1])
        if not _allowed(sizes, dynamic, rules):
            reasons.append(f"{inputs}: against the rules of sizes")
            continue
        try:
            return inputs, source.predict(inputs)
        # The network's own code may raise anything for a size that it cannot take.
        except Exception as error:
            reasons.append(f"{inputs}: {error}")
    raise ExportError(
        "dynamic sizes must be sizes that the network can take, got no other that it takes "
        f"({'; '.join(reasons)}). Leave them out."
    )


def _check_beyond(
    run: Run, form: FileFormat, source: Source, dynamic: Dynamic, level: float, size: str, beyond: int
) -> None:
    """Raise where a file is wrong for a size beyond its bounds, which only some formats refuse.

    Layers that reduce a size lead to a least one, and the file is right below it. Tables lead to a largest
    one, and the network fails above it. A branch in the network's code leads to bounds too, and the file has
    only the other side of it.

    Args:
        run: The file.
        form: Its format.
        source: What was exported.
        dynamic: Its free sizes.
        level: Of its interval.
        size: The name of the free size.
        beyond: A size next to those that it may have.
    """
    tensors, sizes = source.tensors(source.example), dict[str, dict[int, int]]()
    for name, axes in dynamic.items():
        sizes[name] = {axis: beyond for axis, other in axes.items() if other == size}
    inputs = fresh_inputs(resized(source.example, tensors, sizes), BATCHES[1])
    try:
        prediction, came = source.predict(inputs), run(source.tensors(inputs))
    # Sizes that the network or the file refuses by itself cannot be wrong in silence.
    except Exception:
        return
    for name, value in came.items():
        error = difference(name, value, prediction, level)
        if not error <= form.tolerance:
            raise ExportError(
                f"the file must compute what predict computes for every size, got {name} that differs by "
                f"{error:.1e} for {size}={beyond}, beyond the sizes of the graph: the "
                f"network has a branch there. It was deleted. Leave {size!r} out of dynamic, or export "
                "to format='pt2', which refuses such sizes."
            )


def _allowed(sizes: dict[str, dict[int, int]], dynamic: Dynamic, rules: Mapping[str, SizeRule]) -> bool:
    """Return whether free sizes may have these values, by input and axis."""
    for name, axes in sizes.items():
        for axis, size in axes.items():
            rule = rules.get(dynamic[name][axis])
            if rule is not None and not rule.allows(size):
                return False
    return True


def _run_twice(run: Run, source: Source, inputs: Inputs) -> dict[str, Tensor]:
    """Return the outputs of a file; raise `ExportError` where it fails or two runs differ."""
    tensors = source.tensors(inputs)
    try:
        first, second = run(tensors), run(tensors)
    except PluribusError:
        raise
    # Every runtime has errors of its own.
    except Exception as error:
        raise ExportError(
            f"the file must run on inputs {inputs}, got {type(error).__name__}: {error}. It was deleted."
        ) from error
    for name, value in first.items():
        # NaN differs from itself; it is found by the comparison with predict.
        if not torch.allclose(value.double(), second[name].double(), rtol=0, atol=0, equal_nan=True):
            raise ExportError(f"the file must be deterministic, got two values of {name}. It was deleted.")
    return first


def difference(name: str, came: Tensor, prediction: Prediction, level: float) -> float:
    """Return how far an output is from that of a prediction; infinite where its shape is another.

    Of probabilities and entropies it is the absolute difference, less where logits are larger than
    `LARGE_LOGIT`; of numbers the share of the largest one.

    Args:
        name: Of the output.
        came: Its value.
        prediction: What it must agree with.
        level: Of the interval.
    """
    if name in ("lower", "upper"):
        return _end_missed(name, came, prediction, level)
    if name == "set":
        assert isinstance(prediction, DiscretePrediction)
        return _outcome_missed(came, prediction) / _scale(name, came, prediction)
    if name == "flagged":
        return _threshold_missed(came, prediction)
    expected: Tensor = getattr(prediction, name)
    if came.shape != expected.shape:
        return float("inf")
    if name == "labels":
        assert isinstance(prediction, DiscretePrediction)
        return _confidence_missed(came, prediction) / _scale(name, came, prediction)
    distance = (came.to(expected) - expected).abs().max().item()
    return distance / _scale(name, expected, prediction)


def _confidence_missed(labels: Tensor, prediction: DiscretePrediction) -> float:
    """Return by how much labels are less probable than the most probable ones; ties miss nothing."""
    probabilities = prediction.log_probabilities.exp()
    outcomes = probabilities.shape[1]
    if labels.min() < 0 or labels.max() >= outcomes:
        return float("inf")
    chosen = probabilities.gather(1, labels.to(probabilities.device).unsqueeze(1)).squeeze(1)
    return (prediction.confidence - chosen).max().item()


def _end_missed(name: str, ends: Tensor, prediction: Prediction, level: float) -> float:
    """Return how far an end of intervals is off: of a Gaussian, the probability between it and the right one.

    Where the density is nearly zero, values that are far apart are the same quantile.
    """
    assert isinstance(prediction, ContinuousPrediction)
    if ends.shape != prediction.mean.shape:
        return float("inf")
    if not isinstance(prediction, GaussianPrediction):
        expected = prediction.interval()[name == "upper"]
        # Of few calibration samples intervals are infinite, and infinity less itself is NaN.
        distance = (ends.to(expected) - expected).abs().masked_fill(ends.to(expected) == expected, 0)
        return distance.max().item() / _scale("mean", prediction.mean, prediction)
    moved = widening(prediction)
    if isinstance(moved, float) and math.isinf(moved):
        return 0.0 if ends.isinf().all() else float("inf")
    central = ends + moved if name == "lower" else ends - moved
    mass = (1 - level) / 2 if name == "lower" else (1 + level) / 2
    return (prediction.cdf(central) - mass).abs().max().item()


def _outcome_missed(came: Tensor, prediction: DiscretePrediction) -> float:
    """Return how far from the edge of a set an outcome lies that is on the wrong side of it."""
    if came.shape != prediction.sets.shape:
        return float("inf")
    assert prediction.calibration is not None
    distance = (1 - prediction.log_probabilities.exp() - (prediction.calibration.quantile or 0.0)).abs()
    return distance.masked_fill(came.bool() == prediction.sets, 0).max().item()


def _threshold_missed(came: Tensor, prediction: Prediction) -> float:
    """Return how far from the threshold a score lies whose sample is wrongly flagged or not."""
    if came.shape != prediction.flagged.shape:
        return float("inf")
    assert prediction.calibration is not None
    distance = (prediction.ood_score - (prediction.calibration.threshold or 0.0)).abs()
    wrong = distance.masked_fill(came.bool() == prediction.flagged, 0).max().item()
    return wrong / _scale("ood_score", prediction.ood_score, prediction)


def _scale(name: str, expected: Tensor, prediction: Prediction) -> float:
    """Return the number that differences of an output are divided by."""
    if isinstance(prediction, DiscretePrediction) and name not in ("members", "ood_score"):
        # Rounding moves a logit by a share of its size, and a probability by up to a quarter as much.
        return max(1.0, prediction.members.abs().max().item() / LARGE_LOGIT)
    scale = expected.abs().max().item()
    if isinstance(prediction, ContinuousPrediction) and name not in ("mean", "members", "ood_score"):
        # A variance between means is a difference of squares, and rounds as these do.
        scale = max(scale, prediction.means.square().max().item())
    floor = 1.0 if isinstance(prediction, DiscretePrediction) else torch.finfo(torch.float32).tiny
    return max(scale, floor)
