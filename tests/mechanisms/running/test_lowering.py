"""Lowering: rows as one graph, in any order and with any size of blocks."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.running import lowering
from pluribus.methods import DeepEnsembles, LayerEnsembles, MCDropout
from tests.cases import normal
from tests.zoo import Apply, residual_cnn

images = normal(2, 8, 8)()


def operators(frozen):
    return [str(node.target) for node in frozen.module.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("memory", [1, None])
def test_blocks_of_any_size_compute_the_same(memory):
    method = LayerEnsembles(options=2, draws=6)
    ensemble = pl.convert(residual_cnn().double(), method, example=images).eval()
    assert_close(ensemble.freeze(memory=memory)(images), ensemble(images).detach())


def test_draws_with_equal_weights_are_folded_into_the_batch():
    network = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).double()
    frozen = pl.convert(network, MCDropout(draws=7), example=normal(6)()).freeze()
    assert operators(frozen).count("aten.linear.default") == 2


def test_a_graph_holds_no_node_for_what_is_constant():
    frozen = pl.convert(nn.Linear(6, 3), DeepEnsembles(members=2)).freeze()
    assert operators(frozen) == ["aten.expand.default", "aten.baddbmm.default"]


def test_random_networks_are_looped():
    network = nn.Sequential(nn.Linear(6, 3), Apply(lambda x: nn.functional.dropout(x, 0.5)))
    (note,) = pl.convert(network, DeepEnsembles(members=2), example=torch.zeros(2, 6)).freeze().notes
    assert "dropout draws random numbers in eval mode" in note


def test_more_rows_than_fit_into_one_graph_call_one_graph(monkeypatch):
    monkeypatch.setattr(lowering, "NODES", 10)
    ensemble = pl.convert(residual_cnn().double(), DeepEnsembles(members=3), example=images).eval()
    frozen = ensemble.freeze()
    assert [node.target for node in frozen.module.graph.nodes if node.op == "call_module"] == ["row"] * 3
    assert_close(frozen(images), ensemble(images).detach())
