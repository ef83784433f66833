"""A quick graph computes what the plain graph computes, and has no tensors of its own."""

import copy
import pickle

import torch
from torch import nn

import pluribus as pl
from pluribus.mechanisms.running.frozen import Frozen
from pluribus.methods import MCDropout


def frozen_dropout() -> Frozen:
    """Return draws of a small network, whose masks are written in place."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
    ensemble = pl.convert(network, MCDropout(rate=0.5, draws=4), example=torch.randn(2, 4))
    return ensemble.eval().freeze()


def test_quick_graph_computes_what_the_module_computes() -> None:
    frozen, x = frozen_dropout(), torch.randn(5, 4)
    assert torch.equal(frozen(x), frozen.module(x))
    assert torch.equal(frozen(x), frozen(x))


def test_plain_module_has_gradients_and_no_operator_that_writes() -> None:
    frozen, x = frozen_dropout(), torch.randn(5, 4, requires_grad=True)
    frozen.module(x).sum().backward()
    assert x.grad is not None
    targets = [str(node.target) for node in frozen.module.graph.nodes if node.op == "call_function"]
    assert not any(target.split(".")[1].endswith("_") for target in targets)


def test_quick_graph_follows_casts_copies_and_pickles() -> None:
    frozen, x = frozen_dropout(), torch.randn(5, 4)
    expected = frozen(x)
    assert torch.equal(copy.deepcopy(frozen)(x), expected)
    assert torch.equal(pickle.loads(pickle.dumps(frozen))(x), expected)
    cast = copy.deepcopy(frozen).double()
    torch.testing.assert_close(cast(x.double()), expected.double())
    # The copy was cast, and the original was not.
    assert frozen(x).dtype is torch.float32


def test_quick_graph_reads_the_tensors_of_the_module() -> None:
    frozen, x = frozen_dropout(), torch.randn(5, 4)
    with torch.no_grad():
        for parameter in frozen.module.parameters():
            parameter.zero_()
    assert torch.equal(frozen(x), torch.zeros_like(frozen(x)))
