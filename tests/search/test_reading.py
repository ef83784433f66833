"""Reading trials out of Optuna."""

import optuna
from optuna.trial import TrialState

from pluribus.search.objectives import parse_objectives
from pluribus.search.queue import ERROR, HALVED, SKIPPED
from pluribus.search.reading import read_trials


def test_states_and_values_are_read_and_lost_trials_left_out():
    def trial(state, values=None, **stored):
        return optuna.create_trial(state=state, values=values, user_attrs=stored)

    found = read_trials(
        [
            trial(TrialState.COMPLETE, [0.5, 10.0], label="a", key="k"),
            trial(TrialState.PRUNED, **{HALVED: "early"}),
            trial(TrialState.PRUNED, **{SKIPPED: "repeated"}),
            trial(TrialState.FAIL, **{ERROR: "no"}),
            trial(TrialState.FAIL),
            trial(TrialState.WAITING),
        ],
        parse_objectives("nll,multiply_adds"),
    )
    assert [one.state for one in found] == ["complete", "halved", "skipped", "failed", "open"]
    assert found[0].values == {"nll": 0.5, "multiply_adds": 10.0}
    assert [one.reason for one in found] == ["", "early", "repeated", "no", ""]
