"""Ranges: limits are inclusive or not as declared, and errors name the limit that is broken."""

import pytest

from pluribus import SettingError
from pluribus.ranges import check, nearest


@pytest.mark.parametrize(
    ("value", "limits", "message"),
    [
        (3, {"kind": float, "at_least": 0, "below": 1}, "x must be below 1, got 3."),
        (-1, {"kind": float, "at_least": 0, "below": 1}, "x must be at least 0, got -1."),
        ("a", {"kind": float}, "x must be a number, got 'a'."),
        (True, {"kind": int}, "x must be a whole number, got True."),
        (2.0, {"kind": int, "at_least": 1}, "x must be a whole number, got 2.0."),
        (2.0, {"kind": int, "optional": True}, "x must be a whole number or None, got 2.0."),
        (0, {"kind": float, "above": 0}, "x must be above 0, got 0."),
        (1, {"kind": int, "at_least": 2}, "x must be at least 2, got 1."),
        (9, {"kind": int, "at_most": 8}, "x must be at most 8, got 9."),
        (1, {"kind": bool}, "x must be True or False, got 1."),
        ("b", {"choices": ("a", 3)}, "x must be one of 'a', 3, got 'b'."),
        (True, {"choices": (1, 2)}, "x must be one of 1, 2, got True."),
        (
            "fresk",
            {"choices": ("fresh", "copy")},
            "x must be one of 'fresh', 'copy', got 'fresk'. Did you mean 'fresh'?",
        ),
    ],
)
def test_check_names_the_limit_that_is_broken(value, limits, message):
    with pytest.raises(SettingError) as caught:
        check("x", value, **limits)
    assert str(caught.value) == message


def test_check_takes_what_lies_within():
    check("x", 1, int, at_least=1, at_most=1)
    check("x", 1, float, above=0, below=2)
    check("x", None, int, optional=True)
    check("x", False, bool)
    check("x", "a", choices="ab")


def test_the_nearest_word_is_a_hint_or_nothing():
    assert nearest("membres", ["members", "rate"]) == " Did you mean 'members'?"
    assert nearest("zzz", ["members", "rate"]) == ""
    assert nearest("EMP", ["ecmp", "emp"]) == " Did you mean 'emp'?"
    assert nearest("sae", ["SAE"]) == " Did you mean 'SAE'?"
