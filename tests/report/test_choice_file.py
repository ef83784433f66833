"""The stored choice of a page: what is recommended, and only if it is there."""

import pytest

from pluribus.errors import CheckpointError
from pluribus.report.best_run import run_folder
from pluribus.report.budget import parse_budget
from pluribus.report.choice_file import FILE, Choice, read_choice, write_choice
from pluribus.report.recommendation import recommend
from tests.report.records import classes, only_group


def found(budget=""):
    group = only_group(classes(), classes("deep_ensembles", skill=4.0))
    return recommend(group, parse_budget(budget))


def test_choice_is_read_as_it_was_written(tmp_path):
    recommended = found("parameters<=9x")
    run = recommended.choice.runs[0]
    run_folder(tmp_path, run).mkdir(parents=True)
    write_choice(tmp_path, recommended)
    assert read_choice(tmp_path) == Choice(run.key, "nll", ("parameters ≤ 9 ×",))


def test_choice_without_its_run_is_removed(tmp_path):
    (tmp_path / FILE).write_text("{}")
    write_choice(tmp_path, found())
    assert read_choice(tmp_path) is None
    write_choice(tmp_path, None)
    assert read_choice(tmp_path) is None


def test_foreign_file_is_refused(tmp_path):
    (tmp_path / FILE).write_text('{"key": "a", "judge": "\\u001b[2J", "limits": []}')
    with pytest.raises(CheckpointError, match="judge must be the name of a metric"):
        read_choice(tmp_path)
