"""The same methods on ResNet-18 as torch-uncertainty builds them, where that is installed.

Its classification networks need torch and einops alone, while its package imports lightning, torchvision and
plotting. The packages are therefore entered without running what they import for everything else.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

PACKAGE = "torch_uncertainty"
NETWORK = "resnet18"


def is_installed() -> bool:
    """Return whether torch-uncertainty can be measured."""
    return all(find_spec(name) is not None for name in (PACKAGE, "einops"))


def peer_networks(members: int, draws: int, rate: float) -> dict[str, Callable[[], nn.Module]]:
    """Return builders of ResNet-18 by the name of our method; `Single` is the plain network.

    Args:
        members: Of the methods with members.
        draws: Of MC dropout.
        rate: Of dropout.
    """
    _enter()
    resnets: Any = import_module(f"{PACKAGE}.models.classification.resnet")
    dropout: Any = import_module(f"{PACKAGE}.methods.mc_dropout")
    common = {"in_channels": 3, "num_classes": 10, "arch": 18, "style": "cifar", "conv_bias": False}

    def mc_dropout() -> nn.Module:
        found: nn.Module = dropout.mc_dropout(resnets.resnet(**common, dropout_rate=rate), draws)
        return found

    return {
        "Single": lambda: resnets.resnet(**common),
        "PackedEnsembles": lambda: resnets.packed_resnet(**common, num_estimators=members, alpha=2, gamma=1),
        "BatchEnsemble": lambda: resnets.batched_resnet(**common, num_estimators=members),
        "Masksembles": lambda: resnets.masked_resnet(**common, num_estimators=members, scale=2.0),
        "MIMO": lambda: resnets.mimo_resnet(**common, num_estimators=2),
        "MCDropout": mc_dropout,
    }


def _enter() -> None:
    """Make the packages known without running their `__init__`, which imports all of the library."""
    found = find_spec(PACKAGE)
    assert found is not None
    assert found.submodule_search_locations is not None
    root = Path(found.submodule_search_locations[0])
    for name in ("", ".utils", ".models", ".models.classification", ".methods"):
        module = ModuleType(PACKAGE + name)
        module.__path__ = [str(root.joinpath(*name.split(".")))]
        module.__spec__ = ModuleSpec(module.__name__, None, is_package=True)
        sys.modules[module.__name__] = module
    # Downloads weights, which nothing here does; the packed networks import it.
    vars(sys.modules[f"{PACKAGE}.utils"])["load_hf"] = None
