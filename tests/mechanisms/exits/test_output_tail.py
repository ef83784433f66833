"""Output tail: layers that make the output together are repeated for every slot, others are refused."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.exits.data_flow import read_data_flow
from pluribus.mechanisms.exits.output_tail import find_output_tail
from pluribus.mechanisms.exits.widening import INNER, NORM, SOURCE, keep_output, widen_output
from pluribus.mechanisms.network.network import Network
from pluribus.methods import MIMO, SAE
from tests.cases import case_named


class Ending(nn.Module):
    """Two layers, and a residual end that a function makes of the second."""

    def __init__(self, end, width=4):
        super().__init__()
        self.first, self.second, self.third = (
            nn.Conv2d(2, 5, 3, padding=1),
            nn.Conv2d(5, 3, 1),
            nn.Conv2d(3, 3, 3, padding=1),
        )
        self.norm, self.affine, self.end = nn.InstanceNorm2d(3), nn.InstanceNorm2d(3, affine=True), end

    def forward(self, x):
        hidden = self.second(self.first(x).relu())
        return self.end(self, hidden)


def tail(end):
    found = find_output_tail(read_data_flow(Network(Ending(end), torch.randn(2, 2, 6, 6))))
    return {layer.name: layer.role for layer in found}


ENDS = {
    "residual": (lambda one, h: one.third(h) + h, {"second": SOURCE, "third": INNER}),
    "normed": (
        lambda one, h: one.third(one.norm(h).relu()) + h,
        {"second": SOURCE, "norm": NORM, "third": INNER},
    ),
    "affine norm": (lambda one, h: one.third(one.affine(h)) + h, {}),
    "read elsewhere": (lambda one, h: one.third(h) + h + h.mean((1, 2, 3), keepdim=True), {}),
    "twice": (lambda one, h: one.third(one.third(h)) + h, {}),
    "another operator": (lambda one, h: (one.third(h) + h).flip(1), {}),
}


@pytest.mark.parametrize("name", ENDS)
def test_tail_holds_the_layers_whose_channels_reach_the_output(name):
    end, expected = ENDS[name]
    assert tail(end) == expected


@pytest.mark.parametrize(
    ("layer", "role"),
    [
        (nn.Conv2d(4, 3, 3), SOURCE),
        (nn.ConvTranspose2d(4, 3, 3, stride=2), SOURCE),
        (nn.Linear(4, 3), SOURCE),
    ],
    ids=["conv", "transposed", "linear"],
)
def test_a_source_makes_the_outputs_of_all_slots(layer, role):
    x = torch.randn(2, 4) if isinstance(layer, nn.Linear) else torch.randn(2, 4, 5, 5)
    expected = layer(x)
    widen_output(layer, role, 3)
    assert_close(layer(x), torch.cat([expected] * 3, 1))
    keep_output(layer, role, [2], 3)
    assert_close(layer(x), expected)


@pytest.mark.parametrize(
    "layer", [nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(3, 4, 3)], ids=["conv", "transposed"]
)
def test_an_inner_layer_reads_every_slot_by_itself(layer):
    parts = [torch.randn(2, 3, 5, 5) for _ in range(3)]
    expected = [layer(part) for part in parts]
    widen_output(layer, INNER, 3)
    assert_close(layer(torch.cat(parts, 1)), torch.cat(expected, 1))
    keep_output(layer, INNER, [2, 0], 3)
    assert_close(layer(torch.cat([parts[2], parts[0]], 1)), torch.cat([expected[2], expected[0]], 1))


@pytest.mark.slow
@pytest.mark.parametrize("method", [MIMO(inputs=2), SAE(inputs=2)], ids=str)
def test_residual_unets_take_several_inputs(method):
    case = case_named("monai_unet")
    x, y = case.inputs(), case.target()
    ensemble = pl.convert(case.model(), method, example=x)
    ensemble.train().loss(x, y).backward()
    rows = ensemble.eval()(x)
    assert rows.shape[1:] == case.shape
    assert_close(ensemble.member(0)(x), rows[0])
    assert_close(ensemble.shrink([1])(x)[0], rows[1])
    assert_close(ensemble.freeze()(x), rows)


def test_slots_of_a_residual_unet_start_as_the_network():
    case = case_named("monai_unet")
    model, x = case.model().eval(), case.inputs()
    ensemble = pl.convert(model, MIMO(inputs=2, start="copy"), example=x).eval()
    for row in ensemble(x):
        assert_close(row, model(x))
