"""Tally: the numbers of one evaluation, batch by batch, and bounded memory."""

import pytest
import torch

from pluribus.errors import InputError
from pluribus.metrics import METRICS, evaluate_all
from pluribus.metrics.tally import IMAGES, MEANS, ROOTS, Tally
from tests.metrics.examples import answers, classes, numbers, points

CASES = {
    "classes": classes(60, 7),
    "pixels": classes(20, 3, 4, 5),
    "answers": answers(60, 3),
    "numbers": numbers(60, 2),
    "points": points(60),
}


def filled(prediction, target, most, size=8):
    tally = Tally(most)
    for start in range(0, len(prediction), size):
        part = slice(start, start + size)
        tally.add(prediction[part], target[part])
    return tally


@pytest.mark.parametrize("case", CASES)
def test_metrics_of_few_samples_are_those_of_all_at_once(case):
    prediction, target = CASES[case]
    tally = filled(prediction, target, most=10**6)
    assert not tally.is_thinned
    assert tally.metrics() == pytest.approx(evaluate_all(prediction, target), nan_ok=True)
    assert torch.equal(tally.prediction.members, prediction.members)


@pytest.mark.parametrize("case", CASES)
def test_means_stay_exact_in_bounded_memory(case):
    prediction, target = CASES[case]
    most = prediction.members.numel() // 5
    tally = filled(prediction, target, most)
    assert tally.is_thinned
    assert tally.numbers <= most
    found, expected = tally.metrics(), evaluate_all(prediction, target)
    counted = [name for name in expected if name in (*MEANS, *ROOTS, *IMAGES)]
    assert counted
    for name in counted:
        assert found[name] == pytest.approx(expected[name], rel=1e-5), name
        assert tally.compute(METRICS[name]) == found[name]


def test_kept_positions_are_evenly_spaced():
    prediction, _ = classes(64, 3)
    tally = filled(prediction, torch.arange(64) % 3, prediction.members.numel() // 3, size=5)
    assert tally.stride == 4
    assert torch.equal(tally.prediction.members, prediction.members[:, ::4])


def test_texts_of_several_lengths_are_joined_by_positions():
    short, long = classes(4, 3, 5), classes(4, 3, 9)
    tally = Tally()
    for prediction, target in (short, long):
        tally.add(prediction, target)
    assert len(tally.prediction) == 4 * 5 + 4 * 9
    total = METRICS["nll"](*short) * 20 + METRICS["nll"](*long) * 36
    assert tally.metrics()["nll"] == pytest.approx(total / 56)


def test_predictions_without_targets_have_no_metrics():
    tally = Tally(most=100)
    tally.add(classes(64, 3)[0])
    assert len(tally.prediction) < 64
    with pytest.raises(InputError, match="metrics need targets"):
        tally.metrics()
    with pytest.raises(InputError, match="at least one sample"):
        _ = Tally().prediction


def test_fewer_outputs_of_dense_predictions_are_kept(monkeypatch):
    monkeypatch.setattr("pluribus.metrics.tally.MOST_DENSE", 200)
    pixels = filled(*CASES["pixels"], most=10**6)
    assert pixels.is_thinned
    assert pixels.numbers <= 200
    assert not filled(*CASES["classes"], most=10**6).is_thinned
