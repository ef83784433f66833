"""The ensemble of a run, compared with the fingerprint of the network that it was trained with."""

from pathlib import Path
from typing import Any

from pluribus.comparison.run_folder import ENSEMBLE
from pluribus.ensemble import Ensemble
from pluribus.errors import CheckpointError
from pluribus.fingerprint import difference, fingerprint
from pluribus.loading import Model, load


def load_checked(folder: Path, document: dict[str, Any], model: Model, example: Any) -> Ensemble:
    """Return the ensemble of a run in eval mode.

    Args:
        folder: Of the run.
        document: Its `run.json`.
        model: The network, or its factory.
        example: An input of it.

    Raises:
        CheckpointError: The network is another one than that of the training, or a file is damaged.
    """
    ensemble = load(folder / ENSEMBLE, model, example=example)
    before = document.get("network")
    # Runs of early versions have no fingerprint.
    reason = difference(before, fingerprint(ensemble, example)) if before is not None else ""
    if reason:
        raise CheckpointError(
            f"the network must be the one that {folder} was trained with, but {reason}. "
            "Restore its code, or train again."
        )
    return ensemble.eval()
