"""Summaries: the statistics of predictions without their members, joined piece by piece."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus import prediction as prediction_module
from pluribus.likelihood import Bernoulli, Categorical, Gaussian, Point
from pluribus.mechanisms.graph.cost import Meter
from pluribus.methods import DeepEnsembles
from pluribus.prediction import CategoricalPrediction
from pluribus.summary import Summary, collect, summarise

OUTPUTS = torch.randn(3, 8, 4, 5, 5, generator=torch.Generator().manual_seed(0))
WEIGHTS = torch.tensor([0.5, 0.3, 0.2])
PREDICTIONS = [
    Categorical().prediction(OUTPUTS, WEIGHTS),
    Bernoulli().prediction(OUTPUTS, WEIGHTS),
    Gaussian().prediction(OUTPUTS, WEIGHTS),
    Gaussian(precision=2.0).prediction(OUTPUTS, WEIGHTS),
    Point().prediction(OUTPUTS, WEIGHTS),
]
each_prediction = pytest.mark.parametrize("whole", PREDICTIONS, ids=lambda one: type(one).__name__)


def pieces(whole):
    return (whole[start : start + 3] for start in range(0, len(whole), 3))


@each_prediction
@pytest.mark.parametrize("total", [8, None])
def test_summaries_of_pieces_are_those_of_the_whole(whole, total):
    found = collect(pieces(whole), total, "summary")
    assert isinstance(found, Summary)
    assert tuple(found.values) == whole.summaries
    for name in whole.summaries:
        assert_close(getattr(found, name), getattr(whole, name), rtol=0, atol=0)


@each_prediction
@pytest.mark.parametrize("total", [8, None])
def test_members_of_pieces_are_those_of_the_whole(whole, total):
    found = collect(pieces(whole), total)
    for name, value in whole.batched().items():
        assert_close(found.batched()[name], value, rtol=0, atol=0)
    assert_close(found.weights, whole.weights)


@each_prediction
def test_summaries_of_large_predictions_are_computed_in_slices(whole, monkeypatch):
    expected = {name: getattr(whole, name) for name in whole.summaries}
    monkeypatch.setattr(prediction_module, "SLICE_BYTES", 2 * whole.members.nbytes // len(whole))
    fresh = whole[:]
    for name, value in expected.items():
        assert_close(getattr(fresh, name), value, rtol=0, atol=0)


def test_slices_bound_the_memory_of_summaries(monkeypatch):
    whole = Categorical().prediction(OUTPUTS, WEIGHTS)
    sample = whole.members.nbytes // len(whole)
    peaks = {}
    for size in (sample, len(whole) * sample):
        monkeypatch.setattr(prediction_module, "SLICE_BYTES", size)
        with Meter() as meter:
            _ = whole[:].mutual_information, whole[:].variation_ratio
        peaks[size] = meter.peak
    assert peaks[sample] < 0.5 * peaks[len(whole) * sample]


def test_some_summaries_are_kept_by_name():
    found = collect(pieces(PREDICTIONS[0]), 8, ["labels", "entropy"])
    assert (len(found), list(found.values)) == (8, ["labels", "entropy"])
    assert repr(found) == "Summary(8 samples: labels, entropy)"
    assert collect(pieces(PREDICTIONS[0]), 8, "labels").labels.shape == (8, 5, 5)
    with pytest.raises(
        AttributeError, match=r"kept are labels, entropy, got 'confidence'.*keep=\['confidence'\]"
    ):
        _ = found.confidence
    for wrong in ("label", [], 3, ["labels", 3]):
        with pytest.raises(pl.SettingError, match=r"keep must be 'members', 'summary' or .*got"):
            collect(pieces(PREDICTIONS[0]), 8, wrong)


def test_a_summary_is_indexed_moved_copied_and_shown():
    found = summarise(Categorical().prediction(OUTPUTS[..., 0, 0]), ("probabilities", "labels"))
    assert found[2].labels.shape == (1,)
    assert found[2:4].probabilities.shape == (2, 4)
    assert list(found.table()) == ["p0", "p1", "p2", "p3", "labels"]
    assert found.numpy()["labels"].shape == (8,)
    assert found.to("cpu").labels.device.type == "cpu"
    assert "probabilities" in found._repr_html_()
    for copied in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert torch.equal(copied.labels, found.labels)


def test_pieces_of_different_shapes_are_refused():
    small = Categorical().prediction(OUTPUTS[:, :3, :2], WEIGHTS)
    with pytest.raises(pl.InputError, match="one shape for all samples"):
        collect(iter([PREDICTIONS[0][:5], small]), 8)


def test_nothing_is_refused():
    with pytest.raises(pl.InputError, match="at least one batch"):
        collect(iter([]), None)


class Dense(nn.Module):
    """A segmentation: few channels in, many classes out, at every pixel."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(1, 16, 1)

    def forward(self, x):
        return self.layer(x)


def test_dense_predictions_are_bounded_by_the_chunk():
    ensemble = pl.convert(Dense(), DeepEnsembles(members=4)).eval()
    x = torch.randn(16, 1, 16, 16)
    result = 2 * ensemble(x).nbytes  # outputs, and their log-probabilities
    ensemble.predict(x[:1])
    with Meter() as kept:
        whole = ensemble.predict(x, chunk=1)
    # The result, one piece of sixteen with its temporary tensors, and not the result twice.
    assert kept.peak < 1.4 * result
    with Meter() as streamed:
        found = ensemble.predict(x, chunk=1, keep=["labels", "mutual_information"])
    assert streamed.peak < 0.4 * result
    assert torch.equal(found.labels, whole.labels)
    assert_close(found.mutual_information, whole.mutual_information)


def test_a_frozen_ensemble_streams_summaries_too():
    ensemble = pl.convert(Dense(), DeepEnsembles(members=2), example=torch.randn(2, 1, 4, 4)).eval()
    x = torch.randn(6, 1, 4, 4)
    found = ensemble.freeze().predict(x, chunk=4, keep="summary")
    assert_close(found.entropy, ensemble.predict(x).entropy)


def test_a_loader_is_summarised():
    ensemble = pl.convert(Dense(), DeepEnsembles(members=2)).eval()
    x = torch.randn(6, 1, 4, 4)
    found = ensemble.predict([x[:4], x[4:]], keep="confidence")
    assert_close(found.confidence, ensemble.predict(x).confidence)


class Entropy(nn.Module):
    """A summary as the head of an exported graph computes it."""

    def forward(self, logs):
        weights = logs.new_full((3,), 1 / 3)
        return CategoricalPrediction(logs, weights).expected_entropy


def test_summaries_are_exported_with_any_batch():
    logs = OUTPUTS[..., 0, 0].log_softmax(2)
    sizes = ({1: torch.export.Dim("batch", min=2)},)
    program = torch.export.export(Entropy(), (logs,), dynamic_shapes=sizes, strict=False)
    assert_close(program.module()(logs[:, :5]), Entropy()(logs[:, :5]))
