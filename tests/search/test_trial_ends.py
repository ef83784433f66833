"""Ends of trials, for samplers."""

import math

from optuna.study import StudyDirection
from optuna.trial import TrialState, create_trial

from pluribus.search.trial_ends import came_to_nothing, is_measured, losses_of


def test_losses_are_better_the_less():
    trial = create_trial(values=[0.25, 0.9])
    assert losses_of(trial, [StudyDirection.MINIMIZE, StudyDirection.MAXIMIZE]) == [0.25, -0.9]


def test_ends_are_told_apart():
    ends = {
        "measured": create_trial(value=1.0),
        "failed": create_trial(state=TrialState.FAIL, user_attrs={"error": "ValueError"}),
        "infinite": create_trial(values=[1.0, math.inf]),
        "lost": create_trial(state=TrialState.FAIL),
        "stopped": create_trial(state=TrialState.PRUNED, user_attrs={"halved": "after epoch 1 of 2"}),
        "impossible": create_trial(state=TrialState.PRUNED, user_attrs={"skipped": "impossible: no exits"}),
        "expensive": create_trial(state=TrialState.PRUNED, user_attrs={"skipped": "budget: 9 ×"}),
    }
    assert [name for name, trial in ends.items() if is_measured(trial)] == ["measured"]
    assert [name for name, trial in ends.items() if came_to_nothing(trial)] == [
        "failed",
        "infinite",
        "stopped",
        "impossible",
    ]
