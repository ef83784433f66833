"""Read tables from CSV and Parquet files, all rows at once or some at a time. Imports no torch."""

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TextIO

from pluribus.data.delimiters import actual_delimiter, with_points
from pluribus.data.limits import MOST_BYTES, check_bytes, check_file
from pluribus.data.sources import optional, reading
from pluribus.data.tables import Table, check_delimiter, check_names
from pluribus.errors import InputError
from pluribus.ranges import check

CHECKED_ROWS = 1024
"""Rows between two checks of the memory that a file takes."""
GZIP = b"\x1f\x8b"
"""First bytes of a packed file."""
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
"""First bytes of text in UTF-16, which some spreadsheets write."""
CELL_BYTES = 64
"""Memory of one cell while it is text: Python's string and its place in a list."""


def read_table(path: Path, delimiter: str = ",", most_bytes: int = MOST_BYTES) -> Table:
    """Return the table of a CSV file in UTF-8 with a header, or of a `.parquet` file.

    Where the delimiter does not part the header, a semicolon, a tab or a bar does. With semicolons, `12,5` is
    a number: spreadsheets write them where the comma is the decimal sign.
    """
    check("most_bytes", most_bytes, int, at_least=1)
    check_file(path)
    if path.suffix == ".parquet":
        return _read_parquet(path, most_bytes)
    return _read_csv(path, delimiter, most_bytes)


def table_chunks(path: Path, delimiter: str = ",", rows: int = 4096) -> Iterator[Table]:
    """Yield the rows of a CSV or `.parquet` file, up to so many at a time, in bounded memory."""
    check_file(path)
    if path.suffix == ".parquet":
        yield from _parquet_chunks(path, rows)
    else:
        yield from _csv_chunks(path, delimiter, rows)


def _csv_chunks(path: Path, delimiter: str, most_rows: int) -> Iterator[Table]:
    check_delimiter(delimiter)
    lines: list[int] = []
    rows: list[list[str]] = []
    found = False
    with _text(path) as file:
        delimiter = actual_delimiter(file.readline(), delimiter)
        file.seek(0)
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        try:
            header = [name.strip() for name in next(reader, [])]
            check_names(f"the header of {path}", header)
            for row in reader:
                if not row:
                    continue
                if len(row) != len(header):
                    raise InputError(
                        f"{path} must have {len(header)} cells in each row, "
                        f"got {len(row)} in line {reader.line_num}. Complete or quote it."
                    )
                rows.append(with_points(row) if delimiter == ";" else row)
                lines.append(reader.line_num)
                found = True
                if len(rows) == most_rows:
                    yield _csv_table(path, header, rows, lines)
                    rows, lines = [], []
        except csv.Error as error:
            raise InputError(f"{path} must be a CSV file, got {error} in line {reader.line_num}.") from error
    if not found:
        raise InputError(f"{path} must hold a header and rows, got no rows.")
    if rows:
        yield _csv_table(path, header, rows, lines)


@contextmanager
def _text(path: Path) -> Iterator[TextIO]:
    """Open a file of text, and name the remedy where it is in another encoding."""
    try:
        with reading(path), path.open(encoding="utf-8-sig", newline="") as file:
            yield file
    except InputError as error:
        if not isinstance(error.__cause__, UnicodeDecodeError):
            raise
        wrong = error.__cause__
        if wrong.object[:2] == GZIP:
            raise InputError(f"{path} must be text, got a packed file. Unpack it: gunzip {path}") from wrong
        encoding = "UTF-16" if wrong.object[:2] in UTF_16 else "WINDOWS-1252"
        raise InputError(
            f"{path} must be text in UTF-8, got the byte {wrong.object[wrong.start]:#04x}. Save it as UTF-8, "
            f"or convert it: iconv -f {encoding} -t UTF-8 {path}"
        ) from wrong


def _csv_table(path: Path, header: list[str], rows: list[list[str]], lines: list[int]) -> Table:
    return Table(str(path), dict(zip(header, zip(*rows, strict=True), strict=True)), lines)


def _read_csv(path: Path, delimiter: str, most_bytes: int) -> Table:
    """Return all rows; raise as soon as they take more than `most_bytes`."""
    chunks: list[Table] = []
    cells = 0
    for chunk in _csv_chunks(path, delimiter, CHECKED_ROWS):
        cells += len(chunk) * len(chunk.cells)
        check_bytes(f"the cells of {path}", cells * CELL_BYTES, most_bytes)
        chunks.append(chunk)
    joined = {name: list(chain.from_iterable(one.cells[name] for one in chunks)) for name in chunks[0].cells}
    return Table(str(path), joined, list(chain.from_iterable(one.lines for one in chunks)))


def _parquet_chunks(path: Path, most_rows: int) -> Iterator[Table]:
    parquet = optional("pyarrow.parquet", "pyarrow")
    first = 1
    with reading(path):
        file = parquet.ParquetFile(path)
        check_names(str(path), [str(name) for name in file.schema_arrow.names])
        if not file.metadata.num_rows:
            raise InputError(f"{path} must hold rows, got none.")
        for batch in file.iter_batches(most_rows):
            yield Table(str(path), batch.to_pydict(), range(first, first + batch.num_rows))
            first += batch.num_rows


def _read_parquet(path: Path, most_bytes: int) -> Table:
    parquet = optional("pyarrow.parquet", "pyarrow")
    with reading(path):
        file = parquet.ParquetFile(path)
        count = file.metadata.num_rows * file.metadata.num_columns
        check_bytes(f"the cells of {path}", count * CELL_BYTES, most_bytes)
        names = [str(name) for name in file.schema_arrow.names]
        check_names(str(path), names)
        cells = file.read().to_pydict()
    if not file.metadata.num_rows:
        raise InputError(f"{path} must hold rows, got none.")
    # pandas stores the index of a DataFrame as a column of this name.
    kept = {name: cells[name] for name in names if not name.startswith("__index_level_")}
    return Table(str(path), kept, range(1, file.metadata.num_rows + 1))
