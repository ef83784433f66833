"""Outcomes: columns that average to the metrics, files that come back, pictures as they were."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from pytest import raises

from pluribus.comparison.outcomes import (
    GALLERY,
    MOST,
    SIDE,
    Outcomes,
    make_gallery,
    read_outcomes,
    stored_ood_scores,
)
from pluribus.conversion import convert
from pluribus.data import two_moons
from pluribus.errors import CheckpointError
from pluribus.likelihood import Bernoulli, Categorical, Gaussian, Point
from pluribus.methods import Single
from pluribus.metrics import evaluate_all


def logits(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_columns_of_classes_average_to_the_metrics():
    prediction, target = Categorical().prediction(logits(3, 50, 4)), torch.arange(50) % 4
    columns, metrics = read_outcomes(prediction, target).columns, evaluate_all(prediction, target)
    assert columns["nll"].mean() == pytest.approx(metrics["nll"], rel=1e-5)
    assert columns["brier"].mean() == pytest.approx(metrics["brier"], rel=1e-5)
    assert (columns["label"] == columns["target"]).mean() == pytest.approx(metrics["accuracy"])


def test_columns_of_numbers_average_to_the_metrics():
    prediction, target = Gaussian().prediction(logits(3, 50, 4)), logits(50, 2, seed=1)
    columns, metrics = read_outcomes(prediction, target).columns, evaluate_all(prediction, target)
    assert np.sqrt(columns["squared_error"].mean()) == pytest.approx(metrics["rmse"], rel=1e-5)
    for name in ("gaussian_nll", "crps"):
        assert columns[name].mean() == pytest.approx(metrics[name], rel=1e-5)
    inside = (columns["low"] <= columns["target"]) & (columns["target"] <= columns["high"])
    assert inside.mean() == pytest.approx(metrics["coverage_95"])
    assert_array_equal(inside, np.abs(2 * columns["position"] - 1) <= 0.95)


def test_dense_and_binary_predictions_have_a_row_for_each_position():
    dense = read_outcomes(Categorical().prediction(logits(2, 3, 4, 5, 5)), torch.zeros(3, 5, 5).long())
    assert len(dense.columns["label"]) == 75
    binary = read_outcomes(Bernoulli().prediction(logits(2, 6, 3)), torch.ones(6, 3))
    assert len(binary.columns["confidence"]) == 18
    point = read_outcomes(Point().prediction(logits(2, 6, 1)), torch.ones(6, 1))
    assert "low" not in point.columns
    assert len(point.columns["mean"]) == 6


def test_of_too_many_samples_the_same_ones_are_kept_in_every_column():
    count = MOST + 5000
    prediction = Categorical().prediction(logits(1, count, 2))
    found = read_outcomes(prediction, prediction.labels)
    assert {len(values) for values in found.columns.values()} == {MOST}
    assert_array_equal(found.columns["label"], found.columns["target"])
    assert len(found.scores["entropy"]) == MOST
    assert found.columns["confidence"][[0, -1]] == pytest.approx(prediction.confidence[[0, -1]].numpy())


def test_the_score_of_a_calibration_is_stored():
    task = two_moons(train=60)
    ensemble = convert(torch.nn.Linear(2, 2), Single())
    ensemble.calibrate((task.validation.x, task.validation.y))
    prediction = ensemble.predict(task.test.x)
    found = read_outcomes(prediction.raw, task.test.y, prediction).scores
    assert found["chosen"] == pytest.approx(prediction.ood_score.numpy(), rel=1e-3)
    assert "chosen" not in stored_ood_scores(prediction.raw, prediction.raw)


def test_files_come_back_as_they_were(tmp_path):
    prediction, target = Categorical().prediction(logits(3, 50, 4)), torch.arange(50) % 4
    saved = read_outcomes(prediction, target)
    saved.ood["a/b"] = stored_ood_scores(prediction)
    gallery = make_gallery(prediction, target, torch.rand(50, 3, 4, 6), ("a", "b", "c", "é"))
    saved = Outcomes(saved.columns, saved.scores, saved.ood, gallery)
    saved.save(tmp_path / "deep" / "one.npz")
    loaded = Outcomes.load(tmp_path / "deep" / "one.npz")
    for part in ("columns", "scores"):
        assert list(getattr(loaded, part)) == list(getattr(saved, part))
        for name, values in getattr(saved, part).items():
            assert_array_equal(getattr(loaded, part)[name], values)
    assert_array_equal(loaded.ood["a/b"]["entropy"], saved.ood["a/b"]["entropy"])
    assert_array_equal(loaded.gallery.pixels, gallery.pixels)
    assert loaded.gallery.class_names == ("a", "b", "c", "é")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["one.npz"]


def test_a_damaged_file_is_refused_by_name(tmp_path):
    (tmp_path / "one.npz").write_bytes(b"PK no")
    with raises(CheckpointError, match=r"one\.npz must hold arrays"):
        Outcomes.load(tmp_path / "one.npz")


def test_pictures_keep_their_colours_and_large_ones_are_reduced():
    prediction, target = Categorical().prediction(logits(2, 2, 3)), torch.tensor([0, 1])
    x = torch.tensor([0.0, 0.2, 1.0]).reshape(1, 3, 1, 1).expand(2, 3, 4, 4)
    gallery = make_gallery(prediction, target, x)
    assert gallery.pixels.shape == (2, 4, 4, 3)
    assert gallery.pixels[0, 0, 0].tolist() == [0, 51, 255]
    large = make_gallery(prediction, target, torch.rand(2, 1, SIDE * 2, SIDE))
    assert large.pixels.shape == (2, SIDE, SIDE // 2, 1)
    assert make_gallery(prediction, target, x * 4 - 2).pixels[0, 0, 0].tolist() == [0, 51, 255]


def test_only_classified_images_have_a_gallery():
    prediction, target = Categorical().prediction(logits(2, 60, 3)), torch.zeros(60).long()
    assert len(make_gallery(prediction, target, torch.rand(60, 1, 4, 4)).index) == 2 * GALLERY
    assert make_gallery(prediction, target, torch.rand(60, 7)) is None
    assert make_gallery(prediction, target, torch.rand(60, 2, 4, 4)) is None
    numbers = Point().prediction(logits(2, 60, 1))
    assert make_gallery(numbers, torch.zeros(60, 1), torch.rand(60, 1, 4, 4)) is None


def test_bytes_are_shown_as_they_are_and_one_picture_is_no_gallery():
    prediction, target = Categorical().prediction(logits(2, 2, 3)), torch.tensor([0, 1])
    x = torch.tensor([0, 51, 200], dtype=torch.uint8).reshape(1, 3, 1, 1).expand(2, 3, 4, 4)
    assert make_gallery(prediction, target, x).pixels[0, 0, 0].tolist() == [0, 51, 200]
    assert make_gallery(prediction[:1], target[:1], x[:1]) is None


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"columns/nll": np.zeros((2, 2))}, "columns/nll must be a column of float32"),
        ({"columns/nll": np.array(["a"])}, "columns/nll must be a column of float32"),
        ({"columns/a": np.zeros(2), "columns/b": np.zeros(3)}, "all columns must have one length"),
        ({"nothing": np.zeros(2)}, "must hold outcomes"),
        ({"else/a": np.zeros(2)}, "must hold outcomes"),
        ({"gallery/index": np.zeros(2)}, "must hold outcomes"),
    ],
)
def test_arrays_that_are_no_outcomes_are_refused(arrays, says, tmp_path):
    np.savez(tmp_path / "one.npz", **arrays)
    with raises(CheckpointError, match=says):
        Outcomes.load(tmp_path / "one.npz")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("target", np.zeros((2, 2), np.int32)),
        ("pixels", np.zeros((2, 4, 4, 2), np.uint8)),
        ("pixels", np.zeros((2, 4, 4), np.uint8)),
        ("pixels", np.zeros((3, 4, 4, 1), np.uint8)),
        ("pixels", np.zeros((2, 4, 4, 1), np.uint16)),
        ("votes", np.zeros((3, 2), np.int32)),
        ("votes", np.zeros((2, 2), np.float32)),
        ("weights", np.zeros((2, 1), np.float32)),
    ],
)
def test_gallery_arrays_of_other_shapes_and_types_are_refused_by_name(name, values, tmp_path):
    prediction, target = Categorical().prediction(logits(2, 2, 3)), torch.tensor([0, 1])
    gallery = make_gallery(prediction, target, torch.rand(2, 1, 4, 4), ("a", "b", "c"))
    Outcomes({}, {}, {}, gallery).save(tmp_path / "sound.npz")
    assert Outcomes.load(tmp_path / "sound.npz").gallery.class_names == ("a", "b", "c")
    Outcomes({}, {}, {}, replace(gallery, **{name: values})).save(tmp_path / "odd.npz")
    with raises(
        CheckpointError, match=rf"odd\.npz must hold outcomes, got a file in which gallery/{name} must"
    ):
        Outcomes.load(tmp_path / "odd.npz")


@pytest.mark.parametrize("dtype", [np.bool_, np.float16, ">f4", np.uint8, np.longdouble])
def test_columns_of_types_that_figures_cannot_use_are_refused(dtype, tmp_path):
    np.savez(tmp_path / "a.npz", **{"columns/confidence": np.ones(3).astype(dtype)})
    with pytest.raises(CheckpointError, match="columns/confidence must be a column of float32 or float64"):
        Outcomes.load(tmp_path / "a.npz")


def test_classes_may_be_whole_numbers(tmp_path):
    Outcomes({"target": np.arange(3, dtype=np.int32)}, {}).save(tmp_path / "a.npz")
    assert Outcomes.load(tmp_path / "a.npz").columns["target"].tolist() == [0, 1, 2]
