"""Index: which rows there are, how they are named, and how much each counts."""

import pytest
import torch
from torch.testing import assert_close

from pluribus.errors import InputError
from pluribus.mechanisms.members.index import Combinations, Fixed, Seeds, share_among


def test_fixed_rows_are_positions_in_both_modes():
    assert list(Fixed(3).rows(training=True)) == list(Fixed(3).rows(training=False)) == [0, 1, 2]
    assert_close(Fixed(4).weights(2), torch.tensor([0.5, 0.5, 0, 0]))
    assert Fixed(4).keep([2, 0], [0, 1]).count == 2


def test_fixed_rows_cannot_be_drawn():
    with pytest.raises(InputError, match="got one with 3 fixed members"):
        Fixed(3).draw(2, training=False)


@pytest.mark.parametrize("member", [-1, 3, True, 0.0, "0", None])
def test_a_position_that_does_not_exist_is_refused(member):
    with pytest.raises(InputError, match=rf"positions from 0 to 2, got {member!r}\."):
        Fixed(3).pick([0, member])


def test_seeds_are_kept_in_eval_mode_and_fresh_in_training():
    index = Seeds(draws=4, train_draws=2, seed=0)
    assert index.rows(training=False) == Seeds(4, 2, seed=0).rows(training=False)
    assert index.rows(training=False) != Seeds(4, 2, seed=1).rows(training=False)
    assert len(index.rows(training=True)) == 2
    assert index.rows(training=True) != index.rows(training=True)
    assert index.pick([3, 1]) == [index.rows(training=False)[3], index.rows(training=False)[1]]
    assert index.keep([3, 1], []).rows(training=False) == index.pick([3, 1])


def test_anonymous_rows_of_training_have_no_name():
    assert Seeds(4, 2, seed=0, anonymous=True).rows(training=True) == [None, None]
    assert None not in Seeds(4, 2, seed=0, anonymous=True).draw(3, training=False)
    index = Combinations({"a": 2}, [(0,), (1,)], train_draws=3, anonymous=True)
    assert index.rows(training=True) == [None] * 3


def test_kept_combinations_are_renumbered_with_their_probabilities():
    rows = [(0, 0), (2, 1), (0, 1)]
    shares = torch.tensor([0.5, 0.25, 0.25])
    index = Combinations({"a": 3, "b": 2}, rows, 1, shares, [(0.5, 0.3, 0.2), (0.5, 0.5)])
    small = index.keep([1, 2], [(1, 0), (0, 0)])
    assert small.rows(training=False) == [(1, 0), (0, 0)]
    assert small.sizes == {"a": 2, "b": 1}
    assert small.probabilities[0] == pytest.approx((0.5 / 0.7, 0.2 / 0.7))
    assert_close(small.weights(), torch.tensor([0.5, 0.5]))


def test_shares_among_rows_that_count_nothing_are_alike():
    assert_close(share_among(torch.tensor([0.0, 0.0, 1.0]), [0, 1]), torch.tensor([0.5, 0.5]))
