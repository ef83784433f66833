"""Study: the result of a search. It holds all trials, the front, and the trained ensembles."""

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pluribus.comparison.record import Record
from pluribus.comparison.run_folder import ENSEMBLE, has_built_in_network
from pluribus.comparison.run_folder import FILE as RUN_FILE
from pluribus.data.signature import FILE as SIGNATURE
from pluribus.ensemble import Ensemble
from pluribus.errors import CheckpointError, SettingError
from pluribus.notebook import html_table
from pluribus.ranges import invalid
from pluribus.report.budget import Limit, parse_budget
from pluribus.report.wording import times
from pluribus.schema import Fields, Items, Named, Number, Text, Whole, shown
from pluribus.search.budget import excess
from pluribus.search.candidate import Candidate, Problem
from pluribus.search.front import hypervolumes, ranks
from pluribus.search.objectives import Objective
from pluribus.search.running import final_record, load_ensemble
from pluribus.search.space import Configuration, Space
from pluribus.untrusted import read_json
from pluribus.writing import replacing

TAKEN = "taken"
"""Folder with the ensemble that was chosen: a run, as `pluribus train` writes it."""

VALUES = "values.json"
"""File with the values of all measured trials."""
VALUES_SCHEMA = Fields({"sampler": Text(), "objectives": Items(Text()), "values": Items(Items(Number()))})
CHOICE = "choice.json"
"""File in it that names the trial."""
CHOICE_SCHEMA = Fields(
    {"trial": Whole(), "label": Text(), "key": Text(), "values": Named(Number()), "cost": Named(Number())}
)
RATIOS = ("parameters_ratio", "multiply_adds_ratio")

State = Literal["complete", "halved", "skipped", "failed", "open"]


@dataclass(frozen=True)
class Trial:
    """One configuration that a search drew.

    Attributes:
        number: Of the trial in the study.
        state: Its end: measured, stopped early, never trained, failed, or not finished.
        label: Its configuration for a reader.
        parameters: As they were drawn, by name.
        values: By name of the objective, on validation data; none unless it is complete.
        cost: Its costs, with ratios to the single network; known before training.
        reason: Why it was stopped, skipped, or failed.
        key: Of its record.
        metrics: All metrics on validation data, raw and calibrated.
    """

    number: int
    state: State
    label: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)
    cost: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    key: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)

    def losses(self, objectives: Sequence[Objective]) -> list[float]:
        """Return its values so that less is better."""
        return [one.loss(self.values[one.name]) for one in objectives]


@dataclass(frozen=True, eq=False)
class Study:
    """All trials of a search.

    Attributes:
        problem: The network, the data and the training.
        space: The configurations that could be drawn.
        objectives: What was made better.
        limits: The budget.
        trials: In the order of their numbers.
        flat: Whether parameters are named as in a flat space.
        sampler: Name of the sampler.
    """

    problem: Problem
    space: Space
    objectives: tuple[Objective, ...]
    limits: tuple[Limit, ...]
    trials: tuple[Trial, ...]
    flat: bool = False
    sampler: str = "tpe"

    @property
    def complete(self) -> list[Trial]:
        """Return the trials that were measured."""
        return [trial for trial in self.trials if trial.state == "complete"]

    @property
    def front(self) -> list[Trial]:
        """Return the trials that no other beats in all objectives, by the first of them."""
        done = [trial for trial in self.complete if not excess(trial.cost, self.limits)[1]]
        found = ranks([trial.losses(self.objectives) for trial in done])
        front = [trial for trial, rank in zip(done, found, strict=True) if rank == 0]
        return sorted(front, key=lambda trial: trial.losses(self.objectives))

    @property
    def losses(self) -> list[list[float]]:
        """Return the values of all measured trials so that less is better."""
        return [trial.losses(self.objectives) for trial in self.complete]

    def hypervolumes(self, among: "Sequence[Study]" = ()) -> list[float]:
        """Return the share of the space of objectives that is dominated after each measured trial.

        Args:
            among: Other studies of the same objectives, whose values scale the axes too.
        """
        return hypervolumes(self.losses, [point for study in among for point in study.losses])

    def read_other(self, folder: Path) -> tuple[str, list[list[float]]]:
        """Return the sampler of another search, and its losses.

        Raises:
            SettingError: it has other objectives.
        """
        found = read_values(folder / VALUES)
        own = [one.name for one in self.objectives]
        if found["objectives"] != own:
            raise SettingError(
                f"a search is compared with one of the same objectives, {', '.join(own)}, got "
                f"{shown(', '.join(found['objectives']))} in {folder}. Name another folder."
            )
        losses = []
        for values in found["values"]:
            losses.append([one.loss(value) for one, value in zip(self.objectives, values, strict=True)])
        return shown(found["sampler"]).strip("'"), losses

    def choose(self, budget: str = "", objective: str | None = None) -> Trial:
        """Return the best measured trial within a budget.

        Args:
            budget: Further limits, such as `multiply_adds<=1.2x`; those of the search hold too.
            objective: The quality to judge by, any metric; by default the first objective that is one.

        Raises:
            SettingError: no trial is within the budget, or the objective was not measured.
        """
        limits = (*self.limits, *parse_budget(budget))
        within = [trial for trial in self.complete if not excess(trial.cost, limits, trained=True)[1]]
        if not within:
            raise SettingError(
                f"a budget must be met by a trial, got {', '.join(map(str, limits)) or 'no trials'}. "
                f"{self._cheapest(limits)}"
            )
        judge = self._judge(objective)
        known = [trial for trial in within if not math.isnan(_value(trial, judge))]
        if not known:
            raise SettingError(f"{judge.name} must be measured in a trial, got none. Name another.")
        return min(known, key=lambda trial: judge.loss(_value(trial, judge)))

    def _judge(self, name: str | None) -> Objective:
        from pluribus.search.objectives import all_objectives

        if name is None:
            return next(one for one in self.objectives if not one.is_cost)
        known = all_objectives()
        if name not in known:
            raise invalid("objective", f"one of {', '.join(known)}", name, known)
        return known[name]

    def _cheapest(self, limits: Sequence[Limit]) -> str:
        """Return a sentence on the trial that exceeds a budget least."""
        if not self.complete:
            return "Run more trials."
        nearest = min(self.complete, key=lambda trial: excess(trial.cost, limits, trained=True)[0])
        return f"The nearest is {nearest.label}: {excess(nearest.cost, limits, trained=True)[1]}."

    def candidate(self, trial: Trial) -> Candidate:
        """Return the configuration of a trial, with its folder."""
        return Candidate(self.problem, self.configuration(trial))

    def configuration(self, trial: Trial) -> Configuration:
        """Return the method, the training and the size of the network of a trial."""
        return self.space.configuration(trial.parameters, self.flat)

    def best(self, budget: str = "", objective: str | None = None) -> Ensemble:
        """Return the best ensemble within a budget, trained and calibrated, to save, freeze and export.

        Args:
            budget: As for `choose`.
            objective: As for `choose`.
        """
        return load_ensemble(self.candidate(self.choose(budget, objective)))

    def take(self, trial: Trial) -> Path:
        """Copy the run of a trial into the folder `taken` of the search, and return that folder.

        It is a folder as `pluribus train` writes it, for `pluribus predict`, `export` and `evaluate`.
        """
        candidate = self.candidate(trial)
        load_ensemble(candidate)
        place = self.problem.out / TAKEN
        with replacing(place / CHOICE) as unfinished:
            unfinished.write_text(json.dumps(self._choice(trial), indent=2) + "\n", encoding="utf-8")
        for name in (RUN_FILE, SIGNATURE):
            with replacing(place / name) as unfinished:
                shutil.copyfile(candidate.folder / name, unfinished)
        shutil.rmtree(place / ENSEMBLE, ignore_errors=True)
        shutil.copytree(candidate.folder / ENSEMBLE, place / ENSEMBLE)
        return place

    def _choice(self, trial: Trial) -> dict[str, Any]:
        return {
            "trial": trial.number,
            "label": trial.label,
            "key": trial.key,
            "values": dict(trial.values),
            "cost": {name: value for name, value in trial.cost.items() if math.isfinite(value)},
        }

    def save(self) -> Path:
        """Write the values of all measured trials, for the page of another search, and return the file."""
        document = {
            "sampler": self.sampler,
            "objectives": [one.name for one in self.objectives],
            "values": [[trial.values[one.name] for one in self.objectives] for trial in self.complete],
        }
        file = self.problem.out / VALUES
        with replacing(file) as unfinished:
            unfinished.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        return file

    def measure_front(self, shifted: bool = False) -> dict[str, Record]:
        """Return the records of the front on test data, by key. Each is measured once, and kept."""
        found = {}
        for trial in self.front:
            record = final_record(self.candidate(trial), shifted)
            found[record.key] = record
        return found

    def price(self, trial: Trial) -> str:
        """Return what a trial costs, in words."""
        parts = []
        for name, title in (("parameters", "parameters"), ("multiply_adds", "multiply-adds")):
            ratio = trial.cost.get(f"{name}_ratio", math.nan)
            parts.append(f"{trial.cost.get(name, math.nan):,.0f} {title} ({times(ratio)})")
        return " and ".join(parts)

    def table(self) -> list[tuple[str, ...]]:
        """Return the front as rows of text: configuration, objectives, parameters and multiply-adds."""
        rows = []
        for trial in self.front:
            values = [f"{trial.values[one.name]:.4g}" for one in self.objectives if not one.is_cost]
            ratios = [times(trial.cost.get(name, math.nan)) for name in RATIOS]
            rows.append((trial.label, *values, *ratios))
        return rows

    def heads(self) -> tuple[str, ...]:
        """Return the heads of the columns of `table`."""
        qualities = [one.name for one in self.objectives if not one.is_cost]
        return ("configuration", *qualities, "parameters", "multiply-adds")

    def __str__(self) -> str:
        lines = [f"{len(self.complete)} trials measured, {len(self.front)} on the front"]
        lines += ["  ".join(row) for row in self.table()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the front as a table for notebooks."""
        title = f"{len(self.complete)} trials measured, {len(self.front)} on the front"
        return html_table(title, self.heads(), self.table(), ())


def read_values(file: Path) -> dict[str, Any]:
    """Return what `Study.save` wrote; the file is untrusted.

    Raises:
        CheckpointError: it is damaged, or a trial has not a value for each objective.
    """
    remedy = "Run that search again."
    found: dict[str, Any] = read_json(file, VALUES_SCHEMA, remedy)
    count = len(found["objectives"])
    for values in found["values"]:
        if len(values) != count:
            raise CheckpointError(
                f"{file} must have {count} values of each trial, got {len(values)}. {remedy}"
            )
    return found


def read_label(taken: Path) -> str:
    """Return the name of the configuration in the folder `taken` of a search; that file is untrusted."""
    remedy = "Run the search again."
    label: str = read_json(taken / CHOICE, CHOICE_SCHEMA, remedy)["label"]
    return shown(label)


def model_option(study: Study, trial: Trial) -> str:
    """Return the option that names a network of the user's own again; no file is trusted to do so."""
    name = study.candidate(trial).network
    if has_built_in_network({"model": name}):
        return ""
    function, opened, sizes = name.partition("(")
    # A search in Python knows no more than what the function is called.
    reference = function if ":" in function else "PACKAGE.MODULE:FUNCTION"
    return f' --model "{reference}{opened}{sizes}"'


def _value(trial: Trial, objective: Objective) -> float:
    """Return any metric or cost of a trial; NaN if it has none."""
    return objective.read(trial.metrics, trial.metrics, trial.cost)
