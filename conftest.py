"""What every test has: examples in docstrings know torch and the library's names."""

import pytest
import torch

import pluribus
from pluribus import methods

# Importing these registers a pretended kind of device with torch for good; they run in their own processes.
collect_ignore = ["tests/pretended.py", "tests/contracts/on_device.py"]


@pytest.fixture(autouse=True)
def names_of_doctests(doctest_namespace):
    doctest_namespace.update({"torch": torch, "pluribus": pluribus, **vars(methods)})
