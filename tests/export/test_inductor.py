"""The compiler of torch is refused by name where it cannot run."""

import pytest
import torch
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule

import pluribus as pl
from pluribus.export import inductor
from pluribus.export.inductor import Inductor
from pluribus.export.runtime import Graph

CPU = torch.device("cpu")


def test_a_missing_compiler_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(pl.ExportError, match=r"needs a C\+\+ compiler, got no no-such-compiler. Install"):
        Inductor().check(CPU)
    # Other devices have compilers of their own.
    Inductor().check(torch.device("meta"))


def test_graphs_of_many_operators_are_refused(monkeypatch):
    graph = FxGraph()
    x = graph.placeholder("x")
    for _ in range(3):
        x = graph.call_function(torch.relu, (x,))
    graph.output(x)
    module = GraphModule(torch.nn.Module(), graph)
    monkeypatch.setattr(inductor, "MOST_NODES", 2)
    with pytest.raises(pl.ExportError, match=r"at most 2 operators to compile, got 3.*shrink"):
        Inductor().compile(Graph(module, ("x",), (torch.ones(2, 3),), (True,)))
