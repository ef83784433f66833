"""The output: which of the things a network returns is the prediction."""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.errors import InputError
from pluribus.mechanisms.network.outputs import first_tensor, select_output, with_first
from pluribus.methods import Single

one, two = torch.zeros(4, 3), torch.ones(4, 5)
Named = namedtuple("Named", "logits features")


@dataclass
class Answer:
    logits: torch.Tensor
    features: torch.Tensor


@pytest.mark.parametrize(
    "returned",
    [
        one,
        (one,),
        [one],
        (one, None, 3),
        {"anything": one},
        {"features": two, "logits": one},
        OrderedDict(hidden=(two, two), logits=one, loss=None),
    ],
    ids=lambda returned: type(returned).__name__,
)
def test_the_only_tensor_or_the_logits_are_found(returned):
    assert select_output(returned) is one


@pytest.mark.parametrize(
    "returned",
    [Named(one, two), Answer(one, two), SimpleNamespace(logits=one)],
    ids=["tuple", "class", "any"],
)
def test_logits_are_found_as_attributes_too(returned):
    assert select_output(returned) is one


def test_the_logits_of_hugging_face_are_found():
    from transformers.modeling_outputs import ImageClassifierOutput

    assert select_output(ImageClassifierOutput(logits=one, hidden_states=(two,))) is one


@pytest.mark.parametrize(
    ("returned", "output"),
    [
        ((two, one), 1),
        ([two, one], -1),
        ({"a": two, "b": one}, "b"),
        ({0: one, 1: two}, 0),
        (SimpleNamespace(a=two, b=one), "b"),
        (Named(two, one), "features"),
        ((two, {"deep": one}), lambda returned: returned[1]["deep"]),
    ],
)
def test_a_key_a_position_or_a_function_picks(returned, output):
    assert select_output(returned, output) is one


@pytest.mark.parametrize(
    ("returned", "shown"),
    [
        ((one, two), "a tuple of Tensor, Tensor"),
        ([], "a list of "),
        ({"a": one, "b": two}, "a dict of a, b"),
        ({"logits": None, "a": one, "b": two}, "a dict of logits, a, b"),
        (None, "a NoneType"),
        (3.0, "a float"),
    ],
)
def test_what_is_ambiguous_is_refused(returned, shown):
    with pytest.raises(InputError, match=rf"must return a tensor, or logits among others, got {shown}"):
        select_output(returned)


@pytest.mark.parametrize(
    ("returned", "output"),
    [
        ((one,), 3),
        ({"a": one}, "b"),
        (SimpleNamespace(a=one), "b"),
        ((one,), "a"),
        (None, 0),
        ({"a": one}, 0),
    ],
)
def test_what_is_not_there_is_refused(returned, output):
    with pytest.raises(
        InputError, match=rf"output must name something that the network returns, got output={output!r}"
    ):
        select_output(returned, output)


@pytest.mark.parametrize(
    ("returned", "output"), [(((one, two),), 0), ({"a": None}, "a"), (one, lambda returned: 3)]
)
def test_what_is_no_tensor_is_refused(returned, output):
    with pytest.raises(InputError, match=r"output must pick a tensor, got .* for output="):
        select_output(returned, output)


def test_the_ensemble_and_its_members_return_what_was_picked():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 2), nn.Linear(3, 5)

        def forward(self, x):
            return self.a(x), self.b(x)

    ensemble = pl.convert(Both(), Single(), output=1)
    assert ensemble(torch.zeros(4, 3)).shape == (1, 4, 5)
    assert ensemble.member(0)(torch.zeros(4, 3)).shape == (4, 5)


Both = namedtuple("Both", ["left", "right"])


@dataclass(frozen=True)
class Found:
    name: str
    value: torch.Tensor


ONE, TWO = torch.ones(2), torch.full((2,), 2.0)


@pytest.mark.parametrize(
    "returned",
    [
        ONE,
        (ONE, TWO),
        [ONE, TWO],
        (None, (ONE, TWO)),
        OrderedDict(a=ONE, b=TWO),
        Both(ONE, TWO),
        Found("x", ONE),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_first_tensor_is_found_and_exchanged_in_a_copy(returned):
    changed = with_first(returned, TWO)
    assert type(changed) is type(returned)
    assert_close(first_tensor(changed), TWO)
    assert_close(first_tensor(returned), ONE)


def test_what_holds_no_tensor_stays():
    assert first_tensor((None, "x")) is None
    assert with_first("x", ONE) == "x"
