"""References: the exact posterior scores near 0, wrong samplers do not."""

import pytest

from pluribus.data.testbed import draw_problem
from pluribus.testbed.references import sample_reference
from pluribus.testbed.scoring import joint_score, score

PROBLEM = draw_problem(5, 10, 0.1, seed=3, points=100)


@pytest.mark.parametrize("direction", ["code", "printed"])
def test_the_score_is_calibrated(direction):
    exact, narrow, prior = (
        score(sample_reference(name, PROBLEM, 0), PROBLEM.test[1])[direction]
        for name in ("exact_posterior", "half_as_wide", "prior")
    )
    assert exact < 0.02
    assert narrow > 0.2
    assert prior > 0.2


def test_the_joint_score_is_calibrated():
    exact, narrow, prior = (
        joint_score(sample_reference(name, PROBLEM, 0), PROBLEM)
        for name in ("exact_posterior", "half_as_wide", "prior")
    )
    assert exact < 0.05
    assert narrow > 5 * exact
    assert prior > 5 * exact
