"""What every test has: names for the examples in docstrings, and samples of the large tables of cases."""

import zlib
from collections import defaultdict

import pytest
import torch

import pluribus
from pluribus import methods

# Importing these registers a pretended kind of device with torch for good; they run in their own processes.
collect_ignore = ["tests/pretended.py", "tests/contracts/on_device.py", "tests/testbed/on_device.py"]


@pytest.fixture(autouse=True)
def names_of_doctests(doctest_namespace):
    doctest_namespace.update({"torch": torch, "pluribus": pluribus, **vars(methods)})


LARGE = 8
"""Cells from which on a table is large."""
FOLDERS = ("tests/contracts/", "tests/mechanisms/", "tests/methods/")
"""Folders whose tables cross methods with networks."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark all but a part of each large table as slow: `sampled(4)` leaves a quarter to the ordinary run.

    A table is a test with many parameters; in some folders a half of every large one stays. Which cells stay
    follows from their names alone, so that all workers agree, and differs from test to test, so that together
    they meet every case and every method.
    """
    tables = defaultdict(list)
    for item in items:
        name, bracket, _ = item.nodeid.partition("[")
        if bracket and not item.get_closest_marker("slow"):
            tables[name].append(item)
    for name, table in tables.items():
        part = share_of(name, table)
        table.sort(key=lambda item: zlib.crc32(item.nodeid.encode()))
        for item in table[-(-len(table) // part) :]:
            item.add_marker(pytest.mark.slow)


def share_of(name, table):
    """Return n: one of n cells of a table runs in the ordinary run."""
    given = table[0].get_closest_marker("sampled")
    if given:
        return given.args[0]
    return 2 if name.startswith(FOLDERS) and len(table) >= LARGE else 1
