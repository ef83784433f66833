"""Severities: every kind has five for three sizes; values that the papers print."""

from pytest import mark

from pluribus.data.corruption_kinds import FUNCTIONS
from pluribus.data.corruption_severities import SEVERITIES, constants


def test_every_kind_has_five_severities_for_three_sizes():
    assert set(SEVERITIES) == set(FUNCTIONS)
    assert all([len(row) for row in rows] == [5, 5, 5] for rows in SEVERITIES.values())


@mark.parametrize(
    ("kind", "side", "expected"),
    [
        ("gaussian_noise", 32, [0.04, 0.06, 0.08, 0.09, 0.10]),
        ("gaussian_noise", 64, [0.04, 0.08, 0.12, 0.15, 0.18]),
        ("gaussian_noise", 224, [0.08, 0.12, 0.18, 0.26, 0.38]),
        ("contrast", 28, [0.75, 0.5, 0.4, 0.3, 0.15]),
        ("contrast", 33, [0.4, 0.3, 0.2, 0.1, 0.05]),
        ("contrast", 65, [0.4, 0.3, 0.2, 0.1, 0.05]),
    ],
)
def test_constants_are_the_published_ones(kind, side, expected):
    assert [constants(kind, severity, side) for severity in (1, 2, 3, 4, 5)] == [(c,) for c in expected]


def test_motion_blur_of_small_images_is_the_published_one():
    expected = [(6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)]
    assert [constants("motion_blur", severity, 32) for severity in (1, 2, 3, 4, 5)] == expected
