"""Find published data: the data folder, the files in it, and the error when they are not there."""

import importlib
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pluribus.errors import InputError, PluribusError, SettingError

VARIABLE = "PLURIBUS_DATA"
Content = TypeVar("Content")
LONGEST = 200
"""Characters of a foreign error that are repeated; NumPy quotes whole heads of files."""
# Errors of zipfile, zlib, NumPy, Pillow and SciPy on damaged files; found by changing bytes at random.
UNREADABLE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def data_folder(data_dir: str | Path | None) -> Path:
    """Return the given folder, or else the one that the environment variable PLURIBUS_DATA names."""
    named = data_dir or os.environ.get(VARIABLE)
    if not named:
        raise SettingError(
            f"a data folder must be set, got neither data_dir nor {VARIABLE}. "
            f"Set data_dir, --data-dir or {VARIABLE} to the folder that holds the data sets."
        )
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise InputError(
            f"the data folder must exist, got {folder}, which is no folder. Make it, or name another."
        )
    return folder


@dataclass(frozen=True)
class Source(Generic[Content]):
    """Find and read a published data set.

    Args:
        title: Name of the data set.
        home: Address to get it from.
        forms: The forms it is read in: a path in the data folder, and what reads it. The first found counts.
    """

    title: str
    home: str
    forms: Mapping[str, Callable[[Path], Content]]

    def find(self, folder: Path) -> str | None:
        """Return the first of the paths that is there."""
        for path in self.forms:
            if (folder / path).exists():
                return path
        return None

    def absence(self, folder: Path) -> str:
        """Return the error message for a folder in which nothing is found."""
        first, *others = self.forms
        also = f" ({', '.join(others)} would do too)" if others else ""
        return (
            f"{self.title} must lie in {folder} as {first}, got no such file{also}. "
            f"Get it from {self.home} and put it there."
        )

    def read(self, folder: Path) -> Content:
        """Return the contents of the first path that is there."""
        path = self.find(folder)
        if path is None:
            raise InputError(self.absence(folder))
        with reading(folder / path):
            return self.forms[path](folder / path)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Name the file in the error of anything that fails to read it."""
    try:
        yield
    except PluribusError:
        raise
    except UNREADABLE as error:
        said = str(error).splitlines()[0][:LONGEST] if str(error) else type(error).__name__
        reason = f"an error: {said}" if path.exists() else "no file"
        raise InputError(
            f"{path} must be a whole file of its kind, got {reason}. Get or write it again."
        ) from error


def optional(module: str, package: str) -> Any:
    """Import a module of a package that is not always installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"this data needs {package}, which is not installed. Run `pip install {package}`."
        ) from error
