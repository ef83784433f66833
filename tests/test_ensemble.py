"""Ensemble: losses, training, predictions, single members, copies."""

import copy
import pickle
import types
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

import pluribus as pl
from pluribus.mechanisms.members.axis import split_batch
from pluribus.mechanisms.running.batched import STACKED_ROWS
from pluribus.methods import BatchEnsemble, DeepEnsembles, EarlyExit, Masksembles, MCDropout, Single
from tests import verify
from tests.cases import case_named, normal
from tests.zoo import Apply, Listed, TwoInputs, batch_norm_mlp, frozen_trunk, mlp, tied_linears

METHODS = [
    Single(),
    DeepEnsembles(members=3),
    DeepEnsembles(members=STACKED_ROWS),
    DeepEnsembles(members=2, prior_scale=0.5),
    BatchEnsemble(members=3),
    BatchEnsemble(members=3, repeat=True),
    MCDropout(rate=0.3, draws=3, train_draws=2),
]
X, Y = normal(6)(), case_named("mlp").target()

each_method = pytest.mark.parametrize("method", METHODS, ids=str)


def ensemble(method: pl.Method, model: nn.Module | None = None, **options) -> pl.Ensemble:
    return pl.convert((mlp() if model is None else model).double(), method, **options)


def step(one: pl.Ensemble, lr: float = 0.1) -> None:
    """One step of training."""
    optimizer = torch.optim.SGD(one.train().parameter_groups(lr))
    one.loss(X, Y).backward()
    optimizer.step()


@each_method
def test_the_loss_is_the_mean_of_the_members_losses(method):
    one = ensemble(method).eval()
    losses = [F.cross_entropy(row, Y) for row in one(X)]
    assert_close(one.loss(X, Y), torch.stack(losses).mean())


@each_method
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("training", [True, False])
def test_a_criterion_stands_in_for_the_likelihood(training, reduction, method):
    one = ensemble(method).train(training)
    torch.manual_seed(0)
    expected = one.loss(X, Y)
    torch.manual_seed(0)
    assert_close(one.loss(X, Y, criterion=nn.CrossEntropyLoss(reduction=reduction)), expected)


@each_method
def test_progress_and_samples_may_be_said_and_change_nothing_here(method):
    one = ensemble(method).eval()
    for progress in (0, 0.5, 1.0):
        assert_close(one.loss(X, Y, progress=progress, dataset_size=50_000), one.loss(X, Y))


@pytest.mark.parametrize("members", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("batch", [*range(1, 18), 64])
def test_a_divided_batch_shows_every_sample_to_one_member(batch, members):
    parts = split_batch(batch, members)
    assert len(parts) == members
    assert_close(torch.cat(parts).sort().values, torch.arange(batch))
    sizes = [len(part) for part in parts if len(part)]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= min(2, batch)
    assert len(sizes) == min(members, max(1, batch // 2))


@pytest.mark.parametrize("batch", [1, 2, 3, 5, 10])
def test_a_divided_batch_weighs_every_sample_alike(batch):
    one, seen = ensemble(BatchEnsemble(members=4)), []

    def criterion(outputs, y):
        seen.append(y)
        return y.double() + 0 * outputs.sum(1)

    assert_close(one.train().loss(X[:batch], Y[:batch], criterion=criterion), Y[:batch].double().mean())
    assert_close(torch.cat(seen).sort().values, Y[:batch].sort().values)


@pytest.mark.parametrize("batch", range(2, 10))
def test_a_divided_batch_suits_batch_norm(batch):
    one = ensemble(BatchEnsemble(members=4), batch_norm_mlp()).train()
    loss = one.loss(X[:batch], Y[:batch])
    loss.backward()
    assert loss.isfinite()
    active = one.members.tensors.own.get_buffer("1.num_batches_tracked")
    assert_close(active.sum(), torch.tensor(min(4, batch // 2)))


@each_method
@pytest.mark.parametrize("build", [mlp, frozen_trunk, tied_linears])
def test_every_trainable_parameter_is_in_one_group(build, method):
    one = ensemble(method, build())
    groups = one.parameter_groups(0.1, weight_decay=0.01)
    grouped = [id(parameter) for group in groups for parameter in group["params"]]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == {id(parameter) for parameter in one.parameters() if parameter.requires_grad}
    assert all(group["lr"] == 0.1 for group in groups)


def test_factors_do_not_decay_and_weights_do():
    one = ensemble(BatchEnsemble(members=3))
    decays, exempt = one.parameter_groups(0.1, weight_decay=0.01)
    assert (decays["weight_decay"], exempt["weight_decay"]) == (0.01, 0.0)
    factors = [*one.members.tensors.first.parameters(), *one.members.tensors.second.parameters()]
    assert {id(parameter) for parameter in exempt["params"]} == set(map(id, factors))
    assert len(factors) == 6


@each_method
def test_training_lowers_the_loss_of_every_member(method):
    torch.manual_seed(0)
    one = ensemble(method)
    before = [F.cross_entropy(row, Y) for row in one.eval()(X)]
    for _ in range(60):
        step(one)
        one.zero_grad()
    after = [F.cross_entropy(row, Y) for row in one.eval()(X)]
    assert all(late < early for late, early in zip(after, before, strict=True))


DICTS = [{"x": x, "labels": y} for x, y in zip(X, Y, strict=True)]
LOADERS = {
    "tensors": (Listed, X, DataLoader(X, batch_size=4)),
    "inputs and targets": (Listed, X, DataLoader(TensorDataset(X, Y), batch_size=4)),
    "dicts with labels": (Listed, X, DataLoader(DICTS, batch_size=4)),
    "a list of batches": (Listed, X, list(X.split(4))),
    "two inputs": (TwoInputs, (X, X[:, :4]), DataLoader(TensorDataset(X, X[:, :4]), batch_size=4)),
    "two inputs and targets": (
        TwoInputs,
        (X, X[:, :4]),
        [(X[:7], X[:7, :4], Y[:7]), (X[7:], X[7:, :4], Y[7:])],
    ),
    "two keywords": (TwoInputs, (X, X[:, :4]), [{"x": X, "y": X[:, :4], "labels": Y}]),
}


@pytest.mark.parametrize("name", LOADERS)
def test_a_loader_predicts_what_its_batches_do(name):
    build, inputs, loader = LOADERS[name]
    one = ensemble(DeepEnsembles(members=2), build())
    assert_close(one.predict(loader).members, one.predict(inputs).members)


@each_method
@pytest.mark.parametrize("chunk", [1, 3, 10, 99])
def test_chunks_change_nothing(chunk, method):
    one = ensemble(method)
    assert_close(one.predict(X, chunk=chunk).members, one.predict(X).members)


FOLDS = {
    "sample-major": (lambda x: x.flatten(0, 1), lambda x: x.unflatten(0, (-1, 3)).mean(1)),
    "step-major": (lambda x: x.transpose(0, 1).flatten(0, 1), lambda x: x.unflatten(0, (3, -1)).mean(0)),
}


@pytest.mark.parametrize("name", FOLDS)
def test_a_kept_mask_does_not_depend_on_the_batch_though_the_batch_is_folded(name):
    fold, unfold = map(Apply, FOLDS[name])
    model = nn.Sequential(nn.Linear(6, 8), fold, nn.Dropout(0.5), nn.Linear(8, 3), unfold)
    x = normal(3, 6)()
    one = ensemble(MCDropout(draws=2), model, example=x)
    assert_close(one.predict(x, chunk=4).members, one.predict(x).members)


@each_method
def test_inference_mode_changes_nothing(method):
    one = ensemble(method).eval()
    expected = one(X).detach()
    with torch.inference_mode():
        assert_close(one(X), expected)
        assert_close(one.predict(X.clone()).members, expected)
        outside = X.clone()
    assert_close(one.predict(outside).members, expected)


@each_method
def test_predict_leaves_modes_and_statistics_and_makes_no_graph(method):
    model = batch_norm_mlp().train()
    model[1].eval()
    one = ensemble(method, model)
    before, modes = copy.deepcopy(one.state_dict()), verify.modes(one)
    assert modes.count(False) == 1
    random = torch.get_rng_state()
    prediction = one.predict(X)
    assert not prediction.members.requires_grad
    assert one.training
    assert verify.modes(one) == modes
    assert torch.equal(torch.get_rng_state(), random)
    assert_close(one.state_dict(), before, rtol=0, atol=0)
    one.eval().predict(X)
    assert not one.training


@each_method
def test_weights_sum_to_one(method):
    weights = ensemble(method).weights
    assert_close(weights.sum(), torch.tensor(1.0))
    assert len(weights) == getattr(method, "members", getattr(method, "draws", 1))


@each_method
def test_named_rows_come_in_the_order_given(method):
    one = ensemble(method).eval()
    rows, last = one(X), len(one.weights) - 1
    assert_close(one(X, members=[last, 0, last]), rows[[last, 0, last]])


@each_method
def test_a_frozen_ensemble_is_the_ensemble_in_eval_mode(method):
    one = ensemble(method, batch_norm_mlp())
    step(one)
    frozen = one.freeze()
    assert_close(frozen.train()(X), one.eval()(X).detach())
    assert not frozen.training
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    assert not frozen(X).requires_grad
    before = frozen(X)
    step(one)
    assert_close(frozen(X), before, rtol=0, atol=0)


@each_method
def test_a_member_is_a_copy_of_its_own(method):
    one = ensemble(method, Listed()).eval()
    before, member = one(X), one.member(0)
    assert not member.training
    with torch.no_grad():
        for parameter in member.parameters():
            parameter.add_(1)
    assert_close(one(X), before, rtol=0, atol=0)
    assert not torch.equal(member(X), before[0])


@pytest.mark.parametrize("method", [METHODS[0], METHODS[1], METHODS[4]], ids=str)
@pytest.mark.parametrize("build", [Listed, tied_linears, batch_norm_mlp])
def test_a_member_has_the_class_and_the_state_of_the_network(build, method):
    model = build()
    member = ensemble(method, model).member(0)
    assert type(member) is type(model)
    assert list(member.state_dict()) == list(model.state_dict())
    fresh = build().double()
    fresh.load_state_dict(member.state_dict())
    assert_close(fresh.eval()(X), member(X))


@each_method
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_after_a_step_goes_its_own_way(copied, method):
    one = ensemble(method, batch_norm_mlp())
    step(one)
    other = copied(one)
    assert_close(other.eval()(X), one.eval()(X), rtol=0, atol=0)
    before = one(X)
    step(other)
    assert_close(one(X), before, rtol=0, atol=0)
    assert not torch.equal(other.eval()(X), before)


@each_method
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dtype_moves_everything(dtype, method):
    one = ensemble(method, batch_norm_mlp())
    expected = one.eval()(X)
    moved = one.to(dtype)(X.to(dtype))
    assert moved.dtype == dtype
    assert_close(moved.double(), expected, rtol=0.1, atol=0.1)
    one.member(0)(X.to(dtype))
    one.train().loss(X.to(dtype), Y).backward()


CHANGES_INPUT = {
    "conv": lambda: nn.Sequential(
        Apply(lambda x: x.mul_(2)), nn.Unflatten(1, (2, 3)), nn.Conv1d(2, 3, 3), nn.Flatten()
    ),
    "linear": lambda: nn.Sequential(Apply(lambda x: x.mul_(2)), nn.Linear(6, 3)),
    "dropout": lambda: nn.Sequential(nn.Dropout(0.5, inplace=True), nn.Linear(6, 3)),
}


@each_method
@pytest.mark.parametrize("name", CHANGES_INPUT)
def test_a_network_that_changes_its_input_in_place_gives_every_member_the_same_input(name, method):
    one = ensemble(method, CHANGES_INPUT[name](), example=X.clone()).eval()
    rows = one(X.clone())
    for i, row in enumerate(rows):
        assert_close(one.member(i)(X.clone()), row)


class Average(nn.Module):
    """Keeps a running mean in a buffer that it assigns anew, as much code does."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return self.head(x - self.mean)


@each_method
def test_a_buffer_that_is_assigned_in_training_is_kept(method):
    one = ensemble(method, Average()).train()
    one(X)
    kept = [
        value for name, value in one.state_dict().items() if name.endswith("mean") and "prior" not in name
    ]
    assert kept
    for value in kept:
        assert value.abs().amax() > 0


class Cached(Listed):
    """Keeps a mask for as many samples as it has seen, or throws it away."""

    def __init__(self, grows: bool, saved: bool = False) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones(1, 6, dtype=torch.float64), persistent=saved)
        self.grows = grows

    def forward(self, x):
        if self.mask is None or len(self.mask) < len(x):
            self.mask = torch.ones_like(x)
        y = super().forward(x * self.mask[: len(x)])
        if not self.grows:
            self.mask = None
        return y


@each_method
@pytest.mark.parametrize("grows", [True, False])
def test_a_cache_may_change_its_shape(grows, method):
    one = ensemble(method, Cached(grows), example=X).eval()
    for batch in (2, 10, 5):
        assert_close(one(X[:batch]), one(X)[:, :batch])


def test_a_buffer_that_is_saved_may_not_change_its_shape():
    one = ensemble(Single(), Cached(grows=True, saved=True))
    with pytest.raises(pl.PluribusError, match="mask"):
        one(X)


def test_statistics_that_members_share_give_all_of_them_the_same_numbers():
    method = BatchEnsemble(members=3, std=0.0, repeat=True)
    first, *others = ensemble(method, Average(), include="head").train()(X + 3)
    for other in others:
        assert_close(other, first)


@pytest.mark.parametrize("method", [DeepEnsembles(members=2), BatchEnsemble(members=2, repeat=True)], ids=str)
def test_statistics_of_a_frozen_batch_norm_belong_to_the_member(method):
    model = batch_norm_mlp()
    model[1].requires_grad_(False)
    one = ensemble(method, model).train()
    alone = one.member(1).train()
    one(X)
    alone(X)
    assert_close(one.eval()(X)[1], alone.eval()(X))


FUNCTIONS = [F.dropout, F.dropout1d, F.alpha_dropout, F.feature_alpha_dropout, torch.dropout]
FUNCTIONS += [torch.feature_dropout, torch.alpha_dropout, torch.feature_alpha_dropout, torch.dropout_]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_kept_masks_reach_every_dropout_function_of_torch(function):
    model = Listed()

    def forward(self, x):
        hidden = self.layers[0](x).tanh()
        return self.layers[2](function(hidden.unsqueeze(-1), 0.5, self.training).squeeze(-1))

    model.forward = types.MethodType(forward, model)
    one = ensemble(MCDropout(draws=3), model, exclude="layers.1").eval()
    assert_close(one(X), one(X), rtol=0, atol=0)
    assert not torch.equal(*one(X)[:2])


def test_an_ensemble_prints_its_method_likelihood_and_network():
    assert repr(ensemble(Single())) == "Ensemble(Single(), Categorical(), network=Sequential)"


class GraphNetwork(nn.Module):
    """Nodes send messages along edges, so that no part of a graph can do without the others."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x, edges):
        hidden = self.first(x)
        received = torch.zeros_like(hidden).index_add(0, edges[1], hidden[edges[0]])
        return self.last(received.relu())


@pytest.mark.parametrize("method", [BatchEnsemble(members=3), Masksembles(members=3)], ids=str)
def test_a_graph_whose_nodes_cannot_be_divided_is_refused_with_the_right_remedy(method):
    edges = torch.tensor([range(10), [*range(1, 10), 0]])
    one = ensemble(method, GraphNetwork(), example=(X, edges)).train()
    name = type(method).__name__
    with pytest.raises(pl.InputError, match=rf"runs on all 10 samples.*Use {name}\(repeat=True\)"):
        one.loss((X, edges), Y)
    whole = ensemble(replace(method, repeat=True), GraphNetwork(), example=(X, edges)).train()
    assert whole.loss((X, edges), Y).isfinite()


def test_inputs_that_do_not_fit_are_not_blamed_on_the_division():
    one = ensemble(BatchEnsemble(members=3)).train()
    with pytest.raises(pl.InputError, match="check shapes"):
        one.loss(X[:, :4], Y)


def validation(samples=60, seed=0):
    """Samples of three classes around three corners."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(samples) % 3
    x = torch.randn(samples, 4, generator=generator) + 2 * F.one_hot(y, 4)
    return x.double(), y


def calibrated(method=None) -> pl.Ensemble:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    one = ensemble(method or DeepEnsembles(members=3), model)
    one.eval().calibrate(validation())
    return one


@pytest.mark.parametrize(
    "method", [Single(), DeepEnsembles(members=3), MCDropout(rate=0.3, draws=3)], ids=str
)
def test_a_calibration_is_kept_in_files_and_in_frozen_and_copied_ensembles(method, tmp_path):
    one, x = calibrated(method), validation(20, seed=1)[0]
    one.save(tmp_path / "run")
    loaded = pl.load(tmp_path / "run", nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
    expected = one.predict(x)
    assert loaded.calibration.to_dict() == one.calibration.to_dict()
    for other in (loaded, one.freeze(), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        prediction = other.predict(x)
        assert_close(prediction.probabilities, expected.probabilities)
        assert_close(prediction.sets, expected.sets)
        assert_close(prediction.ood_score, expected.ood_score)
    assert_close(expected.raw.probabilities, one(x).softmax(2).mean(0))


def test_calibrating_again_starts_from_raw_predictions():
    one = calibrated()
    first = one.calibration
    assert one.calibrate(validation()).to_dict() == first.to_dict()
    assert one.calibrate(validation(), level=0.5).quantile < first.quantile


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.train().loss(*validation()),
        lambda one: one.train()(validation()[0]),
        lambda one: one.after_step(0.5),
        lambda one: one.finish([validation()[0]]),
        lambda one: one.load_state_dict(one.state_dict()),
    ],
    ids=["loss", "forward", "after_step", "finish", "load_state_dict"],
)
def test_further_training_drops_the_calibration_with_a_note(change, caplog):
    one = calibrated()
    change(one)
    assert one.calibration is None
    assert "drops the calibration. Call ensemble.calibrate(data) again." in caplog.text
    with pytest.raises(pl.InputError, match="must be calibrated"):
        _ = one.predict(validation()[0]).sets


def test_evaluation_keeps_the_calibration():
    one = calibrated()
    one.eval()(validation()[0])
    one.loss(*validation())
    one.rank(validation())
    assert one.calibration is not None


def test_other_members_than_the_calibrated_ones_are_not_calibrated(caplog):
    one, (x, y) = calibrated(), validation()
    one.rank((x, y))
    assert one.predict(x, best=2).calibration is None
    assert "predict(best=) is not calibrated" in caplog.text
    assert calibrated(MCDropout(rate=0.3, draws=3)).predict(x, draws=2).calibration is None
    assert "predict(draws=) is not calibrated" in caplog.text
    assert one.predict(x).calibration is one.calibration
    small = one.shrink([0, 1])
    assert small.calibration is None
    assert one.calibration is not None
    assert "shrink drops the calibration" in caplog.text


def test_leaving_early_is_not_calibrated(caplog):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    one = pl.convert(model.double(), EarlyExit(), example=validation(2)[0])
    one.eval().calibrate(validation())
    assert one.predict(validation()[0], exit_when=0.4).calibration is None
    assert "predict(exit_when=) is not calibrated" in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 1.0}, "level must be below 1"),
        ({"false_alarm": 0.0}, "false_alarm must be above 0"),
        ({"chunk": 0}, "chunk must be at least 1"),
        ({"shifted": "noise"}, "shifted must be"),
    ],
)
def test_impossible_calibrations_are_refused(options, message):
    with pytest.raises(pl.SettingError, match=message):
        calibrated().calibrate(validation(), **options)
