"""The run to use: the best seed of the recommended configuration, in its folder."""

from pathlib import Path

from pluribus.report.best_run import best_run, run_folder
from pluribus.report.budget import parse_budget
from pluribus.report.recommendation import recommend
from tests.report.records import classes, only_group


def test_the_best_run_of_the_choice_is_that_of_the_quality():
    runs = [classes("deep_ensembles", seed, skill) for seed, skill in enumerate((3.0, 4.0, 2.0))]
    found = recommend(only_group(classes(skill=1.0), *runs))
    assert best_run(found).seed == 1
    assert best_run(recommend(only_group(classes()), parse_budget("parameters<=0.1x"))) is None


def test_a_run_lies_in_a_folder_of_its_name():
    assert run_folder(Path("a"), classes(seed=3)) == Path("a/runs/single-3-single-3-cnn")
