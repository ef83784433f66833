"""Products: weights of members from a shared one and factors, whole or by themselves."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from pluribus.mechanisms.members.products import Products
from pluribus.mechanisms.members.stacked import Stacked
from pluribus.mechanisms.network.network import Network

FACTORS = torch.tensor([[2.0], [3.0], [5.0]])


def times(weight, factor):
    return weight * factor.view(-1, 1, 1)


@pytest.fixture
def tensors():
    network = Network(nn.Linear(2, 4))
    made = Products(network, {"bias": torch.arange(12.0).view(3, 4)}, 3, ("factor",), times)
    made.add("weight", [FACTORS])
    return made


def test_each_row_has_its_product(tensors):
    weight = tensors.parts()[0]["weight"]
    for row, found in enumerate(tensors.of(range(3))):
        assert_close(found["weight"], FACTORS[row] * weight)
        assert_close(found["bias"], torch.arange(12.0).view(3, 4)[row])


def test_keys_name_what_rows_have_for_themselves(tensors):
    assert tensors.keys(2) == {"bias": 2, "weight": 2}
    assert tensors.changed() == ["weight"]


def test_equal_factors_are_alike(tensors):
    assert tensors.factor_names() == ["factor.weight"]
    assert not tensors.are_alike()
    with torch.no_grad():
        tensors.get_submodule("factor").weight.fill_(2.0)
    assert tensors.are_alike()
    assert not tensors.keep([1])[0].are_alike()


def test_stacked_gives_all_rows(tensors):
    assert tensors.stacks((0, 1, 2))
    assert not tensors.stacks((0, 1))
    assert_close(tensors.stacked()["weight"], torch.stack([one["weight"] for one in tensors.of(range(3))]))


def test_kept_rows_have_new_numbers(tensors):
    small, rows = tensors.keep([2, 0])
    assert list(rows) == [0, 1]
    assert_close(small.of_one(0)["weight"], tensors.of_one(2)["weight"])
    assert tensors.members == 3


def test_resolved_is_a_stack_of_weights_or_keeps_the_factors(tensors):
    merged = tensors.resolved(range(3))
    assert isinstance(merged, Stacked)
    assert merged.parts()[1]["weight"].shape == (3, 4, 2)
    tensors.merge = False
    apart = tensors.resolved(range(3))
    assert isinstance(apart, Products)
    assert apart.parts()[0]["weight"].shape == (4, 2)
    assert not any(one.requires_grad for one in apart.parameters())


def test_the_gradient_of_a_factor_is_that_of_its_member(tensors):
    tensors.of_one(1)["weight"].sum().backward()
    gradient = tensors.get_submodule("factor").weight.grad
    assert_close(
        gradient.flatten(),
        torch.stack([torch.zeros(()), tensors.parts()[0]["weight"].sum(), torch.zeros(())]),
    )
