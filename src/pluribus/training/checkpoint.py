"""Write and read the state of an unfinished training, so that it continues exactly."""

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
from pluribus.torch_files import load_torch
from pluribus.training.averaging import start_mean
from pluribus.training.fitting import check_optimizer, check_random, check_tensors
from pluribus.untrusted import check_file
from pluribus.writing import remove_stale, replacing

FILE = "training.pt"
NETWORK = "network"
DATA = "data"
REMEDY = "Delete it to start anew, or choose another folder."


@dataclass
class Progress:
    """State of a training between two epochs, without weights and optimizer.

    Attributes:
        settings: Settings of the method, the training and the task. A checkpoint with others is refused.
        epoch: Number of finished epochs.
        history: One row of numbers for each of them.
        best: The best validation score so far. Less is better: metrics of which more is better are negated.
        best_epoch: The epoch of the best score.
        best_weights: The weights with the best score; empty if the last weights are kept.
        mean_weights: The running mean of the weights; empty if there is none.
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
        # Its names are numbers, so that it is no object for a schema.
        sound = isinstance(state, dict) and all(isinstance(values, dict) for values in state.values())
        if not sound:
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
    """Write the state of a training, with the state of torch's random generators.

    Raises:
        WriteError: the disk is full or the folder is not writable; an earlier checkpoint is kept.
    """
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    state = {
        "progress": vars(progress),
        "weights": dict(weights),
        "optimizer": dict(optimizer),
        "random": torch.get_rng_state(),
        "random_cuda": cuda,
    }
    with replacing(folder / FILE) as unfinished:
        torch.save(state, unfinished)


def read(folder: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """Return the state that `write` wrote, or None if there is none.

    Args:
        folder: The folder of the run.
        settings: Settings of the run, including the fingerprint of the network.

    Raises:
        CheckpointError: the file is damaged, or of a run with other settings.
    """
    path = folder / FILE
    remove_stale(path)
    if not path.exists():
        return None
    state = read_state(path)
    odd = differences(state["progress"]["settings"], settings)
    if odd:
        raise CheckpointError(
            f"{path} must come from the same run, but {', '.join(odd)}. "
            "Choose another folder, or delete it to start anew."
        )
    return state


def read_state(path: Path) -> dict[str, Any]:
    """Return the content of a checkpoint, checked: tensors and plain values, never code."""
    check_file(path, REMEDY)
    try:
        state: dict[str, Any] = load_torch(path)
    # zipfile, pickle and torch raise errors without a common parent for damaged files.
    except Exception as error:
        raise CheckpointError(
            f"{path} must be a checkpoint, got a file that cannot be read: {_first_line(error)}. {REMEDY}"
        ) from error
    try:
        STATE.check(state, "")
    except Mismatch as error:
        raise CheckpointError(f"{path} is damaged or foreign: {error}. {REMEDY}") from error
    return state


def restore(folder: Path, state: Mapping[str, Any], ensemble: nn.Module, optimizer: Any) -> Progress:
    """Restore weights, optimizer and torch's random generators, after all of them were checked.

    Raises:
        CheckpointError: the state does not fit the ensemble or the optimizer.
    """
    progress = Progress(**state["progress"])
    held = ensemble.state_dict()
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
    # Torch's own loading checks more than our schema, and raises any of these.
    except (KeyError, ValueError, TypeError, AttributeError, RuntimeError, IndexError) as error:
        raise CheckpointError(
            f"{folder / FILE} is damaged or foreign: {_first_line(error)}. {REMEDY}"
        ) from error
    return progress


def _first_line(error: Exception) -> str:
    """Return the first line of an error, or its type if it has no message."""
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__


def differences(came: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return the settings in which two runs differ, each in a few words."""
    differing = []
    for name in _unequal_names(came, now):
        # Checkpoints of earlier versions know the data by its description alone.
        if name == DATA and DATA not in came:
            continue
        if name == NETWORK:
            differing += _network_difference(came.get(NETWORK), now.get(NETWORK))
        else:
            differing.append(f"{name} differs{_changes(came.get(name), now.get(name))}")
    return differing


def _network_difference(came: Any, now: Any) -> list[str]:
    if came is None or now is None:
        return ["the network it was made with is not recorded"]
    # Fingerprints that are unequal may still agree, because outputs are compared with a tolerance.
    reason = difference(came, now)
    return [f"the network differs: {reason}"] if reason else []


def _unequal_names(came: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    names = sorted(came.keys() | now.keys())
    return [name for name in names if came.get(name) != now.get(name)]


def _changes(came: Any, now: Any) -> str:
    """Return the changes between two dicts of settings, as ` (epochs 100, now 120)`; else nothing."""
    if not isinstance(came, dict) or not isinstance(now, dict):
        return ""
    changes = [f"{name} {came.get(name)}, now {now.get(name)}" for name in _unequal_names(came, now)]
    return f" ({'; '.join(changes)})"


def restore_random(state: Mapping[str, Any]) -> None:
    """Restore the state of torch's random generators."""
    torch.set_rng_state(state["random"])
    if state["random_cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["random_cuda"])
