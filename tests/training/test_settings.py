"""Training settings."""

import json

import pytest
import torch
from torch.testing import assert_close

from pluribus import SettingError
from pluribus.recipe import Recipe
from pluribus.training import Training


def test_settings_come_back_equal():
    training = Training(epochs=7, optimizer="sgd", clip=1.0, patience=3, milestones=(0.1, 0.2))
    assert Training.from_dict(json.loads(json.dumps(training.to_dict()))) == training


def test_settings_of_version_1_read_as_before():
    old = {"kind": "training", "version": 1, "batch": 32, "keep": "best"}
    assert Training.from_dict(old | {"epochs": 7}) == Training(epochs=7, batch=32, check_every=1)
    assert Training.from_dict(old) == Training(epochs=30, batch=32, check_every=1)


def test_milestones_divide_the_rate_by_ten():
    training = Training(lr=1.0, schedule="steps", milestones=(0.25, 0.5))
    assert [training.rate(p) for p in (0.2, 0.25, 0.5, 1.0)] == pytest.approx([1, 0.1, 0.01, 0.01])


def test_the_rate_falls_by_the_factor_of_milestones():
    training = Training(lr=1.0, schedule="steps", milestones=(0.25, 0.5), milestone_factor=0.2)
    assert [training.rate(p) for p in (0.2, 0.25, 0.5)] == pytest.approx([1, 0.2, 0.04])
    assert Training.from_dict(training.to_dict()) == training
    # As files of before have it.
    assert "milestone_factor" not in Training().to_dict()


def test_recipes_make_training_longer():
    recipe = Recipe(longer=2.5, weight_decay=0.0)
    assert Training(steps=10, weight_decay=0.1).following(recipe, 300) == Training(steps=25)
    assert Training(epochs=3).following(recipe, 300) == Training(epochs=8)
    assert Training().following(recipe, 300) == Training(epochs=500)


def test_a_training_is_validated_about_a_hundred_times():
    assert [Training(epochs=n).checked_every(64) for n in (30, 41, 200, 1000)] == [1, 2, 5, 25]
    assert Training(epochs=1000, patience=3).checked_every(64) == 1
    assert Training(epochs=3, check_every=2).checked_every(64) == 2


def test_recipes_have_a_schedule_of_their_own():
    assert Training(steps=5).following(Recipe(schedule="constant"), 300) == Training(
        steps=5, schedule="constant"
    )


def test_a_neutral_recipe_changes_nothing():
    assert Training(steps=9, weight_decay=0.1).following(Recipe(), 300) == Training(steps=9, weight_decay=0.1)
    assert Training().following(Recipe(), 300) == Training(epochs=200)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"lr": 0.0}, "lr must be above 0, got 0.0"),
        ({"optimizer": "adamm"}, "optimizer must be one of 'adam', 'adamw', 'sgd', got"),
        ({"schedule": "cos"}, "schedule must be one of"),
        ({"keep": "all"}, "keep must be one of 'best', 'last', 'accuracy'"),
        ({"epochs": 3, "steps": 9}, "epochs and steps exclude each other, got 3 and 9"),
        ({"milestones": (0.5, 0.5)}, "milestones must be ascending shares"),
        ({"milestones": (0.5, 1.0)}, "milestones must be ascending shares"),
        ({"nesterov": True}, "nesterov must be False without optimizer='sgd'"),
        ({"optimizer": "sgd", "momentum": 0.0, "nesterov": True}, "nesterov must be False"),
        ({"label_smoothing": 1.0}, "label_smoothing must be below 1"),
        ({"accumulate": 0}, "accumulate must be at least 1"),
        ({"ema": 1.0}, "ema must be below 1"),
        ({"warmup": 1.0}, "warmup must be below 1"),
        ({"clip": -1.0}, "clip must be above 0"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        Training(**settings)


def test_warmup_rises_from_zero():
    training = Training(lr=1.0, schedule="constant", warmup=0.5)
    assert [training.rate(p) for p in (0.0, 0.25, 0.5, 1.0)] == [0.0, 0.5, 1.0, 1.0]


def test_nesterov_and_momentum_reach_the_optimizer():
    weight, expected = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    settings = Training(optimizer="sgd", lr=0.1, momentum=0.8, nesterov=True)
    optimizer = settings.make_optimizer([{"params": [weight], "weight_decay": 0.5}])
    other = torch.optim.SGD([expected], lr=0.1, momentum=0.8, weight_decay=0.5, nesterov=True)
    for one, parameter in ((optimizer, weight), (other, expected)):
        for _ in range(3):
            parameter.grad = parameter.detach() ** 2
            one.step()
    assert_close(weight, expected)
    assert not Training(optimizer="sgd").make_optimizer([{"params": [weight]}]).defaults["nesterov"]
