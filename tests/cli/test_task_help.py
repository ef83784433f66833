"""Help of tasks: every task has a sentence, every option of its function a meaning."""

import pytest

from pluribus.cli.task_help import summary, task_options
from pluribus.data import TASKS
from pluribus.errors import SettingError


@pytest.mark.parametrize("name", TASKS)
def test_every_task_and_option_is_explained(name):
    assert summary(name).endswith(".")
    options = task_options(name)
    assert [one.name for one in options if not one.meaning] == []
    assert {"train", "validation", "test", "seed"} <= {one.name for one in options}


def test_options_of_a_table():
    options = {one.name: one for one in task_options("csv")}
    assert options["path"].required
    assert options["target"].required
    assert options["delimiter"].default == ","
    assert options["features"].meaning.startswith("Columns to predict from")
    # A meaning of several lines is one text.
    assert "number, date, boolean, category" in options["kinds"].meaning
    assert "data_dir" not in options


def test_an_unknown_task_is_refused():
    with pytest.raises(SettingError, match="Did you mean 'csv'"):
        task_options("cvs")
