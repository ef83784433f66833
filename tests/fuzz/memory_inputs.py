"""Odd inputs in memory for `load_run`: cells of a table by column, and arrays."""

import datetime
import decimal
import random
from typing import Any

import numpy as np
import pandas
import torch

from tests.fuzz import mutations

CELLS: tuple[Any, ...] = (
    *(
        None,
        pandas.NA,
        pandas.NaT,
        float("nan"),
        float("inf"),
        "",
        "red",
        "1",
        "1_0",
        "x" * 5000,
        "\udcff",
        "\0",
    ),
    *(0, -1, 10**30, 10**5000, True, 1.5, 1j, b"red", [1], {}, {1}, (), object(), np.float32(2), np.zeros(2)),
    *(decimal.Decimal("1.5"), decimal.Decimal("sNaN"), datetime.date(1, 1, 1), datetime.timedelta(1)),
    *(datetime.datetime(9999, 12, 31), "2021-13-45", "9999999-01-01", pandas.Interval(0, 1)),
    *(torch.tensor(1.0), torch.zeros(2), torch.tensor(1, device="meta")),
)
SOUND = {"a": 0.5, "b": 1, "when": "2021-01-11", "colour": "red"}
"""Cells of the table of the corpus."""


def odd_cells(rng: random.Random) -> Any:
    """Return a table in memory with odd cells, or columns of an odd kind."""
    count = rng.choice((1, 3))
    columns: dict[Any, Any] = {name: [cell] * count for name, cell in SOUND.items()}
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice(list(columns))
        kind = rng.randrange(6)
        if kind == 0:
            columns[rng.choice(mutations.WORDS)] = columns.pop(name)
        elif kind == 1:
            columns[name] = rng.choice((*CELLS, range(count), torch.zeros(count), pandas.Series([1] * count)))
        else:
            columns[name] = [rng.choice(CELLS) for _ in range(count)]
    if rng.random() < 0.4:
        try:
            return pandas.DataFrame(columns)
        # pandas refuses some of them itself.
        except (TypeError, ValueError, RuntimeError, OverflowError):
            pass
    return columns


def odd_array(rng: random.Random) -> Any:
    """Return inputs for a network of two numbers that are odd, or of an odd kind."""
    array = np.random.default_rng(rng.randrange(100)).normal(size=(3, 2)).astype(np.float32)
    tensor = torch.from_numpy(array.copy())
    kind = rng.randrange(5)
    if kind == 0:
        return mutations.array(rng, array)
    if kind == 1:
        return mutations.tensor(rng, tensor)
    if kind == 2:
        return np.ma.masked_array(array, mask=rng.random() < 0.5)
    if kind == 3:
        return rng.choice(
            (tensor.to_sparse(), tensor.to("meta"), tensor.to(torch.complex64).conj(), tensor.T)
        )
    return rng.choice(
        (None, 3, "", "none.csv", b"x", [[1], [1, 2]], {"x": array}, [array], {1}, array.tolist(), ())
    )
