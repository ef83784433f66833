"""Steps that nothing reads are erased, and inputs stay."""

import torch
from torch.fx import Graph

from pluribus.mechanisms.graph.unread import erase_unread

aten = torch.ops.aten


def test_chains_that_nothing_reads_are_erased() -> None:
    graph = Graph()
    x, _ = graph.placeholder("x"), graph.placeholder("other")
    kept = graph.call_function(aten.relu.default, (x,))
    graph.call_function(aten.tanh.default, (graph.call_function(aten.tanh.default, (kept,)),))
    graph.output(kept)
    erase_unread(graph)
    assert [node.op for node in graph.nodes] == ["placeholder", "placeholder", "call_function", "output"]
