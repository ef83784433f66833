"""Kinds of inputs: names, order, and which calls are of a kind."""

import torch

from pluribus.mechanisms.graph.builder import GraphBuilder
from pluribus.mechanisms.graph.program import Signature
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.torch_private import tree_flatten
from pluribus.mechanisms.running.kinds import (
    add_inputs,
    has_free_batch,
    input_names,
    made_up,
    takes_any_batch,
)

x, y = torch.zeros(2, 3), torch.zeros(2, 5, dtype=torch.long)


def signature(inputs, *forms):
    return Signature(str(inputs), str(tree_flatten((inputs.args, inputs.keywords))[1]), forms, None, None)


def forward(image, age=None, *, scale=1):
    return image


def test_inputs_have_the_names_of_forward():
    assert input_names(forward, Inputs((x, y), {"scale": 2})) == ["image", "age", "scale"]
    assert input_names(forward, Inputs(([x, y],), {})) == ["image_0", "image_1"]
    assert input_names(lambda *args: None, Inputs((x,), {})) == ["input_0"]


def test_inputs_come_in_the_order_of_forward_and_plain_values_are_none():
    inputs = Inputs((), {"scale": 2, "age": y, "image": x})
    kind, leaves = add_inputs(GraphBuilder(), signature(inputs), forward, inputs)
    assert kind.names == ("image", "age")
    assert not kind.plain
    assert leaves[0] == 2
    assert [one is other for one, other in zip(kind.inputs(inputs), (x, y), strict=True)] == [True, True]


def test_a_call_of_another_kind_is_not_accepted():
    inputs = Inputs((x,), {})
    kind, _ = add_inputs(GraphBuilder(), signature(inputs, (x.dtype, (None, 3))), forward, inputs)
    assert kind.plain
    assert kind.accepts((torch.zeros(7, 3),))
    for other in (torch.zeros(7, 4), torch.zeros(7, 3).double(), torch.zeros(3), 5):
        assert not kind.accepts((other,))
    assert not kind.accepts((x, x))


def test_a_fixed_size_of_batch_is_known():
    inputs = Inputs((x,), {})
    assert takes_any_batch(signature(inputs, (x.dtype, (None, 3))))
    assert not takes_any_batch(signature(inputs, (x.dtype, (2, 3))))


def test_inputs_are_made_up_where_there_is_no_example():
    inputs = Inputs((x, y, x > 0), {})
    forms = ((torch.float32, (None, 3)), (torch.int64, (None, 5)), (torch.bool, (2, 3)))
    kind, _ = add_inputs(GraphBuilder(), signature(inputs, *forms), forward, inputs)
    numbers, tokens, mask = made_up(kind, torch.device("cpu"))
    assert numbers.shape == (2, 3)
    assert numbers.std() > 0
    assert (tokens.shape, tokens.dtype, int(tokens.max())) == ((2, 5), torch.int64, 0)
    assert mask.all()
    assert has_free_batch(kind) == (True, True, False)
