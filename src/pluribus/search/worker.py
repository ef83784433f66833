"""Worker: takes trials from the queue of a study, runs them, and tells the study what came out."""

import contextlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import optuna
import torch
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState

from pluribus.axes import Between, OneOf, listed
from pluribus.comparison.display import Display, trained
from pluribus.comparison.record import Record
from pluribus.ensemble import Ensemble
from pluribus.errors import ConversionError, SettingError
from pluribus.report.budget import Limit
from pluribus.search.budget import costs_ahead, excess
from pluribus.search.candidate import Candidate, Problem
from pluribus.search.enumeration import default_parameters, first_parameters
from pluribus.search.halving import Halving
from pluribus.search.objectives import CALIBRATED, Objective
from pluribus.search.queue import ERROR, HALVED, KEY, SKIPPED, Queue, QueueEmpty, counts
from pluribus.search.running import run_candidate, stored_record
from pluribus.search.space import Space
from pluribus.search.storage import explaining
from pluribus.search.validation import measure_validation

LABEL, COST, METRICS = "label", "cost", "metrics"
"""User attributes of a trial, besides those of the queue."""
BUDGET = "budget"
IMPOSSIBLE = "impossible"
"""Begins the reason of a trial whose network cannot be had."""
POLL_SECONDS = 1.0
"""How often a worker without trials looks whether others have finished theirs."""
PATIENCE = 10
"""Draws without a trial to run, one after another, after which a configuration is sought at random."""
ATTEMPTS = 200
"""Random configurations that are looked at before a budget counts as impossible."""
FEWEST_ATTEMPTS, SEEKING_SECONDS = 20, 60.0
"""Configurations that are looked at however long it takes, and the time after which no more are."""
MOST_FAILURES = 5
"""Trials that may fail before the first succeeds."""


class TrialFailed(Exception):
    """Raised for a configuration that cannot be trained; the search goes on."""


@dataclass(frozen=True)
class Plan:
    """How a worker searches.

    Attributes:
        space: The configurations.
        objectives: What is made better.
        limits: The budget.
        trials: How many trials the study shall have.
        flat: Draw the settings of all methods in every trial.
        halving: Stops trials early; None lets all finish.
        defaults: Try each method with its own settings before any are drawn.
    """

    space: Space
    objectives: tuple[Objective, ...]
    limits: tuple[Limit, ...]
    trials: int
    flat: bool = False
    halving: Halving | None = None
    defaults: bool = False

    @property
    def first(self) -> list[dict[str, Any]]:
        """Return the parameters of the first trials."""
        listed_ones = first_parameters(self.space, self.flat, most=max(1, self.trials // 2))
        own = default_parameters(self.space, self.flat) if self.defaults else []
        # At least half of the trials are for settings that nobody has thought of.
        if len(own) > self.trials // 2:
            return listed_ones
        return listed_ones + own


def distribution(axis: Between | OneOf) -> BaseDistribution:
    """Return an axis as Optuna's."""
    if isinstance(axis, OneOf):
        return CategoricalDistribution(axis.choices)
    assert not isinstance(axis.high, str)
    if axis.is_whole:
        return IntDistribution(int(axis.low), int(axis.high), log=axis.log)
    return FloatDistribution(axis.low, axis.high, log=axis.log)


def draw_evenly(axis: Between | OneOf, generator: random.Random) -> Any:
    """Return a value of an axis."""
    if axis.is_finite:
        return generator.choice(listed(axis))
    assert isinstance(axis, Between)
    assert not isinstance(axis.high, str)
    if axis.log:
        return axis.low * (axis.high / axis.low) ** generator.random()
    return generator.uniform(axis.low, axis.high)


@final
class Worker:
    """Run trials of a study until none is left.

    Args:
        queue: The study.
        problem: The network, the data and the training.
        plan: How to search.
        display: Shows progress.
    """

    def __init__(self, queue: Queue, problem: Problem, plan: Plan, display: Display) -> None:
        self.queue, self.problem, self.plan, self.display = queue, problem, plan, display
        self.streak = 0
        self.waited = False
        self.first = plan.first
        self.random = random.Random()

    def work(self) -> None:
        """Take trials until all are finished, by this worker or by others.

        Raises:
            SettingError: no configuration is within the budget, or all fail.
            StorageError: the database is gone.
            WriteError: the disk is full. The trial is run again next time.
        """
        # Errors of the database may come out of any step, also from the trial itself.
        with explaining(self.queue.place), self.queue.working():
            self.queue.fill(self.plan.trials, self.first)
            while self._step():
                self._count()
                self.queue.fill(self.plan.trials, self.first)

    def _step(self) -> bool:
        """Run one trial; return False when all are finished."""
        try:
            self.queue.optimize(self._objective, n_trials=1, catch=(TrialFailed,))
        except QueueEmpty:
            if not self.queue.others:
                return False
            self._wait()
        except ValueError as error:
            # The trial was taken for lost while this worker was paused. Whoever runs it finds the record.
            if "Cannot tell a" not in str(error):
                raise
        return True

    def _wait(self) -> None:
        """Wait a little for trials of other processes; if one of these dies, its trial is queued again."""
        if not self.waited:
            self.display.note("waiting", "other processes run the last trials")
        self.waited = True
        time.sleep(POLL_SECONDS)

    def _count(self) -> None:
        """Look at the end of the last trial; seek an affordable configuration if too many were skipped."""
        trials = self.queue.get_trials(deepcopy=False)
        self.display.before = max(0, sum(map(is_finished, trials)) - self.display.finished)
        self._check_failures(trials)
        if self.streak < PATIENCE:
            return
        self.streak = 0
        self.display.note("budget", f"{PATIENCE} draws in a row gave nothing to train; seeking at random")
        found, tried = self._seek(trials)
        if found is not None:
            self.queue.put(found)
            return
        if not any(trial.state == TrialState.COMPLETE for trial in trials):
            raise SettingError(
                f"a budget must allow a configuration, got {', '.join(map(str, self.plan.limits))}: none "
                f"of {tried} configurations is within it. {self._nearest(trials)}"
            )
        raise SettingError(
            f"{self.plan.trials} trials need as many different configurations within the budget, but no "
            "further one was found. Ask for fewer trials, or widen the space or the budget."
        )

    def _check_failures(self, trials: Sequence[FrozenTrial]) -> None:
        failed = [trial for trial in trials if ERROR in trial.user_attrs]
        succeeded = any(trial.state == TrialState.COMPLETE for trial in trials)
        most = MOST_FAILURES + self.plan.trials if succeeded else MOST_FAILURES
        if len(failed) < most:
            return
        raise SettingError(
            f"configurations of the space must be trainable, but {len(failed)} failed, the last "
            f"with: {failed[-1].user_attrs[ERROR]}. Try `pluribus train` with one of them."
        )

    def _nearest(self, trials: Sequence[FrozenTrial]) -> str:
        """Return a sentence on the cheapest configuration that was looked at."""
        costs = [(trial.user_attrs.get(LABEL, ""), trial.user_attrs.get(COST, {})) for trial in trials]
        known = [(excess(cost, self.plan.limits), label) for label, cost in costs if cost]
        if not known:
            return "Raise it."
        (_, reason), label = min(known)
        return f"The nearest is {label}: {reason}."

    def _seek(self, trials: Sequence[FrozenTrial]) -> tuple[dict[str, Any] | None, int]:
        """Return random parameters within the budget that were not tried, and how many were looked at.

        Parameters are None if none are found.
        """
        known = {trial.user_attrs.get(KEY) for trial in trials if counts(trial)}
        began = time.monotonic()
        for tried in range(ATTEMPTS):
            if tried >= FEWEST_ATTEMPTS and time.monotonic() - began > SEEKING_SECONDS:
                return None, tried
            drawn: dict[str, Any] = {}

            def draw(name: str, axis: Between | OneOf, drawn: dict[str, Any] = drawn) -> Any:
                drawn[name] = draw_evenly(axis, self.random)
                return drawn[name]

            with contextlib.suppress(SettingError, ConversionError):
                candidate = Candidate(self.problem, self.plan.space.suggest(draw, self.plan.flat))
                if candidate.key in known:
                    continue
                ensemble = candidate.convert()
                if not excess(self._ahead(ensemble), self.plan.limits)[1]:
                    return drawn, tried + 1
        return None, ATTEMPTS

    def _ahead(self, ensemble: Ensemble) -> dict[str, float]:
        single = self.problem.single_on(ensemble.device)
        return costs_ahead(ensemble, self.problem.blind, single, self.plan.limits)

    def _objective(self, trial: optuna.Trial) -> tuple[float, ...]:
        """Run one trial, and return its values."""
        try:
            values = self._run(trial)
        except optuna.TrialPruned:
            raise
        # A full disk or a lost database is no fault of the configuration: the trial is run again.
        except (OSError, optuna.exceptions.StorageInternalError):
            raise
        except Exception as error:
            # Errors of the database are SQLAlchemy's, which is no dependency of this file.
            if type(error).__module__.startswith("sqlalchemy"):
                raise
            trial.set_user_attr(ERROR, f"{type(error).__name__}: {error}")
            self.streak = 0
            self.display.note(f"trial {trial.number}", f"failed: {error}")
            raise TrialFailed(str(error)) from error
        self.streak = 0
        shown = ", ".join(
            f"{one.name} {value:.4g}" for one, value in zip(self.plan.objectives, values, strict=True)
        )
        self.display.finish(f"trial {trial.number}", f"{trial.user_attrs[LABEL]}: {shown}")
        return values

    def _run(self, trial: optuna.Trial) -> tuple[float, ...]:
        candidate = self._candidate(trial)
        found, ensemble = stored_record(candidate), None
        if found is None:
            ensemble = self._affordable(trial, candidate)
        rungs = self._rungs(trial, candidate)
        waiting = f"waiting for another process that runs it in {candidate.folder}"

        def ended(trained_ensemble: Ensemble, row: Mapping[str, float]) -> None:
            epochs = candidate.training.budget(len(self.problem.task.train)).epochs
            self.display.note(candidate.label, trained(int(row["epoch"]), epochs, row["loss"]))
            rungs(trained_ensemble, int(row["epoch"]))

        def waits() -> None:
            self.display.note(candidate.label, waiting)

        try:
            made = run_candidate(candidate, ensemble, ended, waits)
        finally:
            self.display.running.pop(candidate.label, None)
        return self._values(trial, made)

    def _candidate(self, trial: optuna.Trial) -> Candidate:
        """Draw a configuration; end the trial if it is impossible or was tried."""

        def draw(name: str, axis: Between | OneOf) -> Any:
            return trial._suggest(name, distribution(axis))

        try:
            configuration = self.plan.space.suggest(draw, self.plan.flat)
        except SettingError as error:
            self._skip(trial, f"{IMPOSSIBLE}: {error}")
        candidate = Candidate(self.problem, configuration)
        trial.set_user_attr(LABEL, candidate.label)
        with self.queue.locked():
            others = self.queue.get_trials(deepcopy=False)
            for other in others:
                same = other.user_attrs.get(KEY) == candidate.key and other.number != trial.number
                # A waiting trial has a key only if it was lost: that one is run again, and not this.
                if same and counts(other):
                    self._skip(trial, f"repeated: it is trial {other.number}")
            trial.set_user_attr(KEY, candidate.key)
        return candidate

    def _affordable(self, trial: optuna.Trial, candidate: Candidate) -> Ensemble:
        """Convert the network; end the trial if that is impossible or the ensemble is beyond the budget."""
        try:
            ensemble = candidate.convert()
        except (ConversionError, SettingError) as error:
            self._skip(trial, f"{IMPOSSIBLE}: {error}")
        # Counting costs freezes the ensemble, which can take as long as a short training.
        needed = self.plan.limits or self.plan.halving is not None
        costs = self._ahead(ensemble) if needed else {}
        trial.set_user_attr(COST, costs)
        over, reason = excess(costs, self.plan.limits)
        # Samplers learn from it which configurations are too expensive.
        _constrain(trial, over if reason else -1.0)
        if reason:
            self._skip(trial, f"{BUDGET}: {reason}")
        return ensemble

    def _skip(self, trial: optuna.Trial, reason: str) -> Any:
        self.streak += 1
        trial.set_user_attr(SKIPPED, reason)
        raise optuna.TrialPruned(reason)

    def _rungs(self, trial: optuna.Trial, candidate: Candidate) -> Callable[[Ensemble, int], None]:
        """Return a callback that stops a trial after some epochs if many others are better."""
        halving = self.plan.halving
        if halving is None:
            return lambda ensemble, epoch: None
        total = candidate.training.budget(len(self.problem.task.train)).epochs
        places = {epoch: number for number, epoch in enumerate(halving.epochs(total))}

        def measure(ensemble: Ensemble, epoch: int) -> None:
            if epoch not in places:
                return
            name = f"rung_{places[epoch]}"
            losses = self._losses(ensemble, trial.user_attrs.get(COST, {}))
            others = self.queue.get_trials(deepcopy=False)
            reached = [one.user_attrs[name] for one in others if name in one.user_attrs]
            trial.set_user_attr(name, losses)
            if halving.stops(losses, reached):
                trial.set_user_attr(HALVED, f"after epoch {epoch} of {total}")
                self.display.finish(
                    f"trial {trial.number}", f"{candidate.label}: stopped after epoch {epoch}"
                )
                raise optuna.TrialPruned

        return measure

    def _losses(self, ensemble: Ensemble, cost: Mapping[str, float]) -> list[float]:
        """Return the losses of an ensemble that is still training; calibrated objectives count raw."""
        # Members that are drawn must not change the random numbers of training.
        with torch.random.fork_rng(devices=[]):
            was_training = ensemble.training
            metrics, _ = measure_validation(ensemble.eval(), self.problem.blind)
            ensemble.train(was_training)
        raw = {f"{CALIBRATED}{name}": value for name, value in metrics.items()}
        return [one.loss(one.read(metrics, raw, cost)) for one in self.plan.objectives]

    def _values(self, trial: optuna.Trial, made: Record) -> tuple[float, ...]:
        """Store what was measured, and return the objectives."""
        over, reason = excess(made.cost, self.plan.limits)
        for name, stored in describe(trial.user_attrs[LABEL], made).items():
            trial.set_user_attr(name, stored)
        _constrain(trial, over if reason else -1.0)
        values = [one.read(made.metrics, made.posthoc, made.cost) for one in self.plan.objectives]
        for one, value in zip(self.plan.objectives, values, strict=True):
            if value != value:
                raise SettingError(
                    f"the objective {one.name} must be measurable on the validation data, got none for "
                    f"{trial.user_attrs[LABEL]}. Name another objective."
                )
        return tuple(values)


def _constrain(trial: optuna.Trial, over: float) -> None:
    """Set by how much a trial exceeds the budget, unless that is known from before."""
    # A trial that is run again has the attributes of the lost one, and Optuna sets a constraint once.
    if BUDGET not in trial.user_attrs:
        trial.set_user_attr(BUDGET, over)
        trial.set_constraint(BUDGET, over)


def is_finished(trial: FrozenTrial) -> bool:
    """Return whether a trial counts, and has ended."""
    return counts(trial) and trial.state.is_finished()


def describe(label: str, made: Record) -> dict[str, Any]:
    """Return the user attributes of a finished trial: its name, its metrics and its costs."""
    return {
        LABEL: label,
        METRICS: _finite(made.metrics) | _finite(made.posthoc),
        COST: _finite(made.cost),
    }


def _finite(values: Mapping[str, float]) -> dict[str, float]:
    # The database stores JSON, which has no NaN.
    return {name: value for name, value in values.items() if abs(value) < float("inf")}
