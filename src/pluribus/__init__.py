"""Pluribus: many networks in one. Any `torch.nn.Module` as an efficient ensemble.

Example:
    >>> import pluribus as pl
    >>> from pluribus.methods import BatchEnsemble
    >>> ensemble = pl.convert(torch.nn.Linear(3, 2), BatchEnsemble(members=4))
    >>> ensemble(torch.zeros(7, 3)).shape
    torch.Size([4, 7, 2])

"""

from pluribus.conversion import convert
from pluribus.ensemble import Ensemble
from pluribus.errors import CheckpointError, ConversionError, InputError, PluribusError, SettingError
from pluribus.likelihood import Bernoulli, Categorical, Gaussian, Likelihood, Point
from pluribus.loading import from_checkpoints, load, pack
from pluribus.mechanisms.graph.cost import Cost, cost
from pluribus.method import Method
from pluribus.prediction import Prediction
from pluribus.version import VERSION

__version__ = VERSION

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
    "load",
    "pack",
]
