"""Orders: members that start alike see batches of their own."""

import pytest

from pluribus.mechanisms.members.orders import assign_orders, count_orders, has_own_orders


@pytest.mark.parametrize(
    ("shuffle", "start", "own"),
    [(None, "copy", True), (None, "fresh", False), (True, "fresh", True), (False, "copy", False)],
)
def test_copies_have_orders_of_their_own_unless_told(shuffle, start, own):
    assert has_own_orders(shuffle, start) is own


def test_one_order_is_all_samples():
    assert assign_orders(6, range(3), own=False) is None


def test_each_row_sees_its_part():
    assert [part.tolist() for part in assign_orders(6, range(3), own=True)] == [[0, 1], [2, 3], [4, 5]]


def test_one_order_serves_all_members_unless_they_have_their_own():
    assert count_orders(4, own=False) == 1
    assert count_orders(4, own=True) == 4
