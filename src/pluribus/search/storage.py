"""Storage of a study: SQLite in the folder of the search, or PostgreSQL for several machines.

Both have heartbeats, by which the trial of a killed worker is found; Optuna's journal and gRPC storages have
none. A lock keeps two workers from taking one queued trial: a file beside SQLite, an advisory lock of
PostgreSQL. The system releases both when their holder is killed.
"""

import contextlib
import hashlib
import importlib.util
import os
import sqlite3
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pluribus.comparison.locking import locked
from pluribus.errors import PluribusError, SettingError
from pluribus.ranges import check

if TYPE_CHECKING:
    from optuna.storages import RDBStorage
    from sqlalchemy import Engine

FILE = "study.db"
SQLITE, POSTGRES = "sqlite:///", "postgresql://"
# psycopg 3; without a driver in the address SQLAlchemy before 2.1 takes psycopg 2.
DRIVER = "postgresql+psycopg://"
HEARTBEAT_SECONDS = 60
"""Shorter heartbeats end a busy worker: its trial is taken from it while it computes (optuna#5470)."""
BUSY_SECONDS = 60
"""How long SQLite waits while another process writes."""
CONNECT_SECONDS = 10
TABLES = "pluribus: tables"
"""Name of the lock of all tables of a database."""


class StorageError(PluribusError):
    """Raised if the database of a study cannot be reached or written."""


@dataclass(frozen=True)
class Storage:
    """Address of the database of a study.

    Args:
        url: `sqlite:///file` or `postgresql://user:password@host/database`.
        heartbeat: Seconds between signs of life of a running trial, at least 60.
        grace: Seconds without one after which a trial counts as lost.
    """

    url: str
    heartbeat: int = HEARTBEAT_SECONDS
    grace: int = 3 * HEARTBEAT_SECONDS

    def __post_init__(self) -> None:
        check("heartbeat", self.heartbeat, int, at_least=HEARTBEAT_SECONDS)
        check("grace", self.grace, int, at_least=1)
        if not self.url.startswith((SQLITE, POSTGRES, DRIVER)):
            raise SettingError(
                f"storage must be {SQLITE}file or {POSTGRES}user:password@host/database, got {self.shown!r}. "
                "Other storages of Optuna have no heartbeat, without which a killed trial is never run again."
            )

    @property
    def is_file(self) -> bool:
        """Return whether it is a file of SQLite."""
        return self.url.startswith(SQLITE)

    @property
    def file(self) -> Path:
        """Return the file of SQLite."""
        return Path(self.url.removeprefix(SQLITE))

    @property
    def shown(self) -> str:
        """Return the address without its password, for messages and files."""
        scheme, separator, rest = self.url.partition("://")
        user, at, place = rest.rpartition("@")
        return f"{scheme}{separator}{user.partition(':')[0]}{at}{place}"

    def open(self) -> "RDBStorage":
        """Connect, and create the tables if they do not exist.

        Raises:
            SettingError: a package is missing.
            StorageError: the database cannot be reached.
        """
        check_installed(self.is_file)
        from optuna.storages import RDBStorage

        options: dict[str, Any] = {"connect_args": {"timeout": BUSY_SECONDS}}
        url = self.url
        if self.is_file:
            self.file.parent.mkdir(parents=True, exist_ok=True)
        else:
            url = url.replace(POSTGRES, DRIVER, 1)
            # A connection that the server closed meanwhile is opened again.
            options = {"connect_args": {"connect_timeout": CONNECT_SECONDS}, "pool_pre_ping": True}
        with explaining(self), warnings.catch_warnings():
            # Heartbeats are marked as experimental (Optuna 5).
            warnings.simplefilter("ignore")
            try:
                with self._making_tables(url, options):
                    return RDBStorage(
                        url, options, heartbeat_interval=self.heartbeat, grace_period=self.grace
                    )
            # The tables are of another version of Optuna, or damaged.
            except (RuntimeError, ValueError, AssertionError) as error:
                raise StorageError(
                    f"{self.shown} must be a database of this version of Optuna, got: {_reason(error)}. "
                    "Give another --out, or install the version of Optuna that began the search."
                ) from error

    @contextlib.contextmanager
    def _making_tables(self, url: str, options: dict[str, Any]) -> Iterator[None]:
        """Let one process at a time make the tables: processes that begin at once would make them twice."""
        if self.is_file:
            with locked(self.file.with_name(f"{self.file.name}.lock"), lambda: None):
                yield
            return
        import sqlalchemy

        engine = sqlalchemy.create_engine(url, **options)
        try:
            with _advisory_lock(engine, TABLES):
                yield
        finally:
            engine.dispose()

    @contextlib.contextmanager
    def locked(self, opened: "RDBStorage", name: str) -> Iterator[None]:
        """Hold the lock of a study for the block.

        Args:
            opened: The connection.
            name: Of the study.
        """
        if self.is_file:
            with locked(self.file.with_name(f"{self.file.name}.lock"), lambda: None):
                yield
            return
        with _advisory_lock(opened.engine, name):
            yield


@contextlib.contextmanager
def _advisory_lock(engine: "Engine", name: str) -> Iterator[None]:
    """Hold a lock of PostgreSQL for the block; the server releases it when the connection ends."""
    import sqlalchemy

    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
    with engine.connect() as connection:
        connection.execute(sqlalchemy.text("select pg_advisory_lock(:number)"), {"number": number})
        try:
            yield
        finally:
            connection.execute(sqlalchemy.text("select pg_advisory_unlock(:number)"), {"number": number})
            connection.commit()


def check_file(file: Path) -> None:
    """Raise `StorageError` unless a file is a sound database of SQLite; nothing is written."""
    try:
        with contextlib.closing(
            sqlite3.connect(f"{Path(os.path.realpath(file)).as_uri()}?mode=ro", uri=True)
        ) as database:
            found = database.execute("pragma quick_check(1)").fetchone()
            orphan = database.execute("pragma foreign_key_check").fetchone()
            if orphan is not None:
                found = (f"a row of {orphan[0]} that belongs to no row of {orphan[2]}",)
    except sqlite3.Error as error:
        found = (str(error),)
    if found != ("ok",):
        raise StorageError(
            f"{file} must be a sound database, got: {found[0]}. Run the search in a new folder."
        )


def check_installed(is_file: bool) -> None:
    """Raise if a package is missing.

    Raises:
        SettingError: with the extra to install.
    """
    if importlib.util.find_spec("optuna") is None:
        raise SettingError("a search needs Optuna, but it is not installed. Install pluribus[search].")
    if not is_file and importlib.util.find_spec("psycopg") is None:
        raise SettingError(
            "a search on PostgreSQL needs psycopg, but it is not installed. Install pluribus[postgres]."
        )


@contextlib.contextmanager
def explaining(storage: Storage) -> Iterator[None]:
    """Turn errors of the database into a `StorageError` of one line."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    foreign = (SQLAlchemyError, StorageInternalError)
    try:
        yield
    except foreign as error:
        raise _unreachable(storage, error) from error
    except AssertionError as error:
        # Optuna 5.0 asserts that the end of a trial is stored, in the middle of the error that it was not.
        if not isinstance(error.__context__, foreign):
            raise
        raise _unreachable(storage, error.__context__) from error


def _unreachable(storage: Storage, error: BaseException) -> StorageError:
    return StorageError(
        f"{storage.shown} must be a database that can be reached and written, got: {_reason(error)}. "
        "Start it or free some space, then run the same line again; finished trials are kept."
    )


def _reason(error: BaseException) -> str:
    """Return the first line of the innermost error, without statements and parameters."""
    while error.__cause__ is not None:
        error = error.__cause__
    original = getattr(error, "orig", None) or error
    lines = str(original).strip().splitlines() or [type(original).__name__]
    return lines[0].rstrip(".")
