"""`python -m pluribus` is the command line, for whom no script is installed."""

import subprocess
import sys

import pytest

from pluribus.version import VERSION


@pytest.mark.parametrize("module", ["pluribus", "pluribus.cli"])
def test_the_package_runs_as_the_command_line(module):
    line = [sys.executable, "-m", module, "--version"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["pluribus", VERSION]
