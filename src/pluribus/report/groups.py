"""Groups: records that answer one question, one network on one task, by configuration and seed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from pluribus import methods
from pluribus.comparison.record import Record
from pluribus.settings import snake_case

UNTOLD = ("kind", "version", "seed")
"""Settings that do not tell configurations apart."""


@dataclass(frozen=True)
class Entry:
    """One configuration: a method with its settings, trained in one way.

    Args:
        label: Its name; no other entry of the group has it.
        runs: Its sound records, one for each seed, the last that came, by seed.
        failures: Those of runs that failed.
        repeated: Seeds that came more than once.
    """

    label: str
    runs: tuple[Record, ...]
    failures: tuple[Record, ...] = ()
    repeated: tuple[int, ...] = ()

    @property
    def kind(self) -> str:
        """The method."""
        return str((self.runs or self.failures)[0].method["kind"])


@dataclass(frozen=True)
class Group:
    """One network on one task.

    Args:
        task: Its name.
        sizes: What the task holds.
        network: What was made into ensembles.
        entries: Configurations with at least one sound run, in the order they came.
        lost: Those without.
    """

    task: str
    sizes: str
    network: str
    entries: tuple[Entry, ...]
    lost: tuple[Entry, ...] = ()

    @property
    def title(self) -> str:
        """`digits · cnn`."""
        return f"{self.task} · {self.network}"

    @property
    def training(self) -> str:
        """How all runs were trained, as far as they were trained alike."""
        trained = [run.training for run in self.records]
        apart = _differing(trained)
        alike = {name: value for name, value in trained[0].items() if name not in apart} if trained else {}
        words = {
            "epochs": "{} epochs",
            "steps": "{} steps",
            "batch": "batches of {}",
            "lr": "learning rate {}",
        }
        told = ", ".join(
            word.format(alike[name]) for name, word in words.items() if alike.get(name) is not None
        )
        return told and f"trained: {told}"

    @property
    def single(self) -> Entry | None:
        """The yardstick: the network itself."""
        return next((entry for entry in self.entries if entry.kind == "single"), None)

    @property
    def records(self) -> list[Record]:
        """All sound ones."""
        return [run for entry in self.entries for run in entry.runs]

    @property
    def failures(self) -> list[tuple[str, Record]]:
        """Runs that failed, with the label of their configuration."""
        return [(entry.label, run) for entry in (*self.entries, *self.lost) for run in entry.failures]


def group_records(records: Sequence[Record]) -> list[Group]:
    """Records by network and task, in the order they came."""
    places: dict[tuple[str, str], list[Record]] = {}
    for one in records:
        places.setdefault((one.task, one.network), []).append(one)
    return [_group(task, network, members) for (task, network), members in places.items()]


def label(settings: dict[str, Any]) -> str:
    """A method's name, with those of its settings that are not the usual ones, as one would write it."""
    known = methods.__dict__.get(class_name(settings["kind"]))
    usual = {field.name: _as_read(field.default) for field in fields(known)} if known else {}
    unusual = {n: v for n, v in settings.items() if n not in UNTOLD and usual.get(n) != _as_read(v)}
    shown = ", ".join(f"{name}={value}" for name, value in unusual.items())
    return f"{settings['kind']}({shown})" if shown else str(settings["kind"])


def _as_read(value: Any) -> Any:
    """A setting as it comes out of a file, where tuples are lists."""
    return list(value) if isinstance(value, tuple) else value


def class_name(kind: str) -> str:
    """The class of a method's kind among all methods, or nothing."""
    return next((name for name in methods.__all__ if snake_case(name) == kind), "")


def _group(task: str, network: str, records: Sequence[Record]) -> Group:
    by_method: dict[str, list[Record]] = {}
    for one in records:
        by_method.setdefault(label(one.method), []).append(one)
    found: dict[str, list[Record]] = {}
    for name, alike in by_method.items():
        # Methods have recipes of their own, so only runs of one method are told apart by their training.
        differing = _differing([one.training for one in alike])
        for one in alike:
            trained = [f"{setting}={one.training.get(setting)}" for setting in differing]
            found.setdefault(", ".join((name, *trained)), []).append(one)
    entries = [_entry(name, runs) for name, runs in found.items()]
    parts = re.fullmatch(r"Task\((.*?): (.*)\)", task, re.DOTALL)
    name, sizes = parts.groups() if parts else (task, "")
    sound, lost = (tuple(e for e in entries if bool(e.runs) is wanted) for wanted in (True, False))
    return Group(name, sizes, network, sound, lost)


def _entry(name: str, records: Sequence[Record]) -> Entry:
    sound = [one for one in records if not one.error]
    runs = {one.seed: one for one in sound}
    repeated = (seed for seed in sorted(runs) if sum(one.seed == seed for one in sound) > 1)
    failures = tuple(one for one in records if one.error)
    return Entry(name, tuple(runs[seed] for seed in sorted(runs)), failures, tuple(repeated))


def _differing(trainings: Sequence[dict[str, Any]]) -> list[str]:
    """Settings of training, in order, that not all runs share."""
    names = dict.fromkeys(name for one in trainings for name in one if name not in UNTOLD)
    return [name for name in names if len({str(one.get(name)) for one in trainings}) > 1]
