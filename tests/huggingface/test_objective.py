"""The objective has the interface of a Hugging Face model, and the signature of the network."""

import inspect

import pytest
import torch

import pluribus as pl
from pluribus.errors import InputError, SettingError
from pluribus.huggingface import Objective
from pluribus.methods import DeepEnsembles
from tests.huggingface.tiny import bert, pad, sentences


@pytest.fixture
def objective():
    return Objective(pl.convert(bert(), DeepEnsembles(members=2)), ["entropy"])


def test_forward_names_the_inputs_of_the_network(objective):
    names = list(inspect.signature(objective.forward).parameters)
    assert {"input_ids", "attention_mask", "labels"} <= set(names)
    linear = Objective(pl.convert(torch.nn.Linear(3, 2), DeepEnsembles(members=2)))
    assert list(inspect.signature(linear.forward).parameters) == ["input", "labels"]


def test_train_mode_returns_the_objective(objective):
    batch = pad(sentences(4))
    objective.train()
    objective.progress, objective.dataset_size = 0.5, 10
    torch.manual_seed(0)
    found = objective(**batch)
    labels = batch.pop("labels")
    torch.manual_seed(0)
    expected = objective.ensemble.loss(batch, labels, progress=0.5, dataset_size=10)
    assert set(found) == {"loss"}
    torch.testing.assert_close(found["loss"], expected)
    with pytest.raises(InputError, match="must hold labels"):
        objective(**batch)


def test_eval_mode_returns_the_pooled_prediction(objective):
    batch = pad(sentences(4))
    objective.eval()
    found = objective(**batch, text="left out")
    labels = batch.pop("labels")
    prediction = objective.ensemble.predict(batch)
    torch.testing.assert_close(found["logits"].softmax(1), prediction.probabilities)
    torch.testing.assert_close(found["entropy"], prediction.entropy)
    wanted = -prediction.log_probabilities[torch.arange(4), labels].mean()
    torch.testing.assert_close(found["loss"], wanted)
    assert set(objective(**batch)) == {"logits", "entropy"}


def test_numbers_are_pooled_to_their_mean():
    torch.manual_seed(0)
    ensemble = pl.convert(torch.nn.Linear(3, 2), DeepEnsembles(members=2), "gaussian")
    x = torch.randn(5, 3)
    found = Objective(ensemble, ["epistemic"]).eval()(x, labels=torch.randn(5))
    torch.testing.assert_close(found["logits"], ensemble.predict(x).mean)
    assert set(found) == {"loss", "logits", "epistemic"}


def test_objective_refuses_other_models_and_summaries(objective):
    with pytest.raises(SettingError, match="model must be an Ensemble"):
        Objective(bert())
    objective.uncertainty = ("doubt",)
    with pytest.raises(SettingError, match="uncertainty must be some of"):
        objective.eval()(**pad(sentences(2)))
