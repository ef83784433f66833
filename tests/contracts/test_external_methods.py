"""Methods of one's own: written against the interface alone, they are right in every form."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

import pluribus as pl
from pluribus.conversion_record import LayerRecord
from pluribus.mechanisms.members.code import PlainCode
from pluribus.mechanisms.members.index import Fixed, Seeds
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.stacked import Stacked
from pluribus.mechanisms.members.tensors import Tensors
from pluribus.mechanisms.members.tree import divide, stack_modules
from pluribus.mechanisms.network.network import Network
from pluribus.method import Built, LayerChoice, Method
from tests.perturb import perturbed
from tests.verify import verify_forms

images = torch.randn(6, 2, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


class GaussianTensors(Tensors):
    """Every weight is drawn around the network's own; a row is a seed."""

    def of(self, rows: Iterable[int]) -> Iterator[dict[str, Tensor]]:
        shared = self.parts()[0]
        for row in rows:
            generator = torch.Generator().manual_seed(row)
            drawn = {}
            for name in self.names():
                noise = torch.randn(shared[name].shape, generator=generator).to(shared[name])
                drawn[name] = shared[name] + 0.5 * noise
            yield {**shared, **drawn}

    def keys(self, row: int) -> dict[str, Hashable]:
        return dict.fromkeys(self.names(), row)

    def names(self) -> list[str]:
        return [name for name, _ in self.shared.named_parameters()]


@dataclass(frozen=True)
class Gaussian(Method):
    """Draw every weight around the network's own, as SWAG does."""

    draws: int = 3

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        layers = tuple(LayerRecord(c.site.names, c.site.kind, "drawn") for c in choices)
        tensors = GaussianTensors(*divide(network, {}))
        code = PlainCode.of(network.module, network.output)
        return Built(Members(Seeds(self.draws, 1, seed), tensors, code), layers)


@dataclass(frozen=True)
class Bagging(Method):
    """Train M copies of the network, each on its own resample (Breiman, 1996)."""

    members: int = 3

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        names = {name for choice in choices for name in choice.site.trained}
        own = stack_modules([network.module] * self.members, names)
        layers = tuple(LayerRecord(c.site.names, c.site.kind, f"{self.members} copies") for c in choices)
        code = PlainCode.of(network.module, network.output)
        return Built(Members(Fixed(self.members), Stacked.of_network(network, own), code), layers)

    def assign(self, batch: int, rows: Sequence[int], progress: float) -> list[Tensor]:
        counts = torch.poisson(torch.ones(len(rows), batch))
        # A sample drawn twice appears twice in the member's batch.
        return [torch.arange(batch).repeat_interleave(count.long()) for count in counts]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(64, 3)),
    ).double()


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(128, 8), nn.ReLU(), nn.Linear(8, 3)).double()


METHODS = [Gaussian(), Gaussian(draws=12), Bagging(), Bagging(members=9)]


@pytest.mark.parametrize("make", [network, small])
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_every_form_of_a_foreign_method_agrees(method, make, tmp_path):
    ensemble = perturbed(pl.convert(make(), method, example=images)).eval()
    verify_forms(ensemble, make, images, tmp_path)


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_foreign_method_trains(method):
    torch.manual_seed(0)
    ensemble = pl.convert(network(), method, example=images).train()
    loss = ensemble.loss(images, torch.tensor([0, 1, 2, 0, 1, 2]))
    loss.backward()
    assert loss.isfinite()
    assert all(parameter.grad is not None for parameter in ensemble.parameters())


def test_freeze_folds_norms_into_drawn_weights():
    assert "1 is part of 0" in pl.convert(network(), Gaussian(), example=images).freeze().notes
