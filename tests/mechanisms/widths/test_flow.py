"""Flow: operators that move entries move labels alike; what no rule knows is refused by name."""

import pytest
import torch
from torch import nn

from pluribus.errors import ConversionError
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.widths.groups import read_widths
from tests.zoo import Apply

X = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))


def sizes(*layers: nn.Module) -> list[int]:
    return [group.size for group in read_widths(Network(nn.Sequential(*layers), X)).groups]


@pytest.mark.parametrize(
    "move",
    [
        lambda x: x.flip(1),
        lambda x: x.roll(3, 1),
        lambda x: x.unsqueeze(1).expand(-1, 2, -1).mean(1),
        lambda x: x.t().t().contiguous(),
        lambda x: torch.cat(x.split(2, 1)[::-1], 1),
        lambda x: x.view(-1, 2, 4).transpose(1, 2).reshape(-1, 8),
        lambda x: torch.stack([x, x], 1).sum(1),
    ],
)
def test_channels_that_are_moved_stay_coupled_one_by_one(move):
    assert sizes(nn.Linear(6, 8), Apply(move), nn.Linear(8, 3)) == [8]


def test_channels_that_are_repeated_are_one():
    widths = read_widths(
        Network(nn.Sequential(nn.Linear(6, 4), Apply(lambda x: x.repeat(1, 2)), nn.Linear(8, 3)), X)
    )
    assert widths.axes["2.weight", 1].tolist() == 2 * widths.axes["0.weight", 0].tolist()


def test_a_slice_by_number_fixes_what_it_picks():
    assert sizes(nn.Linear(6, 8), Apply(lambda x: x[:, 1] * x[:, 0]), Apply(lambda x: x.unsqueeze(1))) == []


def test_halves_that_are_added_are_one():
    add = Apply(lambda x: x.chunk(2, 1)[0] + x.chunk(2, 1)[1])
    assert sizes(nn.Linear(6, 8), add, nn.Linear(4, 3)) == [4]


def test_an_operator_without_a_rule_is_refused_by_name():
    with pytest.raises(ConversionError, match=r"got sort in 1 \(.*zoo.py:\d+\), for which there is no rule"):
        sizes(nn.Linear(6, 8), Apply(lambda x: x.sort(1)[0]), nn.Linear(8, 3))


def test_a_reshape_that_mixes_two_kinds_of_channels_is_refused_by_name():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other, self.head = nn.Linear(6, 4), nn.Linear(6, 5), nn.Linear(20, 3)

        def forward(self, x):
            return self.head((self.one(x)[:, :, None] * self.other(x)[:, None]).flatten(1))

    with pytest.raises(ConversionError, match=r"got flatten in the network itself \(.*:\d+\), which mixes"):
        read_widths(Network(Outer(), X))


def test_code_without_gradients_is_followed():
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, x):
            with torch.no_grad():
                x = self.one(x).relu()
            return self.head(x)

    assert [group.size for group in read_widths(Network(Frozen(), X)).groups] == [8]


def test_tensors_that_the_code_creates_follow_or_stay():
    created = Apply(lambda x: x + torch.ones(8, dtype=x.dtype) * torch.arange(3).view(3, 1).diff(dim=1).sum())
    assert sizes(nn.Linear(6, 8), created, nn.Linear(8, 3)) == [8]
