"""The first line comes before the slow imports, and only from commands that take long."""

import subprocess
import sys

import pytest

from pluribus.cli.start import first_line


def test_the_first_line_needs_neither_torch_nor_the_command_line():
    code = (
        "import sys; from pluribus.cli.start import first_line; first_line(['compare']);"
        "print({'torch', 'typer', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("arguments", [[], ["methods"], ["compare", "--help"], ["--version"]])
def test_quick_commands_have_no_first_line(arguments):
    assert first_line(arguments) == ""


def test_the_first_line_names_the_command():
    assert first_line(["train", "--epochs", "3"]).endswith("train: loading PyTorch")
