"""finetune: warm start, low learning rate, calibration, and a table before and after."""

import copy
import logging

import pytest
import torch
from torch import nn

import pluribus as pl
from pluribus import methods
from pluribus.comparison.finetuning import TUNING, usual_training, warm_start
from pluribus.data import two_moons
from pluribus.recipe import COPIES_LR


@pytest.fixture(scope="module")
def task():
    return two_moons(train=300)


@pytest.fixture(scope="module")
def trained(task):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(40):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(task.train.x), task.train.y).backward()
        optimizer.step()
    return model


def test_a_trained_network_becomes_a_calibrated_ensemble(trained, task, tmp_path):
    weights = copy.deepcopy(trained.state_dict())
    found = pl.finetune(trained, "lora_ensembles(members=3)", task, out=tmp_path, show=False)
    assert all(torch.equal(weights[name], value) for name, value in trained.state_dict().items())
    assert found.ensemble.calibration is not None
    assert found.after.metrics["nll"] <= found.before.metrics["nll"] + 0.01
    titles = [name for name, *_ in found.table()]
    assert {"accuracy", "NLL", "NLL calibrated", "ECE", "parameters", "multiply-adds"} <= set(titles)
    assert str(found).splitlines()[1].split() == ["before", "after"]
    assert "<table" in found._repr_html_()
    again = pl.load(tmp_path / "ensemble", copy.deepcopy(trained))
    assert torch.equal(again(task.test.x[:5]), found.ensemble(task.test.x[:5]))


def test_members_start_from_the_network_where_the_method_can():
    assert warm_start(methods.DeepEnsembles(), None).start == "copy"
    assert warm_start(methods.DeepSubEnsembles(), None).start == "copy"
    assert warm_start(methods.MCDropout(), None) == methods.MCDropout()
    kept = ("deep_ensembles", "deep_sub_ensembles", "layer_ensembles", "lora_ensembles", "single")
    for name in methods.__all__:
        method = warm_start(getattr(methods, name)(), None)
        assert (method.on_trained == "kept") == (method.kind() in kept)
        assert warm_start(method, None) == method


def test_settings_that_a_user_changed_stay():
    assert warm_start(methods.SWAG(), None).start == 0
    assert warm_start(methods.SWAG(start=0.5), None).start == 0.5
    assert warm_start(methods.EMP(perturbation=0.2), None).perturbation == 0.2
    assert warm_start(methods.BatchEnsemble(std=0.3), None).std == 0.3
    assert warm_start(methods.LayerEnsembles(prior_scale=0.5), None).prior_scale == 0.5


def test_a_recipe_tells_rate_and_schedule_of_tuning():
    found = usual_training(warm_start(methods.SWAG(), None))
    assert (found.schedule, found.epochs) == ("constant", TUNING.epochs)
    assert found.rate(1.0) == found.lr > 0
    assert usual_training(methods.MCDropout()) == TUNING
    for copies in (methods.DeepEnsembles(), methods.DeepSubEnsembles(), methods.LayerEnsembles()):
        # Copies part slowly; started anew they have no tuning, and no rate for one.
        assert usual_training(warm_start(copies, None)).lr == COPIES_LR > TUNING.lr
        assert copies.recipe().tuning_lr is None


def test_shared_weights_are_frozen_where_the_method_can():
    assert warm_start(methods.EMP(), freeze_shared=True).freeze_shared
    with pytest.raises(pl.SettingError, match="freeze_shared needs a method with that setting"):
        warm_start(methods.MCDropout(), freeze_shared=True)


def test_a_network_that_is_not_kept_is_trained_anew(caplog):
    assert usual_training(methods.LoRAEnsembles()).lr > TUNING.lr
    with caplog.at_level(logging.WARNING):
        assert usual_training(methods.PackedEnsembles()) == pl.Training()
    assert "not kept" in caplog.text


@pytest.mark.parametrize(
    ("method", "remedy"),
    [
        ("mc_dropout(rate=0.5)", "did not learn to bear what is dropped"),
        ("drop_connect(rate=0.5)", "did not learn to bear what is dropped"),
        ("laplace(prior_precision=0.0001)", "Set prior_precision to 10 or 100"),
        ("packed_ensembles(members=2)", "not kept, and this training did not reach it again"),
    ],
)
def test_finetune_warns_where_the_nll_rises(method, remedy, trained, task):
    short = pl.Training(epochs=1, lr=1e-5)
    found = pl.finetune(trained, method, task, training=short, show=False)
    assert found.after.metrics["nll"] > found.before.metrics["nll"] + 0.01
    assert remedy in str(found).splitlines()[-1]
    assert remedy in found._repr_html_()


def test_finetune_gives_no_advice_where_the_nll_falls(trained, task):
    found = pl.finetune(
        trained, "lora_ensembles(members=2)", task, training=pl.Training(epochs=2), show=False
    )
    assert found.advice == ""
    assert "higher than that of the network" not in str(found)


def test_finetune_tells_of_a_rate_that_is_not_used(task):
    network = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))
    short = pl.Training(epochs=1, lr=1e-5)
    found = pl.finetune(network, methods.MCDropout(rate=0.5), task, training=short, show=False)
    note = "note: rate=0.5 is not used: the network's own dropout keeps its rate, 0.2"
    assert note in str(found)
    assert note.replace("'", "&#x27;") in found._repr_html_()


def test_finetune_warns_of_members_that_hardly_differ(trained, task):
    """Copies cost M times as much as the network, and their scores look no worse than its own."""

    def notes(lr):
        training = pl.Training(epochs=2, lr=lr, optimizer="adamw", keep="last")
        return pl.finetune(trained, "deep_ensembles(members=2)", task, training=training, show=False).notes

    alike = notes(1e-6)
    assert [note.split(":")[0] for note in alike] == ["collapsed"]
    assert alike[0].endswith("Tune for more epochs or with a larger lr.")
    assert notes(0.1) == ()
