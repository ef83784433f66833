"""Any CSV or Parquet file with a target column as a task."""

from collections.abc import Mapping
from pathlib import Path
from typing import Unpack

from pluribus.data.limits import MOST_BYTES
from pluribus.data.splits import Sizes
from pluribus.data.table_chunks import read_table
from pluribus.data.table_task import Words, table_task
from pluribus.data.task import Task
from pluribus.likelihood import Likelihood


def csv_file(
    path: str | Path,
    target: str,
    likelihood: str | Likelihood | None = None,
    features: Words = None,
    delimiter: str = ",",
    kinds: Mapping[str, str] | str | None = None,
    missing_words: Words = None,
    most_bytes: int = MOST_BYTES,
    **sizes: Unpack[Sizes],
) -> Task:
    """Return a task to predict one column of a table; a fifth of its rows are for testing.

    Words, dates, true and false, blanks, ids and constant columns are recognised; `print(task.columns)` shows
    what becomes of each column. All of it is learnt from the training rows.

    Args:
        path: A file in UTF-8 whose first line names the columns, or a `.parquet` file.
        target: The column to predict; rows without it are left out.
        likelihood: Of the target, standardised if it is a number. By default `categorical` for words and
            for two whole numbers such as 0 and 1, `gaussian` for other numbers.
        features: Columns to predict from; by default all but the target.
        delimiter: Character between cells; a semicolon, tab or bar is found if it alone parts the header.
        kinds: Kinds of columns, where another than the recognised one is wanted: `zip=category,year=number`;
            number, date, boolean, category, code (a learnt vector for each category) or dropped.
        missing_words: Words that stand for a missing value, besides blanks, ?, NA, nan, null, none, a point
            and a dash.
        most_bytes: Memory that the table may take while it is read.
        **sizes: How much of each part to keep.
    """
    path = Path(path).expanduser()
    table = read_table(path, delimiter, most_bytes)
    return table_task(
        table, target, path.stem, likelihood, features, kinds, missing_words, delimiter, **sizes
    )
