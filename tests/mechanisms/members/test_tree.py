"""Trees of named tensors: what members share, and what each has for itself."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from pluribus.mechanisms.members.tree import (
    columns_of,
    divide,
    fresh_stack,
    memory_order,
    named_tensors,
    plant,
    reorder,
    stack_modules,
    take,
    uproot,
)
from pluribus.mechanisms.network.fresh import fresh_modules
from pluribus.mechanisms.network.network import Network
from tests.zoo import mlp


def test_a_planted_tensor_is_found_under_its_name():
    tree = nn.Module()
    plant(tree, "a.b.weight", nn.Parameter(torch.ones(2)))
    plant(tree, "a.count", torch.tensor(3), persistent=False)
    assert_close(named_tensors(tree), {"a.b.weight": nn.Parameter(torch.ones(2)), "a.count": torch.tensor(3)})
    assert set(tree.state_dict()) == {"a.b.weight"}


def test_an_uprooted_tensor_is_gone():
    tree = nn.Module()
    plant(tree, "a.weight", nn.Parameter(torch.ones(2)))
    uproot(tree, "a.weight")
    assert named_tensors(tree) == {}


def test_a_network_is_divided_into_what_is_shared_and_what_is_not():
    network = Network(nn.BatchNorm1d(3))
    shared, own = divide(network, {"weight": torch.zeros(4, 3), "running_mean": torch.ones(4, 3)})
    assert set(named_tensors(own)) == {"weight", "running_mean"}
    assert set(named_tensors(shared)) == {"bias", "running_var", "num_batches_tracked"}
    assert isinstance(named_tensors(own)["weight"], nn.Parameter)
    assert not isinstance(named_tensors(own)["running_mean"], nn.Parameter)


def test_what_is_taken_stays_in_the_given_order():
    tree = nn.Module()
    plant(tree, "weight", nn.Parameter(torch.arange(6.0).view(3, 2)))
    take(tree, {"weight": [2, 0]})
    assert_close(named_tensors(tree)["weight"].data, torch.tensor([[4.0, 5], [0, 1]]))


def test_columns_of_buffers_are_views_that_can_be_written():
    buffer = torch.zeros(3, 2)
    columns_of(buffer)[1].fill_(1)
    assert_close(buffer.sum(1), torch.tensor([0.0, 2, 0]))


def test_columns_of_parameters_have_gradients_in_the_order_of_memory():
    weight = nn.Parameter(reorder(torch.randn(2, 3, 4, 5, 5), (0, 1, 3, 4, 2)))
    rows = columns_of(weight)
    assert_close(list(rows), [weight[0], weight[1]])
    (rows[0].sum() + 2 * rows[1].sum()).backward()
    assert weight.grad.stride() == weight.stride()
    assert memory_order(weight[0].detach()) == (0, 1, 3, 4, 2)


class Replaced(nn.Module):
    """A layer whose initialiser makes a new parameter."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)
        self.norm = nn.BatchNorm2d(4)
        self.fixed = nn.Parameter(torch.ones(2), requires_grad=False)
        self.reset_parameters()

    def reset_parameters(self):
        self.scale = nn.Parameter(torch.randn(5))


@pytest.mark.parametrize("model", [Replaced(), Replaced, mlp()], ids=["module", "factory", "mlp"])
def test_fresh_stack_has_the_numbers_of_fresh_modules(model):
    network = Network(model)
    names = set(network.tensors())
    own, redrawn = fresh_stack(network, 3, 5, names)
    modules, again = fresh_modules(network, 3, 5)
    assert_close(own, stack_modules(modules, names), rtol=0, atol=0)
    assert redrawn == again
    for name, tensor in network.tensors().items():
        assert own[name][0].stride() == tensor.stride()
        assert own[name].data_ptr() != tensor.data_ptr()


def test_fresh_stack_has_the_named_tensors_alone():
    network = Network(mlp())
    name = next(iter(network.tensors()))
    assert set(fresh_stack(network, 2, 0, {name})[0]) == {name}
