"""Summary: the statistics of a prediction without the outputs of its members.

Outputs of dense networks, `[members, batch, classes, height, width]`, take gigabytes. Their summaries are
computed piece by piece while the pieces stream, so that no more than one piece is kept.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from pluribus.errors import InputError, SettingError
from pluribus.notebook import html_table
from pluribus.prediction import Prediction, flat_table
from pluribus.ranges import nearest

MEMBERS = "members"
"""Word for keeping the outputs of all members."""
SUMMARY = "summary"
"""Word for keeping all summaries and nothing else."""
Keep = str | Sequence[str]


@dataclass(frozen=True, eq=False, repr=False)
class Summary:
    """Summaries of a prediction by name, each `[batch, ...]`, also as attributes: `summary.entropy`.

    The length is the batch; `summary[index]` holds some of its samples, a single one still as a batch.

    Attributes:
        values: The summaries by name.
        spent: Multiply-adds of each sample, `[batch]`, where samples leave the network early; else None.
    """

    values: Mapping[str, Tensor]
    spent: Tensor | None = None

    def __getattr__(self, name: str) -> Tensor:
        # Copying and pickling look for special names before there are any values.
        values = {} if name.startswith("__") else vars(self).get("values", {})
        if name in values:
            found: Tensor = values[name]
            return found
        raise AttributeError(
            f"summaries that were kept are {', '.join(values)}, got {name!r}. Name it with "
            f"predict(..., keep=[{name!r}]), or keep the members."
        )

    def __repr__(self) -> str:
        return f"Summary({len(self)} samples: {', '.join(self.values)})"

    def _repr_html_(self) -> str:
        """Return names and shapes as a table for notebooks."""
        shapes = [(name, tuple(value.shape)) for name, value in self.values.items()]
        return html_table(repr(self), ("summary", "shape"), shapes)

    def __len__(self) -> int:
        return len(next(iter(self.values.values())))

    def __getitem__(self, index: int | slice | Tensor) -> Self:
        if not isinstance(index, slice):
            index = torch.as_tensor(index, device=next(iter(self.values.values())).device).reshape(-1)
        spent = None if self.spent is None else self.spent[index]
        return replace(self, values={name: value[index] for name, value in self.values.items()}, spent=spent)

    def to(self, device: torch.device | str) -> Self:
        """Move to a device."""
        spent = None if self.spent is None else self.spent.to(device)
        return replace(
            self, values={name: value.to(device) for name, value in self.values.items()}, spent=spent
        )

    def numpy(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return all summaries by name, each `[batch, ...]`."""
        return {name: value.detach().cpu().numpy() for name, value in self.values.items()}

    def table(self) -> dict[str, list[Any]]:
        """Return columns for a `pandas.DataFrame`, a row per sample, as `Prediction.table`."""
        return flat_table(self.numpy())


def summarise(prediction: Prediction, names: Sequence[str]) -> Summary:
    """Return some summaries of a prediction."""
    return Summary({name: getattr(prediction, name) for name in names}, prediction.spent)


def summary_names(keep: Keep, prediction: Prediction) -> tuple[str, ...]:
    """Return the names of the summaries to keep; none for `members`.

    Raises:
        SettingError: `keep` is neither `members` nor `summary`, nor summaries of such a prediction.
    """
    known = prediction.summaries
    if keep == MEMBERS:
        return ()
    if keep == SUMMARY:
        return known
    names = (keep,) if isinstance(keep, str) else tuple(keep)
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        came = repr(unknown[0]) if unknown else "none"
        raise SettingError(
            f"keep must be {MEMBERS!r}, {SUMMARY!r} or some of {', '.join(known)}, got {came}."
            + nearest(str(unknown[0]) if unknown else "", known)
        )
    return names


def collect(pieces: Iterable[Prediction], total: int | None, keep: Keep = MEMBERS) -> Prediction | Summary:
    """Join the predictions of the pieces of a batch, which the same members made.

    At most one piece is alive besides the result.

    Args:
        pieces: The predictions, made one after the other.
        total: How many samples come in all; None if that is not known, and then all pieces are kept.
        keep: `members`, `summary` or names of summaries.

    Raises:
        InputError: there is no piece, or they are of different kinds.
        SettingError: `keep` names no summary.
    """
    if not isinstance(keep, str) and not isinstance(keep, Sequence):
        raise SettingError(f"keep must be {MEMBERS!r}, {SUMMARY!r} or names of summaries, got {keep!r}.")
    joined: _Filled | None = None
    several = list[Any]()
    for piece in pieces:
        names = summary_names(keep, piece)
        kept: Any = summarise(piece, names) if names else piece
        if total is None:
            several.append(kept)
            continue
        # A batch in one piece is not copied.
        if len(piece) == total:
            return kept  # type: ignore[no-any-return]
        if joined is None:
            joined = _Filled(kept, total)
        joined.add(kept)
    if joined is not None:
        return joined.result()
    if not several:
        raise InputError("a loader must give at least one batch, got none.")
    if isinstance(several[0], Summary):
        filled = _Filled(several[0], sum(map(len, several)))
        for one in several:
            filled.add(one)
        return filled.result()
    return type(several[0]).concatenate(several)  # type: ignore[no-any-return]


class _Filled:
    """Tensors of the whole batch, into which pieces are copied.

    A list of pieces that is joined at the end would take the memory of the result twice.

    Args:
        first: The first piece, which is added later like all others.
        total: How many samples come in all.
    """

    def __init__(self, first: Prediction | Summary, total: int) -> None:
        self.first, self.done = first, 0
        self.axis = 0 if isinstance(first, Summary) else 1
        self.tensors: dict[str, Tensor] = {}
        for name, value in self._parts(first).items():
            # Multiply-adds of samples have no axis of members.
            axis = 0 if name == "spent" else self.axis
            shape = (*value.shape[:axis], total, *value.shape[axis + 1 :])
            self.tensors[name] = value.new_empty(shape)

    def _parts(self, piece: Prediction | Summary) -> dict[str, Tensor]:
        parts = dict(piece.values) if isinstance(piece, Summary) else dict(piece.batched())
        if piece.spent is not None:
            parts["spent"] = piece.spent
        return parts

    def add(self, piece: Prediction | Summary) -> None:
        """Copy a piece behind those before it."""
        end = self.done + len(piece)
        for name, value in self._parts(piece).items():
            axis = 0 if name == "spent" else self.axis
            target = self.tensors[name].narrow(axis, self.done, len(piece))
            if target.shape != value.shape:
                raise InputError(
                    f"outputs must have one shape for all samples, got {tuple(value.shape)} after pieces of "
                    f"shape {tuple(target.shape)}. Give samples of one size."
                )
            target.copy_(value)
        self.done = end

    def result(self) -> Prediction | Summary:
        """Return the whole batch."""
        spent = self.tensors.pop("spent", None)
        if isinstance(self.first, Summary):
            return Summary(self.tensors, spent)
        return replace(self.first, spent=spent, **self.tensors)
