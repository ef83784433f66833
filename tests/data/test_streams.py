"""Streams: keys rule, samples are independent, distributions are right."""

import torch
from pytest import approx
from torch.testing import assert_close

from pluribus.data.streams import Streams


def test_equal_keys_draw_equal_numbers_whoever_else_draws():
    both, alone = Streams(["a", "b"]), Streams(["b"])
    for draw in (lambda s: s.normal(5), lambda s: s.uniform(2, 3, 4), lambda s: s.integers(0, 9, 2, 3)):
        assert_close(draw(both)[1:], draw(alone), rtol=0, atol=0)


def test_different_keys_draw_different_numbers():
    drawn = Streams(map(str, range(1000))).uniform(0, 1)
    assert len(drawn.unique()) > 990


def test_a_stream_goes_on():
    streams = Streams(["a"])
    assert not torch.equal(streams.normal(5), streams.normal(5))


def test_draws_have_their_distributions():
    streams = Streams(map(str, range(100)))
    normal = streams.normal(1000)
    assert normal.mean().item() == approx(0, abs=0.02)
    assert normal.std().item() == approx(1, abs=0.02)
    uniform = streams.uniform(-2, 4, 1000)
    assert -2 <= uniform.min() < -1.99
    assert 3.99 < uniform.max() <= 4
    assert uniform.mean().item() == approx(1, abs=0.03)
    assert streams.integers(-2, 2, 1000).unique().tolist() == [-2, -1, 0, 1]
    counts = streams.poisson(torch.full((100, 1000), 3.0, dtype=torch.float64))
    assert counts.mean().item() == approx(3, abs=0.03)
    assert counts.var().item() == approx(3, abs=0.06)


def test_neighbouring_samples_are_not_correlated():
    drawn = Streams(f"0/fog/1/{i}" for i in range(2000)).normal(3)
    assert torch.corrcoef(torch.stack([drawn[:-1, 0], drawn[1:, 0]]))[0, 1].item() == approx(0, abs=0.08)
