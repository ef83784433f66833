"""Settings inside of an estimator's parameters, by names such as `method__members`.

scikit-learn reads and sets nested parameters through `get_params` and `set_params` of the value. Methods and
trainings are frozen values and have neither: a change makes a new value.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from pluribus.errors import SettingError
from pluribus.method_text import read_method
from pluribus.settings import Settings
from pluribus.training.settings import Training

NESTED = ("method", "training")
"""Parameters of estimators whose settings have names of their own."""


def read_settings(name: str, value: Any) -> Settings | None:
    """Return the settings that a parameter stands for; None where it stands for none.

    Args:
        name: One of `NESTED`.
        value: Of the parameter: settings, the text of a method, or None for the default training.
    """
    if isinstance(value, Settings):
        return value
    if name == "training":
        return Training() if value is None else None
    if not isinstance(value, str):
        return None
    try:
        return read_method(value)
    # Parameters are checked when an estimator is fitted, not when they are listed.
    except SettingError:
        return None


def list_settings(name: str, value: Any) -> dict[str, Any]:
    """Return the settings inside of a parameter by their nested names."""
    settings = read_settings(name, value)
    if settings is None:
        return {}
    return {f"{name}__{one.name}": getattr(settings, one.name) for one in fields(settings)}


def change_settings(name: str, value: Any, changes: Mapping[str, Any]) -> Settings:
    """Return the settings of a parameter with changes.

    Raises:
        SettingError: The parameter holds no settings, or a name or value does not suit them.
    """
    settings = read_settings(name, value)
    if settings is None:
        raise SettingError(
            f"{name} must hold settings, so that {name}__{next(iter(changes))} can be set, got {value!r}."
        )
    settings.check_names(changes)
    return replace(settings, **changes)


def split_nested(params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return plain parameters, and nested ones by the parameter that they change."""
    plain: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    for key, value in params.items():
        name, delimiter, setting = key.partition("__")
        if delimiter and name in NESTED:
            nested.setdefault(name, {})[setting] = value
        else:
            plain[key] = value
    return plain, nested
