"""`ensemble.json`: the settings of a saved ensemble, checked before anything is built from them."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from pluribus.checkpoint import REMEDY, SETTINGS
from pluribus.errors import CheckpointError, SettingError
from pluribus.likelihood import Likelihood
from pluribus.method import Method
from pluribus.schema import (
    Either,
    Fields,
    Flag,
    Items,
    Mismatch,
    Number,
    Optional,
    Schema,
    Text,
    Whole,
)
from pluribus.untrusted import Stored

VALUE = Fields({"kind": Text(most=100), "version": Whole(least=1)}, others=True)
"""A method or likelihood; `Settings.from_dict` checks the rest."""
SELECTED = Fields(
    {
        "name": Text(),
        "settings": Optional(VALUE),
        "reason": Text(),
        "picked": Flag(),
        "overridden": Flag(),
    },
    others=True,
)
RANKING = Fields({"order": Items(Whole()), "scores": Items(Optional(Number())), "metric": Text()})
SCHEMA: Schema = Fields(
    {
        "network": Text(),
        "method": VALUE,
        "likelihood": VALUE,
        "selection": Items(SELECTED, most=1_000_000),
        "output_is_function": Flag(),
        # A seed may be of any size; this is larger than any that is meant.
        "seed": Whole(most=1 << 256),
    },
    {
        "output": Optional(Either((Text(), Whole(least=-1000, most=1000)))),
        "shrunk_to": Optional(Items(Whole(), most=1_000_000)),
        "ranking": Optional(RANKING),
    },
    others=True,
)

COPIES = ("members", "options", "inputs")
"""Settings that multiply tensors: a file of such an ensemble has an axis at least as long."""
MOST_UNSEEN = 10_000
"""Most copies of which a file holds only some: those of a shrunk ensemble."""


def check_document(settings: Mapping[str, Any], path: str | Path) -> None:
    """Raise `CheckpointError` unless `ensemble.json` matches its schema."""
    try:
        SCHEMA.check(settings, "")
    except Mismatch as error:
        raise CheckpointError(f"{Path(path) / SETTINGS} is damaged or foreign: {error}. {REMEDY}") from error


def methods_of(settings: Mapping[str, Any], path: str | Path) -> tuple[Method, Likelihood]:
    """Return the method and the likelihood of a document, looked up by their names in the registries."""
    try:
        return read_method(settings["method"], path), Likelihood.from_dict(settings["likelihood"])
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise _foreign(error, path) from error


def read_method(values: Mapping[str, Any], path: str | Path) -> Method:
    """Return one method of a document."""
    try:
        return Method.from_dict(values)
    except SettingError:
        raise
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        # A setting of another type than any check expects, such as an object where a list of names belongs.
        raise _foreign(error, path) from error


def check_counts(
    method: Method, header: Mapping[str, Stored], settings: Mapping[str, Any], path: str | Path
) -> None:
    """Raise where a setting asks for more copies than the file has, before any of them is allocated."""
    longest = max((size for tensor in header.values() for size in tensor.shape), default=0)
    most = max(longest, MOST_UNSEEN) if settings.get("shrunk_to") is not None else longest
    for field in fields(method):
        value = getattr(method, field.name)
        if field.name in COPIES and type(value) is int and value > most:
            raise CheckpointError(
                f"{Path(path) / SETTINGS}: field method.{field.name} must be at most {most}, the longest "
                f"axis of the saved tensors, got {value}. {REMEDY}"
            )


def _foreign(error: Exception, path: str | Path) -> Exception:
    if isinstance(error, SettingError):
        return error
    return CheckpointError(
        f"{Path(path) / SETTINGS} is damaged or foreign: settings of the method or likelihood are of the "
        f"wrong type ({error}). {REMEDY}"
    )
