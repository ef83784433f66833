"""Check the stored trials of a study before a search reads them: a database may be damaged or foreign.

Optuna trusts its tables, so that a wrong cell of them would end in any error, hours later.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from optuna.exceptions import StorageInternalError
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from pluribus.errors import PluribusError
from pluribus.schema import Anything, Fields, Items, Named, Number, Optional, Schema, Text, shown
from pluribus.search.fingerprint import ATTRIBUTE
from pluribus.search.space import Space
from pluribus.search.storage import Storage, StorageError

if TYPE_CHECKING:
    from pluribus.search.queue import Queue

NUMBERS = Named(Number())
VALUES = Items(Number())
ATTRIBUTES: Schema = Fields(
    optional={
        "label": Text(),
        "key": Text(64, r"[0-9A-Za-z_-]*", "letters and digits"),
        "cost": NUMBERS,
        "metrics": NUMBERS,
        "budget": Number(),
        "halved": Text(),
        "skipped": Text(),
        # Of the user's code, as long as it likes.
        "error": Text(10_000_000),
        "worker": Fields({"host": Text(), "lease": Text()}),
    },
    others=True,
)
"""What workers store with a trial."""
MEASURED = ("label", "key", "cost", "metrics")
"""What a measured trial has."""


def stored_parts(queue: "Queue", place: Storage) -> dict[str, Any] | None:
    """Return the parts of the fingerprint that a study was begun with; None if it is new.

    Args:
        queue: The study.
        place: Its database.
    """
    with readable(place):
        parts = queue.user_attrs.get(ATTRIBUTE)
        Optional(Named(Anything())).check(parts, ATTRIBUTE)
    return parts


@contextlib.contextmanager
def readable(place: Storage) -> Iterator[None]:
    """Turn what Optuna raises for damaged cells into a `StorageError`."""
    try:
        yield
    # The database cannot be reached: the message for this is made elsewhere, as of all errors of ours.
    except (SQLAlchemyError, StorageInternalError, PluribusError):
        raise
    # Optuna reads cells without a check, and raises whatever Python does.
    except Exception as error:
        reason = str(error) if isinstance(error, ValueError) else repr(error)
        raise StorageError(
            f"{place.shown} must be a study as a search wrote it, got a damaged or foreign one: "
            f"{shown(reason)}. Give another --out or --name."
        ) from error


def check_stored(queue: "Queue", place: Storage, space: Space, objectives: int, flat: bool) -> None:
    """Raise `StorageError` unless all trials of a study can be read and fit the search.

    Args:
        queue: The study.
        place: Its database.
        space: The space of the search.
        objectives: How many values a measured trial has.
        flat: Whether parameters are named as in a flat space.
    """
    with readable(place):
        # Optuna fails every trial of a study that has other objectives, and the search would never end.
        if len(queue.directions) != objectives:
            raise ValueError(f"the study must have {objectives} objectives, got {len(queue.directions)}")
        _check_trials(queue.get_trials(deepcopy=False), space, objectives, flat)


def _check_trials(trials: Sequence[FrozenTrial], space: Space, objectives: int, flat: bool) -> None:
    for trial in trials:
        where = f"trial {trial.number}"
        ATTRIBUTES.check(trial.user_attrs, where)
        if trial.state != TrialState.COMPLETE:
            continue
        missing = [name for name in MEASURED if name not in trial.user_attrs]
        if missing or len(trial.values) != objectives:
            raise ValueError(f"{where} must have {objectives} values, {', '.join(MEASURED)}")
        # Every trial has it, also where multiply-adds cannot be counted; the page shows it.
        if "parameters_ratio" not in trial.user_attrs["cost"]:
            raise ValueError(f"{where}.cost must have parameters_ratio")
        # SQLite stores a text in a column of numbers where it gets one.
        VALUES.check(trial.values, f"{where}.values")
        try:
            space.configuration(trial.params, flat)
        except StopIteration as error:
            raise ValueError(f"{where} must be of a method of the space") from error
