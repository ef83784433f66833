"""From one network to an ensemble: Figure 4 of the Masksembles paper, on two sinusoids.

    python examples/masksembles_continuum.py [picture.html]

Members always have 100 hidden units a layer (`keep_capacity`); the scale of the masks says how many of them
two members share. The picture, a map of the entropy for each model, needs `pluribus[report]`.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

import pluribus as pl
from pluribus.backbones import mlp
from pluribus.data import Task, two_sinusoids
from pluribus.methods import DeepEnsembles, Masksembles, Single
from pluribus.methods.masksembles import overlap
from pluribus.metrics import accuracy, ece
from pluribus.training import Training, train

HIDDEN = (100, 100)
SCALES = (1.1, 2.0, 3.0, 10.0)
MODELS: Mapping[str, pl.Method] = {
    "Single": Single(),
    **{f"Masksembles, S = {scale:g}": Masksembles(scale=scale, keep_capacity=True) for scale in SCALES},
    "DeepEnsembles": DeepEnsembles(members=4),
}
X, Y = torch.linspace(-5, 5, 81), torch.linspace(-4, 4, 65)


def trained(method: pl.Method, task: Task, epochs: int, seed: int) -> pl.Ensemble:
    """An ensemble of MLPs that has learnt the task."""
    torch.manual_seed(seed)
    network = mlp(2, 2, hidden=HIDDEN)
    ensemble = pl.convert(network, method, example=task.train.x[:2], seed=seed)
    train(ensemble, task, Training(epochs=epochs, batch=64, lr=3e-3, keep="last", seed=seed), show=False)
    return ensemble


def numbers(ensemble: pl.Ensemble, task: Task) -> dict[str, float]:
    """How good, how calibrated and how diverse it is, and how far its masks overlap."""
    seen, strange = ensemble.predict(task.test.x), ensemble.predict(next(iter(task.ood.values())))
    masks = [overlap(mask) for mask in ensemble.members.tensors.own.buffers()]
    shared = sum(masks) / len(masks) if masks else float(len(ensemble.weights) == 1)
    return {
        "overlap": shared,
        "accuracy": accuracy(seen, task.test.y),
        "ECE": ece(seen, task.test.y),
        "entropy beside the data": strange.entropy.mean().item(),
        "disagreement beside the data": strange.mutual_information.mean().item(),
    }


def entropy_map(ensemble: pl.Ensemble) -> Tensor:
    """The entropy over the plane, `[len(Y), len(X)]`."""
    height, width = torch.meshgrid(Y, X, indexing="ij")
    points = torch.stack([width.flatten(), height.flatten()], 1)
    return ensemble.predict(points).entropy.view(len(Y), len(X))


def draw(maps: Mapping[str, Tensor], task: Task, path: Path) -> None:
    """Writes a page with a map for each model and the training points on it."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    figure = make_subplots(2, 3, subplot_titles=list(maps), horizontal_spacing=0.03, vertical_spacing=0.1)
    x, y = task.train.x[:200].T.tolist()
    dots = {"color": ["#d1495b" if one else "#ffffff" for one in task.train.y[:200]], "size": 3}
    plane = {"x": X.tolist(), "y": Y.tolist(), "zmin": 0, "zmax": 0.7, "colorscale": "Cividis"}
    for position, values in enumerate(maps.values()):
        place = {"row": position // 3 + 1, "col": position % 3 + 1}
        figure.add_trace(go.Heatmap(z=values.tolist(), showscale=position == 2, **plane), **place)
        figure.add_trace(go.Scatter(x=x, y=y, mode="markers", marker=dots), **place)
    margin = {"l": 30, "r": 10, "t": 40, "b": 30}
    figure.update_layout(width=1100, height=520, showlegend=False, margin=margin)
    figure.write_html(path, include_plotlyjs=True)


def study(epochs: int = 60, seeds: int = 3) -> tuple[dict[str, dict[str, float]], dict[str, Tensor], Task]:
    """The numbers of every model, averaged over seeds, and the map of its last one."""
    task = two_sinusoids(train=300, validation=100, test=1000)
    found, maps = {}, {}
    for name, method in MODELS.items():
        several = []
        for seed in range(seeds):
            ensemble = trained(method, task, epochs, seed)
            several.append(numbers(ensemble, task))
            maps[name] = entropy_map(ensemble)
        found[name] = {key: sum(one[key] for one in several) / seeds for key in several[0]}
    return found, maps, task


if __name__ == "__main__":
    found, maps, task = study()
    for name, values in found.items():
        print(f"{name:<22}", ", ".join(f"{key} {value:.4f}" for key, value in values.items()))
    if sys.argv[1:]:
        draw(maps, task, Path(sys.argv[1]))
