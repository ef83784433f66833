"""Rules: what each operator couples, on the smallest network that shows it."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from pluribus.errors import ConversionError
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.widths.groups import read_widths
from tests.zoo import Apply

GENERATOR = torch.Generator().manual_seed(0)
FLAT, IMAGE = (torch.randn(shape, generator=GENERATOR) for shape in ((3, 6), (3, 2, 8, 8)))
SERIES = torch.randn(3, 5, 6, generator=GENERATOR)
POOL = (nn.AdaptiveAvgPool2d(1), nn.Flatten())


def read(*layers, x=FLAT):
    return read_widths(Network(nn.Sequential(*layers), x))


def summary(widths):
    """By group, its size, divisor and the axes that carry it."""
    return [
        (group.size, group.multiple, " ".join(f"{name}.{axis}" for name, axis in group.axes))
        for group in widths.groups
    ]


class Function(nn.Module):
    """A function of the input and of parameters of given shapes."""

    def __init__(self, function, *shapes):
        super().__init__()
        self.p = nn.ParameterList([torch.randn(shape, generator=GENERATOR) for shape in shapes])
        self.function = function

    def forward(self, x):
        return self.function(x, *self.p)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, a, b: x @ a @ b,
        lambda x, a, b: torch.mm(torch.mm(x, a), b),
        lambda x, a, b: torch.addmm(torch.zeros(3), torch.mm(x, a), b),
        lambda x, a, b: torch.einsum("bi,ij,jk->bk", x, a, b),
        lambda x, a, b: torch.bmm(x[None] @ a, b[None])[0],
        lambda x, a, b: torch.stack([torch.mv(b.t(), torch.mv(a.t(), row)) for row in x.unbind()]),
    ],
)
def test_products_couple_what_they_sum_over(function):
    widths = read_widths(Network(Function(function, (6, 8), (8, 3)), (FLAT[:2], {})[0]))
    assert summary(widths) == [(8, 1, "p.0.1 p.1.0")]


def test_an_equation_with_dots_is_refused():
    with pytest.raises(ConversionError, match="got einsum in"):
        read(nn.Linear(6, 8), Apply(lambda x: torch.einsum("...i,...i->...", x, x)))


def test_a_depthwise_convolution_is_as_wide_as_its_input():
    widths = read(nn.Conv2d(2, 4, 1), nn.Conv2d(4, 8, 3, groups=4), nn.Conv2d(8, 3, 1), *POOL, x=IMAGE)
    assert summary(widths) == [(4, 1, "0.weight.0 0.bias.0 1.weight.0 1.bias.0 2.weight.1")]


def test_a_grouped_convolution_reads_each_group_alike():
    widths = read(nn.Conv2d(2, 8, 1), nn.Conv2d(8, 6, 3, groups=2), nn.Conv2d(6, 3, 1), *POOL, x=IMAGE)
    assert summary(widths) == [
        (4, 1, "0.weight.0 0.bias.0 1.weight.1"),
        (6, 2, "1.weight.0 1.bias.0 2.weight.1"),
    ]


def test_a_group_with_one_output_stays_a_group():
    widths = read(nn.Conv2d(2, 8, 1), nn.Conv2d(8, 4, 3, groups=4), nn.Conv2d(4, 3, 1), *POOL, x=IMAGE)
    assert [(group.size, group.multiple) for group in widths.groups] == [(2, 1), (4, 4)]
    assert [group.resized(0.5) for group in widths.groups] == [1, 4]


def test_blocks_across_several_groups_divide_each_of_them():
    class Joined(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = nn.Conv2d(2, 5, 1), nn.Conv2d(2, 7, 1)
            self.norm, self.head = nn.GroupNorm(2, 12), nn.Conv2d(12, 3, 1)

        def forward(self, x):
            return self.head(self.norm(torch.cat([self.one(x), self.other(x)], 1))).mean((2, 3))

    groups = read_widths(Network(Joined(), IMAGE)).groups
    assert [(group.size, group.multiple, group.resized(0.5)) for group in groups] == [(5, 2, 2), (7, 2, 4)]


def test_a_transposed_convolution_has_its_axes_the_other_way_round():
    layers = (nn.Conv2d(2, 8, 1), nn.ConvTranspose2d(8, 6, 2, groups=2), nn.Conv2d(6, 3, 1))
    assert summary(read(*layers, *POOL, x=IMAGE)) == [
        (8, 2, "0.weight.0 0.bias.0 1.weight.0"),
        (3, 1, "1.weight.1 1.bias.0 2.weight.1"),
    ]


def test_a_depthwise_transposed_convolution_is_as_wide_as_its_input():
    layers = (nn.Conv2d(2, 4, 1), nn.ConvTranspose2d(4, 8, 3, groups=4), nn.Conv2d(8, 3, 1))
    assert summary(read(*layers, *POOL, x=IMAGE)) == [
        (4, 1, "0.weight.0 0.bias.0 1.weight.0 1.bias.0 2.weight.1")
    ]


def test_what_is_flattened_after_a_convolution_is_coupled_by_channel():
    widths = read(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Linear(144, 3), x=IMAGE)
    assert summary(widths) == [(4, 1, "0.weight.0 0.bias.0 2.weight.1")]
    assert widths.axes["2.weight", 1].tolist() == widths.axes["0.weight", 0].repeat_interleave(36).tolist()


def test_shuffled_pixels_are_channels_again():
    widths = read(nn.Conv2d(2, 16, 1), nn.PixelShuffle(2), nn.Conv2d(4, 3, 1), *POOL, x=IMAGE)
    assert summary(widths) == [(4, 1, "0.weight.0 0.bias.0 2.weight.1")]


@pytest.mark.parametrize(
    ("norm", "multiple"),
    [
        (nn.BatchNorm2d(8), 1),
        (nn.InstanceNorm2d(8), 1),
        (nn.GroupNorm(2, 8), 2),
        (nn.GroupNorm(4, 8, affine=False), 4),
        (nn.PReLU(8), 1),
        (nn.PReLU(), 1),
        (nn.Softmax(1), 1),
    ],
)
def test_norms_keep_the_number_of_their_groups(norm, multiple):
    (group,) = read(nn.Conv2d(2, 8, 1), norm, nn.Conv2d(8, 3, 1), *POOL, x=IMAGE).groups
    assert (group.size, group.multiple) == (8, multiple)


def test_a_gate_couples_the_halves():
    assert summary(read(nn.Linear(6, 16), nn.GLU(), nn.Linear(8, 3))) == [
        (8, 1, "0.weight.0 0.bias.0 2.weight.1")
    ]


def test_zero_padding_takes_the_channels_that_are_added():
    class Padded(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.more, self.head = nn.Linear(6, 8), nn.Linear(6, 12), nn.Linear(12, 3)

        def forward(self, x):
            one, more = self.one(x), self.more(x)
            return self.head(F.pad(one, (0, more.shape[1] - one.shape[1])) + more)

    groups = read_widths(Network(Padded(), FLAT)).groups
    assert [(group.size, group.offset) for group in groups] == [(8, 0), (4, 8)]
    assert [group.resized(0.5) for group in groups] == [4, 2]


def test_what_is_picked_by_number_stays():
    table = Function(lambda x, table: table[torch.zeros(3, dtype=torch.long)] + x, (6, 8))
    assert summary(read(nn.Linear(6, 8), table, nn.Linear(8, 3))) == [
        (8, 1, "0.weight.0 0.bias.0 1.p.0.1 2.weight.1")
    ]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_gates_have_the_channels_of_the_hidden_state(kind):
    layer = kind(6, 4, num_layers=2, bidirectional=True, batch_first=True)
    (group,) = read(layer, Apply(lambda output: output[0].mean(1)), nn.Linear(8, 3), x=SERIES).groups
    assert group.size == 4
    assert ("2.weight", 1) in group.axes
    assert ("0.weight_ih_l1_reverse", 1) in group.axes


def test_a_projected_recurrent_layer_is_refused():
    layer = nn.LSTM(6, 4, proj_size=2, batch_first=True)
    with pytest.raises(ConversionError, match=r"got lstm in 0"):
        read(layer, Apply(lambda output: output[0].mean(1)), nn.Linear(2, 3), x=SERIES)
