"""A table with a target column as a task: rows divided, columns learnt from the training rows, encoded."""

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor

from pluribus.data.cells import (
    MISSING_WORDS,
    Array,
    Cells,
    by_value,
    find_missing,
    read_cells,
    to_flag,
    to_number,
    to_word,
)
from pluribus.data.column_kinds import learn_columns
from pluribus.data.limits import quoted
from pluribus.data.scaling import UNSCALED, Scaling
from pluribus.data.split import Split
from pluribus.data.splits import Sizes, divide
from pluribus.data.tables import Table, check_columns, from_frame
from pluribus.data.targets import MOST_CLASSES, number_words
from pluribus.data.task import Task
from pluribus.errors import InputError, SettingError
from pluribus.likelihood import Bernoulli, Categorical, Gaussian, Likelihood
from pluribus.likelihood import likelihood as named_likelihood

BINARY = 2
Words = str | Sequence[str] | None
"""Words in a list, or in one text with commas between them, as they come from the command line."""


def table_task(
    table: Table,
    target: str,
    name: str,
    likelihood: str | Likelihood | None = None,
    features: Words = None,
    kinds: Mapping[str, str] | str | None = None,
    missing_words: Words = None,
    delimiter: str = ",",
    **sizes: Unpack[Sizes],
) -> Task:
    """Return a task to predict one column of a table from the others; `csv_file` describes the settings."""
    chosen = to_words("features", features)
    check_columns(table, [target, *(chosen or ())], delimiter)
    if chosen == []:
        raise InputError("features must name at least one column, got none.")
    absent = to_words("missing_words", missing_words) or []
    rows, notes = _labelled(table, target, absent)
    law, class_names, y = _targets(target, rows.cells[target], likelihood, rows.lines)
    if likelihood is None:
        notes += _likelihood_notes(target, rows.cells[target])

    # Rows are divided first, so that nothing is learnt from rows that are for validation and testing.
    places = Split(torch.arange(len(rows)), y)
    parts = divide((places, None, None), sizes)
    inputs = rows.select(chosen or [one for one in rows.cells if one != target])
    columns = learn_columns(
        inputs.cells,
        parts[0].x.tolist(),
        to_kinds(kinds),
        keep=chosen or (),
        missing_words=absent,
    )

    # The statistics of the training rows scale all rows.
    scaling = Scaling(torch.from_numpy(columns.means), torch.from_numpy(columns.deviations))
    x = scaling.apply(torch.from_numpy(columns.encode(inputs.cells, rows.lines).values))
    target_scaling = UNSCALED
    if not isinstance(law, Categorical | Bernoulli):
        target_scaling = Scaling.of_columns(parts[0].y)
    train, validation, test = (_ready(part, x, target_scaling) for part in parts)
    return Task(
        name,
        train,
        validation,
        test,
        likelihood=law,
        classes=len(class_names) or None,
        class_names=class_names,
        scaling=scaling,
        target_scaling=target_scaling,
        feature_names=columns.features,
        columns=columns,
        notes=notes,
    )


def frame_task(
    frame: Any, target: str, name: str = "table", likelihood: str | Likelihood | None = None, **options: Any
) -> Task:
    """Return a task of a pandas DataFrame; its index is not read. `csv_file` describes the options."""
    if not hasattr(frame, "columns") or not hasattr(frame, "iloc"):
        raise InputError(f"frame must be a pandas DataFrame, got {type(frame).__name__}.")
    return table_task(from_frame(frame), target, name, likelihood, **options)


def infer_likelihood(cells: Cells) -> Likelihood:
    """Return the likelihood of a target: `Categorical` for words and two whole numbers, else `Gaussian`."""
    numbers = read_cells(cells, to_number)
    if np.isnan(numbers).any():
        return Categorical()
    # Nobody measures a quantity that is 0 or 1 alone, or 1 or 2: these are a no and a yes.
    return Categorical() if len(_few_numbers(numbers)) == BINARY else Gaussian()


def _few_numbers(numbers: Array) -> list[int]:
    """Return the different whole numbers of a target in order; none if there are others or many."""
    distinct = np.unique(numbers)
    whole = np.isfinite(distinct).all() and (distinct == np.round(distinct)).all()
    if len(distinct) > MOST_CLASSES or not whole:
        return []
    return [int(number) for number in distinct]


def _likelihood_notes(target: str, cells: Cells) -> tuple[str, ...]:
    """Return a sentence where the user may have meant another likelihood than the inferred one."""
    few = _few_numbers(read_cells(cells, to_number))
    if len(few) == BINARY:
        ends = f"{few[0]} and {few[1]}"
        return (f"{target} holds {ends} alone: they are classes. likelihood=gaussian predicts a number.",)
    if len(few) > BINARY:
        return (
            f"{target} holds {len(few)} whole numbers, {few[0]} to {few[-1]}, and is predicted as a number. "
            "likelihood=categorical predicts classes.",
        )
    return ()


def to_words(name: str, given: Words) -> list[str] | None:
    """Return a list of words; one text is cut at its commas.

    Args:
        name: Of the setting, for errors.
        given: Words, a text, or None, which stays None.
    """
    if given is None:
        return None
    words = given.split(",") if isinstance(given, str) else given
    found = []
    for word in words:
        # Columns may have numbers for names, which the command line reads as such.
        if type(word) not in (str, int):
            raise SettingError(f"{name} must be words, got {given!r}.")
        found.append(str(word).strip())
    return found


def to_kinds(given: Mapping[str, str] | str | None) -> dict[str, str]:
    """Return kinds by column; text is written `zip=category,age=number`."""
    if isinstance(given, Mapping):
        return dict(given)
    kinds: dict[str, str] = {}
    for part in (given or "").split(","):
        # A trailing comma, or no text at all, leaves an empty part.
        if not part.strip():
            continue
        # Names of columns may hold an equals sign, kinds do not: the last one counts.
        name, equals, kind = part.rpartition("=")
        if not equals:
            raise SettingError(f"kinds are written column=kind,column=kind, got {part!r}.")
        kinds[name.strip()] = kind.strip()
    return kinds


def _labelled(
    table: Table,
    target: str,
    missing_words: Sequence[str],
) -> tuple[Table, tuple[str, ...]]:
    """Return the rows that have a target, and a note on others; raise where no row has one."""
    words = {*MISSING_WORDS, *map(str.lower, missing_words)}
    # Classes may be called + and -, as those of credit cards at UCI.
    if "+" in by_value(table.cells[target], to_word):
        words.discard("-")
    labelled = np.flatnonzero(~find_missing(table.cells[target], frozenset(words))).tolist()
    if not labelled:
        raise InputError(f"column {target!r} must hold what to predict, got blanks alone.")
    count, blank = len(table), len(table) - len(labelled)
    if not blank:
        return table, ()
    note = f"{blank} of {count} rows have no {target} and were left out."
    return table.take(labelled), (note,)


def _targets(
    name: str,
    cells: Cells,
    likelihood: str | Likelihood | None,
    lines: Sequence[int],
) -> tuple[Likelihood, tuple[str, ...], Tensor]:
    """Return the likelihood, the names of classes, and targets.

    Targets are class numbers `[count]` for `Categorical`; else numbers `[count, 1]`, and no names.
    """
    law = infer_likelihood(cells) if likelihood is None else named_likelihood(likelihood)
    if isinstance(law, Categorical):
        return law, *number_words(by_value(cells, to_word))
    values = read_cells(cells, to_number)
    # Labels may be written as words, true and false or yes and no.
    if isinstance(law, Bernoulli) and np.isnan(values).any():
        values = read_cells(cells, to_flag)
    return law, (), torch.from_numpy(_finite(name, values, cells, lines))[:, None]


def _finite(name: str, values: Array, cells: Cells, lines: Sequence[int]) -> Array:
    """Return the values; raise for one that is no finite number."""
    odd = np.flatnonzero(~np.isfinite(values)).tolist()
    if odd:
        raise InputError(
            f"column {name!r} must hold finite numbers, got {quoted(cells[odd[0]])} in line {lines[odd[0]]}. "
            "Correct it, or use likelihood=categorical for classes."
        )
    return values


def _ready(part: Split, x: Tensor, target_scaling: Scaling) -> Split:
    """Return the samples of a part: scaled inputs and targets."""
    y = target_scaling.apply(part.y) if part.y.is_floating_point() else part.y
    return Split(x[part.x], y)
