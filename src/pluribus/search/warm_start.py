"""Warm start: trained ensembles of a comparison count as trials of a search.

The records of a comparison hold scores of test data, by which a search must not choose. So its ensembles are
measured anew, on validation data.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import optuna
from optuna.trial import TrialState

from pluribus.comparison import record
from pluribus.comparison.record import Record
from pluribus.comparison.run_folder import ENSEMBLE
from pluribus.report.best_run import run_folder
from pluribus.search.candidate import Candidate, Problem
from pluribus.search.matching import find_parameters
from pluribus.search.queue import KEY, Queue, counts, quiet
from pluribus.search.running import adopt
from pluribus.search.worker import Plan, describe, distribution, draw_evenly


def add_finished(queue: Queue, problem: Problem, plan: Plan, folders: Sequence[str | Path]) -> int:
    """Add the runs of comparisons that the space holds; return how many.

    Args:
        queue: The study.
        problem: Runs of other data, networks, seeds and trainings are left out.
        plan: The space and the objectives.
        folders: Of comparisons.
    """
    added = 0
    for folder in map(Path, folders):
        for one in record.read([folder]):
            added += _add(queue, problem, plan, one, run_folder(folder, one))
    return added


def _add(queue: Queue, problem: Problem, plan: Plan, one: Record, folder: Path) -> bool:
    """Add a run as a finished trial; return False if it is not of this search."""
    parameters = find_parameters(plan.space, one.method, one.training, plan.flat)
    if one.error or not parameters or not (folder / ENSEMBLE).is_dir():
        return False
    axes = plan.space.parameters(plan.flat)
    if plan.flat:
        # A flat space has settings of all methods; those of others have no meaning for this run.
        generator = random.Random(one.key)
        drawn = {name: draw_evenly(axis, generator) for name, axis in axes.items()}
        parameters = drawn | parameters
    candidate = Candidate(problem, plan.space.configuration(parameters, plan.flat))
    # The key depends on data, network, seed and training, which must all be those of the search.
    if one.key not in {candidate.key_in_comparison(shifted) for shifted in (False, True)}:
        return False
    known = {trial.user_attrs.get(KEY) for trial in queue.get_trials(deepcopy=False) if counts(trial)}
    if candidate.key in known:
        return False
    made = adopt(candidate, folder)
    values = [objective.read(made.metrics, made.posthoc, made.cost) for objective in plan.objectives]
    finished = optuna.create_trial(
        state=TrialState.COMPLETE,
        values=values,
        params=parameters,
        distributions={name: distribution(axes[name]) for name in parameters},
        user_attrs={KEY: candidate.key, **describe(candidate.label, made)},
    )
    with queue.locked(), quiet():
        queue.add_trial(finished)
    return True
