"""Job: one batch for all rows, or one for each."""

import torch
from torch import nn

import pluribus as pl
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.running.engine import Job
from pluribus.methods import DeepEnsembles

one, other = Inputs.of(torch.zeros(2, 3)), Inputs.of(torch.ones(4, 3))


def test_a_single_batch_is_that_of_every_row():
    members = pl.convert(nn.Linear(3, 2), DeepEnsembles(members=2)).members
    together, apart = Job(members, (0, 1), (one,), (True,)), Job(members, (0, 1), (one, other), (False,))
    assert together.together
    assert list(together.each()) == [one, one]
    assert not apart.together
    assert list(apart.each()) == [one, other]
    assert (together.training, apart.training) == (True, False)
