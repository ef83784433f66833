"""Caller: the user's code runs with given tensors, and in eval mode writes into none of them."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from pluribus.errors import InputError
from pluribus.mechanisms.members.caller import Caller
from pluribus.mechanisms.members.tree import named_tensors
from pluribus.mechanisms.network.inputs import Inputs

x = torch.ones(4, 3)


class Counting(nn.Module):
    """Counts its runs in a buffer, in both modes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x + self.calls


def test_train_mode_writes_buffers_and_eval_mode_does_not():
    model = Counting()
    caller, tensors = Caller(model), named_tensors(model)
    for _ in range(2):
        assert_close(caller(tensors, Inputs.of(x), caller.eval_modes), x + 1)
    assert_close(tensors["calls"], torch.tensor(0.0))
    caller(tensors, Inputs.of(x), (True,))
    assert_close(tensors["calls"], torch.tensor(1.0))


def test_only_buffers_that_the_code_writes_are_copied_in_later_runs():
    model = nn.Sequential(Counting(), nn.BatchNorm1d(3))
    caller = Caller(model)
    caller(named_tensors(model), Inputs.of(x), caller.eval_modes)
    assert caller._learnt["written"] == {"0.calls"}


def test_an_error_names_the_layer_of_the_user():
    wrapped = nn.Module()
    wrapped.network = nn.Sequential(nn.Linear(5, 2))
    wrapped.forward = wrapped.network.forward
    caller = Caller(wrapped, inside="network")
    with pytest.raises(InputError, match=r"layer 0 \(Linear\) failed, on \(float32\[4, 3\]\)"):
        caller(named_tensors(wrapped), Inputs.of(x), caller.eval_modes)


def test_one_output_per_sample_is_required():
    caller = Caller(nn.Flatten(0))
    with pytest.raises(InputError, match="one row per sample, 4 here"):
        caller({}, Inputs.of(x), caller.eval_modes)


def test_modes_follow_train():
    caller = Caller(nn.Sequential(nn.Dropout(0.5)).eval())
    assert caller.modes == (False, False)
    caller.train(True)
    assert caller.modes == (True, True)
    assert caller.eval_modes == (False, False)
