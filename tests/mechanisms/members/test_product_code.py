"""Graphs of products that are kept apart: the shared weight is stored once, the factors for each member."""

import io

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.methods import LoRAEnsembles
from tests.perturb import perturbed

X = torch.randn(6, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


class Tied(nn.Module):
    """Two layers with one weight, attention, and an output."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(20, 20), nn.Linear(20, 20)
        self.second.weight = self.first.weight
        self.attention = nn.MultiheadAttention(20, 2, batch_first=True)
        self.output = nn.Linear(20, 3)

    def forward(self, x):
        x = self.second(self.first(x).relu())[:, None]
        return self.output(self.attention(x, x, x)[0][:, 0])


def frozen(merge, members=8):
    torch.manual_seed(0)
    method = LoRAEnsembles(members=members, rank=1, merge=merge)
    ensemble = perturbed(pl.convert(Tied().double(), method, example=X)).eval()
    return ensemble, ensemble.freeze()


def held(module):
    return sum(one.numel() for one in {id(t): t for t in (*module.parameters(), *module.buffers())}.values())


def test_a_graph_of_factors_computes_what_members_compute():
    ensemble, made = frozen(merge=False)
    assert_close(made(X), ensemble(X))
    assert_close(made(X[:3]), ensemble(X[:3]))


def test_a_graph_of_factors_holds_shared_weights_once():
    network = sum(p.numel() for p in Tied().parameters())
    ensemble, made = frozen(merge=False)
    assert not any("one after the other" in note for note in made.notes), made.notes
    # Some factors are held a second time, side by side for all members.
    assert held(made.module) < 1.3 * sum(p.numel() for p in ensemble.parameters())
    assert held(frozen(merge=True)[1].module) > 6 * network


@pytest.mark.parametrize("merge", [True, False])
def test_a_saved_graph_is_far_smaller_than_its_members(merge, tmp_path):
    ensemble, made = frozen(merge)
    made.save(tmp_path / "frozen")
    size = sum(file.stat().st_size for file in (tmp_path / "frozen").glob("*.safetensors"))
    whole = 8 * len(ensemble.weights) * sum(p.numel() for p in Tied().parameters())
    assert size < whole / 2
    assert_close(pl.load_frozen(tmp_path / "frozen")(X), ensemble(X))


@pytest.mark.slow
def test_a_graph_of_factors_is_exported():
    ensemble, made = frozen(merge=False, members=3)
    program = torch.export.export(made.module, (X,))
    assert_close(program.module()(X), ensemble(X))
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    assert buffer.tell() < 8 * 3 * sum(p.numel() for p in Tied().parameters()) + 100_000
