"""The state of a checkpoint fits the ensemble and the optimizer, or nothing is changed."""

import pytest
import torch

import pluribus as pl
from pluribus.data import two_moons
from pluribus.methods import DeepEnsembles
from pluribus.schema import Mismatch
from pluribus.training import Training, checkpoint, train
from pluribus.training.fitting import check_optimizer, check_tensors


def trained(folder):
    ensemble = pl.convert(torch.nn.Linear(2, 2), DeepEnsembles(members=2))
    train(ensemble, two_moons(train=40), Training(epochs=1), out=folder, show=False)


MISFITS = {
    "weights of another shape": (
        lambda s: s["weights"],
        "members.tensors.own.bias",
        "field weights.members.tensors.own.bias must be",
    ),
    "best weights of another shape": (
        lambda s: s["progress"]["best_weights"],
        "members.tensors.own.bias",
        "field progress.best_weights.members.tensors.own.bias must be",
    ),
    "an optimizer of another shape": (
        lambda s: s["optimizer"]["state"][0],
        "exp_avg",
        r"field optimizer.state.0.exp_avg must have shape",
    ),
    "random numbers of another length": (lambda s: s, "random", "field random must be"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_tensors_of_another_shape_are_refused_before_anything_changes(name, tmp_path):
    place, key, says = MISFITS[name]
    trained(tmp_path)
    state = torch.load(tmp_path / checkpoint.FILE, weights_only=True)
    place(state)[key] = torch.zeros(7, 7)
    torch.save(state, tmp_path / checkpoint.FILE)
    with pytest.raises(pl.CheckpointError, match=says):
        trained(tmp_path)


def test_tensors_that_are_missing_or_unknown_are_named():
    held = {"w": torch.zeros(2)}
    with pytest.raises(Mismatch, match=r"field x.w is missing"):
        check_tensors("x", {}, held)
    with pytest.raises(Mismatch, match=r"field x.v is unknown"):
        check_tensors("x", held | {"v": torch.zeros(2)}, held)
    with pytest.raises(Mismatch, match=r"field x.w must be torch.float32 \[2\], got torch.float64 \[2\]"):
        check_tensors("x", {"w": torch.zeros(2).double()}, held)


def test_an_optimizer_of_other_groups_is_refused():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.1)
    state = optimizer.state_dict()
    with pytest.raises(Mismatch, match=r"param_groups must have \[1\] parameters, got \[2\]"):
        check_optimizer(state | {"param_groups": [{"params": [0, 1]}]}, optimizer)
    with pytest.raises(Mismatch, match="must be of known parameters, got number 7"):
        check_optimizer(state | {"state": {7: {}}}, optimizer)


DAMAGED = {
    "another setting": (
        lambda s: s["param_groups"][0].update(amsgrad=True),
        "amsgrad must be False, got True",
    ),
    "a setting that is missing": (lambda s: s["param_groups"][0].pop("betas"), "betas is missing"),
    "a value that is missing": (lambda s: s["state"][0].pop("exp_avg"), "state.0 must hold"),
    "truth as a count of steps": (lambda s: s["state"][0].update(step=torch.tensor(True)), "must be a count"),
    "a complex count of steps": (lambda s: s["state"][0].update(step=torch.tensor(1j)), "must be a count"),
    "a negative count of steps": (lambda s: s["state"][0].update(step=torch.tensor(-1.0)), "must be a count"),
    "no count of steps": (lambda s: s["state"][0].update(step=torch.tensor(torch.nan)), "must be a count"),
    "a count of steps on no device": (
        lambda s: s["state"][0].update(step=torch.tensor(1.0, device="meta")),
        "must be a count",
    ),
    "a value that is no tensor": (lambda s: s["state"][0].update(exp_avg="x"), "exp_avg must be a tensor"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_an_optimizer_that_would_fail_in_its_next_step_is_refused(name, tmp_path):
    damage, says = DAMAGED[name]
    trained(tmp_path)
    state = torch.load(tmp_path / checkpoint.FILE, weights_only=True)
    damage(state["optimizer"])
    torch.save(state, tmp_path / checkpoint.FILE)
    with pytest.raises(pl.CheckpointError, match=says):
        trained(tmp_path)


@pytest.mark.parametrize(
    "settings", [{"optimizer": "sgd"}, {"optimizer": "sgd", "momentum": 0.9}, {"optimizer": "adamw"}]
)
def test_optimizers_continue(settings, tmp_path):
    for _ in range(2):
        ensemble = pl.convert(torch.nn.Linear(2, 2), DeepEnsembles(members=2))
        rows = train(ensemble, two_moons(train=40), Training(epochs=1, **settings), out=tmp_path, show=False)
    assert len(rows) == 1
