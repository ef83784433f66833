"""Wall card: pictures with answers and votes."""

from pluribus.report.gallery import Picture, Wall
from pluribus.report.wall_card import CLASSES_SHOWN, wall_card


def picture(answer="cat", votes=(("cat", 0.75), ("dog", 0.25))):
    return Picture(7, b"png", "cat", answer, votes, 0.9)


def test_no_wall_has_no_card():
    assert wall_card(None) == ""


def test_right_answer_has_no_frame():
    text = wall_card(Wall("a<b", 3, (picture(),), ()))
    assert "class=wrong" not in text
    assert "a&lt;b, seed 3" in text
    assert "90% sure of <b>cat</b></div>" in text


def test_wrong_answer_has_a_frame_and_the_truth():
    text = wall_card(Wall("one", 0, (), (picture("dog"),)))
    assert text.count("<li class=wrong>") == 1
    assert "<b>dog</b>, is <b>cat</b>" in text


def test_few_classes_are_shown():
    votes = tuple((f"class {n}", 0.2) for n in range(5))
    assert wall_card(Wall("one", 0, (picture(votes=votes),), ())).count('class="vote') == CLASSES_SHOWN
