"""Check `ensemble.json`, the settings of a saved ensemble, before anything is built from them."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from pluribus.calibration_file import SCHEMA as CALIBRATION_SCHEMA
from pluribus.calibration_record import MAHALANOBIS, Calibration
from pluribus.errors import CheckpointError, SettingError
from pluribus.likelihood import Likelihood
from pluribus.method import Method
from pluribus.metrics.ood import CRITERIA
from pluribus.prediction import (
    BernoulliPrediction,
    CategoricalPrediction,
    GaussianPrediction,
    PointPrediction,
    Prediction,
)
from pluribus.saving import CALIBRATION, REMEDY, SETTINGS
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
        CALIBRATION: Optional(CALIBRATION_SCHEMA),
    },
    others=True,
)

PREDICTIONS: dict[str, type[Prediction]] = {
    "categorical": CategoricalPrediction,
    "bernoulli": BernoulliPrediction,
    "gaussian": GaussianPrediction,
    "point": PointPrediction,
}
"""Predictions by the kind of likelihood, to know which scores they have."""

COPIES = ("members", "options", "inputs")
"""Settings that multiply tensors: a file of such an ensemble has an axis at least as long."""
MOST_UNSEEN = 10_000
"""Most copies before an ensemble was shrunk; its file holds only some of them."""
# A setting may have a type that no check expects, such as an object where a list of names belongs.
WRONG_TYPE = (TypeError, ValueError, AttributeError, KeyError)


def check_document(settings: Mapping[str, Any], path: str | Path) -> None:
    """Raise `CheckpointError` unless `ensemble.json` matches its schema."""
    try:
        SCHEMA.check(settings, "")
    except Mismatch as error:
        raise CheckpointError(f"{Path(path) / SETTINGS} is damaged or foreign: {error}. {REMEDY}") from error


def methods_of(settings: Mapping[str, Any], path: str | Path) -> tuple[Method, Likelihood]:
    """Return the method and the likelihood of a document, looked up by name in the registries."""
    method = read_method(settings["method"], path)
    try:
        return method, Likelihood.from_dict(settings["likelihood"])
    except SettingError:
        raise
    except WRONG_TYPE as error:
        raise _foreign(error, path) from error


def read_method(values: Mapping[str, Any], path: str | Path) -> Method:
    """Return one method of a document, looked up by name in the registry."""
    try:
        return Method.from_dict(values)
    except SettingError:
        raise
    except WRONG_TYPE as error:
        raise _foreign(error, path) from error


def check_counts(
    method: Method, header: Mapping[str, Stored], settings: Mapping[str, Any], path: str | Path
) -> None:
    """Raise `CheckpointError` if a setting asks for more copies than the file holds.

    It is called before anything is allocated: a file of a few bytes could otherwise ask for all memory.
    """
    most = 0
    for name, tensor in header.items():
        # A calibration has an axis of up to 10,000 scores, which says nothing about copies.
        if not name.startswith(f"{CALIBRATION}."):
            most = max(most, *tensor.shape, 0)
    if settings.get("shrunk_to") is not None:
        most = max(most, MOST_UNSEEN)
    settable = {field.name for field in fields(method)}
    for name in settable.intersection(COPIES):
        value = getattr(method, name)
        # Only integers count copies; a method may use one of the names for something else.
        if type(value) is int and value > most:
            raise CheckpointError(
                f"{Path(path) / SETTINGS}: field method.{name} must be at most {most}, the longest "
                f"axis of the saved tensors, got {value}. {REMEDY}"
            )


def check_score(calibration: Calibration | None, likelihood: Likelihood, path: str | Path) -> None:
    """Raise `CheckpointError` if predictions of the likelihood do not have the score of a calibration."""
    if calibration is None or calibration.score in ("", MAHALANOBIS):
        return
    kinds = CRITERIA[calibration.score].kinds
    if not issubclass(PREDICTIONS.get(likelihood.kind(), Prediction), kinds):
        raise CheckpointError(
            f"{Path(path) / SETTINGS}: field calibration.score must suit {likelihood}, got "
            f"{calibration.score}. {REMEDY}"
        )


def _foreign(error: Exception, path: str | Path) -> CheckpointError:
    return CheckpointError(
        f"{Path(path) / SETTINGS} is damaged or foreign: settings of the method or likelihood are of the "
        f"wrong type ({error}). {REMEDY}"
    )
