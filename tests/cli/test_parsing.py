"""Words on a command line name methods with settings, and tasks."""

import pytest

import pluribus as pl
from pluribus.cli.main import DEMO, DEMO_DRAWS
from pluribus.cli.parsing import parse_method, parse_methods, resolve_task
from pluribus.method_text import parse_options
from pluribus.methods import EMP


def test_all_methods_have_few_draws():
    assert {method.kind() for method in parse_methods("all")} == set(pl.Method.known())
    assert max(getattr(method, "draws", 0) for method in parse_methods("all")) == 16


@pytest.mark.parametrize(("text", "count"), [("emp, ecmp", "2. Use `pluribus compare`"), ("all", r"\d+")])
def test_one_method_is_one(text, count):
    assert parse_method("emp(options=2)") == EMP(2)
    with pytest.raises(pl.SettingError, match=f"method must be one, got {text!r} with {count}"):
        parse_method(text)


def test_a_task_is_loaded_by_its_name_and_options():
    assert len(resolve_task("two_moons", None, ["train=60"]).train) == 60


def test_what_a_reference_names_must_be_of_the_right_type():
    with pytest.raises(pl.SettingError, match="math:pi must name a function, got float"):
        resolve_task("math:pi", None, None)
    with pytest.raises(pl.SettingError, match=r"os:getcwd must return a Task, got str"):
        resolve_task("os:getcwd", None, None)


@pytest.mark.parametrize(
    "value", ["(" * 5000, "[" * 300 + "]" * 300, "9" * 5000, "{[]: 1}", "-'a'", "1" + "+1" * 50000]
)
def test_values_that_python_cannot_read_are_words_or_refused(value):
    with pytest.raises(pl.SettingError):
        parse_method(f"deep_ensembles(members={value})")
    parse_options([f"target={value}"])


def test_the_demo_compares_eight_methods_with_few_draws():
    found = parse_methods(DEMO)
    assert [method.kind() for method in found] == [
        "single",
        "deep_ensembles",
        "packed_ensembles",
        "sae",
        "mimo",
        "masksembles",
        "emp",
        "layer_ensembles",
    ]
    assert max(getattr(method, "draws", 0) for method in found) == DEMO_DRAWS


def test_a_method_of_the_user_is_named_by_its_import_path():
    found = parse_methods("single, pluribus.methods.deep_ensembles:DeepEnsembles(members=3)")
    assert [type(method).__name__ for method in found] == ["Single", "DeepEnsembles"]
    assert found[1].members == 3


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("math:sqrt", "must be a class of methods"),
        ("pluribus.methods:DeepEnsembles(member=3)", "member"),
        ("pluribus.methods:DeepEnsembles(members=3", "bracket|written"),
        ("no.such.module:Method", "importing it raised ModuleNotFoundError"),
    ],
)
def test_what_is_no_method_of_the_user_is_refused(text, reason):
    with pytest.raises(pl.SettingError, match=reason):
        parse_methods(text)
