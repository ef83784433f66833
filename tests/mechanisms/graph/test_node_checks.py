"""Nodes of a graph in a file: arithmetic of sizes is short, and a graph returns a tensor."""

import pytest
import torch
from torch.testing import assert_close

from pluribus.mechanisms.graph.graph_file import GRAPH, graph_from_list
from pluribus.schema import Mismatch


def arithmetic(*args, operator="operator.mul", does="call"):
    """Nodes of a graph that computes with a size of its input, and returns the input."""
    size = {"does": "call", "operator": "aten.sym_size.int", "args": [{"node": 0}, 0], "kwargs": {}}
    node = {"does": does, "operator": operator, "args": list(args), "kwargs": {}}
    return [{"does": "input", "name": "x"}, size, node, {"does": "return", "value": {"node": 0}}]


def test_sizes_may_be_computed_with():
    module = graph_from_list(arithmetic({"node": 1}, 2, operator="operator.pow"), {})
    assert_close(module(torch.ones(3)), torch.ones(3))


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        # Without the check, these take hours or gigabytes when a file is read or its graph is called.
        (arithmetic(10, 10**9, operator="operator.pow", does="make"), "must be of sizes and numbers"),
        (arithmetic([0], 10**12, does="make"), "must be of sizes and numbers"),
        (arithmetic(10, 10**9, operator="operator.pow"), "must be of sizes and numbers"),
        (arithmetic([0], {"node": 1}), "must be of sizes and numbers"),
        (arithmetic({"node": 1}, 10**9, operator="operator.pow"), "exponent of at most 64"),
        (arithmetic(2, {"node": 1}, operator="operator.pow"), "exponent of at most 64"),
        (arithmetic({"node": 1}, {"float": "nan"}, operator="operator.pow"), "exponent of at most 64"),
        (arithmetic(1, 0, operator="operator.truediv", does="make"), "must be of sizes and numbers"),
    ],
    ids=lambda one: one[:25] if isinstance(one, str) else "",
)
def test_arithmetic_that_never_ends_is_refused(nodes, reason):
    GRAPH.check(nodes, "")
    with pytest.raises(Mismatch, match=reason):
        graph_from_list(nodes, {})


def test_a_size_is_not_returned():
    nodes = arithmetic({"node": 1}, 2)
    for place in (1, 2):
        nodes[-1] = {"does": "return", "value": {"node": place}}
        with pytest.raises(Mismatch, match="value must be a tensor"):
            graph_from_list(nodes, {})


def test_operators_have_as_many_arguments_as_they_read():
    one = arithmetic({"node": 1}, operator="operator.add")
    three = arithmetic({"node": 1}, 2, 3, operator="operator.sub")
    for nodes in (one, three):
        with pytest.raises(Mismatch, match="must be 2 arguments of operator"):
            graph_from_list(nodes, {})
    module = graph_from_list(arithmetic({"node": 1}, operator="operator.neg"), {})
    assert_close(module(torch.ones(3)), torch.ones(3))


def test_the_first_argument_of_an_operator_is_given_by_its_place():
    relu = {"does": "call", "operator": "aten.relu.default", "args": [], "kwargs": {"self": {"node": 0}}}
    nodes = [{"does": "input", "name": "x"}, relu, {"does": "return", "value": {"node": 1}}]
    with pytest.raises(Mismatch, match="must be 1 to 1 arguments"):
        graph_from_list(nodes, {})
