"""Chains: known layers in a row run for all members as they run for each."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.backbones import mlp
from pluribus.mechanisms.running.batched import STACKED_ROWS, _chain
from pluribus.mechanisms.running.chain import read_chain
from pluribus.methods import BatchEnsemble, DeepEnsembles, PackedEnsembles
from tests import zoo
from tests.cases import normal
from tests.verify import caller_of, looped_copy

x, y = normal(6)(), torch.arange(10) % 3


def sequences():
    hidden = [nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 5, bias=False), nn.Tanh()]
    return nn.Sequential(*hidden, nn.Flatten(), nn.Linear(15, 3))


CHAINS = [
    (zoo.mlp, x),
    (lambda: mlp(6, 3, hidden=(8, 5), activation="gelu"), x.view(10, 3, 2)),
    (zoo.tied_linears, x),
    (sequences, normal(3, 4)()),
    (lambda: nn.Linear(6, 3), x),
    (lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 3)), x),
]


@pytest.mark.parametrize("method", [DeepEnsembles, BatchEnsemble], ids=lambda method: method.__name__)
@pytest.mark.parametrize(("build", "x"), CHAINS)
def test_a_chain_computes_what_its_members_do(build, x, method):
    settings = {"repeat": True} if method is BatchEnsemble else {}
    ensemble = pl.convert(build().double(), method(members=STACKED_ROWS, **settings), example=x)
    assert _chain(caller_of(ensemble))
    looped = looped_copy(ensemble)
    given = x.clone()
    for one in (ensemble, looped):
        one.loss(given, y).backward()
    assert_close(ensemble(given), looped(x))
    for one, other in zip(ensemble.parameters(), looped.parameters(), strict=True):
        assert_close(one.grad, other.grad)


@pytest.mark.parametrize("batch", [10 * STACKED_ROWS, 10 * STACKED_ROWS + 3])
@pytest.mark.parametrize(("build", "x"), CHAINS)
def test_a_chain_computes_what_its_members_do_on_batches_of_their_own(build, x, batch):
    method = PackedEnsembles(members=STACKED_ROWS, alpha=STACKED_ROWS, shuffle_members=True)
    ensemble = pl.convert(build().double(), method, example=x)
    looped = looped_copy(ensemble)
    many, targets = x[torch.arange(batch) % 10] * torch.linspace(1, 2, batch).view(-1, *[1] * (x.ndim - 1)), y
    given = many.double()
    for one in (ensemble, looped):
        one.loss(given.clone(), targets[torch.arange(batch) % 10]).backward()
    for one, other in zip(ensemble.parameters(), looped.parameters(), strict=True):
        assert one.grad.abs().sum() > 0
        assert_close(one.grad, other.grad)


def test_inputs_that_do_not_fit_a_chain_are_refused():
    method = PackedEnsembles(members=STACKED_ROWS, shuffle_members=True)
    ensemble = pl.convert(zoo.mlp(), method, example=x.float())
    with pytest.raises(pl.InputError, match=r"layer 0 \(Linear\) failed, on \(float32\[2, 7\]\)"):
        ensemble.loss(torch.zeros(2 * STACKED_ROWS, 7), torch.zeros(2 * STACKED_ROWS).long())


@pytest.mark.parametrize(
    "build",
    [
        zoo.layer_norm,
        zoo.batch_norm_mlp,
        zoo.SharedModule,
        zoo.alpha_dropout,
        lambda: nn.Sequential(nn.Linear(6, 3), nn.Softmax(1)),
        lambda: nn.Sequential(nn.Linear(6, 3), nn.Flatten(0)),
        lambda: nn.Sequential(nn.Linear(6, 3), nn.PReLU()),
    ],
)
def test_what_is_not_known_is_no_chain(build):
    assert read_chain(build()) == []


def test_a_hook_breaks_the_chain():
    model = zoo.mlp()
    model[0].register_forward_hook(lambda module, args, output: 2 * output)
    assert read_chain(model) == []


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
def test_stacked_training_gives_the_weights_of_networks_trained_one_after_the_other(optimizer):
    inputs, targets = torch.randn(5, 100, 13, dtype=torch.float64), torch.randn(5, 100, dtype=torch.float64)
    model = nn.Sequential(nn.Linear(13, 50), nn.ReLU(), nn.Linear(50, 2)).double()
    ensemble = pl.convert(model, DeepEnsembles(members=20), "gaussian").train()
    singles = [ensemble.member(row).train() for row in range(20)]
    step(ensemble.parameters(), optimizer, ensemble.loss, inputs, targets)
    for row, single in enumerate(singles):
        step(single.parameters(), optimizer, lambda x, y, one=single: plain_loss(one, x, y), inputs, targets)
        trained = ensemble.member(row).state_dict()
        assert_close(dict(trained), dict(single.state_dict()), rtol=1e-8, atol=1e-8)


def plain_loss(network, x, y):
    mean, raw = network(x).unbind(1)
    return nn.functional.gaussian_nll_loss(mean, y, nn.functional.softplus(raw) + 1e-6)


def step(parameters, optimizer, loss, inputs, targets):
    chosen = optimizer(parameters, lr=1e-2)
    for x, y in zip(inputs, targets, strict=True):
        chosen.zero_grad()
        loss(x, y).backward()
        chosen.step()
