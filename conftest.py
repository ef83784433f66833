"""What every test has: examples in docstrings know torch and the library's names."""

import pytest
import torch

import pluribus
from pluribus import methods


@pytest.fixture(autouse=True)
def names_of_doctests(doctest_namespace):
    doctest_namespace.update({"torch": torch, "pluribus": pluribus, **vars(methods)})
