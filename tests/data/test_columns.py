"""Columns: numbers of each kind, flags, agreement with scikit-learn, no torch."""

import ast
from pathlib import Path

import numpy as np
import pytest

from pluribus.data import cells, column_kinds, columns
from pluribus.data.column_kinds import learn_columns
from pluribus.data.columns import Column, Columns
from pluribus.errors import InputError

RANDOM = np.random.default_rng(0)


def mixed(count):
    """A table of numbers and words with blanks."""
    numbers = [f"{value:.3f}" if value > -1 else "" for value in RANDOM.normal(size=count)]
    words = [["red", "green", "blue", ""][place] for place in RANDOM.integers(0, 4, count)]
    whole = [str(number) for number in RANDOM.integers(0, 9, count)]
    return {"size": numbers, "colour": words, "rooms": whole}


def test_encoding_agrees_with_scikit_learn():
    pandas = pytest.importorskip("pandas")
    compose, impute = pytest.importorskip("sklearn.compose"), pytest.importorskip("sklearn.impute")
    pipeline, preprocessing = (
        pytest.importorskip("sklearn.pipeline"),
        pytest.importorskip("sklearn.preprocessing"),
    )
    train, test = mixed(60), mixed(30)
    test["colour"][3] = "violet"
    learnt = learn_columns(train)
    scaled = pipeline.make_pipeline(
        preprocessing.StandardScaler(),
        impute.SimpleImputer(strategy="constant", fill_value=0, add_indicator=True),
    )
    one_hot = preprocessing.OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    blank = compose.ColumnTransformer(
        [
            ("size", scaled, ["size"]),
            ("colour", one_hot, ["colour"]),
            ("missing", impute.MissingIndicator(missing_values="", features="all"), ["colour"]),
            ("rooms", preprocessing.StandardScaler(), ["rooms"]),
        ]
    )

    def frame(table):
        made = pandas.DataFrame(table)
        made["size"] = pandas.to_numeric(made["size"])
        made["rooms"] = pandas.to_numeric(made["rooms"])
        made["colour"] = made["colour"].astype(object)
        return made

    blank.fit(frame(train))
    reference = blank.transform(frame(test)).astype(float)
    # scikit-learn counts the blank as a category of its own, the first in order.
    reference = np.delete(reference, 2, axis=1)
    found = learnt.encode(test)
    assert learnt.features[:5] == ("size", "size is missing", "colour=blue", "colour=green", "colour=red")
    np.testing.assert_allclose(learnt.scale(found.values), reference, rtol=1e-12, atol=1e-12)
    assert found.flags[3] == "unseen colour=violet"
    assert sum(map(bool, found.flags)) == 1


def test_every_kind_becomes_its_numbers():
    record = Columns(
        (
            Column("n", "number", mean=2.0, deviation=2.0, fill=2.0, missing=1),
            Column("d", "date", mean=10.0, deviation=5.0),
            Column("b", "boolean", fill=0.25, missing=1),
            Column("c", "category", categories=("x", "y")),
            Column("e", "code", categories=("x", "y")),
            Column("gone", "dropped"),
        )
    )
    table = {
        "n": ["4", "", 0],
        "d": ["1970-01-11", "1970-01-16", "1970-01-01"],
        "b": ["yes", None, False],
        "c": ["y", "z", "?"],
        "e": ["y", "z", ""],
    }
    assert record.features == ("n", "n is missing", "d", "b", "b is missing", "c=x", "c=y", "e")
    encoded = record.encode(table)
    expected = [[1, 0, 0, 1, 0, 0, 1, 2], [0, 1, 1, 0.25, 1, 0, 0, 0], [-1, 0, -2, 0, 0, 0, 0, 0]]
    np.testing.assert_allclose(record.scale(encoded.values), expected)
    assert encoded.flags == ("", "unseen c=z; unseen e=z", "missing c; missing e")


def test_rows_do_not_depend_on_one_another():
    learnt = learn_columns(mixed(50))
    table = mixed(20)
    together = learnt.encode(table).values
    alone = [learnt.encode({name: own[i : i + 1] for name, own in table.items()}).values for i in range(20)]
    np.testing.assert_array_equal(together, np.concatenate(alone))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {"a": ["x"], "b": ["1970-01-01"]},
            "column 'a' must hold finite numbers, got 'x' in line 7. Correct it",
        ),
        ({"a": ["inf"], "b": ["1970-01-01"]}, "column 'a' must hold finite numbers, got 'inf'"),
        (
            {"a": ["1"], "b": ["01/02/2020"]},
            "column 'b' must hold dates such as 2024-03-01, got '01/02/2020'",
        ),
        (
            {"A": ["1"], "b": ["1970-01-01"]},
            "must have the column 'a', got no column of that name. Did you mean 'A'",
        ),
        ({"a": ["1", "2"], "b": ["1970-01-01"]}, r"columns must have one length, got \[1, 2\]"),
    ],
)
def test_cells_that_cannot_be_read_are_refused(table, message):
    record = Columns((Column("a", "number"), Column("b", "date")))
    with pytest.raises(InputError, match=message):
        record.encode(table, lines=[7, 8])


def test_printed_table_names_every_column():
    learnt = learn_columns(mixed(40) | {"id": list(range(40)), "w": [str(i % 20) + "x" for i in range(40)]})
    lines = str(learnt).splitlines()
    assert lines[0].split() == ["column", "kind", "numbers", "blanks", "what", "was", "done"]
    assert [line.split()[:2] for line in lines[1:]] == [
        ["size", "number"],
        ["colour", "category"],
        ["rooms", "number"],
        ["id", "dropped"],
        ["w", "category"],
    ]
    assert lines[5].endswith("0x, 10x, 11x, 12x, 13x, and 15 more")


@pytest.mark.parametrize("module", [cells, columns, column_kinds])
def test_files_that_a_server_shares_import_no_torch(module):
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    names = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert not any(name.split(".")[0] == "torch" for name in names)
