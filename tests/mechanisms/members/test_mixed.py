"""Mixed: a row is a seed from which the assignment of options follows; see test_mixture for the numbers."""

import torch
from torch import nn
from torch.testing import assert_close

from pluribus.mechanisms.members.mixed import Mixed
from pluribus.mechanisms.members.mixture import Mixture, uniform
from pluribus.mechanisms.network.network import Network


def made():
    options = {"weight": torch.stack([torch.zeros(2, 3), torch.ones(2, 3)])}
    return Mixed(Network(nn.Linear(3, 2)), options, {"0": ["weight"]}, {"0": Mixture("element", uniform(2))})


def test_a_seed_gives_the_same_tensors_again():
    tensors = made()
    assert_close(tensors.of_one(7), tensors.of_one(7), rtol=0, atol=0)
    assert not torch.equal(tensors.of_one(7)["weight"], tensors.of_one(8)["weight"])


def test_tensors_with_options_have_the_seed_as_key():
    assert made().keys(7) == {"weight": 7}


def test_samples_share_a_batch_where_rows_have_no_seed():
    tensors = made()
    assert tensors.why_not_mixed([7, 8])
    assert not tensors.why_not_mixed([None, None])
    assert len(tensors.mixed([None, None], [3, 2])["weight"].as_subclass(torch.Tensor)) == 5
