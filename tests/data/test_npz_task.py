"""Files of arrays: images, features, targets of every likelihood, and what is refused."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from pluribus.data.npz_task import npz_file
from pluribus.errors import InputError, SettingError
from pluribus.likelihood import Bernoulli, Gaussian

RANDOM = np.random.default_rng(0)


def arrays(*shape, dtype=np.float32, count=60):
    """Inputs of the given shape, and three classes in turn."""
    scale = 256 if dtype == np.uint8 else 1
    x = (RANDOM.random((count + 20, *shape)) * scale).astype(dtype)
    y = np.arange(count + 20) % 3
    return {"x_train": x[:count], "y_train": y[:count], "x_test": x[count:], "y_test": y[count:]}


def save(folder, values, **changes):
    path = folder / "mine.npz"
    np.savez(path, **{name: value for name, value in (values | changes).items() if value is not None})
    return path


@pytest.mark.parametrize(
    ("shape", "dtype", "options", "expected", "shifts"),
    [
        ((8, 9), np.uint8, {}, (1, 8, 9), 95),
        ((8, 9, 3), np.uint8, {}, (3, 8, 9), 95),
        ((3, 8, 9), np.uint8, {}, (3, 8, 9), 95),
        ((8, 9, 1), np.float64, {}, (1, 8, 9), 95),
        ((8, 9), np.float32, {"images": True}, (1, 8, 9), 95),
        ((8, 9), np.float32, {}, (8, 9), 0),
        ((4, 4), np.uint8, {}, (1, 4, 4), 0),
        ((5,), np.float32, {}, (5,), 0),
        ((5,), np.int16, {}, (5,), 0),
    ],
)
def test_inputs_are_images_or_features(tmp_path, shape, dtype, options, expected, shifts):
    task = npz_file(save(tmp_path, arrays(*shape, dtype=dtype)), **options)
    assert (task.input_shape, len(task.shifted), task.classes) == (expected, shifts, 3)
    assert (len(task.train), len(task.validation), len(task.test)) == (54, 6, 20)
    assert task.train.x.dtype == torch.float32


def test_channels_last_and_first_are_the_same_images(tmp_path):
    values = arrays(8, 9, 3, dtype=np.uint8)
    last = npz_file(save(tmp_path, values))
    turned = {f"x_{part}": values[f"x_{part}"].transpose(0, 3, 1, 2) for part in ("train", "test")}
    assert_close(npz_file(save(tmp_path, values | turned)).test.x, last.test.x, rtol=0, atol=0)


def test_published_validation_and_other_inputs_are_used(tmp_path):
    values = arrays(5)
    path = save(tmp_path, values, x_val=values["x_test"], y_val=values["y_test"], x_ood=values["x_test"] + 9)
    task = npz_file(path)
    assert (len(task.train), len(task.validation)) == (60, 20)
    assert_close(task.validation.x, task.test.x)
    assert_close(task.scaling.invert(task.ood["ood"]), torch.from_numpy(values["x_test"] + 9))


def test_numbers_and_labels_are_targets_too(tmp_path):
    values = arrays(5)
    two = {
        f"y_{part}": np.stack((values[f"y_{part}"], -values[f"y_{part}"]), 1) for part in ("train", "test")
    }
    task = npz_file(save(tmp_path, values | two), "gaussian")
    assert (task.likelihood, task.outputs, task.classes) == (Gaussian(), 4, None)
    assert_close(task.target_scaling.invert(task.test.y).round().long(), torch.from_numpy(two["y_test"]))
    flags = {f"y_{part}": values[f"y_{part}"] > 0 for part in ("train", "test")}
    task = npz_file(save(tmp_path, values | flags), Bernoulli())
    assert_close(task.test.y, torch.from_numpy(flags["y_test"]).float()[:, None])


def test_labels_may_be_floats_in_a_column(tmp_path):
    values = arrays(5)
    columns = {f"y_{part}": values[f"y_{part}"].astype(float)[:, None] for part in ("train", "test")}
    assert_close(npz_file(save(tmp_path, values | columns)).test.y, torch.from_numpy(values["y_test"]))


def changed(values, name, place, value):
    return {
        name: np.where(np.arange(values[name].size).reshape(values[name].shape) == place, value, values[name])
    }


FEATURES = arrays(5)
IMAGES = arrays(8, 8, 3)


@pytest.mark.parametrize(
    ("values", "changes", "options", "message"),
    [
        (FEATURES, {"y_test": None}, {}, "must hold x_train, y_train, x_test, y_test, got y_test empty"),
        (FEATURES, {"x_train": np.zeros((0, 5))}, {}, "got x_train empty or not among"),
        (FEATURES, {"x_val": FEATURES["x_test"]}, {}, "got y_val empty or not among"),
        (FEATURES, {"y_train": np.arange(59)}, {}, "a row per sample, got 60 and 59 rows"),
        (FEATURES, changed(FEATURES, "x_train", 7, np.nan), {}, "x_train must be finite, but 1 of 300"),
        (FEATURES, changed(FEATURES, "y_test", 7, np.nan), {}, "y_test must be finite, but 1 of 20"),
        (
            FEATURES,
            changed(FEATURES, "y_test", 7, 5),
            {},
            "test labels must lie in 0 to 2, got 5 at sample 7",
        ),
        (FEATURES, changed(FEATURES, "y_train", 7, -1), {}, "train labels must lie in 0 to 2, got -1"),
        (FEATURES, {}, {"classes": 2}, "train labels must lie in 0 to 1, got 2 at sample 2"),
        (
            FEATURES,
            {},
            {"classes": 5},
            "each of 5 classes must have training samples, got none for class 3, 4",
        ),
        (FEATURES, changed(FEATURES, "y_train", 7, 0.5), {}, "whole class numbers, got 0.5 at sample 7"),
        (FEATURES, {"y_train": np.eye(60)}, {}, r"one class per sample, got shape \[60, 60\]"),
        (FEATURES, {"y_train": np.zeros((60, 1, 1))}, {}, r"must be \[count\] or \[count, targets\]"),
        (FEATURES, {"y_train": np.full(60, "a")}, {}, "y_train must hold numbers, got <U1"),
        (FEATURES, {"x_test": np.zeros((20, 4))}, {}, r"test inputs must have the shape \[5\]"),
        (FEATURES, {"x_ood": np.zeros((20, 4))}, {}, r"ood inputs must have the shape \[5\]"),
        (FEATURES, {"x_train": np.zeros(60)}, {}, r"x_train must hold numbers \[count, ...\]"),
        (FEATURES, {"x_train": np.full((60, 5), "a")}, {}, "x_train must hold numbers"),
        (IMAGES, {"x_test": IMAGES["x_test"] * 255}, {}, r"bytes, or floats in \[0, 1\], to be images"),
        (IMAGES, {"x_train": np.zeros((60, 5, 5, 5))}, {}, "1 or 3 channels first or last, got"),
    ],
)
def test_broken_arrays_are_refused(tmp_path, values, changes, options, message):
    with pytest.raises(InputError, match=message):
        npz_file(save(tmp_path, values, **changes), **options)


def test_impossible_settings_are_refused(tmp_path):
    path = save(tmp_path, FEATURES)
    with pytest.raises(SettingError, match="classes must be at least 2, got 1"):
        npz_file(path, classes=1)
    with pytest.raises(SettingError, match=r"likelihood must be one of .* Did you mean 'gaussian'"):
        npz_file(path, "gausian")


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut"])
def test_damaged_files_are_named(tmp_path, content):
    (tmp_path / "mine.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"mine.npz must be a whole file of its kind, got an error: "):
        npz_file(tmp_path / "mine.npz")


def test_pickles_are_not_opened(tmp_path):
    path = save(tmp_path, FEATURES, y_train=np.array([{}] * 60, dtype=object))
    with pytest.raises(InputError, match="must hold numbers, got pickled objects"):
        npz_file(path)


@pytest.mark.parametrize("dtype", [">f4", ">f8", ">i4", np.longdouble])
def test_other_byte_orders_and_long_doubles_are_read(tmp_path, dtype):
    values = arrays(5, dtype=np.float32)
    same = {
        name: value.astype(np.int16) if np.dtype(dtype).kind == "i" else value
        for name, value in values.items()
    }
    other = {name: value.astype(dtype) for name, value in same.items()}
    expected, found = npz_file(save(tmp_path, same)).test, npz_file(save(tmp_path, other)).test
    assert_close(found.x, expected.x)
    assert_close(found.y, expected.y, rtol=0, atol=0)


@pytest.mark.parametrize("label", [10**12, -(10**12), 2**63, 1e300])
def test_labels_that_no_count_reaches_are_refused(tmp_path, label):
    labels = np.array([*range(59), label], dtype=np.float64 if isinstance(label, float) else None)
    with pytest.raises(InputError, match="y_train must hold class numbers from 0 to 2147483647, got"):
        npz_file(save(tmp_path, FEATURES, y_train=labels))


def test_large_gaps_among_labels_take_no_memory(tmp_path):
    labels = np.where(np.arange(60) == 7, 10**9, FEATURES["y_train"])
    with pytest.raises(InputError, match=r"each of 1000000001 classes .* got none for class 3, 4, 5.* more"):
        npz_file(save(tmp_path, FEATURES, y_train=labels))


def test_memory_of_the_arrays_is_limited(tmp_path):
    with pytest.raises(InputError, match=r"must take at most 1000 bytes.*most_bytes"):
        npz_file(save(tmp_path, FEATURES), most_bytes=1000)
