"""A quick graph computes what the plain graph computes, and has no tensors of its own."""

import copy
import json
import pickle
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.running.frozen import Frozen
from pluribus.methods import DeepEnsembles, MCDropout


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


class Sum(nn.Module):
    """A normalised sum, and the sum of its square and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(4, 4), nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        read: torch.Tensor = self.norm(x + self.first(x)) * 3 + self.second(x)
        return read


def test_autocast_keeps_the_precision_of_sums() -> None:
    ensemble = pl.convert(Sum(), DeepEnsembles(members=2), example=torch.randn(2, 4)).eval()
    frozen, x = ensemble.freeze(), torch.randn(5, 4)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        # Layers are computed in half precision, and their sums with other values in single precision.
        assert frozen(x).dtype is ensemble(x).dtype is torch.float32
        assert torch.equal(frozen(x), frozen.module(x))


def test_a_file_is_read_without_running_its_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ensemble = pl.convert(Sum(), DeepEnsembles(members=2), example=torch.randn(2, 4)).eval()
    ensemble.freeze().save(tmp_path / "frozen")
    path = tmp_path / "frozen" / "frozen.json"
    document = json.loads(path.read_text())
    nodes = document["graphs"][0]["nodes"]
    last = nodes.pop()
    # The size of the batch, squared again and again: with a few more steps a number of any length.
    nodes.append({"does": "call", "operator": "aten.sym_size.int", "args": [{"node": 0}, 0], "kwargs": {}})
    for _ in range(8):
        size = {"node": len(nodes) - 1}
        nodes.append({"does": "call", "operator": "operator.mul", "args": [size, size], "kwargs": {}})
    nodes.append(last)
    del document["sha256"]
    path.write_text(json.dumps(document))
    ran = list[str]()
    run_node = torch.fx.Interpreter.run_node
    monkeypatch.setattr(
        torch.fx.Interpreter, "run_node", lambda self, n: (ran.append(n.name), run_node(self, n))[1]
    )
    again = pl.load_frozen(tmp_path / "frozen")
    assert not ran
    again(torch.randn(5, 4))
    assert ran


def test_cost_is_known_before_the_first_call(tmp_path: Path) -> None:
    ensemble = pl.convert(Sum(), DeepEnsembles(members=2), example=torch.randn(2, 4)).eval()
    frozen, x = ensemble.freeze(), torch.randn(5, 4)
    frozen.save(tmp_path / "frozen")
    again = pl.load_frozen(tmp_path / "frozen")
    assert pl.cost(again, x) == pl.cost(frozen, x)
    assert torch.equal(again(x), frozen(x))


WIDE = 1 << 20
"""Numbers of a value: 4 MB in single precision, of which several samples exceed a piece."""


class Widening(nn.Module):
    """Make a large value of a small sample; `together` divides by the mean of all samples."""

    def __init__(self, together: bool = False) -> None:
        super().__init__()
        self.first, self.together = nn.Linear(64, 3), together

    def forward(self, x: Tensor) -> Tensor:
        wide = self.first(x).mean(1, keepdim=True).expand(-1, WIDE).exp()
        found = torch.stack([wide.mean(1), wide.amax(1)], 1)
        return found / found.mean() if self.together else found


def test_large_batches_run_in_pieces_where_samples_are_independent() -> None:
    x = torch.randn(16, 64)
    for together in (False, True):
        ensemble = pl.convert(Widening(together), "deep_ensembles(members=2)", example=x[:2]).eval()
        frozen = ensemble.freeze()
        assert_close(frozen(x), ensemble(x))
        # All samples of one member take 64 MB.
        peak = pl.cost(frozen, x).peak_activation_bytes
        assert (peak > 4 * WIDE * 16) == together
        assert frozen.explain(x).peak_bytes.planned == peak
        assert pl.cost(frozen, x).multiply_adds == 16 * 2 * 64 * 3


def test_pieces_leave_out_no_sample() -> None:
    ensemble = pl.convert(Widening(), "deep_ensembles(members=2)", example=torch.randn(2, 64)).eval()
    frozen = ensemble.freeze()
    for batch in (5, 17):
        x = torch.randn(batch, 64)
        assert_close(frozen(x), ensemble(x))
