"""Pluribus: many networks in one. Any `torch.nn.Module` as an efficient ensemble.

Example:
    >>> import pluribus as pl
    >>> ensemble = pl.convert(torch.nn.Linear(3, 2), pl.methods.BatchEnsemble(members=4))
    >>> ensemble(torch.zeros(7, 3)).shape
    torch.Size([4, 7, 2])

"""

import importlib
import logging
from typing import TYPE_CHECKING, Any

from pluribus.version import VERSION as __version__

if TYPE_CHECKING:
    from pluribus import backbones, calibration, comparison, data, methods, metrics, report, search, training
    from pluribus.comparison import compare, doctor, evaluate, finetune
    from pluribus.conversion import convert
    from pluribus.data import Split, Task
    from pluribus.ensemble import Ensemble
    from pluribus.errors import (
        CheckpointError,
        ConversionError,
        ExportError,
        InputError,
        PluribusError,
        SettingError,
    )
    from pluribus.likelihood import Bernoulli, Categorical, Gaussian, Likelihood, Point
    from pluribus.loading import from_checkpoints, from_models, load
    from pluribus.mechanisms.graph.cost import Cost, cost
    from pluribus.mechanisms.running.frozen_reading import load_frozen
    from pluribus.method import Method
    from pluribus.prediction import Prediction
    from pluribus.runs.loaded_run import load_run
    from pluribus.summary import Summary
    from pluribus.training import Training, train

__all__ = [
    "Bernoulli",
    "Categorical",
    "CheckpointError",
    "ConversionError",
    "Cost",
    "Ensemble",
    "ExportError",
    "Gaussian",
    "InputError",
    "Likelihood",
    "Method",
    "PluribusError",
    "Point",
    "Prediction",
    "SettingError",
    "Split",
    "Summary",
    "Task",
    "Training",
    "__version__",
    "backbones",
    "calibration",
    "compare",
    "comparison",
    "convert",
    "cost",
    "data",
    "doctor",
    "evaluate",
    "finetune",
    "from_checkpoints",
    "from_models",
    "load",
    "load_frozen",
    "load_run",
    "methods",
    "metrics",
    "report",
    "search",
    "train",
    "training",
]

# Importing PyTorch takes seconds. Names are imported when they are first used, so that `import pluribus`,
# `pluribus --help` and a server that has no PyTorch do not.
_HOMES = {
    "comparison": ("compare", "doctor", "evaluate", "finetune"),
    "conversion": ("convert",),
    "data": ("Split", "Task"),
    "ensemble": ("Ensemble",),
    "errors": (
        *("CheckpointError", "ConversionError", "ExportError"),
        *("InputError", "PluribusError", "SettingError"),
    ),
    "likelihood": ("Bernoulli", "Categorical", "Gaussian", "Likelihood", "Point"),
    "loading": ("from_checkpoints", "from_models", "load"),
    "mechanisms.graph.cost": ("Cost", "cost"),
    "mechanisms.running.frozen_reading": ("load_frozen",),
    "method": ("Method",),
    "prediction": ("Prediction",),
    "runs.loaded_run": ("load_run",),
    "summary": ("Summary",),
    "training": ("Training", "train"),
}
"""By module, the public names that it holds."""
_FOLDERS = (
    *("backbones", "calibration", "comparison", "data", "methods", "metrics", "report"),
    *("search", "training"),
)
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
_RENAMED = {"pack": "from_models"}

# A library prints nothing unless its user wants it: logging.basicConfig(level="INFO") shows its progress.
logging.getLogger(__name__).addHandler(logging.NullHandler())


def __dir__() -> list[str]:
    return __all__


# Type checkers read the imports above, and report names that do not exist.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _FOLDERS:
            return importlib.import_module(f"{__name__}.{name}")
        if name in _RENAMED:
            from pluribus.deprecation import warn_renamed

            warn_renamed(f"{__name__}.{name}", f"{__name__}.{_RENAMED[name]}")
            name = _RENAMED[name]
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
        globals()[name] = value
        return value
