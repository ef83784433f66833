"""Tracing: one graph with a free batch, or a reason why not."""

import pytest
import torch
from torch import nn

import pluribus as pl
from pluribus.export import tracing
from pluribus.export.head import Pooled
from pluribus.export.tracing import free_sizes, trace
from tests.export.sources import Stacked, linear_source


def traced(source, dynamic=None):
    return trace(source, Pooled(source, False, 0.9), free_sizes(source, dynamic or {}))


def test_graph_has_named_inputs_a_free_batch_and_no_source_lines():
    source = linear_source()
    program = traced(source)
    assert program.graph_signature.user_inputs == ("image",)
    assert list(program.module()(torch.randn(1, 4))) == list(Pooled(source, False, 0.9).outputs)
    assert not any("stack_trace" in node.meta for node in program.graph.nodes)


class Branching(Stacked):
    def forward(self, image):
        return super().forward(image if image.sum() > 0 else -image)


def test_code_that_is_no_graph_is_refused_with_the_reason():
    with pytest.raises(pl.ExportError, match="must be one graph to be exported"):
        traced(linear_source(module=Branching(4)))


def test_free_sizes_are_the_batch_and_those_that_are_given():
    sizes = free_sizes(linear_source(), {"image": {1: "width"}})
    assert sizes == {"image": {0: "batch", 1: "width"}}


def test_large_graphs_are_refused_with_a_remedy(monkeypatch):
    monkeypatch.setattr(tracing, "MOST_NODES", 5)
    with pytest.raises(pl.ExportError, match=r"at most 5 operators, got \d+ for 3 members.*shrink"):
        traced(linear_source())


@pytest.mark.parametrize(
    ("dynamic", "message"),
    [
        ({"x": {1: "width"}}, "dynamic must name inputs among image, got 'x'"),
        ({"image": {0: "width"}}, "map axes from 1 to 1 to names, got axis 0"),
        ({"image": {1: "batch"}}, "by a word, such as 'height', got 'batch'"),
        ({"image": {1: 3}}, "by a word, such as 'height', got 3"),
    ],
)
def test_wrong_dynamic_sizes_are_refused(dynamic, message):
    with pytest.raises(pl.SettingError, match=message):
        traced(linear_source(), dynamic)


class Pool(nn.Module):
    def forward(self, image):
        return torch.stack([image.mean(1), image.amax(1), image.amin(1)]).unsqueeze(2).expand(3, -1, 4)


def test_dynamic_sizes_are_free():
    program = traced(linear_source(module=Pool()), {"image": {1: "width"}})
    assert program.module()(torch.ones(2, 9))["labels"].shape == (2,)
    assert len(program.range_constraints) == 2
