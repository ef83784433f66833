"""Stored trials: a damaged or foreign database is an error of one line, before anything is trained."""

import contextlib
import shutil
import sqlite3

import pytest

from pluribus.search.storage import FILE, StorageError, check_file
from tests.search.cases import small_search


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("searched")
    small_search(folder, trials=1, space={"single": {}, "deep_ensembles": {"members": [2]}})
    return folder


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("update trial_user_attributes set value_json = '[[[' where key = 'cost'", "damaged or foreign"),
        (
            "update trial_user_attributes set value_json = '{\"x\": \"y\"}' where key = 'cost'",
            "must be a number",
        ),
        (
            "update trial_user_attributes set value_json = '{\"multiply_adds_ratio\": 1}' where key = 'cost'",
            "must have parameters_ratio",
        ),
        ("update trial_user_attributes set value_json = '\"../x\"' where key = 'key'", "letters and digits"),
        ("delete from trial_user_attributes where key = 'label'", "must have 2 values"),
        ("delete from trial_values where objective = 1", "damaged or foreign"),
        ("update trial_values set value = 'x' where objective = 1", "damaged or foreign"),
        ("update study_user_attributes set value_json = 'x'", "damaged or foreign"),
        ("update study_user_attributes set value_json = '[]'", "pluribus must be an object"),
        ("update study_directions set direction = 'x'", "damaged or foreign"),
        ("update studies set study_id = 1000000000000", "damaged or foreign"),
        ("update alembic_version set version_num = 'v0'", "this version of Optuna"),
    ],
)
def test_damaged_cells_are_refused(searched, tmp_path, statement, reason):
    folder = tmp_path / "searched"
    shutil.copytree(searched, folder)
    with contextlib.closing(sqlite3.connect(folder / FILE)) as database, database:
        assert database.execute(statement).rowcount
    with pytest.raises(StorageError, match=reason) as error:
        small_search(folder, trials=1, space={"single": {}, "deep_ensembles": {"members": [2]}})
    assert "\n" not in str(error.value)
    assert "study.db" in str(error.value)


def test_a_damaged_file_is_found_without_a_search(searched, tmp_path):
    check_file(searched / FILE)
    content = bytearray((searched / FILE).read_bytes())
    content[4096:8192] = b"x" * 4096
    (tmp_path / FILE).write_bytes(content)
    for damaged in (tmp_path / FILE, tmp_path / "missing"):
        with pytest.raises(StorageError, match="sound database"):
            check_file(damaged)
    assert not (tmp_path / "missing").exists()


def test_rows_that_belong_to_nothing_are_found_without_a_search(searched, tmp_path):
    shutil.copy(searched / FILE, tmp_path / FILE)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as database, database:
        database.execute("update studies set study_id = 7")
    with pytest.raises(StorageError, match=r"a row of .* that belongs to no row of studies"):
        check_file(tmp_path / FILE)
