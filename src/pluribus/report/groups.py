"""Groups: records that answer one question, one network on one task, by configuration and seed."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from pluribus import methods
from pluribus.comparison.record import Record
from pluribus.settings import snake_case

# Settings that do not tell configurations apart.
UNTOLD = ("kind", "version", "seed")
# How the training that all runs share is described, in this order.
TRAINING_WORDS = {
    "epochs": "{} epochs",
    "steps": "{} steps",
    "batch": "batches of {}",
    "lr": "learning rate {}",
    "train_for": "held equal: {}",
}
# How a task describes itself in a record: its name, and its sizes.
TASK = re.compile(r"Task\((.*?): (.*)\)", re.DOTALL)


@dataclass(frozen=True)
class Entry:
    """One configuration: a method with its settings, trained in one way.

    Args:
        label: Its name; no other entry of the group has it.
        runs: Its records of runs that succeeded, one for each seed, the last that came, by seed.
        failures: Its records of runs that failed.
        repeated: Seeds that came more than once.
    """

    label: str
    runs: tuple[Record, ...]
    failures: tuple[Record, ...] = ()
    repeated: tuple[int, ...] = ()

    @property
    def kind(self) -> str:
        """Return the kind of its method."""
        return str((self.runs or self.failures)[0].method["kind"])


@dataclass(frozen=True)
class Group:
    """One network on one task.

    Args:
        task: Its name.
        sizes: The sizes of its data sets, in words.
        network: Name of the network that ensembles were made of.
        entries: Configurations with at least one run that succeeded, in the order they came.
        lost: Configurations without one.
    """

    task: str
    sizes: str
    network: str
    entries: tuple[Entry, ...]
    lost: tuple[Entry, ...] = ()

    @property
    def title(self) -> str:
        """Return task and network, as in `digits · cnn`."""
        return f"{self.task} · {self.network}"

    @property
    def training(self) -> str:
        """Return how all runs were trained, as far as they were trained alike; empty without runs."""
        trained = [run.training for run in self.records]
        if not trained:
            return ""
        differing = _differing(trained)
        parts = []
        for name, words in TRAINING_WORDS.items():
            if trained[0].get(name) is not None and name not in differing:
                parts.append(words.format(trained[0][name]))
        return f"trained: {', '.join(parts)}" if parts else ""

    @property
    def single(self) -> Entry | None:
        """Return the configuration that all are compared with: the network itself."""
        return next((entry for entry in self.entries if entry.kind == "single"), None)

    @property
    def records(self) -> list[Record]:
        """Return the records of all runs that succeeded."""
        return [run for entry in self.entries for run in entry.runs]

    @property
    def failures(self) -> list[tuple[str, Record]]:
        """Return the runs that failed, with the labels of their configurations."""
        found = []
        for entry in (*self.entries, *self.lost):
            found += [(entry.label, run) for run in entry.failures]
        return found


def group_records(records: Sequence[Record]) -> list[Group]:
    """Group records by task and network, in the order they came; other data is another task."""
    places: dict[tuple[str, str, str], list[Record]] = {}
    for one in records:
        places.setdefault((one.task, one.network, one.data), []).append(one)
    return [_group(task, network, members) for (task, network, _), members in places.items()]


def label(settings: dict[str, Any]) -> str:
    """Return a method's name with the settings that are not its defaults, as in `deep(members=3)`."""
    defaults = _defaults(settings["kind"])
    shown = []
    for name, value in settings.items():
        if name not in UNTOLD and defaults.get(name) != _as_read(value):
            shown.append(f"{name}={value}")
    return f"{settings['kind']}({', '.join(shown)})" if shown else str(settings["kind"])


def _defaults(kind: str) -> dict[str, Any]:
    """Return the default settings of a method; none where the method is not one of this library."""
    known = getattr(methods, class_name(kind), None) if class_name(kind) else None
    return {field.name: _as_read(field.default) for field in fields(known)} if known else {}


def _as_read(value: Any) -> Any:
    """Return a setting as it comes out of a file, where tuples are lists."""
    return list(value) if isinstance(value, tuple) else value


def class_name(kind: str) -> str:
    """Return the name of the class of a method's kind; empty where this library has none."""
    return next((name for name in methods.__all__ if snake_case(name) == kind), "")


def _group(task: str, network: str, records: Sequence[Record]) -> Group:
    """Group the records of one task and network by configuration."""
    by_method: dict[str, list[Record]] = {}
    for one in records:
        by_method.setdefault(label(one.method), []).append(one)
    sound: list[Entry] = []
    lost: list[Entry] = []
    for name, runs in _configurations(by_method).items():
        entry = _entry(name, runs)
        (sound if entry.runs else lost).append(entry)
    # The user may name a task in any way.
    parts = TASK.fullmatch(task)
    title, sizes = parts.groups() if parts else (task, "")
    return Group(title, sizes, network, tuple(sound), tuple(lost))


def _configurations(by_method: dict[str, list[Record]]) -> dict[str, list[Record]]:
    """Split the records of each method by how they were trained."""
    found: dict[str, list[Record]] = {}
    for name, alike in by_method.items():
        # Methods have recipes of their own, so only runs of one method are told apart by their training.
        differing = _differing([one.training for one in alike])
        for one in alike:
            trained = [f"{setting}={one.training.get(setting)}" for setting in differing]
            found.setdefault(", ".join((name, *trained)), []).append(one)
    return found


def _entry(name: str, records: Sequence[Record]) -> Entry:
    """Return a configuration with the last run of each seed."""
    sound = [one for one in records if not one.error]
    failures = tuple(one for one in records if one.error)
    counts = Counter(one.seed for one in sound)
    last = {one.seed: one for one in sound}
    seeds = sorted(last)
    repeated = tuple(seed for seed in seeds if counts[seed] > 1)
    return Entry(name, tuple(last[seed] for seed in seeds), failures, repeated)


def _differing(trainings: Sequence[dict[str, Any]]) -> list[str]:
    """Return the settings of training, in order, that not all runs share."""
    names: dict[str, None] = {}
    for one in trainings:
        names |= dict.fromkeys(one)
    differing = []
    for name in names:
        # Values of a file may be lists, which have no hash.
        values = {str(one.get(name)) for one in trainings}
        if name not in UNTOLD and len(values) > 1:
            differing.append(name)
    return differing
