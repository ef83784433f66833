"""Values that nothing else reads are written into, and all numbers stay."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule

from pluribus.mechanisms.graph.builder import GraphBuilder, aten
from pluribus.mechanisms.graph.operators import SYM_SIZE
from pluribus.mechanisms.graph.reuse_memory import reuse_memory

Write = Callable[[GraphBuilder, object], object]
WEIGHT, SQUARE, MASK = torch.randn(6, 4), torch.randn(6, 6), torch.tensor([0.0, 1, 1, 0, 2, 1])
STACKED = torch.randn(3, 1, 6)
KERNEL = torch.randn(2, 1, 3, 3)


def targets_of(write: Write, x: Tensor) -> list[str]:
    """Return the operators of a graph that reuses memory, after comparing it with the plain one."""
    builder = GraphBuilder()
    module = builder.finish(write(builder, builder.input("x")))
    graph = reuse_memory(module, [x])
    quick = GraphModule(module, graph)
    given = x.clone()
    before = {name: tensor.clone() for name, tensor in module.named_buffers()}
    assert torch.equal(quick(x), module(x))
    # Twice, because a weight that was written into shows only then.
    assert torch.equal(quick(x), module(x))
    assert torch.equal(x, given)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.named_buffers())
    return [str(node.target) for node in graph.nodes if node.op == "call_function"]


def product(builder: GraphBuilder, x: object) -> object:
    return builder.call(aten.linear.default, x, WEIGHT)


def test_relu_of_a_product_is_written_in_place() -> None:
    found = targets_of(lambda b, x: b.call(aten.relu.default, product(b, x)), torch.randn(5, 4))
    assert found == ["aten.linear.default", "aten.relu_.default"]


def test_relu_of_an_input_makes_a_new_value() -> None:
    assert targets_of(lambda b, x: b.call(aten.relu.default, x), torch.randn(5, 4)) == ["aten.relu.default"]


def test_relu_of_a_view_of_an_input_makes_a_new_value() -> None:
    def write(b: GraphBuilder, x: object) -> object:
        return b.call(aten.relu.default, b.call(aten.flatten.using_ints, x, 0, 1))

    assert "aten.relu.default" in targets_of(write, torch.randn(5, 4))


def test_relu_of_a_value_that_is_read_again_makes_a_new_value() -> None:
    def write(b: GraphBuilder, x: object) -> object:
        value = product(b, x)
        return b.call(aten.add.Tensor, b.call(aten.relu.default, value), value)

    assert "aten.relu.default" in targets_of(write, torch.randn(5, 4))


def test_mask_is_multiplied_in_place() -> None:
    def write(b: GraphBuilder, x: object) -> object:
        return b.call(aten.mul.Tensor, b.call(aten.relu.default, product(b, x)), MASK)

    found = targets_of(write, torch.randn(5, 4))
    assert found == ["aten.linear.default", "aten.relu_.default", "aten.mul_.Tensor"]


def test_mask_that_makes_the_value_larger_is_not_multiplied_in_place() -> None:
    found = targets_of(lambda b, x: b.call(aten.mul.Tensor, product(b, x), STACKED), torch.randn(5, 4))
    assert found == ["aten.linear.default", "aten.mul.Tensor"]


@pytest.mark.parametrize("first", [True, False])
def test_sum_is_written_into_the_product_that_nothing_else_reads(first: bool) -> None:
    def write(b: GraphBuilder, x: object) -> object:
        shortcut = b.call(aten.tanh.default, product(b, x))
        inner = b.call(aten.linear.default, shortcut, SQUARE)
        return b.call(aten.relu.default, b.call(aten.add.Tensor, *(inner, shortcut)[:: 1 if first else -1]))

    found = targets_of(write, torch.randn(5, 4))
    assert found[-2:] == ["aten.add_.Tensor", "aten.relu_.default"]


def test_sum_that_is_larger_than_the_product_makes_a_new_value() -> None:
    def write(b: GraphBuilder, x: object) -> object:
        return b.call(aten.add.Tensor, product(b, x), STACKED)

    assert "aten.add.Tensor" in targets_of(write, torch.randn(5, 4))


def test_sum_of_values_that_are_read_again_makes_a_new_value() -> None:
    def write(b: GraphBuilder, x: object) -> object:
        one = product(b, x)
        other = b.call(aten.tanh.default, one)
        return b.call(aten.mul.Tensor, b.call(aten.add.Tensor, one, other), b.call(aten.tanh.default, other))

    assert "aten.add.Tensor" in targets_of(write, torch.randn(5, 4))


@pytest.mark.parametrize("padding", [0, 1])
def test_pooling_comes_before_relu(padding: int) -> None:
    def write(b: GraphBuilder, x: object) -> object:
        value = b.call(aten.relu.default, b.call(aten.conv2d.default, x, KERNEL))
        return b.call(aten.max_pool2d.default, value, [2, 2], [2, 2], [padding, padding])

    found = targets_of(write, torch.randn(2, 1, 8, 8))
    assert found == ["aten.conv2d.default", "aten.max_pool2d.default", "aten.relu_.default"]


def test_relu_that_others_read_stays_before_the_pooling() -> None:
    def write(b: GraphBuilder, x: object) -> object:
        value = b.call(aten.relu.default, b.call(aten.conv2d.default, x, KERNEL))
        pooled = b.call(aten.max_pool2d.default, value, [2, 2], [2, 2])
        return b.call(aten.add.Tensor, b.call(aten.sum.default, value), pooled)

    found = targets_of(write, torch.randn(2, 1, 8, 8))
    assert found[:3] == ["aten.conv2d.default", "aten.relu_.default", "aten.max_pool2d.default"]


def test_mask_that_is_made_on_a_device_is_multiplied_in_place() -> None:
    def write(b: GraphBuilder, x: object) -> object:
        places = b.call(aten.arange.default, b.call(SYM_SIZE, x, 0), device=torch.device("cpu"))
        mask = b.call(aten.unsqueeze.default, b.call(aten.to.dtype, places, torch.float32), 1)
        return b.call(aten.mul.Tensor, product(b, x), mask)

    assert targets_of(write, torch.randn(5, 4))[-1] == "aten.mul_.Tensor"
