"""Training settings."""

import pytest

from pluribus import SettingError
from pluribus.training import Training


def test_settings_come_back_equal():
    training = Training(epochs=7, optimizer="sgd", clip=1.0, patience=3)
    assert Training.from_dict(training.to_dict()) == training


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"lr": 0.0}, "lr must be above 0, got 0.0"),
        ({"optimizer": "adamm"}, "optimizer must be one of 'adam', 'adamw', 'sgd', got"),
        ({"schedule": "cos"}, "schedule must be one of"),
        ({"keep": "all"}, "keep must be one of 'best', 'last'"),
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
