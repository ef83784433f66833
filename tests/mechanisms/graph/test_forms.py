"""Shape, type and memory of the values of a graph are found without computing them."""

import torch
from torch.fx import Interpreter

from pluribus.mechanisms.graph.builder import GraphBuilder, aten
from pluribus.mechanisms.graph.forms import forms_of

WEIGHT, X = torch.randn(5, 4), torch.randn(3, 4)


def found(write, x=X):
    builder = GraphBuilder()
    module = builder.finish(write(builder, builder.input("x")))
    forms, memory = forms_of(module, module.graph, [x])
    return [node.name for node in module.graph.nodes if node.op == "call_function"], forms, memory


def test_views_lie_where_the_value_lies() -> None:
    def write(b, x):
        value = b.call(aten.linear.default, x, WEIGHT)
        return b.call(aten.tanh.default, b.call(aten.unsqueeze.default, value, 0))

    (value, view, result), forms, memory = found(write)
    assert forms[value] == (torch.Size([3, 5]), torch.float32)
    assert forms[view] == (torch.Size([1, 3, 5]), torch.float32)
    assert memory[value] == memory[view] != memory[result]
    assert sum(storage.nbytes() for storage in memory[value]) == 3 * 5 * 4


def test_a_norm_has_memory_of_its_own() -> None:
    def write(b, x):
        return b.call(aten.layer_norm.default, b.call(aten.tanh.default, x), [4])

    (value, norm), forms, memory = found(write, X.to(torch.bfloat16))
    assert forms[norm] == forms[value] == (torch.Size([3, 4]), torch.bfloat16)
    assert memory[norm] != memory[value]


def test_an_operator_that_needs_a_device_has_a_form_too() -> None:
    def write(b, x):
        size = b.call(aten.sym_size.int, x, 0)
        return b.call(aten.add.Tensor, x, b.call(aten.ones.default, [size, 4], device=torch.device("cpu")))

    names, forms, _ = found(write)
    assert forms[names[-1]][0] == torch.Size([3, 4])


def test_what_needs_numbers_ends_it() -> None:
    def write(b, x):
        return b.call(aten.nonzero.default, b.call(aten.tanh.default, x))

    (value, numbers), forms, _ = found(write)
    assert value in forms
    assert numbers not in forms


def test_shapes_are_those_of_a_run() -> None:
    def write(b, x):
        value = b.call(aten.conv2d.default, x, torch.randn(2, 1, 3, 3))
        flat = b.call(aten.flatten.using_ints, value, 2)
        normed = b.call(aten.layer_norm.default, flat, [36], torch.ones(36), torch.zeros(36))
        halved = b.call(aten.to.dtype, b.call(aten.gelu.default, normed), torch.float16)
        return b.call(aten.sum.dim_IntList, halved, [1])

    builder, x = GraphBuilder(), torch.randn(2, 1, 8, 8)
    module = builder.finish(write(builder, builder.input("x")))
    values = dict[str, tuple[torch.Size, torch.dtype]]()

    class Run(Interpreter):
        def run_node(self, n):
            value = super().run_node(n)
            values[n.name] = (value.shape, value.dtype)
            return value

    Run(module).run(x)
    forms, _ = forms_of(module, module.graph, [x])
    assert forms == values
