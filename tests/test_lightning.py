"""Lightning's Trainer trains ensembles: hooks of methods, scores, clipping, checkpoints, calibration."""

import logging

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import pluribus as pl
from pluribus.errors import SettingError
from pluribus.methods import SWAG, BatchEnsemble, DeepEnsembles, MCDropout

lightning = pytest.importorskip("lightning.pytorch")
from pluribus.lightning import EnsembleModule  # noqa: E402  # needs the package

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning advises on workers and devices


@pytest.fixture(autouse=True)
def _quiet():
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def data(count=48, batch=16, shuffle=False):
    generator = torch.Generator().manual_seed(count)
    x = torch.randn(count, 2, generator=generator)
    return DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=batch, shuffle=shuffle)


def make(method=None, **options):
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    ensemble = pl.convert(network, method or DeepEnsembles(members=2))
    return EnsembleModule(ensemble, pl.Training(lr=0.05), **options)


def fit(module, epochs=2, checkpoint=None, folder=None, **options):
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        **options,
    )
    trainer.fit(module, data(shuffle=True), data(40), ckpt_path=checkpoint)
    return trainer


def test_module_trains_scores_and_calibrates():
    module = make()
    trainer = fit(module, epochs=8)
    assert trainer.callback_metrics["val_nll"] < 0.3
    assert trainer.callback_metrics["train_loss"] < 1
    assert module.ensemble.calibration.samples == 40
    assert not module.ensemble.training
    predictions = trainer.predict(module, data(20))
    assert sum(map(len, predictions)) == 20
    assert trainer.test(module, data(20), verbose=False)[0]["test_nll"] < 0.4


def test_module_calls_the_hooks_of_the_method(monkeypatch):
    module = make(calibrate=False)
    progress, steps, finished = [], [], []
    loss = module.ensemble.loss

    def loss_spy(x, y, **options):
        progress.append((options["progress"], options["dataset_size"]))
        return loss(x, y, **options)

    monkeypatch.setattr(module.ensemble, "loss", loss_spy)
    monkeypatch.setattr(module.ensemble, "after_step", steps.append)
    monkeypatch.setattr(module.ensemble, "finish", lambda loader: finished.append(len(loader.dataset)))
    fit(module, epochs=2, accumulate_grad_batches=3)
    assert steps == [0.5, 1.0]
    assert progress == [(0.0, 48)] * 3 + [(0.5, 48)] * 3
    assert finished == [48]
    assert module.ensemble.calibration is None


def test_methods_that_are_not_ready_are_not_scored():
    module = make(SWAG(members=2, snapshots=2))
    trainer = fit(module, epochs=4)
    assert module.ensemble.method.is_ready(module.ensemble.members)
    assert "val_nll" in trainer.callback_metrics


@pytest.mark.parametrize(
    "method", [MCDropout(rate=0.2, draws=2), pytest.param(BatchEnsemble(members=2), marks=pytest.mark.slow)]
)
def test_resumed_training_ends_with_the_same_weights(tmp_path, method):
    whole = make(method)
    fit(whole, epochs=3, callbacks=[])
    first = make(method)
    # The schedule of the learning rate is that of three epochs, of which the first training takes two.
    stop = lightning.callbacks.LambdaCallback(
        on_train_epoch_end=lambda trainer, _: setattr(trainer, "should_stop", trainer.current_epoch == 1)
    )
    save = lightning.callbacks.ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1)
    trainer = lightning.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[save, stop],
    )
    trainer.fit(first, data(shuffle=True), data(40))
    torch.manual_seed(99)
    resumed = make(method)
    fit(resumed, epochs=3, checkpoint=str(tmp_path / "epoch=1.ckpt"))
    for one, other in zip(whole.ensemble.parameters(), resumed.ensemble.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_members_are_clipped_apart():
    module = make()
    for parameter in module.ensemble.parameters():
        parameter.grad = torch.ones_like(parameter)
    module.configure_gradient_clipping(None, 1e-3, "norm")
    squares = [p.grad.flatten(1).square().sum(1) for p in module.ensemble.members.tensors.own.parameters()]
    torch.testing.assert_close(torch.stack(squares).sum(0).sqrt(), torch.full((2,), 1e-3))


def test_module_refuses_other_models():
    with pytest.raises(SettingError, match="ensemble must be an Ensemble"):
        EnsembleModule(torch.nn.Linear(2, 2))
    with pytest.raises(SettingError, match="training must be a Training"):
        EnsembleModule(make().ensemble, training=0.1)
