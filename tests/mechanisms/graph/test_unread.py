"""Steps that nothing reads are left out of a graph."""

import torch
from torch.fx import Graph

from pluribus.mechanisms.graph.unread import erase_unread

aten = torch.ops.aten


def test_steps_that_nothing_reads_are_left_out_with_what_they_alone_read() -> None:
    graph = Graph()
    x, unused = graph.placeholder("x"), graph.placeholder("unused")
    read = graph.call_function(aten.relu.default, (x,))
    lost = graph.call_function(aten.tanh.default, (x,))
    graph.call_function(aten.exp.default, (lost,))
    graph.output(read)
    erase_unread(graph)
    # Inputs stay, because callers pass them.
    assert list(graph.nodes) == [x, unused, read, graph.output_node()]
    graph.lint()
