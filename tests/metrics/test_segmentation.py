"""Segmentation against torchmetrics; absent classes, ignored pixels and binary masks by hand."""

import math

import pytest
import torch
from torchmetrics.functional.segmentation import dice_score, mean_iou

from pluribus.likelihood import Bernoulli, Categorical
from pluribus.metrics import dice, iou
from pluribus.metrics.segmentation import AT_ONCE, dice_per_image
from tests.metrics.examples import classes


def test_scores_match_torchmetrics():
    # More images than are expanded at once, all with every class.
    prediction, target = classes(AT_ONCE + 3, 3, 12, 12)
    options = {"num_classes": 3, "include_background": False, "input_format": "index"}
    overlap = mean_iou(prediction.labels, target, per_class=True, **options)
    assert iou(prediction, target) == pytest.approx(overlap.mean().item(), abs=1e-6)
    wanted = dice_score(prediction.labels, target, average="none", aggregation_level="samplewise", **options)
    assert dice(prediction, target) == pytest.approx(wanted.mean().item(), abs=1e-6)


def mask(labels, classes=3):
    """A prediction that is sure of these labels, `[batch, height, width]`."""
    logits = 50.0 * torch.nn.functional.one_hot(torch.tensor(labels), classes).movedim(-1, 1)
    return Categorical().prediction(logits.unsqueeze(0))


def test_absent_classes_and_empty_images_do_not_count():
    truth = torch.tensor([[[1, 1], [0, 0]], [[0, 0], [0, 0]]])
    prediction = mask([[[1, 0], [0, 0]], [[0, 0], [0, 0]]])
    assert dice(prediction, truth) == pytest.approx(2 / 3)
    assert iou(prediction, truth) == pytest.approx(1 / 2)
    each = dice_per_image(prediction, truth)
    assert each[0] == pytest.approx(2 / 3)
    assert math.isnan(each[1])
    # A region that is not there counts as a mistake.
    assert dice(mask([[[2, 0], [0, 0]]]), torch.zeros(1, 2, 2).long()) == 0


def test_ignored_pixels_do_not_count():
    truth = torch.tensor([[[1, -100], [0, 0]]])
    assert dice(mask([[[1, 1], [0, 0]]]), truth) == 1


def test_a_binary_mask_has_one_class():
    logits = torch.tensor([[[[[9.0, 9.0], [-9.0, -9.0]]]]])
    truth = torch.tensor([[[[1.0, 0.0], [0.0, 0.0]]]])
    assert dice(Bernoulli().prediction(logits), truth) == pytest.approx(2 / 3)
