"""Options of a task: lists of words, and texts that only look like lists."""

import pytest

from pluribus.cli.task_options import parse_task_options


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a,b,c", ["a", "b", "c"]),
        ("one", "one"),
        ("1,2", (1, 2)),
        ("zip=category,year=number", "zip=category,year=number"),
        ("'a,b.csv'", "a,b.csv"),
        (",", ","),
        ("data/a.csv", "data/a.csv"),
    ],
)
def test_values_are_read(text, value):
    assert parse_task_options([f"features={text}"]) == {"features": value}
