"""Scaling: statistics, constants, inverse, bytes, memory that is only used when asked for."""

import numpy as np
import torch
from torch.testing import assert_close

from pluribus.data.scaling import UNSCALED, Rescaled, Scaling, unit


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_columns_get_mean_0_and_variance_1():
    values = normal(50, 3) * torch.tensor([1e-3, 1.0, 1e3]) + torch.tensor([1e3, 0.0, -5.0])
    scaled = Scaling.of_columns(values).apply(values).double()
    assert_close(scaled.mean(0), torch.zeros(3).double(), rtol=0, atol=1e-6)
    assert_close(scaled.std(0, correction=0), torch.ones(3).double(), rtol=0, atol=1e-6)


def test_constant_columns_are_only_moved():
    values = torch.cat((torch.full((7, 1), 0.1), torch.arange(7.0)[:, None]), 1).double()
    scaling = Scaling.of_columns(values)
    assert_close(scaling.apply(values)[:, 0], torch.zeros(7), rtol=0, atol=0)
    assert scaling.std[0] == 1


def test_large_offsets_keep_their_digits():
    values = 1e9 + torch.arange(5.0, dtype=torch.float64)[:, None]
    assert_close(Scaling.of_columns(values).apply(values)[:, 0] * 2**0.5, torch.arange(-2.0, 3.0))


def test_channels_are_scaled_as_numpy_would():
    images = torch.randint(0, 256, (9, 3, 5, 4), generator=torch.Generator().manual_seed(0)).byte()
    images[:, 2] = 7
    scaling, shares = Scaling.of_channels(images), images.numpy() / 255
    assert_close(scaling.mean.flatten(), torch.from_numpy(shares.mean((0, 2, 3))), rtol=1e-6, atol=0)
    assert_close(
        scaling.std.flatten()[:2], torch.from_numpy(np.std(shares, (0, 2, 3))[:2]), rtol=1e-6, atol=0
    )
    assert scaling.std[2] == 1
    assert scaling.apply(images).shape == images.shape


def test_invert_undoes_apply():
    values = normal(6, 2)
    scaling = Scaling.of_columns(values)
    assert_close(scaling.invert(scaling.apply(values).double()), values, rtol=0, atol=1e-6)
    assert_close(UNSCALED.apply(values), values.float())


def test_applying_leaves_the_raw_values_alone():
    for values in (normal(4, 2), torch.tensor([[0, 255]]).byte()):
        before = values.clone()
        Scaling(torch.ones(2), torch.full((2,), 2.0)).apply(values)
        assert_close(values, before, rtol=0, atol=0)


def test_bytes_are_shares_of_255():
    assert_close(unit(torch.tensor([0, 51, 255]).byte()), torch.tensor([0.0, 0.2, 1.0]))


def test_whole_numbers_are_scaled_as_numbers():
    scaling = Scaling(torch.tensor([0.5]).double(), torch.tensor([0.25]).double())
    for dtype in (torch.int64, torch.int32, torch.bool):
        assert_close(scaling.apply(torch.tensor([[0], [1]]).to(dtype)), torch.tensor([[-2.0], [2.0]]))


def test_sets_are_scaled_when_asked_for():
    sets = Rescaled({"a": torch.tensor([[0, 255]]).byte()}, Scaling(torch.tensor(0.5), torch.tensor(0.5)))
    assert list(sets) == ["a"]
    assert len(sets) == 1
    assert "b" not in sets
    assert_close(sets["a"], torch.tensor([[-1.0, 1.0]]))
