"""The commands take what the command line gives them; tests/cli/test_main.py runs them."""

import dataclasses
import inspect

import pytest
from typer.main import get_command

import pluribus as pl
from pluribus.backbones import BACKBONES
from pluribus.cli import commands, main, monitor_run, parsing, search_command
from pluribus.data import TASKS, limits
from pluribus.serving.options import ServerOptions

ELSEWHERE = {"monitor": monitor_run.monitor_run, "search": search_command.search}
"""Commands that have a file of their own."""
WITH_TORCH = sorted(set(get_command(main.app).commands) - {"serve"})


def options_of(name):
    return {one.name for one in get_command(main.app).commands[name].params} - {"help"}


@pytest.mark.parametrize("name", WITH_TORCH)
def test_a_command_takes_all_options_of_the_command_line(name):
    command = ELSEWHERE.get(name) or getattr(commands, name)
    assert set(inspect.signature(command).parameters) == options_of(name)


def test_serving_takes_all_options_of_the_command_line():
    fields = {field.name for field in dataclasses.fields(ServerOptions)}
    # Times of a server that nobody had to change yet stay out of the command line.
    assert fields - {"head_seconds", "body_seconds", "drain_seconds"} == options_of("serve") - {
        "export",
        "name",
    }


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
