"""The commands take what the command line gives them; tests/cli/test_main.py runs them."""

import inspect

import pytest
from typer.main import get_command

import pluribus as pl
from pluribus.backbones import BACKBONES
from pluribus.cli import commands, main, parsing, search_command
from pluribus.data import TASKS, limits

# Commands that need no PyTorch are functions of their own files, and take other arguments.
ELSEWHERE = {"monitor", "serve"}
FILES = {"search": search_command}


@pytest.mark.parametrize("name", sorted(set(get_command(main.app).commands) - ELSEWHERE))
def test_a_command_takes_all_options_of_the_command_line(name):
    options = {one.name for one in get_command(main.app).commands[name].params} - {"help"}
    file = FILES.get(name, commands)
    assert set(inspect.signature(getattr(file, name)).parameters) == options


def test_help_names_the_tasks_networks_and_draws_that_there_are():
    assert tuple(TASKS) == main.TASK_NAMES
    assert tuple(BACKBONES) == main.BACKBONE_NAMES
    assert main.MOST_DRAWS == parsing.MOST_DRAWS
    assert main.MOST_BYTES == limits.MOST_BYTES


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(pl.SettingError, match="--out must be a folder"):
        commands.writable(tmp_path / "file" / "folder")
    assert commands.writable(tmp_path / "new").is_dir()
