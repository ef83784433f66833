"""Answers of `POST /predict`: one object for each row, in the units and words of the data."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pluribus.serving.json_numbers import plain
from pluribus.serving.preprocessing import Scale
from pluribus.serving.tensors import MEMBERS, Array

CENTRES, VARIANCES = ("mean", "lower", "upper"), ("variance", "aleatoric", "epistemic")
AVERAGED = ("confidence", "entropy", "expected_entropy", "mutual_information", *CENTRES, *VARIANCES)
"""Outputs that are averaged over the positions of a dense prediction."""


class Answers:
    """Turns outputs of a file into answers.

    Args:
        description: Of the file.
        target: Scaling of targets; None if there is none.
    """

    def __init__(self, description: Mapping[str, Any], target: Scale | None) -> None:
        classes = description.get("classes")
        self.classes: list[str] = list(classes) if isinstance(classes, list) else []
        self.level = description.get("level")
        self.target = target

    def make(self, outputs: Mapping[str, Array], notes: Sequence[str]) -> list[dict[str, Any]]:
        """Return one answer for each sample.

        Args:
            outputs: Of the file, `[batch, ...]` each.
            notes: For each sample how it is unlike training; empty texts where it is not.
        """
        scaled = self._in_units(outputs)
        dense = is_dense(outputs)
        found = []
        for place in range(len(notes)):
            row = {name: value[place] for name, value in scaled.items() if name != MEMBERS}
            answer = _dense_answer(row) if dense else self._answer(row)
            if notes[place]:
                answer["note"] = notes[place]
            found.append(answer)
        return found

    def _in_units(self, outputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return numbers in the units of the data."""
        found = dict(outputs)
        if self.target is None:
            return found
        for name in CENTRES:
            if name in found:
                found[name] = found[name] * self.target.std + self.target.mean
        for name in VARIANCES:
            if name in found:
                found[name] = found[name] * self.target.std**2
        return found

    def _answer(self, row: Mapping[str, Array]) -> dict[str, Any]:
        """Return the answer for one sample of a prediction that is not dense."""
        answer: dict[str, Any] = {}
        for name, value in row.items():
            answer[name] = _number(value)
        if "labels" in answer:
            answer = {"label": answer.pop("labels")} | answer
        if "variance" in answer:
            answer["std"] = _number(np.sqrt(row["variance"]))
        if self.classes and row["probabilities"].shape == (len(self.classes),):
            answer["label"] = self.classes[int(row["labels"])]
            answer["probabilities"] = dict(zip(self.classes, answer["probabilities"], strict=True))
        if "set" in row:
            answer["set"] = self._set(row["set"])
        if "set" in row or "lower" in row:
            answer["level"] = self.level
        return answer

    def _set(self, held: Array) -> list[Any]:
        """Return the outcomes in a set, by name if they have names; several labels have a set each.

        Args:
            held: Whether each outcome is in the set, `[outcomes]` or `[outcomes, labels]`.
        """
        if held.ndim > 1:
            return [self._set(held[:, label]) for label in range(held.shape[1])]
        places: list[int] = np.flatnonzero(held).tolist()
        if len(self.classes) == len(held):
            return [self.classes[place] for place in places]
        return list(places)


def is_dense(outputs: Mapping[str, Array]) -> bool:
    """Return whether a prediction has positions, as the pixels of a picture."""
    if "labels" in outputs:
        axes = outputs["labels"].ndim
        # Several yes-no questions have as many labels as probabilities; classes have an axis less.
        return axes > 2 or (axes == 2 and outputs["probabilities"].ndim == 3)
    return outputs["mean"].ndim > 2


def sample_means(value: Array) -> Array:
    """Return the mean of each sample over its positions, labels or targets, `[batch]`."""
    means: Array = value.reshape(len(value), -1).mean(1)
    return means


def _dense_answer(row: Mapping[str, Array]) -> dict[str, Any]:
    """Return labels of all positions, and the means of all else: whole maps are for the binary protocol."""
    answer: dict[str, Any] = {}
    if "labels" in row:
        answer["label"] = row["labels"].tolist()
    for name in AVERAGED:
        if name in row:
            answer[f"mean_{name}"] = _number(row[name].mean())
    for name in ("ood_score", "flagged"):
        if name in row:
            answer[name] = _number(row[name])
    return answer


def _number(value: Any) -> Any:
    """Return a number, or nested lists of several, as JSON can hold them."""
    array = np.asarray(value)
    # The only target of a network is a number, not a list of one.
    return plain(array.reshape(1))[0] if array.shape in ((), (1,)) else plain(array)
