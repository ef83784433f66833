import torch

from pluribus.data import Scaling, Signature, Split, Task
from pluribus.data.far_outside import far_outside
from pluribus.likelihood import Point

ROWS = torch.tensor([[1.0, 20.0, 0.3], [2.0, 30.0, 0.1], [3.0, 10.0, 0.2]]).double()


def signature(raw, names, scaling):
    split = Split(scaling.apply(raw), torch.arange(3.0)[:, None])
    return Signature.of(
        Task("t", split, split, split, likelihood=Point(), scaling=scaling, feature_names=names)
    )


def test_features_far_from_those_of_training_are_told_by_name():
    found = signature(ROWS, ("a", "b", "c"), Scaling.of_columns(ROWS))
    assert far_outside(ROWS, found) == ""
    assert far_outside(torch.tensor([[5.0, 49.0, 0.39]]), found) == ""  # a range further is not far
    told = far_outside(torch.tensor([[1.0, 20.0, 0.3], [1.0, 51.0, 0.3]]), found)
    assert (
        "1 of 2 that lie far outside of the training inputs: "
        "'b' ranges from 20 to 51, in training from 10 to 30." in told
    )


def test_channels_far_from_those_of_training_are_told_by_number():
    images = torch.linspace(0, 1, 48).reshape(3, 1, 4, 4)
    told = far_outside(16 * images, signature(images, (), Scaling.of_channels(images)))
    assert "3 of 3" in told
    assert "channel 0 ranges from 0 to 16, in training from 0 to 1." in told
