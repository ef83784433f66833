"""The contract: every method on every case of the zoo, in float64."""

import copy
import functools

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.members.prior import WithPrior
from pluribus.mechanisms.members.tree import named_tensors
from pluribus.mechanisms.running import batched
from pluribus.mechanisms.running.lowered import Lowered
from pluribus.methods import (
    ECMP,
    EMP,
    MIMMO,
    MIMO,
    SAE,
    SWAG,
    VNN,
    BatchEnsemble,
    BayesByBackprop,
    DeepEnsembles,
    DeepSubEnsembles,
    DropConnect,
    EarlyExit,
    Hypermodel,
    LayerEnsembles,
    LoRAEnsembles,
    Masksembles,
    MCDropout,
    PackedEnsembles,
    Single,
)
from tests.cases import BATCH, CASES, Case, case_named, each, logits, run
from tests.perturb import perturbed
from tests.verify import looped_copy, refused_by_vmap

METHODS = [
    Single(),
    DeepEnsembles(members=3),
    BatchEnsemble(members=3),
    MCDropout(rate=0.2, draws=3),
    PackedEnsembles(members=3, alpha=1.5),
    Masksembles(members=3, scale=2.0),
    LayerEnsembles(options=3, prior_scale=0.0, draws=3, train_draws=2),  # one layer has 3 combinations too
]
NEAR = [
    DeepEnsembles(members=2, prior_scale=0.5),
    BatchEnsemble(members=2, repeat=True),
    DeepSubEnsembles(members=2),
    EMP(options=3, draws=3, decay=0.0),
]
"""Methods that are near others: all is tested of them by `make test-slow`, and here that rows are members."""
SEEDS = [
    ECMP(options=2, draws=3, perturbation=0.5, decay=0.0),
    DropConnect(rate=0.2, draws=3),
    SWAG(members=3, snapshots=2),
    LoRAEnsembles(members=3, own_output=False),
    LoRAEnsembles(members=2, own_output=False, merge=False),
    BayesByBackprop(draws=3),
    VNN(draws=3),
    Hypermodel(draws=3, train_draws=1),
]
"""Methods whose rows are seeds, as those of dropout: tested by `make test-slow` and by their own files."""


def slow(methods):
    return [pytest.param(method, marks=pytest.mark.slow) for method in methods]


# Packed networks are narrowed anew in every test, which takes most of the time of this file. That their rows
# are members, and all forms agree, is tested here; the rest by `make test-slow`.
QUICK = [method for method in METHODS if not isinstance(method, PackedEnsembles)]
EVERY = [*QUICK, *slow([*METHODS[4:5], *NEAR, *SEEDS])]
NEUTRAL = [
    Single(),
    DeepEnsembles(members=2, start="copy"),
    BatchEnsemble(members=2, std=0.0),
    MCDropout(rate=0.0, draws=2),
    Masksembles(members=2, scale=1.0),
    LayerEnsembles(options=2, prior_scale=0.0, draws=2, start="copy"),
    DeepSubEnsembles(members=2, start="copy"),
    EMP(options=2, draws=2, perturbation=0.0),
    *slow([ECMP(options=2, draws=2, perturbation=0.0), DropConnect(rate=0.0, draws=2)]),
    *slow([LoRAEnsembles(members=2, own_output=False)]),
]


@pytest.fixture(autouse=True)
def _few_plans(request, monkeypatch):
    """Reading a data flow takes long: rows run by a plan where a test is about what they compute."""
    if request.function not in (
        test_a_row_is_its_member,
        test_every_form_of_an_ensemble_agrees_after_training,
    ):
        monkeypatch.setattr(
            Lowered,
            "_why_not_worth_reading",
            lambda self, job: "plans are off",
        )


def each_method(methods=EVERY):
    return pytest.mark.parametrize("method", methods, ids=str)


REFUSED = {
    ("parameter_list", MCDropout): "must have dropout, or a layer to put it before",
    ("mini_vit", PackedEnsembles): r"the network itself \(.*\) fails when resized: unflatten",
    ("counted_batch", PackedEnsembles): r"the network itself \(.*\) fails when resized: shape",
    ("data_dependent", PackedEnsembles): "cannot be read by torch.export",
    ("parameter_list", VNN): "must have a trained linear layer or convolution",
    ("root_layer", Masksembles): "must have a layer that reads hidden values",
    ("parameter_list", Masksembles): "must have a layer that reads hidden values",
    ("tied_linears", DeepSubEnsembles): "tied layers must be on one side",
    ("tied_embedding", DeepSubEnsembles): "tied layers must be on one side",
}


@functools.cache
def _converted(name: str, method: pl.Method, seed: int) -> pl.Ensemble:
    case = case_named(name)
    ensemble = pl.convert(case.model(), method, example=case.inputs(), seed=seed)
    # SWAG predicts nothing before it has seen the weights.
    ensemble.after_step(progress=1.0)
    return ensemble


def converted(case: Case, method: pl.Method, seed: int = 0) -> pl.Ensemble:
    """A copy of the ensemble; a case that the method refuses is refused by name, and there it ends."""
    skip_if_refused(case, method)
    return copy.deepcopy(_converted(case.name, method, seed))


def skip_if_refused(case: Case, method: pl.Method) -> None:
    refusal = REFUSED.get((case.name, type(method)))
    if refusal:
        with pytest.raises(pl.ConversionError, match=refusal):
            pl.convert(case.model(), method, example=case.inputs())
        pytest.skip(f"refused: {refusal}")


@each_method()
@each(CASES)
@pytest.mark.sampled(14)
def test_the_first_axis_is_members_in_both_modes(case, method):
    ensemble, x = converted(case, method), case.inputs()
    rows = getattr(method, "members", getattr(method, "draws", 1))
    rows = len(ensemble.weights) if isinstance(method, EMP) else rows  # equal draws are one row
    trained = 1 if isinstance(method, SWAG) else getattr(method, "train_draws", rows)
    assert run(ensemble.train(), x).shape == (trained, *case.shape)
    assert run(ensemble.eval(), x).shape == (rows, *case.shape)


@each_method([*METHODS, *NEAR, *slow(SEEDS)])
@each(CASES)
@pytest.mark.sampled(14)
def test_a_row_is_its_member(case, method):
    ensemble, x = perturbed(converted(case, method)).eval(), case.inputs()
    rows = run(ensemble, x)
    assert len(rows) == len(ensemble.weights)
    for i, row in enumerate(rows):
        member = ensemble.member(i)
        assert isinstance(member, nn.Module)
        assert_close(run(member, x), row)
    if not isinstance(method, Single | DeepEnsembles | BatchEnsemble | MCDropout):  # see test_freeze.py
        assert_close(run(ensemble.freeze(), x), rows)


FORMS = ("batch_norm_mlp", "residual_cnn", "frozen_trunk", "dropout_layers")
EXITS = [EarlyExit(), SAE(inputs=2, exits=2), MIMO(inputs=2), MIMMO(inputs=2)]


@each_method([*EVERY, *slow(EXITS)])
@each([case for case in CASES if case.name in FORMS])
@pytest.mark.sampled(5)
def test_every_form_of_an_ensemble_agrees_after_training(case, method, tmp_path):
    try:
        ensemble = perturbed(converted(case, method)).eval()
    except pl.ConversionError:  # exits need places to exit after
        pytest.skip("refused")
    x = case.inputs()
    rows = run(ensemble, x).detach()
    last = len(rows) - 1
    assert_close(run(ensemble.freeze(), x), rows)
    assert_close(run(ensemble.shrink([last, 0]), x), rows[[last, 0]])
    assert_close(run(ensemble.shrink([last, 0]).freeze(), x), rows[[last, 0]])
    ensemble.shrink([last]).save(tmp_path / "run")
    assert_close(run(pl.load(tmp_path / "run", case.model(), example=x), x), rows[[last]])
    if not isinstance(method, tuple(map(type, EXITS))):  # one run gives all exits: nothing to plan
        planned = ensemble.predict(x, memory=1 << 40)
        assert_close(planned.member_probabilities, rows.softmax(2))


@each_method()
@each(CASES, few=True)
@pytest.mark.sampled(10)
def test_the_original_is_not_touched(case, method):
    skip_if_refused(case, method)
    model, x = case.model().eval(), case.inputs()
    state, output = copy.deepcopy(model.state_dict()), logits(run(model, x))
    modes = [module.training for module in model.modules()]
    ensemble = pl.convert(model, method, example=x)
    ensemble.train()
    ensemble.loss(x, case.target()).backward()
    assert_close(model.state_dict(), state, rtol=0, atol=0)
    assert_close(logits(run(model, x)), output, rtol=0, atol=0)
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())


@each_method(NEUTRAL)
@each(CASES)
@pytest.mark.sampled(14)
def test_a_neutral_setting_is_the_original(case, method):
    if not isinstance(method, MCDropout):  # without dropout it refuses nothing
        skip_if_refused(case, method)
    model, x = case.model().eval(), case.inputs()
    ensemble = pl.convert(model, method, example=x).eval()
    expected = logits(run(model, x))
    for row in run(ensemble, x):
        assert_close(row, expected)


@each_method()
@each(CASES)
@pytest.mark.sampled(5)
def test_every_trainable_parameter_gets_a_gradient(case, method):
    ensemble = converted(case, method).train()
    ensemble.loss(case.inputs(), case.target()).backward()
    for name, parameter in ensemble.named_parameters():
        # A divergence from the prior reaches what no sample does.
        unused = any(name.endswith(one) for one in case.unused) and not isinstance(method, BayesByBackprop)
        assert (parameter.grad is not None) == (parameter.requires_grad and not unused), name


@each_method()
@each(CASES, few=True)
@pytest.mark.sampled(10)
def test_copies_and_files_predict_bit_for_bit(case, method, tmp_path):
    ensemble, x = converted(case, method).eval(), case.inputs()
    expected = run(ensemble, x)
    run(ensemble.train(), x).sum().backward()  # a used ensemble can be copied and saved too
    ensemble.eval()
    expected = run(ensemble, x)
    assert_close(run(copy.deepcopy(ensemble), x), expected, rtol=0, atol=0)
    ensemble.save(tmp_path / "run")
    loaded = pl.load(tmp_path / "run", case.model(), example=x).eval()
    assert_close(run(loaded, x), expected, rtol=0, atol=0)
    assert (loaded.method, loaded.likelihood) == (ensemble.method, ensemble.likelihood)
    other = converted(case, method, seed=7)
    other.load_state_dict(ensemble.state_dict())
    assert_close(run(other.eval(), x), expected, rtol=0, atol=0)


@each_method()
@each(CASES, few=True)
@pytest.mark.sampled(10)
def test_the_same_seed_makes_the_same_ensemble(case, method):
    first, again, other = (converted(case, method, seed=seed).state_dict() for seed in (3, 3, 4))
    assert_close(first, again, rtol=0, atol=0)
    same = all(torch.equal(first[name], other[name]) for name in first)
    assert same == (method == Single())


@each_method()
@each(CASES, few=True)
def test_dtype_moves_reach_every_row(case, method):
    ensemble, x = converted(case, method).eval(), case.inputs()
    expected = run(ensemble, x)

    def single(value):
        return value.float() if value.is_floating_point() else value

    if isinstance(x, dict):
        x = {name: single(value) for name, value in x.items()}
    else:
        x = single(x) if isinstance(x, torch.Tensor) else tuple(map(single, x))
    output = run(ensemble.float(), x)
    assert output.dtype == torch.float32
    assert_close(output.double(), expected, rtol=1e-3, atol=1e-3)


@each_method([DeepEnsembles(members=3), PackedEnsembles(members=3, alpha=1.5)])
@each([case for case in CASES if not case.random_in_training], few=True)
@pytest.mark.sampled(5)
def test_independent_members_never_move_one_another(case, method):
    ensemble = converted(case, method).train()
    run(ensemble, case.inputs())[1].square().sum().backward()
    for name, parameter in ensemble.members.tensors.own.named_parameters():
        if parameter.grad is not None:
            assert_close(parameter.grad[[0, 2]], torch.zeros_like(parameter.grad[[0, 2]]), rtol=0, atol=0)
            assert name
    assert any(
        p.grad is not None and p.grad[1].abs().sum() > 0 for p in ensemble.members.tensors.own.parameters()
    )


@each_method([DeepEnsembles(members=3), BatchEnsemble(members=3, repeat=True)])
@each(
    [
        case
        for case in CASES
        if case.name in ("mlp", "layer_norm", "root_layer", "module_list", "two_inputs", "tied_linears")
    ]
)
def test_looped_and_stacked_running_agree(case, method, monkeypatch):
    monkeypatch.setattr(batched, "STACKED_ROWS", 2)
    stacked, x = converted(case, method), case.inputs()
    looped = looped_copy(stacked)
    for mode in (True, False):
        assert_close(run(stacked.train(mode), x), run(looped.train(mode), x))
    for ensemble in (stacked, looped):
        ensemble.train().loss(x, case.target()).backward()
    assert not refused_by_vmap(stacked)
    for one, other in zip(stacked.parameters(), looped.parameters(), strict=True):
        assert_close(one.grad, other.grad)


@each(CASES, few=True)
@pytest.mark.sampled(5)
def test_stochastic_members_are_kept_and_drawn(case):
    ensemble, x = converted(case, MCDropout(rate=0.3, draws=4)).eval(), case.inputs()
    kept = run(ensemble, x)
    assert_close(run(ensemble, x), kept, rtol=0, atol=0)
    assert not all(torch.equal(kept[0], row) for row in kept)
    if isinstance(x, torch.Tensor):
        assert_close(ensemble(x, members=[2, 0, 2]), kept[[2, 0, 2]], rtol=0, atol=0)
        assert ensemble(x, draws=6).shape == (6, *case.shape)
        assert not torch.equal(ensemble(x, draws=9), ensemble(x, draws=9))


# Members are functions: what one says of a sample follows from the sample alone. Joint predictions need it.
@each_method([*METHODS, *NEAR, *SEEDS])
@each([case for case in CASES if case.name not in ("data_dependent", "counted_batch")])
@pytest.mark.sampled(20)
def test_a_row_does_not_depend_on_the_batch(case, method):
    verify_rows_of_parts(case, method)


@each_method(EXITS)
@each([case_named("residual_cnn")])
def test_a_row_with_exits_does_not_depend_on_the_batch(case, method):
    verify_rows_of_parts(case, method)


def verify_rows_of_parts(case, method):
    """A part of a batch has the outputs that the whole batch has there."""
    ensemble, x = perturbed(converted(case, method)).eval(), case.inputs()
    taken = torch.tensor([BATCH - 1, 0])
    if isinstance(x, dict):
        part = {name: value[taken] for name, value in x.items()}
    else:
        part = x[taken] if isinstance(x, torch.Tensor) else tuple(value[taken] for value in x)
    assert_close(run(ensemble, part), run(ensemble, x)[:, taken])


@each_method()
@each(CASES, few=True)
def test_cost_counts_every_tensor_once(case, method):
    ensemble, x = converted(case, method).eval(), case.inputs()
    cost = pl.cost(ensemble, **x) if isinstance(x, dict) else pl.cost(ensemble, x)
    held = {id(p): p.numel() for p in ensemble.parameters()}
    assert cost.parameters == sum(held.values())
    network = ensemble.member(0) if isinstance(method, PackedEnsembles) else case.model().eval()
    single = pl.cost(network, **x) if isinstance(x, dict) else pl.cost(network, x)
    assert cost.multiply_adds == work(ensemble, x, len(ensemble.weights) * single.multiply_adds)


def work(ensemble: pl.Ensemble, x, alone: int) -> int:
    """Return the multiply-adds of all rows and of their priors, one after the other."""
    if isinstance(ensemble.method, LoRAEnsembles):
        # A live ensemble multiplies its thin matrices in every pass.
        tensors = ensemble.members.tensors
        down, up = named_tensors(tensors.down), named_tensors(tensors.up)
        return alone + sum(up[name].numel() * matrix.shape[2] for name, matrix in down.items())
    if isinstance(ensemble.method, Hypermodel):
        # So does this one its index and its directions.
        directions = named_tensors(ensemble.members.tensors.directions).values()
        return alone + len(ensemble.weights) * sum(one.numel() for one in directions)
    return alone * (2 if isinstance(ensemble.members, WithPrior) else 1)


def test_shared_tensors_are_kept_once():
    ensemble = pl.convert(CASES[0].model(), BatchEnsemble(members=3))
    assert set(named_tensors(ensemble.members.tensors.first)) == set(
        named_tensors(ensemble.members.tensors.second)
    )
