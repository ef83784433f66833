"""Connections: fewer than the process may have files."""

import resource

import pytest

from pluribus.serving.connections import BACKLOG, MANY, OTHER_FILES, most_connections


@pytest.mark.parametrize(
    ("files", "most"), [(1024, 1024 - BACKLOG - OTHER_FILES), (50, 1), (resource.RLIM_INFINITY, MANY)]
)
def test_there_is_a_file_for_every_connection(files, most, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (files, files))
    assert most_connections() == most
