"""Pluribus: many networks in one. Any `torch.nn.Module` as an efficient ensemble.

Example:
    >>> import pluribus as pl
    >>> from pluribus.methods import BatchEnsemble
    >>> ensemble = pl.convert(torch.nn.Linear(3, 2), BatchEnsemble(members=4))
    >>> ensemble(torch.zeros(7, 3)).shape
    torch.Size([4, 7, 2])

"""

import importlib
from typing import TYPE_CHECKING, Any

from pluribus.deprecation import find_renamed
from pluribus.version import VERSION

if TYPE_CHECKING:
    from pluribus.conversion import convert
    from pluribus.ensemble import Ensemble
    from pluribus.errors import CheckpointError, ConversionError, InputError, PluribusError, SettingError
    from pluribus.likelihood import Bernoulli, Categorical, Gaussian, Likelihood, Point
    from pluribus.loading import from_checkpoints, from_models, load
    from pluribus.mechanisms.graph.cost import Cost, cost
    from pluribus.method import Method
    from pluribus.prediction import Prediction

__version__ = VERSION

_HOMES = {
    "pluribus.conversion": ("convert",),
    "pluribus.ensemble": ("Ensemble",),
    "pluribus.errors": ("CheckpointError", "ConversionError", "InputError", "PluribusError", "SettingError"),
    "pluribus.likelihood": ("Bernoulli", "Categorical", "Gaussian", "Likelihood", "Point"),
    "pluribus.loading": ("from_checkpoints", "from_models", "load"),
    "pluribus.mechanisms.graph.cost": ("Cost", "cost"),
    "pluribus.method": ("Method",),
    "pluribus.prediction": ("Prediction",),
}
_RENAMED = {"pack": "from_models"}
_FOLDERS = ("backbones", "comparison", "data", "methods", "metrics", "report", "training")
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Bernoulli",
    "Categorical",
    "CheckpointError",
    "ConversionError",
    "Cost",
    "Ensemble",
    "Gaussian",
    "InputError",
    "Likelihood",
    "Method",
    "PluribusError",
    "Point",
    "Prediction",
    "SettingError",
    "convert",
    "cost",
    "from_checkpoints",
    "from_models",
    "load",
]


def __getattr__(name: str) -> Any:
    """Import a public name, or a folder, when it is first used."""
    # Importing torch takes seconds, and the command line prints its first line before that.
    if name in _FOLDERS:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _RENAMED:
        __getattr__(_RENAMED[name])
    if name not in _HOME:
        return find_renamed(__name__, globals(), _RENAMED, name)
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
