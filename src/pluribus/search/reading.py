"""Read the trials of a study out of Optuna, as plain values."""

from collections.abc import Sequence

from optuna.trial import FrozenTrial, TrialState

from pluribus.search.objectives import Objective
from pluribus.search.queue import ERROR, HALVED, KEY, SKIPPED
from pluribus.search.study import State, Trial
from pluribus.search.worker import COST, LABEL, METRICS


def read_trials(trials: Sequence[FrozenTrial], objectives: Sequence[Objective]) -> tuple[Trial, ...]:
    """Return the trials in the order of their numbers; lost ones that were run again are left out."""
    found = []
    for trial in trials:
        if trial.state == TrialState.FAIL and ERROR not in trial.user_attrs:
            continue
        found.append(_read(trial, objectives))
    return tuple(found)


def _read(trial: FrozenTrial, objectives: Sequence[Objective]) -> Trial:
    stored = trial.user_attrs
    values = {}
    if trial.state == TrialState.COMPLETE:
        values = {one.name: value for one, value in zip(objectives, trial.values, strict=True)}
    return Trial(
        number=trial.number,
        state=_state(trial),
        label=stored.get(LABEL, ""),
        parameters=trial.params,
        values=values,
        cost=stored.get(COST, {}),
        reason=stored.get(ERROR) or stored.get(SKIPPED) or stored.get(HALVED) or "",
        key=stored.get(KEY, ""),
        metrics=stored.get(METRICS, {}),
    )


def _state(trial: FrozenTrial) -> State:
    if trial.state == TrialState.COMPLETE:
        return "complete"
    if trial.state == TrialState.FAIL:
        return "failed"
    if trial.state == TrialState.PRUNED:
        return "halved" if HALVED in trial.user_attrs else "skipped"
    return "open"
