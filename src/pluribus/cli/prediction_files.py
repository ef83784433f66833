"""Write predictions chunk by chunk: as CSV, as Parquet, or as NumPy's archive.

A file appears when it is complete. CSV and Parquet need the memory of one chunk. An archive needs that of its
texts too: its numbers go through temporary files, because an array begins with its length.
"""

import csv
import shutil
import tempfile
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, final

import numpy as np
from numpy.lib import format as npy

from pluribus.cli.spreadsheet import safe_cell
from pluribus.data.sources import optional
from pluribus.errors import SettingError, WriteError
from pluribus.writing import replacing

Columns = Mapping[str, Sequence[Any]]


class PredictionFile(ABC):
    """A file of predictions that grows by chunks of rows."""

    @abstractmethod
    def write(self, columns: Columns) -> None:
        """Append rows: columns of equal length, by name, the same names in every chunk."""

    @abstractmethod
    def close(self) -> None:
        """Complete the file."""


@final
class CsvFile(PredictionFile):
    """A CSV file in which no text is run as a formula."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("w", newline="", encoding="utf-8")
        self.writer = csv.writer(self.file)
        self.names: list[str] = []

    def write(self, columns: Columns) -> None:
        """Append rows."""
        if not self.names:
            self.names = list(columns)
            self.writer.writerow(map(safe_cell, self.names))
        for row in zip(*columns.values(), strict=True):
            self.writer.writerow(map(safe_cell, row))

    def close(self) -> None:
        """Close the file."""
        self.file.close()


@final
class ParquetFile(PredictionFile):
    """A Parquet file, with a row group for each chunk."""

    def __init__(self, path: Path) -> None:
        self.arrow = optional("pyarrow", "pyarrow")
        self.parquet = optional("pyarrow.parquet", "pyarrow")
        self.path, self.writer = path, None

    def write(self, columns: Columns) -> None:
        """Append rows."""
        table = self.arrow.table({name: list(values) for name, values in columns.items()})
        if self.writer is None:
            self.writer = self.parquet.ParquetWriter(self.path, table.schema)
        self.writer.write_table(table.cast(self.writer.schema))  # type: ignore[attr-defined]

    def close(self) -> None:
        """Write the end of the file."""
        if self.writer is not None:
            self.writer.close()


@final
class NpzFile(PredictionFile):
    """An archive of NumPy with an array for each column."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.numbers: dict[str, tuple[IO[bytes], np.dtype[Any]]] = {}
        self.texts: dict[str, list[str]] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}

    def write(self, columns: Columns) -> None:
        """Append rows."""
        for name, values in columns.items():
            array = np.asarray(values)
            if array.dtype.kind not in "biuf":
                self.texts.setdefault(name, []).extend(map(str, values))
                continue
            if name not in self.numbers:
                # Closed at the end, where it vanishes.
                self.numbers[name] = (tempfile.TemporaryFile(), array.dtype)  # noqa: SIM115
            file, dtype = self.numbers[name]
            file.write(np.ascontiguousarray(array, dtype).tobytes())
            before = self.shapes.get(name, (0,))[0]
            self.shapes[name] = (before + len(array), *array.shape[1:])

    def close(self) -> None:
        """Assemble the archive."""
        with zipfile.ZipFile(self.path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, (file, dtype) in self.numbers.items():
                file.seek(0)
                head = {
                    "descr": npy.dtype_to_descr(dtype),
                    "fortran_order": False,
                    "shape": self.shapes[name],
                }
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    npy.write_array_header_1_0(entry, head)
                    shutil.copyfileobj(file, entry)
                file.close()
            for name, words in self.texts.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    npy.write_array(entry, np.array(words), allow_pickle=False)


KINDS: Mapping[str, Callable[[Path], PredictionFile]] = {
    ".csv": CsvFile,
    ".parquet": ParquetFile,
    ".npz": NpzFile,
}
"""Kinds of files by ending."""


@contextmanager
def prediction_file(path: Path) -> Iterator[PredictionFile]:
    """Yield a file to write predictions to; it replaces `path` when the block ends without an error.

    Raises:
        SettingError: the ending is unknown, or the file cannot be written.
    """
    if path.suffix not in KINDS:
        raise SettingError(f"--out must end with one of {', '.join(KINDS)}, got {path}. Choose one of them.")
    try:
        with replacing(path) as unfinished:
            file = KINDS[path.suffix](unfinished)
            try:
                yield file
            finally:
                file.close()
    except WriteError as error:
        raise SettingError(f"--out must be a file that can be written, got {path}: {error}") from error
