"""Tracing: one graph with a free batch, or a reason why not."""

import pytest
import torch
from torch import nn

import pluribus as pl
from pluribus.export import tracing
from pluribus.export.head import Pooled
from pluribus.export.tracing import SizeRule, free_sizes, size_rules, suggested_rules, trace
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


def test_a_size_that_the_network_fixes_is_named():
    with pytest.raises(pl.ExportError, match=r"got 'width', axis 1 of input image.* fixes to 4\. Leave it"):
        traced(linear_source(), {"image": {1: "width"}})


class Halved(nn.Module):
    """Halves a size and doubles it again, as networks for segmentation do."""

    def forward(self, image):
        half = nn.functional.avg_pool1d(image.unsqueeze(1), 2)
        whole = image + nn.functional.interpolate(half, scale_factor=2.0).squeeze(1)
        return Pool()(whole)


def test_sizes_are_multiples_where_the_network_divides_them():
    source = linear_source(module=Halved())
    sizes = free_sizes(source, {"image": {1: "width"}})
    program = trace(source, Pooled(source, False, 0.9), sizes)
    assert size_rules(program, sizes) == {"width": SizeRule(2, 4)}
    assert program.module()(torch.ones(2, 10))["labels"].shape == (2,)


class Wide(nn.Module):
    """Does something else with wide inputs."""

    def forward(self, image):
        return Pool()(image if image.shape[1] < 9 else -image)


def test_sizes_of_one_branch_are_bounded():
    source = linear_source(module=Wide())
    sizes = free_sizes(source, {"image": {1: "width"}})
    rules = size_rules(trace(source, Pooled(source, False, 0.9), sizes), sizes)
    assert rules == {"width": SizeRule(1, 1, 8)}
    # `verify` tries these, and refuses the file.
    assert rules["width"].beyond() == [9]
    assert (rules["width"].allows(8), rules["width"].allows(9)) == (True, False)


@pytest.mark.parametrize(
    ("fixes", "rules"),
    [
        ("_width = Dim('_width', min=1, max=oo)\nwidth = 4*_width", {"width": SizeRule(4, 4)}),
        ("width = Dim('width', min=2)", {"width": SizeRule(1, 2)}),
        ("width = Dim('width', max=8)", {"width": SizeRule(1, 1, 8)}),
        ("_width = Dim('_width', min=2, max=5)\nwidth = 4*_width", {"width": SizeRule(4, 8, 20)}),
        ("width = Dim('width', min=33)", {"width": SizeRule(1, 33)}),
        ("width = 2*_width\nbatch = 2*_batch", {}),
        ("width = height", {}),
        ("width = 4", {}),
    ],
)
def test_suggested_rules_are_multiples_and_least_sizes(fixes, rules):
    sizes = {"image": {0: "batch", 1: "width"}}
    assert suggested_rules(f"Constraints violated\nSuggested fixes:\n{fixes}\n\nThe error", sizes) == rules
    assert suggested_rules("Constraints violated", sizes) == {}


class Pool(nn.Module):
    def forward(self, image):
        return torch.stack([image.mean(1), image.amax(1), image.amin(1)]).unsqueeze(2).expand(3, -1, 4)


def test_dynamic_sizes_are_free():
    program = traced(linear_source(module=Pool()), {"image": {1: "width"}})
    assert program.module()(torch.ones(2, 9))["labels"].shape == (2,)
    assert len(program.range_constraints) == 2
