"""Samples that affect one another are found."""

import numpy as np

from pluribus.serving.independence import made_up, samples_are_independent
from pluribus.serving.tensors import Input

INPUTS = (Input("x", "float32", (3,)), Input("tokens", "int64", ("length",)))


def test_samples_that_do_not_meet_are_independent():
    assert samples_are_independent(
        lambda arrays: {"mean": arrays["x"] * 2, "labels": np.zeros(1, int)}, INPUTS
    )
    assert samples_are_independent(lambda arrays: {"members": np.stack((arrays["x"],) * 2)}, INPUTS)


def test_samples_that_meet_are_found():
    assert not samples_are_independent(lambda arrays: {"mean": arrays["x"] - arrays["x"].mean(0)}, INPUTS)
    assert not samples_are_independent(lambda arrays: {"mean": np.zeros((1, 3, len(arrays["x"])))}, INPUTS)


def test_a_network_that_refuses_shows_nothing():
    def refuse(arrays):
        raise RuntimeError

    assert not samples_are_independent(refuse, INPUTS)


def test_made_up_samples_have_the_shape_and_type():
    found = made_up(INPUTS[1], 2, np.random.default_rng(0))
    assert (found.shape, found.dtype) == ((2, 8), np.int64)
    assert set(found.ravel().tolist()) <= {0, 1}
