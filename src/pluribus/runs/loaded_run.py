"""load_run: predict with what a run stored, as `pluribus predict` does, in Python."""

import logging
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pluribus.comparison.run_folder import has_built_in_network, read_run
from pluribus.data.far_outside import far_outside
from pluribus.data.given_inputs import given_inputs
from pluribus.data.limits import MOST_BYTES
from pluribus.data.raw_inputs import RawInputs
from pluribus.data.signature import FILE as SIGNATURE
from pluribus.data.signature import Signature
from pluribus.data.task import in_units, named_columns
from pluribus.ensemble import Ensemble
from pluribus.errors import SettingError
from pluribus.loading import Model
from pluribus.prediction import Prediction
from pluribus.runs.checked_ensemble import load_checked
from pluribus.runs.chosen_run import chosen_run
from pluribus.runs.named_network import Build
from pluribus.schema import shown
from pluribus.training.split_prediction import CHUNK

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False, repr=False)
class LoadedRun:
    """A trained ensemble with all that prediction needs; `load_run` makes it.

    Attributes:
        folder: Of the run; of a comparison or a search, of the run that was taken.
        ensemble: In eval mode, with its calibration.
        signature: How inputs become what the network takes, and what its outputs mean.
    """

    folder: Path
    ensemble: Ensemble
    signature: Signature

    def __repr__(self) -> str:
        return f"LoadedRun({self.signature.name}, {self.ensemble.method}, {self.folder})"

    def read(self, inputs: Any, most_bytes: int = MOST_BYTES) -> RawInputs:
        """Return inputs before scaling, with `ids` and `flags`: how each row of a table is unlike training.

        Args:
            inputs: As for `predict`, which takes the result too.
            most_bytes: Memory that the inputs of a file may take.

        Raises:
            InputError: They do not fit the network.
        """
        return given_inputs(inputs, self.signature, most_bytes)

    def predict(self, inputs: Any, most_bytes: int = MOST_BYTES) -> Prediction:
        """Return the prediction for inputs, numbers in the units of the data, calibrated if the ensemble is.

        Rows that are unlike training are predicted all the same, with a warning.

        Args:
            inputs: The path of a `.csv`, `.parquet`, `.npy` or `.npz` file or of a folder of pictures, as for
                `pluribus predict`; for tables a pandas DataFrame, or a dict of cells by column; an array or a
                tensor `[count, ...]` before scaling; of networks with several inputs a dict of these.
            most_bytes: Memory that the inputs of a file may take.

        Raises:
            InputError: They do not fit the network.
        """
        raw = self.read(inputs, most_bytes)
        flagged = sum(map(bool, raw.flags))
        if flagged:
            unlike = f"{flagged} of {len(raw)} rows are unlike training; read(inputs).flags says how."
            warnings.warn(unlike, stacklevel=2)
        far = far_outside(raw.values, self.signature)
        if far:
            warnings.warn(far, stacklevel=2)
        return in_units(predicted(self.ensemble, self.signature, raw), self.signature.target_scaling)

    def table(self, prediction: Prediction) -> dict[str, list[Any]]:
        """Return the columns of a prediction of `predict`, with classes by their names."""
        return named_columns(prediction, self.signature.class_names, self.signature.classes)


def load_run(folder: str | Path, network: Model | None = None) -> LoadedRun:
    """Return the ensemble of a run, ready to predict for files and tables. No training data is needed.

    Args:
        folder: A folder that `pluribus train`, `compare`, `search` or `finetune` wrote, or `compare` in
            Python. Of a comparison or a search, the recommended run is taken, as `pluribus predict` does.
        network: Your own network or its factory, where the run has one; its weights do not matter. Built-in
            networks are known by their names.

    Raises:
        SettingError: The folder is none of a run, or the run has a network of the user's own.
        CheckpointError: A file is damaged, or the network is another one than that of the training.

    Example:
        >>> import tempfile
        >>> from pluribus.data import two_moons
        >>> folder = tempfile.mkdtemp()
        >>> options = {"seeds": 1, "workers": 1, "shifted": False, "recipes": False, "show": False}
        >>> options |= {"training": pluribus.Training(steps=2), "network": "mlp", "out": folder}
        >>> build = lambda: pluribus.backbones.mlp(2, 2)
        >>> records = pluribus.compare(build, two_moons(train=40), [DeepEnsembles(members=2)], **options)
        >>> pluribus.load_run(folder).predict(torch.zeros(3, 2))
        CategoricalPrediction(3 samples by 2 members, outputs of shape (2,))
    """
    run, choice = chosen_run(Path(folder))
    if choice:
        LOGGER.info(choice)
    document = read_run(run)
    if not (run / SIGNATURE).is_file():
        raise SettingError(
            f"{run} must hold {SIGNATURE}, got none: an early version wrote it. Train again, or use "
            "`pluribus predict`, which reads the training data."
        )
    signature = Signature.load(run)
    if network is None:
        # No file leads to code that is imported: names of files are looked up among the built-in networks.
        if not has_built_in_network(document):
            raise SettingError(
                f"{run} was made with a network of your own, {shown(document['model'])}, and code is never "
                "taken from a file. Pass it again: load_run(folder, network=build())."
            )
        network = Build(document["model"], signature)()
    return LoadedRun(run, load_checked(run, document, network, signature.example()), signature)


def predicted(ensemble: Ensemble, signature: Signature, raw: RawInputs) -> Prediction:
    """Return the prediction of an ensemble in eval mode for raw inputs, in the units of the network."""
    values = raw.values if isinstance(raw.values, dict) else signature.prepare(raw.values)
    return ensemble.predict(signature.call(values).to(ensemble.device), chunk=CHUNK)
