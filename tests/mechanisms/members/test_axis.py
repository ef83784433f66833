"""The member axis: what goes in comes out again, member-major."""

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from pluribus.errors import InputError
from pluribus.mechanisms.members.axis import fold, fork, join, unfold

unhurried = settings(deadline=None)
small = st.integers(1, 4)
shapes = st.tuples(small, small).flatmap(
    lambda two: st.lists(small, max_size=3).map(lambda rest: (*two, *rest))
)


def numbered(*shape):
    return torch.arange(torch.Size(shape).numel()).reshape(shape)


@unhurried
@given(shapes)
def test_unfold_undoes_fold(shape):
    values = numbered(*shape)
    assert_close(unfold(fold(values), shape[0]), values)


@unhurried
@given(shapes, small)
def test_fold_undoes_unfold(shape, members):
    values = numbered(members * shape[0], *shape[1:])
    assert_close(fold(unfold(values, members)), values)


@pytest.mark.parametrize("shape", [(2, 0), (2, 0, 3), (2, 3, 0)])
def test_unfold_undoes_fold_of_nothing(shape):
    assert unfold(fold(torch.zeros(shape)), 2).shape == shape


def test_folding_is_member_major():
    assert_close(fold(torch.tensor([[1, 2], [3, 4]])), torch.tensor([1, 2, 3, 4]))
    assert_close(unfold(torch.tensor([1, 2, 3, 4]), 2)[1], torch.tensor([3, 4]))


def test_fold_does_not_copy():
    values = torch.zeros(2, 3, 4)
    assert fold(values).data_ptr() == unfold(fold(values), 2).data_ptr() == values.data_ptr()


@unhurried
@given(shapes, small)
def test_a_fork_is_the_same_for_every_member(shape, members):
    values = numbered(*shape)
    forked = fork(values, members)
    assert forked.shape == (members, *shape)
    for row in forked:
        assert_close(row, values)


def test_a_fork_does_not_copy():
    values = torch.zeros(3, 4)
    assert {row.data_ptr() for row in fork(values, 1000)} == {values.data_ptr()}


@unhurried
@given(shapes)
def test_join_undoes_iterating_over_rows(shape):
    values = numbered(*shape)
    assert_close(join(list(values)), values)
    assert_close(join(values.unbind()), values)


@unhurried
@given(shapes, st.randoms())
def test_permuting_members_permutes_blocks(shape, random):
    values = numbered(*shape)
    order = random.sample(range(shape[0]), shape[0])
    assert_close(fold(values[order]), torch.cat([values[member] for member in order]))


@pytest.mark.parametrize("shape", [(), (3,)])
def test_fold_refuses_values_without_a_batch(shape):
    message = f"fold expects [members, batch, ...], however: shape {shape}."
    with pytest.raises(InputError, match=re.escape(message)):
        fold(torch.zeros(shape))


@pytest.mark.parametrize(("shape", "members"), [((5, 2), 2), ((4,), 0), ((4,), -2), ((), 1)])
def test_unfold_refuses_an_axis_that_members_do_not_divide(shape, members):
    with pytest.raises(InputError, match=rf"a first axis that {members} members divide, however: shape"):
        unfold(torch.zeros(shape), members)
