"""The state of an unfinished training, written whole or not at all, from which it goes on exactly."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pluribus.errors import CheckpointError

FILE = "training.pt"


@dataclass
class Progress:
    """What a training knows between two epochs.

    Attributes:
        settings: Of the method, the training and the task; a checkpoint of others is refused.
        epoch: How many epochs are done.
        history: One row of numbers for each of them.
        best: The best validation score so far.
        best_epoch: When that was.
        best_weights: The weights that gave it; empty where the last are kept.
    """

    settings: dict[str, Any]
    epoch: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    best: float = float("inf")
    best_epoch: int = 0
    best_weights: dict[str, Tensor] = field(default_factory=dict)


def write(
    folder: Path, progress: Progress, weights: Mapping[str, Tensor], optimizer: Mapping[str, Any]
) -> None:
    """Writes all that is needed to go on, torch's random numbers included."""
    state = {
        "progress": vars(progress),
        "weights": dict(weights),
        "optimizer": dict(optimizer),
        "random": torch.get_rng_state(),
        "random_cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }
    unfinished = folder / f".{FILE}.{os.getpid()}"
    torch.save(state, unfinished)
    os.replace(unfinished, folder / FILE)


def read(folder: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """What `write` wrote for the same settings; None where nothing was."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # every damaged file raises something else
        raise CheckpointError(
            f"{path} must be a checkpoint, however: {error}. Delete it to start anew."
        ) from error
    came = state["progress"]["settings"]
    if came != settings:
        odd = [
            f"{name} differs{_changed(came.get(name), settings.get(name))}" for name in _odd(came, settings)
        ]
        raise CheckpointError(
            f"{path} must come from the same run, however: {', '.join(odd)}. "
            "Choose another folder, or delete it to start anew."
        )
    return state


def _odd(came: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in came.keys() | now.keys() if came.get(name) != now.get(name))


def _changed(came: Any, now: Any) -> str:
    """What is new among some settings, as ` (epochs 100, now 120)`; nothing where they are no dicts."""
    if not isinstance(came, dict) or not isinstance(now, dict):
        return ""
    return f" ({'; '.join(f'{name} {came.get(name)}, now {now.get(name)}' for name in _odd(came, now))})"


def restore_random(state: Mapping[str, Any]) -> None:
    """Puts torch's random numbers back to where they were."""
    torch.set_rng_state(state["random"])
    if state["random_cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["random_cuda"])
