"""What every test has: examples in docstrings know torch and the library's names."""

import pytest
import torch

import pluribus
from pluribus import methods

# Importing these registers a pretended kind of device with torch for good. They run in processes of their own.
collect_ignore = ["tests/pretended.py", "tests/contracts/on_device.py"]


@pytest.fixture(autouse=True)
def names_of_doctests(doctest_namespace):
    doctest_namespace.update({"torch": torch, "pluribus": pluribus, **vars(methods)})
