"""Candidates: the pictures that one sort of all samples would choose."""

import numpy as np
import torch

from pluribus.comparison.gallery_candidates import Candidates
from pluribus.comparison.maps import make_maps
from pluribus.comparison.outcomes import make_gallery
from pluribus.data.batch import Batch
from pluribus.data.scaling import UNSCALED
from pluribus.likelihood import Categorical, Point
from pluribus.mechanisms.network.inputs import Inputs

X, Y = torch.rand(90, 1, 8, 8), torch.arange(90) % 3


def added(prediction, x=X, y=Y, size=17):
    candidates = Candidates(UNSCALED)
    for start in range(0, len(x), size):
        part = slice(start, start + size)
        candidates.add(Batch(Inputs.of(x[part]), y[part]), prediction[part], y[part])
    return candidates


def test_candidates_are_those_of_all_samples_at_once():
    # Rounded logits make ties.
    prediction = Categorical().prediction(torch.randn(2, 90, 3).round())
    found, expected = (
        added(prediction).gallery(("a", "b", "c")),
        make_gallery(prediction, Y, X, ("a", "b", "c")),
    )
    for name, values in vars(expected).items():
        assert np.array_equal(getattr(found, name), values), name


def test_maps_are_those_of_all_images_at_once():
    prediction = Categorical().prediction(torch.randn(2, 90, 3, 8, 8))
    target = torch.randint(0, 3, (90, 8, 8))
    found, expected = added(prediction, y=target).maps(), make_maps(prediction, target, X)
    for name, values in vars(expected).items():
        assert np.array_equal(getattr(found, name), values), name


def test_numbers_and_vectors_have_no_gallery():
    assert added(Point().prediction(torch.randn(2, 90, 3))).gallery(()) is None
    flat = added(Categorical().prediction(torch.randn(2, 90, 3)), X.flatten(1))
    assert flat.gallery(()) is None
    assert flat.maps() is None
