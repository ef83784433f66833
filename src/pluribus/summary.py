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
CALIBRATED = ("ood_score", "flagged")
"""Further summaries of a calibrated prediction."""
SPENT = "spent"
"""Name of the multiply-adds of each sample, which have no axis of members."""
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
    if prediction.calibration is not None and prediction.calibration.threshold is not None:
        known = (*known, *CALIBRATED)
    words: dict[object, tuple[str, ...]] = {MEMBERS: (), SUMMARY: known}
    if isinstance(keep, str):
        names = words.get(keep, (keep,))
    else:
        names = tuple(keep) if isinstance(keep, Sequence) and keep else (repr(keep),)
    for name in names:
        if name not in known:
            raise SettingError(
                f"keep must be {MEMBERS!r}, {SUMMARY!r} or some of {', '.join(known)}, got {name!r}."
                + nearest(str(name), known)
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
        InputError: there is no piece, or they have different shapes.
        SettingError: `keep` names no summary.
    """
    kept: Iterable[Prediction | Summary] = (_reduced(piece, keep) for piece in pieces)
    if total is None:
        kept = list(kept)
        total = sum(map(len, kept))
    whole: _Whole | None = None
    for piece in kept:
        # A batch in one piece is not copied.
        if len(piece) == total:
            return piece
        if whole is None:
            whole = _Whole(piece, total)
        whole.add(piece)
    if whole is None:
        raise InputError("a loader must give at least one batch, got none.")
    return whole.result()


def _reduced(piece: Prediction, keep: Keep) -> Prediction | Summary:
    """Return what is kept of a piece."""
    # The usual case first: a small network predicts in microseconds.
    if keep == MEMBERS:
        return piece
    names = summary_names(keep, piece)
    return summarise(piece, names) if names else piece


class _Whole:
    """Tensors of the whole batch, into which pieces are copied.

    A list of pieces that is joined at the end would take the memory of the result twice.

    Args:
        first: The first piece, which is added later like all others.
        total: How many samples come in all.
    """

    def __init__(self, first: Prediction | Summary, total: int) -> None:
        self.first, self.done = first, 0
        self.tensors: dict[str, Tensor] = {}
        for name, (value, axis) in _parts(first).items():
            shape = (*value.shape[:axis], total, *value.shape[axis + 1 :])
            self.tensors[name] = value.new_empty(shape)

    def add(self, piece: Prediction | Summary) -> None:
        """Copy a piece behind those before it.

        Raises:
            InputError: its outputs have another shape.
        """
        for name, (value, axis) in _parts(piece).items():
            target = self.tensors[name].narrow(axis, self.done, len(piece))
            if target.shape != value.shape:
                raise InputError(
                    f"outputs must have one shape for all samples, got {tuple(value.shape)} after pieces of "
                    f"shape {tuple(target.shape)}. Give samples of one size."
                )
            target.copy_(value)
        self.done += len(piece)

    def result(self) -> Prediction | Summary:
        """Return the whole batch."""
        spent = self.tensors.pop(SPENT, None)
        if isinstance(self.first, Summary):
            return Summary(self.tensors, spent)
        tensors: dict[str, Any] = self.tensors
        return replace(self.first, spent=spent, **tensors)


def _parts(piece: Prediction | Summary) -> dict[str, tuple[Tensor, int]]:
    """Return the tensors of a piece by name, each with the axis of the samples."""
    parts: dict[str, tuple[Tensor, int]] = {}
    if isinstance(piece, Summary):
        for name, value in piece.values.items():
            parts[name] = (value, 0)
    else:
        for name, value in piece.batched().items():
            parts[name] = (value, 1)
    if piece.spent is not None:
        parts[SPENT] = (piece.spent, 0)
    return parts
