"""Division: samples that depend on one another are noticed, others are not."""

import torch
from torch import nn

import pluribus as pl
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.running.division import why_not_divided
from pluribus.methods import BatchEnsemble


class Neighbours(nn.Module):
    """Adds to each sample the one at a given position."""

    def __init__(self, wrap=False):
        super().__init__()
        self.layer, self.wrap = nn.Linear(3, 2), wrap

    def forward(self, x, other):
        return self.layer(x) + self.layer(x)[other % len(x) if self.wrap else other]


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x, scale):
        return self.layer(x) * scale


def reason(network, *inputs, part=(1, 3)):
    made = pl.convert(network, BatchEnsemble(members=2), example=inputs)
    return why_not_divided(made.members, [0, 1], Inputs.of(inputs), torch.tensor(part))


X = torch.randn(6, 3)


def test_division_is_refused_where_a_part_fails_or_differs():
    others = torch.tensor([5, 4, 3, 2, 1, 0])
    assert reason(Neighbours(), X, others) == "fails on a part of them"
    assert "something else" in reason(Neighbours(wrap=True), X, others)


def test_division_is_allowed_for_independent_samples():
    assert reason(Scaled(), X, torch.ones(6, 1)) == ""
    assert reason(Scaled(), X, torch.tensor(2.0)) == ""


def test_division_is_not_blamed_for_inputs_that_fail_anyway():
    made = pl.convert(Scaled(), BatchEnsemble(members=2), example=(X, torch.ones(6, 1)))
    bad = Inputs.of((X[:, :2], torch.ones(6, 1)))
    assert why_not_divided(made.members, [0, 1], bad, torch.tensor([0, 1])) == ""


def test_one_input_is_not_run_again(monkeypatch):
    made = pl.convert(nn.Linear(3, 2), BatchEnsemble(members=2))
    monkeypatch.setattr("pluribus.mechanisms.running.division.run_slowly", None)
    assert why_not_divided(made.members, [0, 1], Inputs.of(X), torch.tensor([0, 1])) == ""
