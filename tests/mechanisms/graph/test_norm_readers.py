"""Norm readers: the linear layers behind a layer norm, and what is left of the norm."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from pluribus.mechanisms.graph.norm_readers import plain_norm_of, reader_of
from pluribus.mechanisms.graph.operators import operator_name
from pluribus.mechanisms.graph.program import read_program
from pluribus.mechanisms.network.network import Network
from tests.cases import seeded

X = torch.randn(4, 6, generator=seeded(0))


class Normed(nn.Module):
    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.norm, self.layer = nn.LayerNorm(6, bias=bias), nn.Linear(6, 3, bias=bias)
        for parameter in self.parameters():
            nn.init.normal_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        return self.layer(x) + x.sum()


def steps_of(module: nn.Module):
    network = Network(module, X)
    program = read_program(network)
    found = {operator_name(step): step for step in program.steps}
    return program, found, network.tensors()


def test_a_layer_takes_over_scale_and_shift() -> None:
    for bias in (True, False):
        module = Normed(bias)
        program, steps, tensors = steps_of(module)
        reader = reader_of(program, steps["layer_norm"], steps["linear"])
        plain = plain_norm_of(program, steps["layer_norm"])
        assert reader is not None
        ones, zeros = plain.tensors(tensors)
        found = F.linear(F.layer_norm(X, [6], ones, zeros), *reader.tensors(tensors))
        assert_close(found, module.layer(module.norm(X)))
        assert (ones == 1).all()
        assert not zeros.any()


def test_other_readers_are_none() -> None:
    program, steps, _ = steps_of(Normed(True))
    assert reader_of(program, steps["layer_norm"], steps["sum"]) is None
