"""Draw functions from several families of networks: Figure 3 of the Ensemble Model Patching paper.

    python examples/function_space_prior.py [picture.html]

One hidden layer of 100 units with a sign for an activation, all weights drawn and none trained. A function
is piecewise constant with a step wherever a unit changes its sign. Dropping weights to zero takes units out
of the function, with their steps; patches with five options drop nothing. The paper's N(0, 20) and N(0, 5)
are read as standard deviations. The picture needs `pluribus[report]`.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

import pluribus as pl
from pluribus.methods import ECMP, EMP, DeepEnsembles, DropConnect

HIDDEN, BIAS, WEIGHT = 100, 20.0, 5.0
X = torch.linspace(-20, 20, 8001).unsqueeze(1)
COLOURS = ("#1f4e79", "#d1495b", "#edae49")
PATCHES = {"where": ("input", "output"), "start": "fresh", "perturbation": 0.0}


class Sign(nn.Module):
    """The activation of the paper's example."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sign()


def network() -> nn.Sequential:
    """A draw from the prior."""
    layers = nn.Sequential(nn.Linear(1, HIDDEN), Sign(), nn.Linear(HIDDEN, 1))
    for name, parameter in layers.named_parameters():
        nn.init.normal_(parameter, std=WEIGHT if "weight" in name else BIAS)
    return layers


def families(draws: int) -> Mapping[str, pl.Method]:
    """Ways to draw functions; networks drawn anew are nearly a Gaussian process."""
    return {
        "normal prior": DeepEnsembles(draws),
        "dropout": DropConnect(rate=0.5, draws=draws),  # a weight of the one input is a unit
        "EMP": EMP(draws=draws, **PATCHES),
        "ECMP": ECMP(draws=draws, **PATCHES),
    }


def functions(method: pl.Method, seed: int = 0) -> Tensor:
    """Some functions of a family, `[rows, len(X)]`."""
    with torch.no_grad():
        return pl.convert(network, method, pl.Point(), example=X[:2], seed=seed).eval()(X).squeeze(2)


def steps(values: Tensor) -> float:
    """How many steps a function has on average, of at most one for each hidden unit."""
    return (values.diff(dim=1).abs() > 1e-3).sum(1).double().mean().item()


def study(draws: int = 25, seeds: int = 4) -> tuple[dict[str, float], dict[str, Tensor]]:
    """The average number of steps of each family, and some of its functions."""
    found, drawn = {}, {}
    for name, method in families(draws).items():
        several = [functions(method, seed) for seed in range(seeds)]
        found[name], drawn[name] = sum(map(steps, several)) / seeds, several[0][:3]
    return found, drawn


def draw(drawn: Mapping[str, Tensor], path: Path) -> None:
    """Writes a page with three functions of each family."""
    from plotly.subplots import make_subplots

    figure = make_subplots(
        1, len(drawn), subplot_titles=list(drawn), shared_yaxes=True, horizontal_spacing=0.04
    )
    for column, values in enumerate(drawn.values(), 1):
        for one, colour in zip(values, COLOURS, strict=True):
            line = {"x": X[::8, 0].tolist(), "y": one[::8].tolist(), "line": {"color": colour, "width": 1.5}}
            figure.add_scatter(**line, mode="lines", row=1, col=column)
    figure.update_xaxes(title_text="x", title_standoff=4)
    figure.update_yaxes(title_text="f(x)", col=1)
    margin = {"l": 60, "r": 10, "t": 40, "b": 40}
    figure.update_layout(width=1100, height=320, showlegend=False, margin=margin, template="plotly_white")
    figure.write_html(path, include_plotlyjs=True, config={"displayModeBar": False})


if __name__ == "__main__":
    found, drawn = study()
    for name, number in found.items():
        print(f"{name:<14} {number:.1f} steps")
    if sys.argv[1:]:
        draw(drawn, Path(sys.argv[1]))
