"""Joint predictions: a set is predicted by one member at a time."""

import math

import pytest
import torch
from torch.testing import assert_close

import pluribus as pl
from pluribus.errors import InputError, SettingError
from pluribus.methods import VNN, BayesByBackprop, DeepEnsembles, Hypermodel, LayerEnsembles, MCDropout
from pluribus.metrics import dyadic_sets, gaussian_nll, joint_nll, nll

METHODS = [
    *(DeepEnsembles(3), LayerEnsembles(2), MCDropout(draws=4)),
    *(BayesByBackprop(draws=4), VNN(draws=4), Hypermodel(draws=4)),
]


def categorical(members=3, samples=5):
    logits = torch.randn(members, samples, 4, generator=torch.Generator().manual_seed(0)).double()
    return pl.Categorical().prediction(logits), torch.arange(samples) % 4


def test_joint_nll_of_single_samples_is_nll():
    prediction, target = categorical()
    assert_close(joint_nll(prediction, target, torch.arange(5)[:, None]), nll(prediction, target))


def test_joint_nll_is_the_mixture_of_products():
    prediction, target = categorical()
    sets = torch.tensor([[0, 3, 3], [1, 2, 4]])
    values = []
    for row in sets.tolist():
        products = torch.ones(3, dtype=torch.float64)
        for place in row:
            products *= prediction.member_probabilities[:, place, target[place]]
        values.append(-math.log(products.mean()))
    assert_close(joint_nll(prediction, target, sets), sum(values) / 2)


def test_joint_nll_of_one_gaussian_member_is_a_sum():
    outputs = torch.randn(1, 6, 2, generator=torch.Generator().manual_seed(1)).double()
    prediction, target = pl.Gaussian().prediction(outputs), torch.randn(6).double()
    assert_close(joint_nll(prediction, target, torch.arange(6)[None]), 6 * gaussian_nll(prediction, target))


def test_joint_nll_tells_common_members_from_independent_noise():
    # Both predict one half for each sample alone; together all samples have the same class.
    sure = pl.Categorical().prediction(torch.tensor([[[9.0, 0]] * 4, [[0, 9.0]] * 4]))
    unsure = pl.Categorical().prediction(torch.zeros(2, 4, 2))
    target, sets = torch.zeros(4, dtype=torch.long), torch.tensor([[0, 1, 2, 3]])
    assert_close(nll(sure, target), nll(unsure, target), rtol=1e-3, atol=0)
    assert joint_nll(sure, target, sets) < joint_nll(unsure, target, sets) - 2


def test_dyadic_sets_repeat_two_inputs():
    sets = dyadic_sets(20, sets=50, size=10)
    assert sets.shape == (50, 10)
    assert max(len(row.unique()) for row in sets) == 2
    assert len(sets.unique()) == 20
    assert_close(sets, dyadic_sets(20, sets=50, size=10), rtol=0, atol=0)


def test_dyadic_sets_need_as_many_inputs_as_anchors():
    with pytest.raises(SettingError, match="anchors"):
        dyadic_sets(1)


@pytest.mark.parametrize("sets", [torch.tensor([0, 1]), torch.tensor([[5]]), torch.tensor([[0.5]])])
def test_joint_nll_refuses_what_is_no_table_of_positions(sets):
    with pytest.raises(InputError, match="positions"):
        joint_nll(*categorical(), sets)


def test_joint_nll_refuses_points_without_density():
    with pytest.raises(InputError, match="densities"):
        joint_nll(pl.Point().prediction(torch.zeros(2, 3)), torch.zeros(3))


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_rows_are_one_function_over_a_batch(method):
    """A row gives a sample the same output whatever else is in the batch, or no set had one member."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 12), torch.nn.ReLU(), torch.nn.Linear(12, 2)).double()
    ensemble = pl.convert(model, method, example=torch.zeros(2, 3).double()).eval()
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        together = ensemble(x)
        alone = torch.cat([ensemble(one[None]) for one in x], 1)
        repeated = ensemble(torch.cat([x[:1]] * 3))
    assert_close(together, alone)
    assert_close(repeated, repeated[:, :1].expand_as(repeated))
    assert not torch.equal(together[0], together[1])
