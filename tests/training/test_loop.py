"""The training loop: it learns, it stops, it goes on to the same weights, on several processes too."""

import csv
import multiprocessing
import os
import signal
import sys
from dataclasses import fields, replace
from math import isnan

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.data import Split, Task, two_moons
from pluribus.methods import (
    EMP,
    SAE,
    SWAG,
    BatchEnsemble,
    DeepEnsembles,
    Laplace,
    Masksembles,
    MCDropout,
    PackedEnsembles,
    Single,
)
from pluribus.training import Augment, Training, loop, train

METHODS = [
    Single(),
    DeepEnsembles(members=2),
    BatchEnsemble(members=2),
    MCDropout(rate=0.1, draws=2),
    PackedEnsembles(members=2, alpha=1.5, shuffle_members=True),
    EMP(options=2),
    SAE(inputs=2, exits=1, where="2"),
]
TWO = DeepEnsembles(members=2)
PARTS = ("train", "validation", "test")
QUICK = Training(epochs=3, batch=32, lr=1e-2)


@pytest.fixture(scope="module")
def task():
    return two_moons(train=120)


def ensemble(method=TWO) -> pl.Ensemble:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.BatchNorm1d(16), nn.Linear(16, 2))
    return pl.convert(network, method, example=torch.zeros(2, 2))


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_training_lowers_the_loss(task, method):
    history = train(ensemble(method), task, replace(QUICK, epochs=10), show=False)
    assert history[-1]["loss"] < 0.8 * history[0]["loss"]


LATER = [SWAG(members=2, snapshots=2, rank=2), Laplace(draws=2)]
"""Methods that have no members before a part of training is done."""


@pytest.mark.parametrize("method", [*METHODS, *LATER], ids=str)
def test_an_interrupted_training_ends_at_the_same_weights(task, method, tmp_path, monkeypatch):
    whole = ensemble(method)
    train(whole, task, replace(QUICK, keep="last"), show=False)
    calls = 0
    original = pl.Ensemble.loss

    def interrupted(self, *args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == 7:  # in the middle of the second epoch
            raise KeyboardInterrupt
        return original(self, *args, **kwargs)

    monkeypatch.setattr(pl.Ensemble, "loss", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(ensemble(method), task, replace(QUICK, keep="last"), out=tmp_path, show=False)
    monkeypatch.setattr(pl.Ensemble, "loss", original)
    resumed = ensemble(method)
    torch.rand(5)  # what happened to torch's random numbers meanwhile does not matter
    train(resumed, task, replace(QUICK, keep="last"), out=tmp_path, show=False)
    assert_close(resumed.state_dict(), whole.state_dict(), rtol=0, atol=0)


NEW_SETTINGS = [
    {"steps": 10, "epochs": None},
    {"schedule": "steps", "milestones": (0.3, 0.6)},
    {"optimizer": "sgd", "nesterov": True},
    {"label_smoothing": 0.1},
    {"accumulate": 3},
    {"ema": 0.9},
    {"keep": "accuracy"},
    {"check_every": 2},
    {"patience": 3, "ema": 0.9, "schedule": "constant"},
]


AUGMENTED = [
    Augment(flip=True, crop=1),
    Augment(operations=2),
    Augment(mixup=0.5),
    Augment(cutmix=0.5, each=False),
]


@pytest.mark.parametrize("augment", AUGMENTED, ids=str)
@pytest.mark.parametrize("method", [Single(), PackedEnsembles(members=2, shuffle_members=True)], ids=str)
def test_augmented_training_resumes_to_the_same_weights(tmp_path, method, augment):
    x = torch.rand(24, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    split = Split(x, torch.arange(24) % 2)
    images = replace(two_moons(train=24), train=split, validation=split, test=split, shifted={}, ood={})
    training = Training(epochs=3, batch=8, keep="last", augment=augment)

    def make():
        torch.manual_seed(0)
        network = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))
        return pl.convert(network, method, example=x[:2])

    def stop(row):
        if row["epoch"] == 2:
            raise KeyboardInterrupt

    whole, resumed = make(), make()
    train(whole, images, training, show=False)
    with pytest.raises(KeyboardInterrupt):
        train(make(), images, training, out=tmp_path, show=False, on_epoch=stop)
    train(resumed, images, training, out=tmp_path, show=False)
    assert_close(resumed.state_dict(), whole.state_dict(), rtol=0, atol=0)


EVERYTHING = [
    Training(
        steps=14,
        batch=8,
        optimizer="sgd",
        lr=0.05,
        weight_decay=1e-3,
        nesterov=True,
        schedule="steps",
        milestones=(0.3, 0.6),
        milestone_factor=0.2,
        clip=0.5,
        label_smoothing=0.1,
        accumulate=2,
        ema=0.9,
        keep="brier",
        augment=Augment(flip=True, crop=1, operations=1, spread=1.0, mixup=0.2, cutmix=0.2),
    ),
    Training(
        epochs=8,
        batch=8,
        optimizer="adamw",
        warmup=0.2,
        schedule="constant",
        patience=7,
        check_every=2,
        keep="accuracy",
        momentum=0.5,
        seed=7,
        augment=Augment(flip=True, operations=1, each=False),
    ),
]


KILLED = [
    DeepEnsembles(members=2, prior_scale=0.3, shuffle_members=True),
    # Random orders of slots in each batch, which is repeated; exits are drawn.
    SAE(inputs=2, exits=1, where="2", batch_repetition=3),
    Masksembles(members=2, scale=1.5, repeat=True, statistics="member"),
]


def test_every_setting_of_training_is_changed_in_a_training_that_is_killed():
    usual = {field.name: field.default for field in fields(Training)}
    changed = {name for one in EVERYTHING for name in usual if getattr(one, name) != usual[name]}
    assert changed == set(usual)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the killed process is a fork")
@pytest.mark.parametrize("method", KILLED, ids=lambda method: method.kind())
@pytest.mark.parametrize("training", EVERYTHING, ids=["all settings", "the others"])
def test_a_killed_training_resumes_to_the_same_weights(tmp_path, training, method):
    x = torch.rand(32, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    split = Split(x, (x.mean((1, 2, 3)) > x.mean()).long())
    images = replace(two_moons(train=24), train=split, validation=split, test=split, shifted={}, ood={})

    def make():
        torch.manual_seed(0)
        norm = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()]
        return pl.convert(nn.Sequential(*norm, nn.Linear(64, 2)), method, example=x[:2])

    def kill(row):
        if row["epoch"] == 5:
            os.kill(os.getpid(), signal.SIGKILL)

    def train_until_killed():
        train(make(), images, training, out=tmp_path, show=False, on_epoch=kill)

    whole, resumed = make(), make()
    uninterrupted = train(whole, images, training, show=False)
    process = multiprocessing.get_context("fork").Process(target=train_until_killed)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    history = train(resumed, images, training, out=tmp_path, show=False)
    assert len(history) > 5
    assert repr(history) == repr(uninterrupted)  # NaN does not equal itself
    assert_close(resumed.state_dict(), whole.state_dict(), rtol=0, atol=0)
    # The calibration of the two is the same too.
    predicted, expected = resumed.predict(x), whole.predict(x)
    assert_close(predicted.probabilities, expected.probabilities, rtol=0, atol=0)
    assert predicted.sets.equal(expected.sets)
    assert predicted.flagged.equal(expected.flagged)


@pytest.mark.parametrize("settings", NEW_SETTINGS, ids=str)
def test_training_resumes_after_an_epoch_to_the_same_weights(task, tmp_path, settings):
    training = replace(QUICK, **{"keep": "last"} | settings)
    whole, stopped, resumed = ensemble(), ensemble(), ensemble()
    train(whole, task, training, show=False)

    def stop(row):
        if row["epoch"] == (training.check_every or 1) + 1:  # after the first checkpoint
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(stopped, task, training, out=tmp_path, show=False, on_epoch=stop)
    torch.rand(5)
    history = train(resumed, task, training, out=tmp_path, show=False)
    assert history[-1]["epoch"] == 3
    assert_close(resumed.state_dict(), whole.state_dict(), rtol=0, atol=0)


def test_validation_follows_every_so_many_epochs_and_the_last(task):
    history = train(ensemble(), task, replace(QUICK, epochs=5, check_every=2), show=False)
    assert [row["epoch"] for row in history if not isnan(row["validation_nll"])] == [2, 4, 5]


def test_steps_end_training_within_an_epoch(task):
    history = train(ensemble(), task, replace(QUICK, epochs=None, steps=5), show=False)
    assert [row["step"] for row in history] == [4, 5]
    assert history[-1]["lr"] == pytest.approx(0)


def test_accumulated_gradients_are_those_of_the_whole_batch(task):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
    one, several = (pl.convert(network, TWO, example=torch.zeros(2, 2)).double() for _ in range(2))
    data = replace(task, **{p: Split(getattr(task, p).x.double(), getattr(task, p).y) for p in PARTS})
    how = replace(QUICK, keep="last", optimizer="sgd", lr=0.1)
    train(one, data, replace(how, batch=45), show=False)
    train(several, data, replace(how, batch=15, accumulate=3), show=False)
    assert_close(several.state_dict(), one.state_dict())


@pytest.mark.parametrize("method", [DeepEnsembles(3), PackedEnsembles(3, alpha=1.5)], ids=str)
def test_members_end_where_separate_trainings_end(task, method):
    torch.manual_seed(0)
    layers = [nn.Linear(2, 12), nn.BatchNorm1d(12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh()]
    network = nn.Sequential(*layers, nn.Linear(12, 2)).double()
    data = replace(task, **{p: Split(getattr(task, p).x.double(), getattr(task, p).y) for p in PARTS})
    # Clipping at 0.05 shortens most gradients, so that a norm over all members would be seen.
    how = Training(4, 30, "sgd", lr=0.2, momentum=0.9, weight_decay=0.01, clip=0.05, keep="last")
    ensemble = pl.convert(network, method, example=data.train.x[:2])
    members = [pl.convert(ensemble.member(i), Single(), example=data.train.x[:2]) for i in range(3)]
    train(ensemble, data, how, show=False)
    for i, alone in enumerate(members):
        train(alone, data, how, show=False)
        assert_close(ensemble.member(i).state_dict(), alone.member(0).state_dict())


def test_smoothed_labels_are_learnt(task):
    torch.manual_seed(0)
    network = nn.Linear(2, 2)
    expected = nn.functional.cross_entropy(network(task.train.x), task.train.y, label_smoothing=0.4)
    one = pl.convert(network, Single(), example=task.train.x[:2])
    (row,) = train(one, task, Training(steps=1, batch=120, label_smoothing=0.4), show=False)
    assert row["loss"] == pytest.approx(expected.item())


def test_the_mean_of_the_weights_is_kept(task):
    plain, mean = ensemble(), ensemble()
    how = replace(QUICK, epochs=None, steps=1, keep="last")
    start = {name: value.clone() for name, value in plain.named_parameters()}
    train(plain, task, how, show=False)
    train(mean, task, replace(how, ema=0.9), show=False)
    expected = {name: 0.1 * start[name] + 0.9 * value for name, value in plain.named_parameters()}
    assert_close(dict(mean.named_parameters()), expected)


def test_weights_are_kept_by_a_named_metric(task):
    trained = ensemble()
    history = train(trained, task, replace(QUICK, epochs=8, lr=0.3, keep="accuracy"), show=False)
    best = max(row["validation_accuracy"] for row in history)
    prediction = trained.predict(task.validation.x)
    assert pl.metrics.accuracy(prediction, task.validation.y) == pytest.approx(best)


def test_a_metric_that_does_not_suit_is_refused_before_training(task):
    with pytest.raises(pl.InputError, match="rmse needs"):
        train(ensemble(), task, replace(QUICK, keep="rmse"), show=False)


def test_late_best_epochs_are_logged_as_still_improving(task, caplog):
    with caplog.at_level("WARNING", logger="pluribus"):
        train(ensemble(), task, replace(QUICK, lr=1e-4, schedule="constant"), show=False)
    assert "deep_ensembles is still improving: epoch 3 of 3 was the best" in caplog.text


def test_early_best_epochs_are_not_logged(task, caplog):
    with caplog.at_level("WARNING", logger="pluribus"):
        train(ensemble(), task, replace(QUICK, epochs=60, lr=0.5, patience=5), show=False)
    assert "still improving" not in caplog.text


def test_a_finished_training_is_not_repeated(task, tmp_path, monkeypatch):
    first, again = ensemble(), ensemble()
    train(first, task, QUICK, out=tmp_path, show=False)

    def refuse(self, *args, **kwargs):
        pytest.fail("a step was taken")

    monkeypatch.setattr(pl.Ensemble, "loss", refuse)
    train(again, task, QUICK, out=tmp_path, show=False)
    assert_close(again.state_dict(), first.state_dict(), rtol=0, atol=0)


def test_a_checkpoint_of_other_settings_is_refused(task, tmp_path):
    train(ensemble(), task, QUICK, out=tmp_path, show=False)
    with pytest.raises(pl.CheckpointError, match="training differs"):
        train(ensemble(), task, replace(QUICK, lr=1e-4), out=tmp_path, show=False)


def test_the_best_weights_on_validation_are_kept(task):
    trained = ensemble()
    history = train(trained, task, replace(QUICK, epochs=8, lr=0.3), show=False)
    best = min(row["validation_nll"] for row in history)
    assert loop.negative_log_likelihood(trained, task) == pytest.approx(best, rel=1e-6)


def test_patience_ends_training_early(task):
    history = train(ensemble(), task, replace(QUICK, epochs=200, lr=0.5, patience=2), show=False)
    scores = [row["validation_nll"] for row in history]
    assert len(history) < 200
    assert len(history) - 1 - scores.index(min(scores)) == 2


def test_clipping_bounds_the_gradient(task, monkeypatch):
    norms = []
    original = torch.optim.Adam.step

    def step(self, *args, **kwargs):
        grads = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        norms.append(torch.stack([g.norm() for g in grads]).norm().item())
        return original(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.Adam, "step", step)
    train(ensemble(BatchEnsemble(members=2)), task, replace(QUICK, epochs=1, clip=0.01), show=False)
    assert max(norms) <= 0.01 * (1 + 1e-4)


def test_a_loss_that_is_not_finite_is_refused():
    x, y = torch.randn(64, 2), torch.randn(64, 1)
    task = Task("wild", Split(x, y), Split(x[:0], y[:0]), Split(x, y), likelihood=pl.Point())
    wild = pl.convert(nn.Linear(2, 1), Single(), "point")
    with pytest.raises(pl.PluribusError, match="Lower lr"):
        train(
            wild, task, Training(epochs=40, batch=8, lr=1e6, optimizer="sgd", schedule="constant"), show=False
        )


def test_logs_hold_one_row_for_each_epoch(task, tmp_path):
    history = train(ensemble(), task, QUICK, out=tmp_path, tensorboard=True, show=False)
    with (tmp_path / "log.csv").open() as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    assert rows == history
    assert list((tmp_path / "tensorboard").iterdir())


def test_rows_with_other_fields_are_logged(tmp_path):
    loop._write_log(tmp_path, [{"epoch": 1.0}, {"epoch": 2.0, "step": 3.0}], tensorboard=False)
    assert (tmp_path / "log.csv").read_text().split() == ["epoch,step", "1.0,", "2.0,3.0"]


def test_any_seed_is_taken(task):
    history = train(ensemble(), task, replace(QUICK, epochs=1, seed=10**40), show=False)
    assert history == train(ensemble(), task, replace(QUICK, epochs=1, seed=10**40), show=False)


def test_progress_and_dataset_size_reach_the_objective(task, monkeypatch):
    seen = []
    original = pl.Ensemble.loss

    def loss(self, x, y, *, progress, dataset_size):
        seen.append((progress, dataset_size))
        return original(self, x, y, progress=progress, dataset_size=dataset_size)

    monkeypatch.setattr(pl.Ensemble, "loss", loss)
    train(ensemble(), task, replace(QUICK, epochs=2), show=False)
    steps = -(-len(task.train) // 32)
    assert [dataset_size for _, dataset_size in seen] == [len(task.train)] * 2 * steps
    assert [progress for progress, _ in seen] == pytest.approx(
        [step / (2 * steps) for step in range(2 * steps)]
    )


def test_regression_trains_by_its_likelihood():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 3, generator=generator)
    y = x.sum(1, keepdim=True) + 0.1 * torch.randn(200, 1, generator=generator)
    task = Task(
        "sums", Split(x[:100], y[:100]), Split(x[100:150], y[100:150]), Split(x[150:], y[150:]), pl.Gaussian()
    )
    torch.manual_seed(0)
    regressor = pl.convert(nn.Linear(3, 2), DeepEnsembles(members=2), "gaussian")
    history = train(regressor, task, Training(epochs=60, batch=20, lr=0.05), show=False)
    assert history[-1]["validation_nll"] < 0


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path):
    """Each takes its half of every batch, and gradients are averaged."""
    import subprocess
    import sys

    code = """
import sys, torch
from torch import nn
import pluribus as pl
from lightning_fabric import Fabric
from pluribus.data import two_moons
from pluribus.methods import DeepEnsembles
from pluribus.training import Training, train

if __name__ == "__main__":
    strategy = "ddp" if sys.argv[1] == "2" else "auto"
    fabric = Fabric(accelerator="cpu", devices=int(sys.argv[1]), strategy=strategy)
    fabric.launch()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
    ensemble = pl.convert(network, DeepEnsembles(members=2))
    training = Training(epochs=2, batch=32, keep="last")
    train(ensemble, two_moons(train=128), training, fabric=fabric, show=False)
    if fabric.is_global_zero:
        torch.save(ensemble.state_dict(), sys.argv[2])
"""
    script = tmp_path / "script.py"
    script.write_text(code)
    for devices in ("1", "2"):
        subprocess.run([sys.executable, script, devices, tmp_path / f"{devices}.pt"], check=True, timeout=300)
    assert_close(torch.load(tmp_path / "2.pt"), torch.load(tmp_path / "1.pt"), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "fp16"}, "must be what Lightning Fabric offers on this machine, got .*'fp16'"),
        ({"accelerator": "gpux"}, "got .*gpux"),
    ],
)
def test_what_this_machine_does_not_offer_is_refused(options, message):
    with pytest.raises(pl.SettingError, match=message):
        loop.make_fabric(**{"accelerator": "cpu", **options})


def test_tensorboard_without_a_folder_is_refused(task):
    with pytest.raises(pl.SettingError, match="needs a folder for its logs"):
        train(ensemble(), task, QUICK, tensorboard=True, show=False)


def test_tensorboard_that_is_not_installed_is_told_before_training(task, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(pl.SettingError, match="needs the package tensorboard, but it is not installed"):
        train(ensemble(), task, QUICK, out=tmp_path, tensorboard=True, show=False)
    assert not list(tmp_path.iterdir())


def test_training_ends_calibrated_unless_that_is_not_wanted(task):
    one = ensemble()
    train(one, task, QUICK, show=False)
    assert one.calibration.samples == len(task.validation)
    train(one, task, QUICK, show=False, calibrate=False)
    assert one.calibration is None


def test_a_calibration_that_fails_does_not_lose_the_training(task, caplog, monkeypatch):
    def fail(self, data):
        raise pl.InputError("targets must be classes.")

    monkeypatch.setattr(pl.Ensemble, "calibrate", fail)
    assert len(train(ensemble(), task, QUICK, show=False)) == 3
    assert "the ensemble is not calibrated: targets must be classes." in caplog.text
