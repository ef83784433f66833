"""Laplace: the Gaussian of the last layer, its evidence, and none without data."""

import pytest
import torch
from torch import nn
from torch.autograd.functional import hessian
from torch.func import functional_call
from torch.testing import assert_close

import pluribus as pl
from pluribus.likelihood import Bernoulli, Categorical, Gaussian, Point
from pluribus.methods import Laplace
from pluribus.methods.laplace import best_precision, log_evidence
from tests.verify import verify_forms

X = torch.randn(12, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def network(outputs=3):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, outputs)).double()


def made(method, model=None, **options):
    ensemble = pl.convert(model or network(), method, example=X, **options)
    ensemble.finish([X[:5], X[5:]])
    return ensemble.eval()


def covariance(ensemble, draws=20_000):
    """Return the covariance of drawn last layers, weight and bias of an output side by side."""
    tensors = ensemble.members.tensors
    names = tensors.names
    drawn = [torch.cat([one[names[0]], one[names[1]][:, None]], 1) for one in tensors.of(range(draws))]
    return torch.stack(drawn).flatten(1).T.cov()


def curvature_by_autograd(model):
    """Return the summed Hessian of the categorical loss in the last layer, whose labels do not matter."""
    weights = {name: value.detach() for name, value in model.named_parameters()}

    def loss(theta):
        changed = {**weights, "2.weight": theta[:, :-1], "2.bias": theta[:, -1]}
        logits = functional_call(model, changed, X)
        return nn.functional.cross_entropy(logits, torch.zeros(len(X), dtype=torch.long), reduction="sum")

    theta = torch.cat([weights["2.weight"], weights["2.bias"][:, None]], 1)
    return hessian(loss, theta).flatten(2).flatten(0, 1)


def test_draws_have_the_inverse_of_the_curvature_as_covariance():
    ensemble = made(Laplace(structure="full", prior_precision=2.0))
    expected = (curvature_by_autograd(network()) + 2.0 * torch.eye(18)).inverse()
    found = covariance(ensemble)
    # 20,000 draws know a covariance to about one percent of its scale.
    assert (found - expected).abs().max() < 0.04 * expected.abs().max()


def test_kronecker_factors_are_exact_for_one_sample():
    one = X[:1]
    full = pl.convert(network(), Laplace(structure="full", prior_precision=1.0), example=X)
    factored = pl.convert(network(), Laplace(structure="kronecker", prior_precision=1.0), example=X)
    for ensemble in (full, factored):
        ensemble.finish([one])
    values = full.members.tensors.values.flatten().sort().values
    assert_close(factored.members.tensors.values.flatten().sort().values, values)


@pytest.mark.parametrize("structure", ["full", "kronecker"])
def test_every_form_agrees(structure, tmp_path):
    verify_forms(made(Laplace(draws=4, structure=structure)), network, X, tmp_path)


def test_more_data_make_members_agree():
    few, many = made(Laplace()), pl.convert(network(), Laplace(), example=X)
    many.finish([X] * 50)
    far = 5 * torch.randn(64, 4, dtype=torch.float64)
    assert many.predict(far).mutual_information.mean() < 0.5 * few.predict(far).mutual_information.mean()


def test_evidence_is_the_integral_over_the_weight():
    # One number: ∫ exp(−λ/2 (w − ŵ)²) N(w; 0, 1/τ) dw, up to what does not depend on τ, to second order at ŵ.
    eigenvalue, weight = torch.tensor([3.0], dtype=torch.float64), 0.7
    first, second = (log_evidence(tau, weight**2, eigenvalue) for tau in (0.5, 4.0))

    def reference(tau):
        expansion = torch.distributions.Normal(0.0, tau**-0.5).log_prob(torch.tensor(weight))
        return (expansion - 0.5 * torch.log(eigenvalue + tau)).item()

    assert second - first == pytest.approx(reference(4.0) - reference(0.5), abs=1e-6)


def test_precision_of_the_greatest_evidence_is_found():
    values, norm = torch.tensor([5.0, 50.0, 500.0], dtype=torch.float64), 1.5
    found = best_precision(norm, values)
    assert all(log_evidence(found, norm, values) >= log_evidence(found * f, norm, values) for f in (0.7, 1.4))


def test_predicting_without_data_is_refused():
    ensemble = pl.convert(network(), Laplace(), example=X).eval()
    with pytest.raises(pl.InputError, match="must see the training data"):
        ensemble(X)


def test_training_on_forgets_the_curvature():
    ensemble = made(Laplace())
    ensemble.after_step(1.0)
    with pytest.raises(pl.InputError, match="must see the training data"):
        ensemble(X)


def test_an_output_that_is_changed_after_the_last_layer_is_refused():
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh()).double()
    with pytest.raises(pl.ConversionError, match="returns the output of its last layer"):
        pl.convert(model, Laplace(), example=X)


def test_a_last_convolution_of_one_position_is_drawn():
    model = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 1)).double()
    images = torch.randn(3, 2, 6, 6, dtype=torch.float64)
    ensemble = pl.convert(model, Laplace(draws=4), example=images)
    ensemble.finish([images])
    outputs = ensemble.eval()(images)
    assert outputs.shape == (4, 3, 3, 6, 6)
    assert not torch.equal(outputs[0], outputs[1])


@pytest.mark.parametrize(
    ("likelihood", "outputs"), [(Categorical(), 3), (Bernoulli(), 3), (Gaussian(), 4), (Gaussian(2.5), 3)]
)
def test_curvature_is_the_expected_square_of_the_slope(likelihood, outputs):
    # The Fisher information is E[g gᵀ] for targets drawn from the prediction itself.
    given = torch.randn(1, outputs, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    torch.manual_seed(0)
    count = 100_000
    leaf = given.repeat(count, 1).requires_grad_()
    if isinstance(likelihood, Categorical):
        target = torch.multinomial(given.softmax(1), count, replacement=True)[0]
        targets = 1
    elif isinstance(likelihood, Bernoulli):
        target = torch.bernoulli(given.sigmoid().expand(count, -1))
        targets = outputs
    else:
        means, variances = (
            likelihood.prediction(given[None]).mean,
            likelihood.prediction(given[None]).variance,
        )
        target = means + variances.sqrt() * torch.randn(count, means.shape[1], dtype=torch.float64)
        targets = means.shape[1]
    # The loss of a sample is a mean over its targets, the log-likelihood their sum.
    likelihood.losses(leaf[None], target).mul(targets).sum().backward()
    expected = leaf.grad.T @ leaf.grad / count
    assert_close(likelihood.curvature(given)[0], expected, rtol=0.05, atol=0.02)


def test_curvature_of_a_point_is_that_of_its_squared_error():
    assert_close(Point().curvature(torch.zeros(2, 3)), 2 * torch.eye(3).expand(2, 3, 3))
