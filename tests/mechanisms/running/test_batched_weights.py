"""Batched weights: one product is what each version would be alone."""

import pytest
import torch
from torch.fx import Graph
from torch.testing import assert_close

from pluribus.mechanisms.running import batched_weights
from pluribus.mechanisms.running.batched_weights import is_batched, run_batched
from pluribus.mechanisms.running.executor import EAGER, Piece, Task


def task(shape, versions, bias=True, shared=False):
    """A linear layer with three weights, and versions that read them: `(data, weight)` each."""
    graph = Graph()
    x, weight, shift = (graph.placeholder(name) for name in "xwb")
    node = graph.call_function(torch.ops.aten.linear.default, (x, weight, shift) if bias else (x, weight))
    data = [Piece(torch.randn(*shape, dtype=torch.float64)) for _ in range(6)]
    weights = [Piece(torch.randn(4, shape[-1], dtype=torch.float64)) for _ in range(3)]
    shifts = [Piece(torch.randn(4, dtype=torch.float64)) for _ in range(3)]
    pieces = {x: [data[0 if shared else one] for one, _ in versions]}
    pieces[weight] = [weights[one] for _, one in versions]
    if bias:
        pieces[shift] = [shifts[one] for _, one in versions]
    varying = [node for node in pieces if node is not x or not shared]
    return Task(node, pieces, varying, EAGER)


CASES = {
    "weights": ((5, 3), [(0, 0), (1, 1), (2, 2)]),
    "pairs": ((5, 3), [(0, 2), (1, 0), (2, 1), (3, 2), (4, 0), (5, 1)]),
    "tokens": ((5, 2, 3), [(2, 1), (0, 0)]),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_one_product_is_what_each_version_would_be_alone(name, shared, bias):
    shape, versions = CASES[name]
    if shared and name == "pairs":
        versions = versions[:3]
    one = task(shape, versions, bias, shared)
    assert is_batched(one)
    for index, piece in enumerate(run_batched(one)):
        arguments = [pieces[index].value for pieces in one.pieces.values()]
        assert_close(piece.value, torch.nn.functional.linear(*arguments))


def test_groups_of_unequal_size_and_large_weights_run_one_by_one(monkeypatch):
    assert not is_batched(task((5, 3), [(0, 0), (1, 0), (2, 1)]))
    monkeypatch.setattr(batched_weights, "BATCHED_WEIGHTS", 11)
    assert not is_batched(task(*CASES["weights"]))


@pytest.mark.parametrize("bias", [True, False])
def test_narrow_layers_that_read_one_value_are_one_wide_product(monkeypatch, bias):
    monkeypatch.setattr(batched_weights, "WIDE_VERSIONS", 3)
    shape, versions = CASES["weights"]
    one = task(shape, versions, bias, shared=True)
    found = run_batched(one)
    # All versions lie in the memory of one product, `[batch, versions, out]`.
    assert found[0].whole.stride() == (4, 12, 1)
    for index, piece in enumerate(found):
        arguments = [pieces[index].value for pieces in one.pieces.values()]
        assert_close(piece.value, torch.nn.functional.linear(*arguments))
