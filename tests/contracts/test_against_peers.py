"""Mistakes that ensemble libraries easily make on real networks are not made here.

Layers of nested modules are passed over; trained weights are drawn anew; a regression ensemble loses the
spread between its members; targets `[batch, 1]` are broadcast against outputs `[batch]`; members lie on the
batch axis, in one mode or in both.
"""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.methods import BatchEnsemble, DeepEnsembles, MCDropout, Single
from tests.cases import seeded
from tests.zoo import Apply, Listed, Residual

BATCH = 12
METHODS = [Single(), DeepEnsembles(members=3), BatchEnsemble(members=3), MCDropout(rate=0.5, draws=3)]
NEUTRAL = [
    DeepEnsembles(members=2, start="copy"),
    BatchEnsemble(members=2, std=0.0),
    MCDropout(rate=0.0, draws=2),
]
LIKELIHOODS = [pl.Gaussian(precision=4.0), pl.Point(), pl.Bernoulli()]

each_method = pytest.mark.parametrize("method", METHODS, ids=str)


class Deep(nn.Module):
    """Layers five containers deep, of every kind that torch has."""

    def __init__(self) -> None:
        super().__init__()
        block = Residual(nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.Linear(8, 8))
        stage = nn.Sequential(nn.Sequential(block, nn.BatchNorm1d(8)), nn.Linear(8, 6))
        self.trunk = nn.ModuleDict({"stem": nn.Linear(6, 8), "stages": nn.ModuleList([stage])})
        self.head = Listed()

    def forward(self, x: Tensor) -> Tensor:
        x = self.trunk["stem"](x)
        for stage in self.trunk["stages"]:
            x = stage(x)
        return self.head(x)


def inputs() -> Tensor:
    return torch.randn(BATCH, 6, generator=seeded(0))


def trained(model: nn.Module, steps: int = 20) -> nn.Module:
    """The model after some steps of training, statistics of BatchNorm included."""
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.train().parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs()), torch.arange(BATCH) % 3).backward()
        optimizer.step()
    return model.eval()


def constant(mean: float) -> nn.Module:
    """A regression network that answers `mean` with a deviation of 0.1, whatever it is asked."""
    network = nn.Linear(6, 2)
    raw_variance = math.log(math.expm1(0.01 - 1e-6))  # softplus and its floor make 0.1² of it
    with torch.no_grad():
        network.weight.zero_()
        network.bias.copy_(torch.tensor([mean, raw_variance]))
    return network


@each_method
def test_layers_are_converted_however_deep_they_lie(method):
    conversion = pl.convert(Deep(), method).conversion
    names = [row.names[0] for row in conversion.rows if row.kind == "Linear"]
    assert len(names) == 7
    assert [conversion[name] in conversion.converted for name in names] == [method != Single()] * 7


@pytest.mark.parametrize("method", METHODS[1:], ids=str)
@pytest.mark.parametrize("layer", ["trunk.stem", "trunk.stages.0.0.0.0.0", "head.layers.2"])
def test_each_layer_alone_makes_members_differ(layer, method):
    torch.manual_seed(0)
    rows = pl.convert(Deep(), method, include=layer).eval()(inputs())
    assert not torch.allclose(rows[0], rows[1])


@pytest.mark.parametrize("method", NEUTRAL, ids=str)
def test_trained_weights_survive_the_conversion(method):
    model = trained(Deep())
    expected = model(inputs())
    for row in pl.convert(model, method).eval()(inputs()):
        assert_close(row, expected)


@pytest.mark.parametrize("method", METHODS[1:], ids=str)
def test_a_trained_trunk_survives_where_only_the_head_is_converted(method):
    model = trained(Deep())
    ensemble = pl.convert(model, method, include="head.*")
    for i in range(3):
        member = ensemble.member(i)
        network = getattr(member, "network", member)  # with its dropout masks it is more than a network
        assert_close(network.trunk.state_dict(), model.trunk.state_dict(), rtol=0, atol=0)


def test_a_regression_ensemble_is_a_mixture():
    signs = iter([1.0, 1.0, -1.0])  # the first network is the pattern of the others
    ensemble = pl.convert(lambda: constant(next(signs)), DeepEnsembles(members=2), "gaussian")
    prediction = ensemble.predict(inputs())
    ones = torch.ones(BATCH, 1)
    assert_close(prediction.mean, 0 * ones, atol=1e-6, rtol=0)
    assert_close(prediction.std, math.sqrt(1 + 0.1**2) * ones, atol=1e-5, rtol=0)
    assert_close(prediction.aleatoric, 0.01 * ones, atol=1e-6, rtol=0)
    assert_close(prediction.epistemic, ones, atol=1e-6, rtol=0)
    density = 1 / (2 * 0.1 * math.sqrt(2 * math.pi))  # half the mass, and the far member adds nothing
    assert_close(prediction.log_prob(ones), math.log(density) * ones, atol=1e-3, rtol=0)


@each_method
@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=str)
@pytest.mark.parametrize("outputs", [(), (1,)], ids=["[batch]", "[batch, 1]"])
@pytest.mark.parametrize("targets", [(), (1,)], ids=["[batch]", "[batch, 1]"])
@pytest.mark.sampled(3)
def test_targets_are_aligned_and_never_broadcast(outputs, targets, likelihood, method):
    hidden = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    network = nn.Sequential(hidden, Apply(lambda x: x.view(-1, *outputs)))
    ensemble = pl.convert(network, method, likelihood).eval()
    x, y = inputs(), (inputs()[:, 0] > 0).float()
    members = ensemble(x).reshape(-1, BATCH)
    if isinstance(likelihood, pl.Bernoulli):
        losses = nn.functional.softplus((1 - 2 * y) * members)
    else:
        losses = (members - y).square()
        if isinstance(likelihood, pl.Gaussian):
            losses = losses * 2 + math.log(2 * math.pi / 4) / 2
    assert_close(ensemble.loss(x, y.view(BATCH, *targets)), losses.mean())


@each_method
@pytest.mark.parametrize("batch", [1, 2, 3, 5])
@pytest.mark.sampled(3)
def test_the_first_axis_is_members_for_every_batch_in_both_modes(batch, method):
    network, x = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), inputs()[:batch]
    ensemble = pl.convert(network, method)
    rows = len(ensemble.weights)
    assert ensemble.eval()(x).shape == (rows, batch, 3)
    assert ensemble.predict(x).members.shape == (rows, batch, 3)
    assert ensemble.freeze()(x).shape == (rows, batch, 3)
    in_training = method.train_draws if isinstance(method, MCDropout) else rows
    assert ensemble.train()(x).shape == (in_training, batch, 3)


@each_method
def test_probabilities_are_averaged_and_not_logits(method):
    ensemble = pl.convert(Deep(), method)
    prediction = ensemble.predict(inputs())
    assert_close(prediction.probabilities, prediction.members.softmax(-1).mean(0))


@each_method
def test_the_mean_of_losses_is_trained_and_not_the_loss_of_the_mean(method):
    ensemble, y = pl.convert(Deep(), method).eval(), torch.arange(BATCH) % 3
    rows = ensemble(inputs())
    expected = torch.stack([nn.functional.cross_entropy(row, y) for row in rows]).mean()
    assert_close(ensemble.loss(inputs(), y), expected)
    of_the_mean = nn.functional.nll_loss(rows.softmax(-1).mean(0).log(), y)
    assert (expected > of_the_mean + 1e-6) == (len(rows) > 1)


@each_method
def test_members_share_no_samples_of_one_another(method):
    """A sample's prediction does not depend on its batch, nor on its place there."""
    ensemble, order = pl.convert(Deep(), method).eval(), torch.randperm(BATCH, generator=seeded(1))
    whole = ensemble(inputs())
    assert_close(ensemble(inputs()[order]), whole[:, order])
    assert_close(torch.cat([ensemble(one) for one in inputs().split(1)], 1), whole)
