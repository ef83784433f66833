"""Code: plain code is the user's, with the tensors of a row."""

import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.members.code import PlainCode, Select
from pluribus.mechanisms.members.stacked import Stacked
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.network import Network
from pluribus.methods import DeepEnsembles

x = torch.randn(5, 3)


def test_a_row_that_is_a_network_is_one_of_the_user_s_class():
    assert type(pl.convert(nn.Linear(3, 2), DeepEnsembles(members=2)).member(0)) is nn.Linear


def test_only_the_prediction_is_returned():
    hidden, logits = torch.zeros(2), torch.ones(2)
    assert Select("logits")(nn.Identity(), (), {"hidden": hidden, "logits": logits}) is logits


def test_a_call_and_the_module_of_a_row_agree():
    network = Network(nn.Linear(3, 2))
    tensors = Stacked.of_network(network, {"weight": torch.randn(4, 2, 3)})
    code = PlainCode.of(network.module)
    called = code.call(tensors.of_one(2), 2, Inputs.of(x), code.caller.eval_modes)
    assert_close(code.as_module(tensors, 2)(x), called)


def test_lowered_plain_code_has_the_keys_of_its_tensors():
    network = Network(nn.Linear(3, 2))
    tensors = Stacked.of_network(network, {"weight": torch.randn(4, 2, 3)})
    lowered = PlainCode.of(network.module).lowered(tensors, network.module, Inputs.of(x))
    assert lowered.keys(2) == {"weight": 2}
    assert_close(next(lowered.of([1]))["weight"], tensors.of_one(1)["weight"])
