"""The gallery: the right pictures with the right votes."""

import io

import numpy as np
import pytest
from PIL import Image

from pluribus.report.gallery import read_wall
from tests.report.records import classes, numbers, only_group


def test_pictures_come_with_truth_votes_and_confidence():
    run = classes(skill=1.0)
    wall = read_wall(only_group(run).entries[0])
    columns, gallery = run.outcomes.columns, run.outcomes.gallery
    assert (wall.label, wall.seed) == ("single", 0)
    assert (len(wall.least), len(wall.most)) == (12, 12)
    for place, picture in enumerate((*wall.least, *wall.most)):
        assert picture.truth == f"class <{columns['target'][picture.index]}>"
        assert picture.answer == f"class <{columns['label'][picture.index]}>"
        assert picture.confidence == pytest.approx(columns["confidence"][picture.index])
        assert sum(share for _, share in picture.said) == pytest.approx(1)
        votes = gallery.votes[:, place]
        assert dict(picture.said) == {f"class <{c}>": (votes == c).mean() for c in set(votes.tolist())}
        pixels = np.asarray(Image.open(io.BytesIO(picture.png)))
        assert np.array_equal(pixels, gallery.pixels[place, ..., 0])


def test_the_least_sure_come_first():
    run = classes(skill=1.0)
    wall, entropy = read_wall(only_group(run).entries[0]), run.outcomes.scores["entropy"]
    assert wall.least[0].index == entropy.argmax()
    assert wall.most[0].index == entropy.argmin()


def test_runs_without_pictures_have_no_wall():
    assert read_wall(only_group(classes(images=False)).entries[0]) is None
    assert read_wall(only_group(numbers()).entries[0]) is None


def test_votes_are_weighed_as_the_members_are():
    run = classes()
    run.outcomes.gallery.votes[:, 0] = (3, 3, 3, 7)
    run.outcomes.gallery.weights[:] = (0.1, 0.1, 0.1, 0.7)
    said = read_wall(only_group(run).entries[0]).least[0].said
    assert [(name, round(share, 3)) for name, share in said] == [("class <7>", 0.7), ("class <3>", 0.3)]
