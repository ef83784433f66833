"""Axes that end at the number of exits of a network."""

from pluribus.axes import DEPTHS, Between
from pluribus.methods import SAE, Single
from pluribus.search.depths import why_not, with_depths
from pluribus.search.space import Choice


def test_number_of_exits_takes_the_place_of_the_word():
    choice = Choice(SAE(), {"exits": Between(1, DEPTHS), "inputs": Between(1, 4)})
    assert with_depths(choice, 3).axes == {"exits": Between(1, 3), "inputs": Between(1, 4)}
    assert with_depths(choice, None) == choice


def test_method_that_chooses_exits_needs_two():
    choice = Choice(SAE(), {"exits": Between(1, DEPTHS)})
    assert [bool(why_not(choice, depths)) for depths in (None, 1, 2)] == [True, True, False]
    assert not why_not(Choice(Single(), {}), None)
