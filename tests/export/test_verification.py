"""Verification finds files that compute something else, and forgives rounding."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import pluribus as pl
from pluribus.calibration_record import Calibration
from pluribus.export.file_format import FileFormat
from pluribus.export.head import Pooled
from pluribus.export.tracing import SizeRule
from pluribus.export.verification import difference, verify
from pluribus.likelihood import Categorical, Gaussian, Point
from tests.export.sources import linear_source


class Memory(FileFormat):
    """A format whose files are functions."""

    name, suffix = "memory", ".memory"

    def __init__(self, function):
        self.function = function

    def load_packages(self):
        return

    def write(self, program, path, sizes, description):
        return

    def open(self, path):
        return lambda tensors: self.function(**tensors)


FITTED = Calibration(2.0, 1.5, level=0.8, quantile=0.6, score="entropy", threshold=0.5)


def verified(change, likelihood=None, dynamic=None, calibration=None):
    source = linear_source(likelihood, calibration=calibration)
    pooled = Pooled(source, True, 0.9)
    form = Memory(lambda **tensors: change(pooled(**tensors)))
    return verify(Path("none"), form, source, list(pooled.outputs), dynamic or {}, pooled.level, {})


@pytest.mark.parametrize("likelihood", [Categorical(), Gaussian(), Point()])
def test_right_outputs_pass_at_several_batch_sizes(likelihood):
    found = verified(lambda outputs: outputs, likelihood)
    assert [call.count("[1, 4]") + call.count("[7, 4]") for call in found.calls] == [1, 0, 1]
    assert max(found.largest.values()) < 1e-6


@pytest.mark.parametrize("likelihood", [Categorical(), Gaussian(), Point()])
def test_calibrated_outputs_pass(likelihood):
    score = "entropy" if isinstance(likelihood, Categorical) else "epistemic_variance"
    found = verified(lambda outputs: outputs, likelihood, calibration=replace(FITTED, score=score))
    assert max(found.largest.values()) < 1e-6


@pytest.mark.parametrize("name", ["set", "flagged"])
def test_wrong_sets_and_flags_are_named(name):
    with pytest.raises(pl.ExportError, match=f"got {name} that"):
        verified(lambda outputs: {**outputs, name: ~outputs[name]}, calibration=FITTED)


def test_a_calibrated_interval_that_is_not_widened_is_named():
    with pytest.raises(pl.ExportError, match="got lower that"):
        verified(
            lambda outputs: {**outputs, "lower": outputs["lower"] + 0.1},
            Gaussian(),
            calibration=replace(FITTED, score="variance"),
        )


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("probabilities", lambda value: value + 2e-5),
        ("labels", lambda value: (value + 1) % 4),
        ("labels", lambda value: value + 100),
        ("entropy", lambda value: value * float("nan")),
        ("members", lambda value: value.flip(0)),
        ("confidence", lambda value: value[:1]),
    ],
)
def test_wrong_outputs_are_named(name, change):
    with pytest.raises(pl.ExportError, match=f"must compute what predict computes.* got {name} that"):
        verified(lambda outputs: {**outputs, name: change(outputs[name])})


def test_missing_outputs_and_failures_are_told():
    with pytest.raises(pl.ExportError, match="must have the outputs"):
        verified(lambda outputs: {"labels": outputs["labels"]})
    with pytest.raises(pl.ExportError, match=r"must run on inputs .*KeyError"):
        verified(lambda outputs: {"labels": outputs["nothing"]})


def test_a_file_that_its_runtime_cannot_load_is_refused(monkeypatch):
    def fail(self, path):
        raise NotImplementedError("no Conv in double precision\nand more")

    monkeypatch.setattr(Memory, "open", fail)
    with pytest.raises(
        pl.ExportError, match=r"by its runtime, got NotImpl.*: no Conv in double precision. It was del"
    ):
        verified(lambda outputs: outputs)


def test_random_files_are_refused():
    with pytest.raises(pl.ExportError, match="deterministic, got two values of labels"):
        verified(lambda outputs: {**outputs, "labels": outputs["labels"] + torch.rand(1)})


def test_labels_of_equal_probability_are_one_answer():
    prediction = Categorical().prediction(torch.zeros(2, 1, 3))
    assert difference("labels", torch.tensor([2]), prediction, 0.9) == 0
    assert difference("labels", torch.tensor([3]), prediction, 0.9) == float("inf")


def test_ends_of_an_interval_are_compared_by_their_probability():
    # Between two far modes the density is zero: all values there are the median.
    prediction = Gaussian(precision=1e4).prediction(torch.tensor([[0.0], [100.0]]))
    assert difference("lower", prediction.interval(0.9)[0], prediction, 0.9) < 1e-6
    assert difference("lower", prediction.interval(0.8)[0], prediction, 0.9) > 0.01
    assert difference("upper", torch.zeros(3), prediction, 0.9) == float("inf")


def test_infinite_intervals_of_few_samples_are_right():
    few = Calibration(1.0, 1.0, level=0.9, quantile=float("inf"))
    verified(lambda outputs: outputs, Point(), calibration=few)
    prediction = Point().prediction(torch.ones(2, 3, 1)).calibrated(few)
    lower, upper = prediction.interval()
    assert difference("upper", upper, prediction, 0.9) == 0
    assert difference("upper", lower, prediction, 0.9) == float("inf")


def test_numbers_are_compared_with_the_largest_one():
    prediction = Point().prediction(torch.full((2, 3), 1e6))
    assert difference("mean", prediction.mean + 1, prediction, 0.9) == pytest.approx(1e-6)
    small = Point().prediction(torch.full((2, 3), 1e-3))
    assert difference("mean", small.mean + 1e-6, small, 0.9) == pytest.approx(1e-3, rel=0.1)


def test_dynamic_sizes_that_the_network_cannot_take_are_refused():
    with pytest.raises(pl.ExportError, match="no other that it takes"):
        verified(lambda outputs: outputs, dynamic={"image": {1: "width"}})


class Narrow(nn.Module):
    """Does something else with inputs of fewer than four numbers, and with those of more than eight."""

    def forward(self, image):
        sign = 1 if 4 <= image.shape[1] <= 8 else -1
        rows = torch.stack([image.mean(1), image.amax(1), sign * image.amin(1)])
        return rows.unsqueeze(2) * torch.tensor([0.0, 1.0, 2.0, 3.0])


def without_branch(image):
    """Return what a file of `Narrow` computes, which has the graph of inputs between alone."""
    source = linear_source(module=Narrow())
    rows = torch.stack([image.mean(1), image.amax(1), image.amin(1)])
    outputs = rows.unsqueeze(2) * torch.tensor([0.0, 1.0, 2.0, 3.0])
    pooled = Pooled(replace(source, module=nn.Identity()), True, 0.9)
    return pooled(outputs)


def refusing(image):
    """Return the same, as a file that refuses other inputs."""
    if not 4 <= image.shape[1] <= 8:
        raise ValueError(image.shape)
    return without_branch(image)


def verify_narrow(function, rule):
    source = linear_source(module=Narrow())
    outputs = list(Pooled(source, True, 0.9).outputs)
    rules = {"width": rule}
    return verify(Path("none"), Memory(function), source, outputs, {"image": {1: "width"}}, 0.9, rules)


@pytest.mark.parametrize(("rule", "beyond"), [(SizeRule(1, 4), 3), (SizeRule(4, 4, 8), 12)])
def test_a_branch_beyond_the_sizes_of_the_graph_is_found(rule, beyond):
    reason = rf"for width={beyond}, beyond the sizes of the graph: the network has a branch"
    with pytest.raises(pl.ExportError, match=reason):
        verify_narrow(without_branch, rule)


def test_a_file_that_refuses_sizes_beyond_its_graph_is_right():
    assert verify_narrow(refusing, SizeRule(1, 4, 8)).calls[-1] == "(float32[2, 8])"


@pytest.mark.parametrize(("size", "scale"), [(1.0, 1.0), (300.0, 15.0)])
def test_probabilities_of_large_logits_may_differ_by_their_rounding(size, scale):
    # float32 has steps of 3e-5 at 300: two right programs may differ by that much.
    prediction = Categorical().prediction(torch.tensor([[[size, size, 0.0]]]))
    moved = prediction.probabilities + 1e-5
    assert difference("probabilities", moved, prediction, 0.9) == pytest.approx(1e-5 / scale, rel=0.1)
