"""Stack: many problems at once are what each would be alone."""

import pytest
import torch
from torch.testing import assert_close

import pluribus as pl
from pluribus.methods import ECMP, EMP, VNN, BayesByBackprop, DeepEnsembles, Hypermodel, Masksembles
from pluribus.testbed.networks import make_mlp
from pluribus.testbed.stack import Stack

METHODS = [
    DeepEnsembles(3),
    Masksembles(3),
    EMP(2, where=("*",), per_sample=False, draws=8),
    # Rows of these are seeds: they must draw the numbers in every problem that prior and targets have.
    ECMP(2, where=("*",), per_sample=False, draws=3),
    BayesByBackprop(3),
    VNN(3),
    VNN(3, activation="none"),
    Hypermodel(3, dimension=20),
]


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_outputs_are_those_of_each_ensemble(method):
    ensemble = pl.convert(
        lambda: make_mlp(4, 16).double(), method, "point", example=torch.zeros(2, 4).double()
    )
    stack = Stack(ensemble, 2)
    with torch.no_grad():
        for value in stack.values.values():
            value.add_(0.1 * torch.randn_like(value))
    x = torch.randn(2, 5, 4).double()
    index = ensemble.members.index
    rows = range(3) if isinstance(index.rows(training=True), range) else index.rows(training=False)[:3]
    found, penalties = stack.outputs(rows, x), stack.penalties(5, 10, 0.5)
    for place, one in enumerate(stack.ensembles):
        expected = one.eval()(x[place], members=list(range(3))).squeeze(-1)
        assert_close(found[place], expected)
        expected = torch.as_tensor(method.penalty(one.members, 5, 10, 0.5), dtype=penalties.dtype)
        assert_close(penalties[place], expected)


def test_gradients_reach_every_problem_and_ensembles_follow():
    ensemble = pl.convert(lambda: make_mlp(4, 8), DeepEnsembles(2), "point")
    stack = Stack(ensemble, 2)
    outputs = stack.outputs(range(2), torch.randn(2, 3, 4))
    outputs[1].square().sum().backward()
    name, value = next(iter(stack.values.items()))
    assert value.grad[0].abs().sum() == 0
    assert value.grad[1].abs().sum() > 0
    with torch.no_grad():
        value[1] += 1
    assert_close(dict(stack.ensembles[1].members.named_parameters())[name], value[1])
