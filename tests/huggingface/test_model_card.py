"""A model card tells what the ensemble is, how it is used, and what was measured."""

import huggingface_hub
import torch

import pluribus as pl
from pluribus.comparison.record import Record
from pluribus.huggingface import model_card
from pluribus.methods import DeepEnsembles


def made():
    torch.manual_seed(0)
    return pl.convert(torch.nn.Linear(3, 2), DeepEnsembles(members=2))


def test_card_has_the_metadata_of_the_hub():
    card = huggingface_hub.ModelCard(model_card(made(), license="mit", task="tabular-classification"))
    assert card.data.library_name == "pluribus"
    assert card.data.license == "mit"
    assert card.data.pipeline_tag == "tabular-classification"
    assert "deep_ensembles" in card.data.tags


def test_card_describes_the_ensemble():
    ensemble = made()
    text = model_card(ensemble, name="My ensemble")
    assert "# My ensemble" in text
    assert "An ensemble of 2 members" in text
    assert str(ensemble.conversion) in text
    assert "Not calibrated" in text
    assert "Nothing was measured" in text


def test_card_has_the_numbers_of_record_and_calibration():
    ensemble = made()
    ensemble.calibrate((torch.randn(60, 3), torch.arange(60) % 2), level=0.8)
    record = Record(
        key="k",
        method=ensemble.method.to_dict(),
        task="Task(moons: 9 train)",
        network="Linear",
        seed=4,
        training={},
        metrics={"accuracy": 0.9125, "ece": float("nan")},
        posthoc={"scaled_nll": 0.25, "temperature": 2.0},
        cost={"parameters": 16, "latency_ratio": 1.5},
    )
    text = model_card(ensemble, record)
    assert "| accuracy | 0.9125 |" in text
    assert "| nll (calibrated) | 0.25 |" in text
    assert "| parameters | 16 |" in text
    assert "seed 4" in text
    assert "hold the truth with 80%" in text
    assert "ece" not in text
    assert "latency" not in text
