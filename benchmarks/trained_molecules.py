"""Eight published networks of ANI-1x become one ensemble, which is ranked and shrunk.

    pip install --no-deps torchani==1.2 "setuptools<81" lark-parser
    python benchmarks/trained_molecules.py

Smith, Nebgen, Lubbers, Isayev & Roitberg, "Less is more: sampling chemical space with active learning", 2018.
The networks predict the energy of a molecule. Copies of methane are moved at random, from shapes that the
networks were trained on to shapes that they never saw. No true energies are at hand: the mean of all eight
stands for them.
"""

import json
from pathlib import Path

import torch
from torch import Tensor, nn

import pluribus as pl

RESULT = Path(__file__).parent / "results" / "trained_molecules.json"
KCAL = 627.509
"""Kilocalories per mole in a hartree."""
METHANE = ((0.0, 0.0, 0.0), (0.6, 0.6, 0.6), (-0.6, -0.6, 0.6), (0.6, -0.6, -0.6), (-0.6, 0.6, -0.6))
"""Positions of its atoms, in ångström: carbon, then hydrogen at distances of 1.04."""
SPECIES = (6, 1, 1, 1, 1)
DEVIATIONS = (0.02, 0.1, 0.2, 0.3)
COPIES = 200
RANKED_AT = 0.1


class Energy(nn.Module):
    """A network of torchani, which takes species and coordinates as one tuple, as a plain regressor."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, species: Tensor, coordinates: Tensor) -> Tensor:
        """Return energies, `[batch, 1]`."""
        energies: Tensor = self.network((species, coordinates)).energies
        return energies.float().unsqueeze(1)


def moved(deviation: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return species and coordinates of molecules whose atoms were moved at random."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(COPIES, len(SPECIES), 3, generator=generator)
    return torch.tensor([SPECIES] * COPIES), torch.tensor(METHANE) + deviation * noise


def distance(ensemble: pl.Ensemble, x: tuple[Tensor, Tensor], truth: Tensor) -> float:
    """Return the root of the mean squared distance to the truth, in kcal/mol."""
    return KCAL * (ensemble.predict(x).mean - truth).square().mean().sqrt().item()


@torch.no_grad()
def measure() -> dict[str, dict[str, float]]:
    """Return how far members disagree by deviation, and what the first and the last of a ranking give."""
    import torchani

    published = torchani.models.ANI1x(periodic_table_index=True).eval()
    networks = [Energy(published[place]) for place in range(8)]
    x = moved(RANKED_AT, seed=0)
    ensemble = pl.from_models(networks, "point", example=x).eval()
    apart = {}
    for deviation in DEVIATIONS:
        spread = ensemble.predict(moved(deviation, seed=1)).epistemic.sqrt()
        apart[f"{deviation:g}"] = KCAL * spread.mean().item()

    # Ranked on one half of the molecules, compared on the other.
    half = COPIES // 2
    chosen, others = (x[0][:half], x[1][:half]), (x[0][half:], x[1][half:])
    order = ensemble.rank((chosen, ensemble(*chosen).mean(0)), "rmse").order
    truth = ensemble.predict(others).mean
    first, last = {}, {}
    for count in (1, 2, 3, 4):
        first[str(count)] = distance(ensemble.shrink(order[:count]), others, truth)
        last[str(count)] = distance(ensemble.shrink(order[-count:]), others, truth)
    return {"disagreement": apart, "first": first, "last": last}


def main() -> None:
    """Measure once and write the result."""
    torch.set_num_threads(1)
    found = {"command": "python benchmarks/trained_molecules.py", "unit": "kcal/mol", **measure()}
    RESULT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
