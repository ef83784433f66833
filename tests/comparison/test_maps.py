"""Maps: the least and the most certain images, their classes and their entropy, and what files may hold."""

import numpy as np
import pytest
import torch

from pluribus.comparison.maps import NO_CLASS, SHOWN, Maps, make_maps, read_maps
from pluribus.comparison.outcomes import Outcomes, read_outcomes
from pluribus.errors import CheckpointError
from pluribus.likelihood import Bernoulli
from tests.metrics.examples import answers, classes


def images(count=11, channels=1, side=12):
    return torch.rand(count, channels, side, side, generator=torch.Generator().manual_seed(0))


def test_maps_show_the_least_and_the_most_certain_images():
    prediction, target = classes(11, 3, 12, 12)
    maps = make_maps(prediction, target, images())
    means = prediction.entropy.flatten(1).mean(1)
    order = means.argsort(descending=True).tolist()
    assert maps.index.tolist() == order[:SHOWN] + order[::-1][:SHOWN]
    first = order[0]
    assert np.array_equal(maps.truth[0], target[first].numpy())
    assert np.array_equal(maps.label[0], prediction.labels[first].numpy())
    shares = prediction.entropy[first].numpy() / np.log(3) * 255
    assert np.abs(maps.entropy[0] - shares).max() <= 0.5 + 1e-3
    assert maps.mean_entropy[0] == pytest.approx(means[first].item(), rel=1e-6)


def test_large_images_are_shrunk_alike_and_ignored_pixels_marked():
    prediction, target = classes(2, 3, 200, 100)
    target[:, :100] = -100
    maps = make_maps(prediction, target, torch.rand(2, 4, 200, 100))
    assert maps.pixels.shape == (2, 128, 64, 1)
    assert maps.truth.shape == maps.label.shape == maps.entropy.shape == (2, 128, 64)
    assert (maps.truth[:, :60] == NO_CLASS).all()
    assert (maps.truth[:, 70:] < 3).all()


def test_a_binary_mask_has_maps_and_volumes_and_classes_have_none():
    prediction = Bernoulli().prediction(torch.randn(2, 4, 1, 8, 8))
    assert make_maps(prediction, torch.ones(4, 1, 8, 8), images(4, 3, 8)).label.shape == (4, 8, 8)
    assert make_maps(*classes(4, 3), images(4)) is None
    assert make_maps(*answers(4, 3, 8, 8), images(4, 1, 8)) is None
    assert make_maps(*classes(1, 3, 8, 8), images(1, 1, 8)) is None


def test_maps_survive_the_file_and_damage_is_refused(tmp_path):
    prediction, target = classes(4, 3, 8, 8)
    maps = make_maps(prediction, target, images(4, 1, 8))
    outcomes = read_outcomes(prediction, target)
    object.__setattr__(outcomes, "maps", maps)
    outcomes.save(tmp_path / "a.npz")
    found = Outcomes.load(tmp_path / "a.npz").maps
    assert isinstance(found, Maps)
    for name, values in vars(maps).items():
        assert np.array_equal(getattr(found, name), values, equal_nan=True), name
    object.__setattr__(maps, "label", maps.label[:, 0])
    outcomes.save(tmp_path / "a.npz")
    with pytest.raises(CheckpointError, match="maps/label must have the shape"):
        Outcomes.load(tmp_path / "a.npz")
    with pytest.raises(ValueError, match="maps must have index"):
        read_maps({"index": np.zeros(2)})
