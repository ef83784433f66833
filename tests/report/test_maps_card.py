"""Maps on the page: four pictures of each image, in colours, with their scores."""

import numpy as np
import torch

from pluribus.comparison.maps import NO_CLASS, make_maps
from pluribus.likelihood import Categorical
from pluribus.report.maps_card import NOT_COUNTED, PALETTE, coloured, maps_card, read_maps_of
from tests.report.records import classes, only_group


def entry(maps=True):
    run = classes("deep_ensembles", images=False)
    if maps:
        target = torch.zeros(4, 8, 8).long()
        target[1:, :4] = 1
        prediction = Categorical().prediction(torch.randn(2, 4, 3, 8, 8))
        object.__setattr__(run.outcomes, "maps", make_maps(prediction, target, torch.rand(4, 1, 8, 8)))
    return only_group(run).entries[0]


def test_card_shows_four_pictures_of_each_image():
    shown = maps_card(entry())
    assert shown.count("<img") == 4 * 4
    assert shown.count("data:image/png;base64,") == 4 * 4
    assert "deep_ensembles, seed 0" in shown
    assert "mean entropy" in shown


def test_card_is_empty_without_maps():
    assert maps_card(entry(maps=False)) == ""
    assert maps_card(None) == ""
    assert read_maps_of(entry(maps=False)) is None


def test_colours_tell_classes_apart_and_mark_pixels_that_do_not_count():
    found = coloured(np.array([[0, 1, 2, NO_CLASS]], dtype=np.uint8))
    assert found.tolist() == [[[0, 0, 0], list(PALETTE[0]), list(PALETTE[1]), list(NOT_COUNTED)]]
    many = coloured(np.arange(255, dtype=np.uint8)[None])
    assert len({tuple(one) for one in many[0]}) == 1 + len(PALETTE)
