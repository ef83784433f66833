"""The tasks by name, and the function that loads one of them."""

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pluribus.data.csv_task import csv_file
from pluribus.data.digits_task import digits
from pluribus.data.image_folders import image_folder
from pluribus.data.images import MEDICAL_CLASSES, OOD, image_set, medmnist
from pluribus.data.npz_task import npz_file
from pluribus.data.splits import Sizes
from pluribus.data.tabular import UCI, diabetes, uci
from pluribus.data.task import Task
from pluribus.data.tiny_imagenet_task import tiny_imagenet
from pluribus.data.toy import sign_network, two_moons, two_sinusoids
from pluribus.errors import SettingError
from pluribus.ranges import nearest

TASKS: dict[str, Callable[..., Task]] = {
    "digits": digits,
    "diabetes": diabetes,
    "two_moons": two_moons,
    "two_sinusoids": two_sinusoids,
    "sign_network": sign_network,
    **{name: partial(image_set, name) for name in OOD},
    "tiny_imagenet": tiny_imagenet,
    **{f"{name}_mnist": partial(medmnist, name) for name in MEDICAL_CLASSES},
    **{name: partial(uci, name) for name in UCI},
    "csv": csv_file,
    "npz": npz_file,
    "folder": image_folder,
}
"""Functions that load the tasks, by name."""


def load_task(name: str, data_dir: str | Path | None = None, **options: Any) -> Task:
    """Load a task by its name.

    Args:
        name: One of `TASKS`.
        data_dir: The data folder, for tasks that are read from one; by default that of PLURIBUS_DATA.
        **options: Arguments of the function behind the task.

    Example:
        >>> load_task("two_moons", train=200).train
        Split(200 × [2])
    """
    if name not in TASKS:
        raise SettingError(f"tasks are {', '.join(TASKS)}, got {name!r}.{nearest(str(name), TASKS)}")
    parameters = inspect.signature(TASKS[name]).parameters
    known = [*(p for p in parameters if p not in ("sizes", "data_dir")), *Sizes.__annotations__]
    for option in options:
        if option not in known:
            raise SettingError(
                f"options of the task {name} are {', '.join(known)}, got {option!r}." + nearest(option, known)
            )
    required = [p.name for p in parameters.values() if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    lacking = [option for option in required if option not in options]
    if lacking:
        raise SettingError(f"the task {name} needs {', '.join(required)}, got no {lacking[0]}. Add it.")
    # Tasks that are embedded, or read from a path, take no data folder.
    folder = {"data_dir": data_dir} if "data_dir" in parameters else {}
    return TASKS[name](**folder, **options)
