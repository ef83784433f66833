"""Courses: preferences for depths, read from the history of runs."""

import pytest

from pluribus.report.figures.courses import depth_of, read_courses, read_together
from tests.report.records import only_group, sae


def run(*preferences, seed=0, inputs=1):
    """A run of one input with the given preferences for depths 1, 2, … in each epoch."""
    columns = {
        f"preference_1_{d}": list(values) for d, values in enumerate(zip(*preferences, strict=True), 1)
    }
    return sae(inputs, 1, seed, history={"loss": [1.0] * len(preferences), **columns})


def test_courses_of_one_configuration_are_means_over_seeds():
    (entry,) = only_group(run((0.5, 0.5), (0.2, 0.8)), run((0.5, 0.5), (0.4, 0.6), seed=1)).entries
    shallow, deep = read_courses(entry)
    assert (shallow.given, shallow.depth, shallow.epochs) == (1, 1, (1, 2))
    assert shallow.means == pytest.approx((0.5, 0.3))
    assert deep.means == pytest.approx((0.5, 0.7))


def test_every_input_has_a_course_for_every_depth():
    (entry,) = only_group(sae(2, 2, depth=3)).entries
    assert [(c.given, c.depth) for c in read_courses(entry)] == [(i, d) for i in (1, 2) for d in (1, 2, 3)]
    assert depth_of(entry) == 3
    last = [course.means[-1] for course in read_courses(entry)]
    assert sum(last[:3]) == sum(last[3:]) == pytest.approx(1)


def test_together_inputs_are_averaged_first_and_spread_is_between_configurations():
    one = sae(1, 1, history={"preference_1_1": [0.2], "preference_1_2": [0.8]})
    names = [f"preference_{i}_{d}" for i in (1, 2) for d in (1, 2)]
    two = sae(2, 1, history=dict(zip(names, ([0.5], [0.5], [0.7], [0.3]), strict=True)))
    shallow, deep = read_together(only_group(one, two).entries)
    assert (shallow.depth, shallow.given) == (1, 0)
    assert shallow.means == pytest.approx(((0.2 + 0.6) / 2,))
    assert deep.means == pytest.approx(((0.8 + 0.4) / 2,))
    assert shallow.spreads == pytest.approx((0.2,))


def test_a_run_that_stopped_early_counts_as_long_as_it_ran():
    (entry,) = only_group(run((0.4, 0.6), (0.2, 0.8)), run((0.6, 0.4), seed=1)).entries
    assert read_courses(entry)[0].means == pytest.approx((0.5, 0.2))
    assert read_together([entry])[0].means == pytest.approx((0.5, 0.2))
