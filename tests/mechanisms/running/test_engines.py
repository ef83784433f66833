"""Running: rows are what their members are, however they run, and backward finds what forward used."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import pluribus as pl
from pluribus.errors import InputError
from pluribus.mechanisms.members.caller import Caller
from pluribus.mechanisms.running import batched
from pluribus.methods import EMP, BatchEnsemble, DeepEnsembles, EarlyExit, MCDropout, Single
from tests import zoo
from tests.cases import blocks, seeded
from tests.verify import looped_copy, modes, refused_by_vmap

x, y = torch.randn(12, 6, dtype=torch.float64, generator=seeded(0)), torch.arange(12) % 3


class Checkpointed(nn.Module):
    """Two blocks, run again in backward unless `reentrant` is None."""

    def __init__(self, reentrant, rate):
        super().__init__()
        torch.manual_seed(0)
        block = [nn.Linear(8, 8), nn.Tanh(), nn.Dropout(rate), nn.Linear(8, 8), nn.Tanh()]
        self.first, self.head, self.reentrant = nn.Linear(6, 8), nn.Linear(8, 3), reentrant
        self.blocks = nn.ModuleList([nn.Sequential(*block), nn.Sequential(*copy.deepcopy(block))])
        self.double()

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x) if self.reentrant is None else checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(x)


def once(ensemble):
    ensemble.loss(x, y).backward()


def twice(ensemble):
    (ensemble.loss(x, y) + 2 * ensemble.loss(x[:5], y[:5])).backward()


def looking_between(ensemble):
    loss = ensemble.loss(x, y)
    ensemble.predict(x)
    loss.backward()


def row_by_row(ensemble):
    rows = [ensemble(x, members=[row]).square().sum() for row in range(len(ensemble.weights))]
    sum(weight * row for weight, row in enumerate(rows, 1)).backward()


def in_eval_mode(ensemble):
    ensemble.eval()(x).square().sum().backward()


METHODS = [
    Single(),
    DeepEnsembles(members=3),
    DeepEnsembles(members=9),
    DeepEnsembles(members=2, prior_scale=0.5),
    BatchEnsemble(members=3),
    BatchEnsemble(members=8),
    BatchEnsemble(members=2, repeat=True),
    MCDropout(draws=3, train_draws=2),
]


STEPS = [once, twice, looking_between, row_by_row, in_eval_mode]


def gradients(method, reentrant, step):
    rate = 0.3 if isinstance(method, MCDropout) else 0.0
    ensemble = pl.convert(Checkpointed(reentrant, rate), method, example=x).train()
    torch.manual_seed(1)
    step(ensemble)
    return {name: p.grad for name, p in ensemble.named_parameters() if p.requires_grad}


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # runs without gradients
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("reentrant", [False, True], ids=["new", "reentrant"])
@pytest.mark.parametrize("method", METHODS[:-1], ids=str)
@pytest.mark.sampled(3)
def test_checkpointed_networks_have_the_gradients_of_plain_ones(method, reentrant, step):
    assert_close(gradients(method, reentrant, step), gradients(method, None, step))


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("reentrant", [False, True], ids=["new", "reentrant"])
def test_kept_draws_of_checkpointed_networks_have_right_gradients_or_say_so(reentrant, step):
    # Backward would run the blocks again without the masks.
    method = METHODS[-1]
    try:
        came = gradients(method, reentrant, step)
    except InputError:
        return
    assert_close(came, gradients(method, None, step))


@pytest.mark.parametrize("method", [DeepEnsembles(members=8), BatchEnsemble(members=9, repeat=True)], ids=str)
@pytest.mark.parametrize("build", [zoo.mlp, zoo.layer_norm, zoo.SharedModule, zoo.tied_linears])
def test_many_small_networks_run_at_once_and_the_same(build, method, monkeypatch):
    stacked = pl.convert(build().double(), method)
    looped = looped_copy(stacked)
    calls = []
    monkeypatch.setattr(batched.Batched, "run", counted(batched.Batched.run, calls))
    for ensemble in (stacked, looped):
        ensemble.loss(x, y).backward()
    assert len(calls) == 1
    assert_close(stacked(x), looped(x))
    for one, other in zip(stacked.parameters(), looped.parameters(), strict=True):
        assert_close(one.grad, other.grad)


def counted(function, calls):
    def call(*args):
        calls.append(args)
        return function(*args)

    return call


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (zoo.mlp, ""),
        (zoo.residual_cnn, "0 is a Conv2d"),
        (zoo.batch_norm_mlp, "1 is a BatchNorm1d"),
        (zoo.ListedParameters, "weights is a ParameterList"),
        (zoo.CustomMatmul, "the network itself is a CustomMatmul"),
    ],
)
def test_the_layer_that_keeps_rows_from_being_stacked_is_named(build, reason):
    assert batched.why_not_stacked(Caller(build())) == reason


@pytest.mark.parametrize("build", [zoo.Checkpointed, zoo.FunctionalDropout])
def test_what_cannot_run_at_once_runs_one_after_the_other(build):
    ensemble = pl.convert(build().double(), DeepEnsembles(members=8), example=x).train()
    outputs = ensemble(x)
    assert refused_by_vmap(ensemble) == [("vmap", True, True)]
    assert not torch.equal(outputs[0], outputs[1])
    rows = ensemble.eval()(x)
    assert_close(rows, torch.stack([ensemble.member(i)(x) for i in range(8)]))


class InPlace(nn.Module):
    """Writes into its input, as `nn.Hardswish(inplace=True)` does in front of a network."""

    def __init__(self, kind):
        super().__init__()
        self.change, self.layer = kind, nn.Linear(6, 3)

    def forward(self, x):
        return self.layer(self.change(x))


KINDS = [nn.Dropout(0.5, inplace=True), nn.Hardswish(inplace=True), zoo.Apply(lambda x: x.mul_(2))]


@pytest.mark.parametrize("kind", KINDS, ids=["dropout", "layer", "function"])
@pytest.mark.parametrize(
    "method", [DeepEnsembles(members=3), BatchEnsemble(members=3), MCDropout(draws=3)], ids=str
)
def test_a_row_does_not_see_what_another_wrote_into_the_input(method, kind):
    ensemble = pl.convert(InPlace(kind).double(), method, example=x.clone()).eval()
    rows = ensemble(x.clone())
    assert_close(rows, torch.stack([ensemble.member(i)(x.clone()) for i in range(3)]))


def test_code_that_writes_into_its_input_only_sometimes_is_kept_apart_too():
    def change(x):
        return x if torch.is_grad_enabled() else x.mul_(2)

    ensemble = pl.convert(InPlace(zoo.Apply(change)).double(), DeepEnsembles(members=3)).eval()
    ensemble(x.clone())
    with torch.no_grad():
        rows = ensemble(x.clone())
        assert_close(rows, torch.stack([ensemble.member(i)(x.clone()) for i in range(3)]))


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_inference_mode_computes_the_same_and_leaves_training_alone(method):
    ensemble = pl.convert(Checkpointed(None, 0.3), method, example=x).eval()
    expected = ensemble(x)
    with torch.inference_mode():
        assert_close(ensemble(x.clone()), expected)
    ensemble.train().loss(x, y).backward()


@pytest.mark.parametrize("members", [2, 9])
def test_an_error_names_the_layer_and_what_it_got(members):
    ensemble = pl.convert(zoo.SharedModule().double(), DeepEnsembles(members=members))
    with pytest.raises(
        InputError, match=r"layer first \(Linear\) failed, on \(float64\[12, 5\]\).*check shapes"
    ):
        ensemble(x[:, :5])
    assert not refused_by_vmap(ensemble)


@pytest.mark.parametrize("method", [DeepEnsembles(members=2), EarlyExit()], ids=str)
def test_a_norm_that_cannot_learn_from_one_sample_is_named_with_a_remedy(method):
    network = nn.Sequential(*blocks(3), nn.BatchNorm1d(2))
    ensemble = pl.convert(network, method, example=torch.zeros(2, 6)).train()
    with pytest.raises(InputError, match=r"layer 5 \(BatchNorm1d\) failed.*at least two samples.*drop_last"):
        ensemble.loss(torch.zeros(1, 6), torch.zeros(1).long())


@pytest.mark.parametrize("members", [2, 9])
def test_wrong_arguments_and_values_are_input_errors(members):
    class Fussy(zoo.SharedModule):
        def forward(self, x):
            if x.shape[1] != 6:
                raise ValueError("six, please")
            return super().forward(x)

    ensemble = pl.convert(Fussy().double(), DeepEnsembles(members=members))
    with pytest.raises(InputError, match="six, please"):
        ensemble(x[:, :5])
    with pytest.raises(InputError, match="positional argument"):
        ensemble(x, x)


@pytest.mark.parametrize("members", [2, 9])
def test_one_row_per_sample_is_required(members):
    class Mean(zoo.SharedModule):
        def forward(self, x):
            return super().forward(x).mean(0)

    with pytest.raises(InputError, match=r"one row per sample, 12 here, got shape \(3,\)"):
        pl.convert(Mean().double(), DeepEnsembles(members=members))(x)


def test_predict_runs_in_eval_mode_and_leaves_the_modes_of_layers():
    model = zoo.batch_norm_mlp().double()
    model[1].eval()
    ensemble = pl.convert(model, DeepEnsembles(members=2))
    ensemble(x)
    ensemble.predict(x)
    assert modes(ensemble) == (True, True, False, True, True)
    ensemble.eval()
    assert not any(modes(ensemble))


def test_priors_are_rows_of_fixed_networks_in_eval_mode():
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3)).double()
    ensemble = pl.convert(model, DeepEnsembles(members=2, prior_scale=0.5, start="copy", settle_prior=False))
    for row, output in enumerate(ensemble.eval()(x)):
        assert_close(output, model.eval()(x) + 0.5 * ensemble.member(row).prior(x))
    before = {name: t.clone() for name, t in ensemble.members.prior.state_dict().items()}
    assert not any(parameter.requires_grad for parameter in ensemble.members.prior.parameters())
    ensemble.train().loss(x, y).backward()
    assert not any(ensemble.members.prior.code.caller.modes)
    assert_close(dict(ensemble.members.prior.state_dict()), before, rtol=0, atol=0)


@pytest.mark.parametrize("method", [DeepEnsembles(members=9), MCDropout(draws=2), BatchEnsemble()], ids=str)
def test_a_used_ensemble_can_be_copied_and_pickled(method):
    ensemble = pl.convert(zoo.FunctionalDropout().double(), method, example=x)
    ensemble.loss(x, y).backward()
    expected = ensemble.eval()(x)
    assert_close(copy.deepcopy(ensemble)(x), expected, rtol=0, atol=0)
    assert_close(pickle.loads(pickle.dumps(ensemble))(x), expected, rtol=0, atol=0)


def test_members_can_be_trained_and_saved_alone():
    member = pl.convert(zoo.mlp().double(), DeepEnsembles(members=2)).member(1)
    F.cross_entropy(member(x), y).backward()
    assert all(parameter.grad is not None for parameter in member.parameters())
    other = zoo.mlp().double()
    other.load_state_dict(member.state_dict())
    assert_close(other(x), member(x))


def test_inputs_on_another_device_are_told_by_the_layer_that_fails():
    ensemble = pl.convert(zoo.batch_norm_mlp(), EMP(options=2), example=torch.zeros(2, 6)).eval()
    with pytest.raises(InputError, match=r"layer 0 \(Linear\) failed, on \(float32\[5, 6\] on meta\)"):
        ensemble(torch.zeros(5, 6, device="meta"))
