"""Storage: addresses, locks, and errors of one line."""

import threading

import optuna
import pytest
from optuna.storages import RDBStorage
from sqlalchemy import event

from pluribus.errors import SettingError
from pluribus.search.storage import Storage, StorageError, explaining


def test_file_of_sqlite_is_made(tmp_path):
    place = Storage(f"sqlite:///{tmp_path}/a/study.db", heartbeat=90, grace=200)
    opened = place.open()
    assert isinstance(opened, RDBStorage)
    assert opened.get_heartbeat_interval() == 90
    assert place.file.is_file()


def test_heartbeat_of_less_than_a_minute_is_refused():
    with pytest.raises(SettingError, match="heartbeat must be at least 60"):
        Storage("sqlite:///study.db", heartbeat=59)


@pytest.mark.parametrize("url", ["mysql://x", "journal.log", "sqlite:x", ""])
def test_storages_without_a_heartbeat_are_refused(url):
    with pytest.raises(SettingError, match="heartbeat"):
        Storage(url)


def test_password_is_not_shown():
    assert Storage("postgresql://ann:secret@host/db").shown == "postgresql://ann@host/db"
    assert Storage("sqlite:///a.db").shown == "sqlite:///a.db"


def test_storage_that_is_down_is_one_line_without_the_password():
    place = Storage("postgresql://ann:secret@127.0.0.1:9/db")
    with pytest.raises(StorageError, match="can be reached") as error:
        place.open()
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)


def test_file_that_is_no_database_is_named(tmp_path):
    (tmp_path / "study.db").write_text("no database, but a long text that is not one" * 50)
    with pytest.raises(StorageError, match=r"study\.db"):
        Storage(f"sqlite:///{tmp_path}/study.db").open()


def test_lock_admits_one(tmp_path):
    place = Storage(f"sqlite:///{tmp_path}/study.db")
    opened, inside = place.open(), []

    def enter():
        with place.locked(opened, "a"):
            inside.append(1)
            assert len(inside) == 1
            inside.pop()

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(30)
    assert inside == []


def test_full_disk_is_named_and_the_study_stays(tmp_path):
    place = Storage(f"sqlite:///{tmp_path}/study.db")
    opened = place.open()
    first = optuna.create_study(storage=opened, study_name="a")

    @event.listens_for(opened.engine, "connect")
    def limit(connection, record):
        # The database may not grow, as on a full disk.
        connection.execute("PRAGMA max_page_count=1")

    opened.engine.dispose()
    with pytest.raises(StorageError, match="database or disk is full"), explaining(place):
        first.set_user_attr("large", "x" * 1_000_000)
    again = optuna.load_study(study_name="a", storage=Storage(place.url).open())
    assert again.trials == []
