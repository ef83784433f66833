"""The data folder that PLURIBUS_DATA names; tests that need what is not in it are skipped."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def data_file():
    """`data_file(path)`: a file of the data folder."""
    folder = os.environ.get("PLURIBUS_DATA")
    if not folder:
        pytest.skip("PLURIBUS_DATA is not set")

    def found(path):
        if not (Path(folder) / path).exists():
            pytest.skip(f"{path} is not in PLURIBUS_DATA")
        return Path(folder) / path

    return found
