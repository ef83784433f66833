"""Candidate: one configuration of a search, with all that defines its run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from pluribus.comparison.record import key_of
from pluribus.comparison.run_folder import RUNS
from pluribus.conversion import convert
from pluribus.data.task import Task
from pluribus.ensemble import Ensemble
from pluribus.errors import ConversionError, SettingError
from pluribus.fingerprint import digest
from pluribus.mechanisms.network.dry_run import seeded
from pluribus.methods.early_exit import EarlyExit
from pluribus.methods.single import Single
from pluribus.network_name import with_sizes
from pluribus.report.groups import label
from pluribus.search.space import Configuration
from pluribus.search.validation import without_test
from pluribus.training.hardware import Hardware
from pluribus.training.settings import Training

Build = Callable[..., nn.Module]
AUTOMATIC = Hardware()
NO_SIZES: Mapping[str, Any] = MappingProxyType({})
"""A network as it is."""


@dataclass(frozen=True, eq=False)
class Problem:
    """Everything that all trials of a search share.

    Attributes:
        build: Makes the network; takes `width=` or `depth=` if these vary.
        task: The data.
        network: Name of the network.
        training: Settings of training, before a configuration changes them.
        out: The folder of the search.
        seed: Of initial weights and training.
        recipes: Train each method by its recipe.
        source: Name and options of the task on the command line.
        timed: Measure the time of a prediction of each trial; it takes long, and differs between machines.
        hardware: Device and precision of training, which only in the latter are part of the keys of records.
    """

    build: Build
    task: Task
    network: str
    training: Training
    out: Path
    seed: int = 0
    recipes: bool = True
    source: tuple[str, Sequence[str]] | None = None
    timed: bool = False
    hardware: Hardware = AUTOMATIC

    @cached_property
    def blind(self) -> Task:
        """Return the task without its test data."""
        return without_test(self.task)

    @cached_property
    def single(self) -> Ensemble:
        """Return the network as the user gave it, alone: costs are relative to it."""
        return self.convert(Single())

    def single_on(self, device: torch.device) -> Ensemble:
        """Return the network alone on the device of an ensemble that is measured."""
        return self.single.to(device)

    def describe(self, training: Training) -> dict[str, Any]:
        """Return the settings of a training as records have them, with any precision but float32."""
        found = training.to_dict()
        if not self.hardware.is_plain:
            found["precision"] = self.hardware.precision
        return found

    @cached_property
    def digest(self) -> str:
        """Return the digest of the network, as `compare` has it: code can change under one name."""
        return digest(replace(self, seed=0).single, self.task.train.example().inputs)

    @cached_property
    def depths(self) -> int | None:
        """Return how many exits the network can have; None if none are found."""
        try:
            return len(self.convert(EarlyExit()).weights)
        except ConversionError:
            return None

    def convert(self, method: Any, sizes: Mapping[str, Any] = NO_SIZES) -> Ensemble:
        """Return the network, initialised by the seed of the search, as an ensemble."""
        with seeded(self.seed):
            network = self.make(sizes)
        options: dict[str, Any] = {
            "likelihood": self.task.likelihood,
            "example": self.task.train.example_for(network),
            "seed": self.seed,
        }
        return convert(network, method, **options)

    def make(self, sizes: Mapping[str, Any] = NO_SIZES) -> nn.Module:
        """Return the network with a width, a depth, both or neither."""
        if not sizes:
            return self.build()
        names = " and ".join(f"{name}=" for name in sizes)
        try:
            return self.build(**sizes)
        except TypeError as error:
            raise SettingError(
                f"a search over the size of a network needs one that is made with {names}, got: {error}. "
                f"Give the function that makes it {names}, or take this out of the space."
            ) from error


@dataclass(frozen=True, eq=False)
class Candidate:
    """One configuration to try."""

    problem: Problem
    configuration: Configuration

    @property
    def training(self) -> Training:
        """Return the settings of its training."""
        given = dict(self.configuration.training)
        task, base = self.problem.task, self.problem.training.suited_to(self.problem.task.train)
        # At most one of both may be given.
        if "steps" in given:
            base = replace(base, epochs=None)
        trained = replace(base, **given, seed=self.problem.seed).resolved(len(task.train))
        if not self.problem.recipes:
            return trained
        followed = trained.following(self.configuration.method.recipe(), len(task.train))
        # A setting that the search varies is no longer the recipe's.
        kept = {name: value for name, value in given.items() if name == "weight_decay"}
        return replace(followed, **kept)

    @property
    def network(self) -> str:
        """Return the name of its network, with the sizes that vary: `cnn(width=8)`."""
        return with_sizes(self.problem.network, self.configuration.sizes)

    @cached_property
    def key(self) -> str:
        """Return the key of its record: equal configurations have equal keys."""
        return self.key_in_comparison(shifted=False)

    def key_in_comparison(self, shifted: bool) -> str:
        """Return the key that `compare` gives to a run of the same settings."""
        problem = self.problem
        settings = (self.configuration.method.to_dict(), repr(problem.task), self.network, problem.seed)
        trained = problem.describe(self.training)
        return key_of(*settings, trained, shifted, problem.task.fingerprint, problem.digest)

    @property
    def label(self) -> str:
        """Return its name for a reader."""
        settings = self.configuration.method.to_dict()
        parts = [label({name: _rounded(value) for name, value in settings.items()})]
        parts += [f"{name}={_rounded(value)}" for name, value in self.configuration.training.items()]
        parts += [f"{name}={value}" for name, value in self.configuration.sizes.items()]
        return ", ".join(parts)

    @property
    def folder(self) -> Path:
        """Return the folder of its checkpoint and its trained ensemble."""
        kind = self.configuration.method.kind()
        return self.problem.out / RUNS / f"{kind}-{self.problem.seed}-{self.key}"

    def convert(self) -> Ensemble:
        """Return its ensemble, not trained."""
        return self.problem.convert(self.configuration.method, self.configuration.sizes)


def _rounded(value: Any) -> Any:
    """Return a number with three digits, for a reader; pairs likewise."""
    if isinstance(value, tuple):
        return tuple(map(_rounded, value))
    return float(f"{value:.3g}") if isinstance(value, float) else value
