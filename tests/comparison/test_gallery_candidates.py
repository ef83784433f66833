"""Candidates: the pictures that one sort of all samples would choose."""

import numpy as np
import torch

from pluribus.comparison.gallery_candidates import Candidates
from pluribus.comparison.outcomes import make_gallery
from pluribus.data.batch import Batch
from pluribus.data.scaling import UNSCALED
from pluribus.likelihood import Categorical, Point
from pluribus.mechanisms.network.inputs import Inputs

X, Y = torch.rand(90, 1, 8, 8), torch.arange(90) % 3


def added(prediction, x=X, size=17):
    candidates = Candidates(UNSCALED)
    for start in range(0, len(x), size):
        part = slice(start, start + size)
        candidates.add(Batch(Inputs.of(x[part]), Y[part]), prediction[part], Y[part])
    return candidates.gallery(("a", "b", "c"))


def test_candidates_are_those_of_all_samples_at_once():
    # Rounded logits make ties.
    prediction = Categorical().prediction(torch.randn(2, 90, 3).round())
    found, expected = added(prediction), make_gallery(prediction, Y, X, ("a", "b", "c"))
    for name, values in vars(expected).items():
        assert np.array_equal(getattr(found, name), values), name


def test_numbers_and_vectors_have_no_gallery():
    assert added(Point().prediction(torch.randn(2, 90, 3))) is None
    assert added(Categorical().prediction(torch.randn(2, 90, 3)), X.flatten(1)) is None
