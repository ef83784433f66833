"""Graphs for runtimes: which sizes of batch are compared, and the inputs of each."""

import torch
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule

from pluribus.export.runtime import Graph


def graph(*free):
    empty = FxGraph()
    empty.output(None)
    example = (torch.arange(6.0).reshape(2, 3), torch.ones(4))
    return Graph(GraphModule(torch.nn.Module(), empty), ("image", "scale"), example, free)


def test_samples_are_repeated_where_the_batch_is_free():
    image, scale = graph(True, False).inputs(3)
    assert image.tolist() == [[0, 1, 2], [3, 4, 5], [0, 1, 2]]
    assert scale.shape == (4,)


def test_a_fixed_batch_is_compared_at_its_size_alone():
    assert graph(True, False).batches == (1, 2, 7)
    assert graph(False, False).batches == (2,)
