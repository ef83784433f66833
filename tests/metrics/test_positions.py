"""Positions of predictions: each is a sample, and every so many of them is kept."""

import torch

from pluribus.likelihood import Bernoulli, Categorical, Gaussian, Point
from pluribus.metrics.positions import Part, by_position, hard_targets, thinned
from tests.metrics.examples import classes, numbers


def test_by_position_makes_every_pixel_and_number_a_sample():
    assert len(by_position(Part(*classes(4, 3, 5))).prediction) == 20
    assert len(by_position(Part(classes(4, 3, 5)[0], None)).prediction) == 20
    prediction, target = numbers(6, 2)
    target[2, 1] = torch.nan
    part = by_position(Part(prediction, target))
    assert len(part.prediction) == len(part.target) == 11


def test_thinned_keeps_multiples_of_the_stride():
    prediction, target = classes(6, 3)
    part = thinned(Part(prediction, target, torch.arange(3, 9)), 4)
    assert part.numbers.tolist() == [4, 8]
    assert torch.equal(part.prediction.members, prediction.members[:, [1, 5]])
    assert torch.equal(part.target, target[[1, 5]])


def test_hard_targets_are_what_metrics_count():
    soft = torch.tensor([[0.2, 0.8], [0.9, 0.1]])
    assert hard_targets(soft, Categorical()).tolist() == [1, 0]
    assert hard_targets(soft, Bernoulli()).tolist() == [[0, 1], [1, 0]]
    assert hard_targets(soft, Gaussian()) is soft
    assert hard_targets(soft, Point()) is soft
    assert hard_targets(torch.tensor([1]), Categorical()).tolist() == [1]
