"""Kinds of inputs from files: names and sizes must be those of the graph, before anything is made up."""

import pytest
import torch
from torch.fx import Graph, GraphModule

from pluribus.mechanisms.running.kind_file import check_inputs, dtype_of, kind_of
from pluribus.schema import Mismatch

KIND = {"names": ["x"], "places": [0], "plain": True, "example": "a tensor", "structure": "*"}
FORMS = [{"dtype": "float32", "sizes": [None, 3]}, {"value": 2}]


def identity():
    graph = Graph()
    graph.output(graph.placeholder("x"))
    return GraphModule(torch.nn.Module(), graph)


def test_a_kind_of_the_graph_is_accepted():
    kind = kind_of(KIND | {"forms": FORMS})
    assert kind.signature.forms == ((torch.float32, (None, 3)), 2)
    check_inputs(identity(), kind)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"places": [0, 0]}, "name the 1 inputs"),
        ({"names": []}, "name the 1 inputs"),
        ({"places": [1]}, "must be a tensor"),
        ({"forms": [{"dtype": "float32", "sizes": [None, 10**12]}]}, "must take at most"),
        ({"places": [9]}, "must be below 2"),
    ],
)
def test_other_kinds_are_refused(changes, reason):
    with pytest.raises(Mismatch, match=reason):
        check_inputs(identity(), kind_of(KIND | {"forms": FORMS} | changes))


def test_unknown_types_are_refused():
    assert dtype_of("int64") is torch.int64
    with pytest.raises(Mismatch, match="one of"):
        dtype_of("object")
