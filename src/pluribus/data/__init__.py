"""Tasks: data to train and to measure on, embedded, from a data folder, or from files of one's own.

Names are imported when they are first used: a server reads the columns of a table without PyTorch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pluribus.data.corruptions import EXTRA_KINDS, KINDS, corrupt
    from pluribus.data.csv_task import csv_file
    from pluribus.data.digits_task import digits
    from pluribus.data.image_folders import image_folder
    from pluribus.data.images import image_set, medmnist
    from pluribus.data.npz_task import npz_file
    from pluribus.data.registry import TASKS, load_task
    from pluribus.data.scaling import Scaling
    from pluribus.data.shifted import SEVERITIES, Shifted
    from pluribus.data.signature import Signature
    from pluribus.data.split import Split
    from pluribus.data.splits import Sizes
    from pluribus.data.table_task import frame_task
    from pluribus.data.tabular import diabetes, uci
    from pluribus.data.task import Task
    from pluribus.data.tiny_imagenet_task import tiny_imagenet
    from pluribus.data.toy import sign_network, two_moons, two_sinusoids

__all__ = [
    "EXTRA_KINDS",
    "KINDS",
    "SEVERITIES",
    "TASKS",
    "Scaling",
    "Shifted",
    "Signature",
    "Sizes",
    "Split",
    "Task",
    "corrupt",
    "csv_file",
    "diabetes",
    "digits",
    "frame_task",
    "image_folder",
    "image_set",
    "load_task",
    "medmnist",
    "npz_file",
    "sign_network",
    "tiny_imagenet",
    "two_moons",
    "two_sinusoids",
    "uci",
]

# No module has the name of a function that it holds: importing it would hide the function.
_HOMES = {
    "corruptions": ("EXTRA_KINDS", "KINDS", "corrupt"),
    "csv_task": ("csv_file",),
    "digits_task": ("digits",),
    "image_folders": ("image_folder",),
    "images": ("image_set", "medmnist"),
    "npz_task": ("npz_file",),
    "registry": ("TASKS", "load_task"),
    "scaling": ("Scaling",),
    "shifted": ("SEVERITIES", "Shifted"),
    "signature": ("Signature",),
    "split": ("Split",),
    "splits": ("Sizes",),
    "table_task": ("frame_task",),
    "tabular": ("diabetes", "uci"),
    "task": ("Task",),
    "tiny_imagenet_task": ("tiny_imagenet",),
    "toy": ("sign_network", "two_moons", "two_sinusoids"),
}
"""By module, the public names that it holds."""
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __dir__() -> list[str]:
    return __all__


# Type checkers read the imports above, and report names that do not exist.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
        globals()[name] = value
        return value
