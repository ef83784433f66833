"""Hugging Face's Trainer trains ensembles: hooks of methods, checkpoints, clipping, decay, calibration."""

import numpy as np
import pytest
import torch

from pluribus import methods
from pluribus.errors import SettingError
from pluribus.settings import snake_case
from tests.huggingface.tiny import bert, pad, sentences, trainer

pytestmark = pytest.mark.filterwarnings(
    "ignore"
)  # transformers and accelerate warn of devices and of each other


def accuracy_and_disagreement(evaluated):
    (logits, disagreement), labels = evaluated.predictions, evaluated.label_ids
    return {"accuracy": np.mean(logits.argmax(-1) == labels), "disagreement": disagreement.mean()}


def test_trainer_trains_and_evaluates_the_pooled_prediction(tmp_path):
    metrics = {"compute_metrics": accuracy_and_disagreement, "uncertainty": ["mutual_information"]}
    run = trainer(tmp_path, max_steps=30, calibration_dataset=sentences(40, seed=2), **metrics)
    before = run.evaluate()
    run.train()
    after = run.evaluate()
    assert after["eval_accuracy"] > 0.9
    assert after["eval_loss"] < 0.5 * before["eval_loss"]
    assert after["eval_disagreement"] >= 0
    assert run.ensemble.calibration.samples == 40
    assert not run.ensemble.training
    (logits, _), labels, _ = run.predict(sentences(6, seed=3))
    batch = pad(sentences(6, seed=3))
    expected = run.ensemble.predict({name: batch[name] for name in ("input_ids", "attention_mask")})
    np.testing.assert_allclose(np.exp(logits), expected.probabilities, rtol=1e-4)
    assert labels.tolist() == batch["labels"].tolist()


@pytest.mark.parametrize("accumulate", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_trainer_calls_the_hooks_of_the_method(tmp_path, monkeypatch, accumulate):
    run = trainer(tmp_path, max_steps=4, count=48, gradient_accumulation_steps=accumulate)
    calls = []
    loss, after_step, finish = run.ensemble.loss, run.ensemble.after_step, run.ensemble.finish

    def loss_spy(x, y, **options):
        calls.append(("loss", options["progress"], options["dataset_size"]))
        return loss(x, y, **options)

    def step_spy(progress):
        calls.append(("after_step", progress))
        after_step(progress)

    def finish_spy(loader):
        calls.append(("finish", sum(len(batch["labels"]) for batch in loader)))
        finish(loader)

    for name, spy in (("loss", loss_spy), ("after_step", step_spy), ("finish", finish_spy)):
        monkeypatch.setattr(run.ensemble, name, spy)
    run.train()
    steps = [call for call in calls if call[0] == "after_step"]
    assert steps == [("after_step", share) for share in (0.25, 0.5, 0.75, 1.0)]
    assert {size for name, _, size in (call for call in calls if call[0] == "loss")} == {48}
    assert [call[1] for call in calls if call[0] == "loss"][: 2 * accumulate : accumulate] == [0.0, 0.25]
    assert calls[-1] == ("finish", 48)


@pytest.mark.slow
def test_resumed_training_ends_with_the_same_weights(tmp_path):
    options = {"max_steps": 4, "save_steps": 2, "save_strategy": "steps", "method": "mc_dropout(draws=2)"}
    whole = trainer(tmp_path, **options)
    whole.train()
    resumed = trainer(tmp_path, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    for one, other in zip(whole.ensemble.parameters(), resumed.ensemble.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_decay_leaves_out_what_the_method_excludes(tmp_path):
    run = trainer(tmp_path, method="batch_ensemble(members=2)", weight_decay=0.1)
    groups = {id(p): g["weight_decay"] for g in run.create_optimizer().param_groups for p in g["params"]}
    for group in run.ensemble.parameter_groups(1.0, 0.1):
        if group["weight_decay"] == 0:
            assert {groups[id(parameter)] for parameter in group["params"]} == {0.0}
    assert set(groups.values()) == {0.0, 0.1}


def test_members_are_clipped_apart(tmp_path):
    run = trainer(tmp_path, max_grad_norm=1e-3)
    for parameter in run.ensemble.parameters():
        parameter.grad = torch.ones_like(parameter)
    run._clip_grad_norm(run.model)
    squares = [p.grad.flatten(1).square().sum(1) for p in run.ensemble.members.tensors.own.parameters()]
    torch.testing.assert_close(torch.stack(squares).sum(0).sqrt(), torch.full((2,), 1e-3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label_smoothing_factor": 0.1}, "label_smoothing_factor must be 0"),
        ({"push_to_hub": True}, "push_to_hub must be False"),
        ({"compute_loss_func": len}, "compute_loss_func must be None"),
    ],
)
def test_trainer_refuses_what_does_not_reach_an_ensemble(tmp_path, options, message):
    with pytest.raises(SettingError, match=message):
        trainer(tmp_path, **options)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [snake_case(name) for name in methods.__all__])
def test_trainer_trains_every_method(tmp_path, kind):
    small = {"mc_dropout": "(draws=4)", "swag": "(members=2)"}.get(kind, "")
    network = bert(num_hidden_layers=2, hidden_size=32, intermediate_size=32)
    run = trainer(tmp_path, kind + small, network=network, max_steps=12)
    before = [parameter.detach().clone() for parameter in run.ensemble.parameters()]
    run.train()
    after = list(run.ensemble.parameters())
    assert any(not torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert np.isfinite(run.evaluate()["eval_loss"])
