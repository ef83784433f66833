"""Configurations as numbers."""

import pytest

from pluribus.axes import Between, OneOf
from pluribus.search.encoding import Encoder, place
from pluribus.search.making import read_space


def test_values_lie_on_their_axes_between_zero_and_one():
    assert place(Between(0.01, 1.0, log=True), 0.1) == pytest.approx([0.5])
    assert place(Between(1, 5), 4) == [0.75]
    assert place(Between(2, 2), 2) == [0.0]
    assert place(OneOf((4, 16, 8)), 8) == [0.5]
    assert place(OneOf(("a", "b")), "b") == pytest.approx([0, 0.5**0.5])


def test_settings_of_methods_and_those_of_all_are_numbers():
    space = read_space(
        {"single": {}, "mc_dropout": {"rate": {"low": 0.1, "high": 0.5}, "draws": [4, 8]}, "width": [8, 16]}
    )
    encoder = Encoder(space)
    single, dropout = {"method": "single", "width": 16}, {"method": "mc_dropout", "width": 8}
    assert encoder.has_all(single)
    assert not encoder.has_all(dropout)
    dropout |= {"mc_dropout.rate": 0.2, "mc_dropout.draws": 8}
    assert encoder.has_all(dropout)
    found = encoder.points([single, dropout])
    assert found.kinds.tolist() == [0, 1]
    assert found.sizes.tolist() == [1, 3]
    assert found.own[0] == pytest.approx([1, 0, 0])
    assert sorted(found.own[1]) == pytest.approx([0, 0.25, 1])
    assert found.shared.tolist() == [[1.0], [0.0]]
    assert encoder.points([]).own.shape == (0, 3)


def test_space_of_one_method_needs_no_name_of_it():
    encoder = Encoder(read_space({"deep_ensembles": {"members": [2, 3, 4]}}))
    assert encoder.points([{"deep_ensembles.members": 3}]).own.tolist() == [[0.5]]
