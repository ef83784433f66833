"""Schemas accept what they describe and name the field of anything else."""

import math

import pytest

from pluribus.schema import (
    Anything,
    Either,
    Fields,
    Flag,
    Items,
    Mismatch,
    Named,
    Number,
    Optional,
    Text,
    Whole,
    shown,
)

PERSON = Fields({"name": Text(most=5), "ages": Items(Whole(most=200), most=3)}, {"tall": Flag()})


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (Anything(), object()),
        (Text(), "a"),
        (Text(pattern="[a-c]+"), "abc"),
        (Whole(), 0),
        (Number(), math.nan),
        (Number(), 3),
        (Flag(), False),
        (Optional(Whole()), None),
        (Either((Text(), Whole())), 3),
        (Items(Whole()), [1, 2]),
        (Named(Number()), {"a": 1.5}),
        (PERSON, {"name": "Ada", "ages": [36]}),
        (Fields(others=True), {"anything": 1}),
    ],
)
def test_schema_accepts_what_it_describes(schema, value):
    schema.check(value, "")


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        (Text(), 3, "the content must be a text of at most 100000 characters, got 3"),
        (Text(most=2), "abc", "at most 2 characters"),
        (Text(pattern="[a-c]+", name="letters"), "abd\n", "must be letters, got 'abd"),
        (Whole(), True, "must be a whole number from 0"),
        (Whole(), 1.0, "must be a whole number"),
        (Whole(most=9), 10**400, "got a number of 1329 bits"),
        (Number(), True, "must be a number, got True"),
        (Number(), 10**400, "that a float can hold"),
        (Number(finite=True), math.inf, "must be a finite number"),
        (Flag(), 1, "must be true or false"),
        (Either((Text(), Whole())), [], "must be a text .* and .* must be a whole number"),
        (Items(Whole()), {"a": 1}, "must be a list"),
        (Items(Whole()), [1, "a"], r"field \[1\] must be a whole number"),
        (Named(Whole()), {"a": "b"}, "field a must be a whole number"),
        (Named(Whole()), {3: 1}, "names are texts"),
        (PERSON, [], "must be an object, got a list of 0"),
        (PERSON, {"name": "Ada"}, "field ages is missing"),
        (
            PERSON,
            {"name": "Ada", "ages": [300]},
            r"field ages\[0\] must be a whole number from 0 to 200, got 300",
        ),
        (PERSON, {"name": "Ada", "ages": [], "x": 1}, "field x is unknown, expected name, ages, tall"),
    ],
)
def test_schema_names_the_field_of_anything_else(schema, value, message):
    with pytest.raises(Mismatch, match=message):
        schema.check(value, "")


def test_values_in_messages_are_short():
    assert len(shown("a" * 10_000)) < 100
    assert shown(10**5000) == "a number of 16610 bits"
