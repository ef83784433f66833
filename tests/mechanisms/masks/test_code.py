"""Code with masks: rows share all weights and differ by masks."""

import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.masks.code import MaskedCode
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.methods import Masksembles

x = torch.randn(5, 3)


def test_a_call_multiplies_by_the_masks_of_the_row():
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    members = pl.convert(model, Masksembles(members=4), example=x).eval().members
    code = members.code
    assert isinstance(code, MaskedCode)
    assert code.masks == {"2.mask_0"}
    tensors = members.tensors.of_one(3)
    expected = model[2](model[1](model[0](x)) * tensors["2.mask_0"])
    assert_close(code.call(tensors, 3, Inputs.of(x), code.caller.eval_modes), expected)
    assert_close(code.as_module(members.tensors, 3)(x), expected)
