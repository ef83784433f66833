"""Defects on the report: one sentence for each configuration and defect."""

from dataclasses import replace

from pluribus.report.defects import found_defects
from pluribus.report.page import make_page
from tests.report.records import classes, only_group

FINDING = {"code": "collapsed", "message": "2 members differ by 0", "remedy": "Start <them> apart."}


def test_defects_are_listed_once_with_their_seeds():
    group = only_group(*(replace(classes(seed=seed), findings=[FINDING]) for seed in (0, 1)), classes(seed=2))
    assert found_defects(group) == ["single, seed 0, 1: 2 members differ by 0. Start <them> apart."]
    page = make_page([group])
    assert "What looks wrong" in page
    assert "Start &lt;them&gt; apart." in page


def test_a_defect_of_many_configurations_is_one_sentence():
    runs = [replace(classes(kind), findings=[FINDING]) for kind in ("single", "mimo", "sae", "emp")]
    assert len(found_defects(only_group(*runs[:3]))) == 3
    (sentence,) = found_defects(only_group(*runs))
    assert sentence.count("differ by 0") == 1
    assert "The same was found in 3 others: " in sentence
    assert all(name in sentence for name in ("single", "mimo", "sae", "emp"))


def test_sound_runs_have_no_card():
    assert "What looks wrong" not in make_page([only_group(classes())])
