"""Limits: sizes in messages, files that are none, long lists of names."""

import os

import pytest

from pluribus.data.limits import check_bytes, check_file, listed, quoted
from pluribus.errors import InputError


def test_check_bytes_raises_above_the_limit_alone():
    check_bytes("it", 100, 100)
    with pytest.raises(
        InputError, match=r"it must take at most 100 bytes, got 101 bytes.*raise the option most"
    ):
        check_bytes("it", 101, 100)
    with pytest.raises(InputError, match="at most 4 GiB, got 8 TiB"):
        check_bytes("it", 2**43, 2**32)


def test_check_file_refuses_pipes_and_folders(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    check_file(tmp_path / "file")
    check_file(tmp_path / "none")  # whoever opens it raises
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(InputError, match="must be a regular file, got a folder, pipe or device"):
            check_file(tmp_path / name)


def test_listed_cuts_long_lists():
    assert listed(["a", "b"]) == "a, b"
    assert listed([str(i) for i in range(12)]) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"


def test_quoted_cuts_long_cells():
    assert quoted("a") == "'a'"
    assert quoted(1.5) == "1.5"
    assert quoted("x" * 10_000) == f"'{'x' * 59}… (10,002 characters)"


def test_quoted_shows_numbers_that_python_does_not_print():
    assert quoted(10**5000) == "a number of 16610 bits"
    assert quoted([10**5000]) == "a list with a huge number"
