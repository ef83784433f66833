"""Channels: classes that grow, labels that are joined as sums of products join their axes."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pluribus.mechanisms.widths.channels import FILLER, Channels, Labelled, counted, narrowed, varying


def partition(channels, count):
    return channels.find(torch.arange(1, count + 1)).tolist()


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=20))
def test_classes_are_those_of_a_plain_search(pairs):
    channels = Channels()
    channels.fresh([12])
    ones, others = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T + 1
    channels.unify(ones, others)
    classes = {number: {number} for number in range(12)}
    for a, b in pairs:
        union = classes[a] | classes[b]
        classes |= dict.fromkeys(union, union)
    assert partition(channels, 12) == [min(classes[number]) + 1 for number in range(12)]


def test_every_axis_of_a_fresh_tensor_has_channels_of_its_own():
    value = Channels().fresh([2, 1, 3])
    assert [label.flatten().tolist() for label in value.labels] == [[1, 2], [3, 4, 5]]
    assert [varying(label) for label in value.labels] == [(0,), (2,)]


def test_a_label_is_narrow_where_it_is_constant():
    assert narrowed(torch.tensor([[1, 2], [1, 2]])).tolist() == [[1, 2]]
    assert narrowed(torch.tensor([[1, 1], [2, 2]])).tolist() == [[1], [2]]


def test_a_sum_couples_the_channels_of_its_terms():
    channels = Channels()
    one, other = channels.fresh([3]), channels.fresh([3])
    total = channels.join([(one, [0]), (other, [0])], [3], [0])
    assert partition(channels, 6) == [1, 2, 3, 1, 2, 3]
    assert total.labels[0].tolist() == [1, 2, 3]


def test_a_product_forgets_what_it_sums_over():
    channels = Channels()
    x, weight = channels.fresh([1, 3]), channels.fresh([2, 3])
    result = channels.join([(x, [0, 2]), (weight, [1, 2])], [1, 2], [0, 1])
    assert partition(channels, 8) == [1, 2, 3, 4, 5, 1, 2, 3]
    assert [label.tolist() for label in result.labels] == [[[4, 5]]]


def test_an_axis_without_channels_fixes_those_that_meet_it():
    channels = Channels()
    weight = channels.fresh([2, 3])
    result = channels.join([(Labelled((5, 3)), [0, 2]), (weight, [1, 2])], [5, 2], [0, 1])
    assert partition(channels, 5) == [1, 2, 0, 0, 0]
    assert [label.tolist() for label in result.labels] == [[[1, 2]]]


def test_a_scale_of_each_head_does_not_couple_the_channels_of_a_head():
    channels = Channels()
    heads = Labelled((2, 3), (channels.fresh([6]).labels[0].view(2, 3),))
    scale = channels.fresh([2, 1])
    channels.join([(heads, [0, 1]), (scale, [0, 1])], [2, 3], [0, 1])
    assert partition(channels, 8) == [1, 2, 3, 4, 5, 6, 0, 0]


def test_padding_takes_what_it_meets():
    channels = Channels()
    padded = Labelled((3,), (torch.tensor([*channels.fresh([2]).labels[0].tolist(), FILLER]),))
    total = channels.join([(padded, [0]), (channels.fresh([3]), [0])], [3], [0])
    assert partition(channels, 5) == [1, 2, 1, 2, 5]
    assert total.labels[0].tolist() == [1, 2, 5]


def test_a_single_channel_is_fixed():
    channels = Channels()
    label = channels.fresh([3]).labels[0]
    assert channels.labelled((), [label[1]]).labels == ()
    assert partition(channels, 3) == [1, 0, 3]


def test_positions_that_are_tied_carry_the_same_channels():
    channels = Channels()
    value = Labelled((2, 3), (channels.fresh([6]).labels[0].view(2, 3),))
    assert channels.tie(value, [1]).labels[0].tolist() == [[1], [4]]
    assert channels.along(value, 0).tolist() == [1, 4]


def test_channels_are_counted():
    assert counted(torch.tensor([3, 1, 3])) == {1: 1, 3: 2}
