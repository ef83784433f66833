"""The state of an unfinished training, written whole or not at all, from which it goes on exactly."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pluribus.errors import CheckpointError
from pluribus.fingerprint import SCHEMA as FINGERPRINT
from pluribus.fingerprint import difference
from pluribus.mechanisms.members.names import renamed
from pluribus.schema import Anything, Fields, Items, Mismatch, Named, Number, Schema, Whole, mismatch
from pluribus.training.averaging import start_mean
from pluribus.training.fitting import check_optimizer, check_random, check_tensors
from pluribus.untrusted import check_file
from pluribus.writing import remove_stale, replacing

FILE = "training.pt"
NETWORK = "network"
REMEDY = "Delete it to start anew, or choose another folder."


@dataclass
class Progress:
    """What a training knows between two epochs.

    Attributes:
        settings: Of the method, the training and the task; a checkpoint of others is refused.
        epoch: How many epochs are done.
        history: One row of numbers for each of them.
        best: The best validation score so far; less is better, metrics of which more is better are negated.
        best_epoch: When that was.
        best_weights: The weights that gave it; empty where the last are kept.
        mean_weights: The running mean of the weights; empty where there is none.
    """

    settings: dict[str, Any]
    epoch: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    best: float = float("inf")
    best_epoch: int = 0
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    mean_weights: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class TensorValue(Schema):
    """A tensor."""

    def check(self, value: object, place: str) -> None:
        if not isinstance(value, Tensor):
            raise mismatch(place, "a tensor", value)


@dataclass(frozen=True)
class OptimizerState(Schema):
    """The `state_dict` of an optimizer: groups of numbered parameters, and values for each number."""

    def check(self, value: object, place: str) -> None:
        groups = Items(Fields({"params": Items(Whole())}, others=True))
        Fields({"state": Anything(), "param_groups": groups}).check(value, place)
        state = value["state"]  # type: ignore[index]
        if not isinstance(state, dict) or not all(isinstance(values, dict) for values in state.values()):
            raise mismatch(f"{place}.state", "values for each parameter", state)


STATE = Fields(
    {
        "progress": Fields(
            {
                "settings": Fields(optional={NETWORK: FINGERPRINT}, others=True),
                "epoch": Whole(),
                "history": Items(Named(Number())),
                "best": Number(),
                "best_epoch": Whole(),
                "best_weights": Named(TensorValue()),
            },
            # Checkpoints of earlier versions have no running mean.
            {"mean_weights": Named(TensorValue())},
        ),
        "weights": Named(TensorValue()),
        "optimizer": OptimizerState(),
        "random": TensorValue(),
        "random_cuda": Items(TensorValue()),
    }
)


def write(
    folder: Path, progress: Progress, weights: Mapping[str, Tensor], optimizer: Mapping[str, Any]
) -> None:
    """Write all that is needed to go on, torch's random numbers included."""
    state = {
        "progress": vars(progress),
        "weights": dict(weights),
        "optimizer": dict(optimizer),
        "random": torch.get_rng_state(),
        "random_cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }
    with replacing(folder / FILE) as unfinished:
        torch.save(state, unfinished)


def read(folder: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """Return what `write` wrote for the same settings; None where nothing was.

    Args:
        folder: Where it was written.
        settings: Of the run; the network's fingerprint among them, where there is one.
    """
    path = folder / FILE
    remove_stale(path)
    if not path.exists():
        return None
    state = read_state(path)
    odd = differences(state["progress"]["settings"], settings)
    if odd:
        raise CheckpointError(
            f"{path} must come from the same run, however: {', '.join(odd)}. "
            "Choose another folder, or delete it to start anew."
        )
    return state


def read_state(path: Path) -> dict[str, Any]:
    """Return what a checkpoint holds, checked: tensors and plain values, and never code."""
    check_file(path, REMEDY)
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # every damaged file raises something else
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CheckpointError(f"{path} must be a checkpoint, however: {reason}. {REMEDY}") from error
    try:
        STATE.check(state, "")
    except Mismatch as error:
        raise CheckpointError(f"{path} is damaged or foreign: {error}. {REMEDY}") from error
    return state


def restore(folder: Path, state: Mapping[str, Any], ensemble: nn.Module, optimizer: Any) -> Progress:
    """Put weights, optimizer and torch's random numbers back, after all of them were checked."""
    progress, held = Progress(**state["progress"]), ensemble.state_dict()
    try:
        # Tensors of checkpoints of version 0.1 have other names.
        weights = renamed(state["weights"], held)
        check_tensors("weights", weights, held)
        if progress.best_weights:
            progress.best_weights = renamed(progress.best_weights, held)
            check_tensors("progress.best_weights", progress.best_weights, held)
        if progress.mean_weights:
            place = start_mean(ensemble)
            check_tensors("progress.mean_weights", progress.mean_weights, place)
            progress.mean_weights = {n: v.to(place[n].device) for n, v in progress.mean_weights.items()}
        check_optimizer(state["optimizer"], optimizer)
        check_random(state["random"])
        ensemble.load_state_dict(weights)
        optimizer.load_state_dict(state["optimizer"])
        restore_random(state)
    except Mismatch as error:
        raise CheckpointError(f"{folder / FILE} is of another network: {error}. {REMEDY}") from error
    except (KeyError, ValueError, TypeError, AttributeError, RuntimeError, IndexError) as error:
        # what torch's own loading refuses beyond our schema
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CheckpointError(f"{folder / FILE} is damaged or foreign: {reason}. {REMEDY}") from error
    return progress


def differences(came: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return in which settings two runs differ, each as a few words."""
    odd = []
    for name in _odd(came, now):
        if name != NETWORK:
            odd.append(f"{name} differs{_changed(came.get(name), now.get(name))}")
        elif NETWORK not in came or NETWORK not in now:
            odd.append("the network it was made with is not recorded")
        elif reason := difference(came[NETWORK], now[NETWORK]):
            odd.append(f"the network differs: {reason}")
    return odd


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
