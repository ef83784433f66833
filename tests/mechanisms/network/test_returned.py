"""The first tensor of what modules return."""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch.testing import assert_close

from pluribus.mechanisms.network.returned import first_tensor, with_first

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
