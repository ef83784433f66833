"""The version is one number, wherever it is read."""

import importlib.metadata

import pluribus
from pluribus.comparison.evaluation import versions
from pluribus.version import VERSION


def test_package_records_and_installation_say_the_same():
    assert pluribus.__version__ == versions()["pluribus"] == VERSION == importlib.metadata.version("pluribus")
