"""Where published data lies: the data folder, the files in it, and what to say when they are not there."""

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
# What zipfile, zlib, NumPy, Pillow and SciPy raise on damaged files; found by changing bytes at random.
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
    """The folder given, or else the one that the environment variable PLURIBUS_DATA names."""
    named = data_dir or os.environ.get(VARIABLE)
    if not named:
        raise SettingError(
            f"a data folder must be given, however: neither data_dir nor {VARIABLE} is set. "
            f"Set data_dir, --data-dir or {VARIABLE} to the folder that holds the data sets."
        )
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise InputError(
            f"the data folder must exist, however: {folder} is no folder. Make it, or name another."
        )
    return folder


@dataclass(frozen=True)
class Source(Generic[Content]):
    """A published data set.

    Args:
        title: What it is called.
        home: Where to get it.
        forms: The forms it is read in: a path in the data folder, and what reads it. The first found counts.
    """

    title: str
    home: str
    forms: Mapping[str, Callable[[Path], Content]]

    def find(self, folder: Path) -> str | None:
        """The first of the paths that is there."""
        return next((path for path in self.forms if (folder / path).exists()), None)

    def absence(self, folder: Path) -> str:
        """What to tell where nothing is found."""
        first, *others = self.forms
        also = f" ({', '.join(others)} would do too)" if others else ""
        return (
            f"{self.title} must lie in {folder} as {first}, however: it does not{also}. "
            f"Get it from {self.home} and put it there."
        )

    def read(self, folder: Path) -> Content:
        """The contents of the first path that is there."""
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
        reason = said if path.exists() else "there is none"
        raise InputError(
            f"{path} must be a whole file of its kind, however: {reason}. Get or write it again."
        ) from error


def optional(module: str, package: str) -> Any:
    """A module of a package that is not always installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"this data needs {package}, however: it is not installed. Run `pip install {package}`."
        ) from error
