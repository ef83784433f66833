"""Single: the network itself."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

import pluribus as pl
from pluribus.methods import Single
from tests import zoo
from tests.cases import CASES, each, logits, run


@each(CASES)
def test_the_only_row_is_the_network(case):
    model, x = case.model().eval(), case.inputs()
    ensemble = pl.convert(model, Single())
    assert_close(run(ensemble, x), logits(run(model, x)).unsqueeze(0), rtol=0, atol=0)
    assert not ensemble.training


def test_training_is_that_of_the_network():
    x, y = torch.randn(9, 6), torch.arange(9) % 3
    model = zoo.batch_norm_mlp()
    ensemble = pl.convert(model, Single())
    loss, expected = ensemble.loss(x, y), F.cross_entropy(model(x), y)
    assert_close(loss, expected)
    loss.backward()
    expected.backward()
    for name, parameter in model.named_parameters():
        assert_close(ensemble.members.tensors.shared.get_parameter(name).grad, parameter.grad)
    assert_close(dict(ensemble.member(0).state_dict()), dict(model.eval().state_dict()))


def test_it_has_the_parameters_of_the_network_and_no_more():
    model = zoo.tied_embedding()
    ensemble = pl.convert(model, Single())
    assert [p.shape for p in ensemble.parameters()] == [p.shape for p in model.parameters()]
    assert pl.cost(ensemble, torch.zeros(2, 7, dtype=torch.long)).parameters == sum(
        p.numel() for p in model.parameters()
    )


@pytest.mark.parametrize(
    "selection", [{"include": "0"}, {"exclude": "*"}, {"overrides": {"0": Single()}}], ids=str
)
def test_whatever_is_selected_it_stays_the_network(selection):
    model, x = zoo.mlp(), torch.randn(4, 6)
    assert_close(pl.convert(model, Single(), **selection)(x)[0], model(x))


def test_a_network_without_parameters_is_an_ensemble_too():
    x = torch.randn(3, 4)
    assert_close(pl.convert(torch.nn.Tanh(), Single())(x)[0], x.tanh())
