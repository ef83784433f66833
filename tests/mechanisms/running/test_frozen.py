"""Frozen: always in eval mode, without gradients, and able to say what its rows share."""

import pytest
import torch
from torch.testing import assert_close

import pluribus as pl
from pluribus.methods import EMP, SAE, DeepEnsembles, DeepSubEnsembles, Masksembles
from tests.cases import blocks, case_named

METHODS = [DeepEnsembles(members=2), DeepSubEnsembles(members=2), Masksembles(members=2)]


def frozen(method):
    case = case_named("residual_cnn")
    return pl.convert(case.model(), method, example=case.inputs()).train().freeze(), case.inputs()


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_frozen_ensemble_stays_in_eval_mode_and_has_no_gradients(method):
    network, x = frozen(method)
    before = network(x)
    assert_close(network.train()(x), before, rtol=0, atol=0)
    assert not any(module.training for module in network.modules())
    assert not before.requires_grad
    assert not any(parameter.requires_grad for parameter in network.parameters())


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_members_count_alike_where_nothing_else_is_learnt(method):
    assert_close(frozen(method)[0].weights, torch.full((2,), 0.5))


def test_frozen_exits_count_as_much_as_they_did():
    ensemble = pl.convert(blocks(3), SAE(inputs=1, exits=2), example=torch.zeros(2, 6)).eval()
    ensemble.members.index.logits.data = torch.tensor([[3.0, 0.0, 1.0]])
    network, x = ensemble.freeze(), torch.randn(4, 6)
    assert_close(network.weights, torch.tensor([3.0, 1.0]).softmax(0))
    mean = torch.einsum("m,mbc->bc", network.weights, network(x).softmax(-1))
    assert_close(mean, ensemble.predict(x).probabilities)


@pytest.mark.parametrize(
    "method",
    [*METHODS, EMP(3, draws=7, perturbation=0.5), SAE(inputs=1, exits=2)],
    ids=lambda one: one.kind(),
)
@pytest.mark.parametrize("chunk", [None, 2])
def test_a_frozen_ensemble_predicts_what_the_ensemble_does(method, chunk):
    case = case_named("residual_cnn")
    x = case.inputs()
    ensemble = pl.convert(case.model(), method, example=x).eval()
    found, expected = ensemble.freeze().predict(x, chunk=chunk), ensemble.predict(x)
    assert_close(found.weights, expected.weights)
    assert_close(found.probabilities, expected.probabilities)


def test_what_a_frozen_ensemble_cannot_predict_is_refused():
    network, x = frozen(DeepEnsembles(members=2))
    with pytest.raises(pl.SettingError, match="chunk must be at least 1"):
        network.predict(x, chunk=0)
    with pytest.raises(pl.InputError, match=r"inputs must be finite, however: .* hold NaN"):
        network.predict(torch.full_like(x, torch.nan))


def test_a_frozen_ensemble_says_what_its_rows_share():
    network, x = frozen(DeepSubEnsembles(members=2))
    found = network.explain(x)
    assert found.reason == ""
    assert found.shared
    assert pl.cost(network, x).multiply_adds == found.multiply_adds.planned


def test_members_that_are_cut_out_are_said_to_be_so():
    network, x = frozen(Masksembles(members=2))
    assert str(network.explain(x)) == "2 rows, one after the other: they are cut out by their masks"


def test_a_frozen_ensemble_writes_into_no_statistics():
    network, x = frozen(DeepEnsembles(members=2))
    before = [buffer.clone() for buffer in network.buffers()]
    network(torch.full_like(x, 9.0))
    assert_close(list(network.buffers()), before, rtol=0, atol=0)


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_inputs_that_do_not_fit_are_errors_of_ours(method):
    network, x = frozen(method)
    for bad in (x.to_sparse(), x[:0], x[:, :1], x.float(), x[0], x.bool()):
        with pytest.raises(pl.InputError):
            network(bad)
