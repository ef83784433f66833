"""Ranked Layer Ensembles beside Deep Ensembles on random functions whose posterior is known.

    python benchmarks/layer_ensembles_ranking.py [--seeds 3]

The testbed of the Layer Ensembles paper: targets are drawn from the Gaussian process of an infinitely wide
ReLU network with two hidden layers, and a model is judged by the divergence of its Gaussian from the exact
posterior, at 1000 test points. Members are ranked on 1000 other points. Networks have two hidden layers
of 50; Adam, 0.001, 1000 steps of 100 samples; every option of the first layer, and every deep member,
sees targets with fixed noise of its own. The loss of all 125 members is computed with shared layers and
weighted by how often each was drawn, which is the loss of as many draws.
"""

import argparse
import itertools
import json
import statistics
from pathlib import Path

import torch
from torch import Generator, Tensor, nn

import pluribus as pl
from pluribus.data.testbed import Problem, draw_problem
from pluribus.mechanisms.members.prior import AnyMembers, WithPrior
from pluribus.mechanisms.ranking.criteria import divergence
from pluribus.methods import DeepEnsembles, LayerEnsembles

RESULT = Path(__file__).parent / "results" / "layer_ensembles_ranking.json"
SETTINGS = [
    *((10, 10, 0.1), (10, 1, 0.1), (10, 100, 0.1), (100, 1, 0.1), (100, 10, 0.1)),
    *((10, 10, 1.0), (10, 10, 0.01)),
]
STEPS, BATCH, HIDDEN, OPTIONS = 1000, 100, 50, 5


def network(inputs: int) -> nn.Sequential:
    """The paper's network, initialised as in its code."""
    sizes = (inputs, HIDDEN, HIDDEN, 1)
    layers = [nn.Linear(a, b) for a, b in itertools.pairwise(sizes)]
    for place, layer in enumerate(layers):
        std = layer.in_features**-0.5
        nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
        nn.init.trunc_normal_(layer.bias) if place == 0 else nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])


def every_member(members: AnyMembers, x: Tensor) -> Tensor:
    """All combinations of a chain's options, `[options, options, options, batch]`, with shared layers."""
    own = members.tensors.parts()[1]
    for depth, layer in enumerate(("0", "2", "4")):
        weight, bias = own[f"{layer}.weight"], own[f"{layer}.bias"]
        x = torch.einsum("...bi,koi->...kbo", x.relu() if depth else x, weight) + bias.unsqueeze(1)
    return x.squeeze(-1)


def outputs(ensemble: pl.Ensemble, x: Tensor) -> Tensor:
    """All members' outputs, `[members of the first choice, others, batch]`."""
    members = ensemble.members
    if isinstance(ensemble.method, DeepEnsembles):
        return ensemble(x).squeeze(-1).unsqueeze(1)
    with torch.no_grad():
        has_prior = isinstance(members, WithPrior)
        prior = members.scale * every_member(members.prior, x) if has_prior else 0
    return (every_member(members, x) + prior).flatten(1, 2)


def train(ensemble: pl.Ensemble, problem: Problem, draws: int | None, seed: int) -> None:
    """Minimises the mean loss of `draws` random members per step, or of all members."""
    generator = Generator().manual_seed(seed)
    optimizer = torch.optim.Adam([p for p in ensemble.parameters() if p.requires_grad], lr=1e-3)
    first = outputs(ensemble.train(), problem.x[:2]).shape[0]
    targets = problem.y + problem.noise * torch.randn(first, len(problem.y), generator=generator)
    for _ in range(STEPS):
        chosen = torch.randint(len(problem.x), (BATCH,), generator=generator)
        errors = outputs(ensemble, problem.x[chosen]) - targets[:, None, chosen]
        losses = errors.square().mean(2).flatten()
        if draws is not None:
            drawn = torch.randint(len(losses), (draws,), generator=generator)
            losses = losses * drawn.bincount(minlength=len(losses)) * (len(losses) / draws)
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
    ensemble.eval()


def nested(ensemble: pl.Ensemble, points: tuple[Tensor, Tensor], order: list[int]) -> list[float]:
    """The divergence of the first P members for every P."""
    means = ensemble.predict(points[0]).means.squeeze(-1).double()[order]
    moments = (
        torch.stack((means, means.square()), 1).cumsum(0) / torch.arange(1, len(means) + 1)[:, None, None]
    )
    return divergence(points[1], moments).mean(1).tolist()


def build(problem: Problem, method: pl.Method, seed: int, draws: int | None = None) -> pl.Ensemble:
    ensemble = pl.convert(lambda: network(problem.x.shape[1]), method, "point", seed=seed)
    train(ensemble, problem, draws, seed)
    return ensemble


def measure(setting: tuple[int, int, float], seed: int) -> dict[str, float]:
    """Divergences on the test points of one problem."""
    problem = draw_problem(*setting, seed, relative=True)
    found: dict[str, float] = {}
    for members in (5, 30):
        deep = build(problem, DeepEnsembles(members, prior_scale=1.0), seed)
        found[f"deep {members}"] = nested(deep, problem.test, list(range(members)))[-1]
    layered = build(problem, LayerEnsembles(OPTIONS), seed, draws=OPTIONS**3)
    ranking = layered.rank(problem.validation, "kl")
    curve = nested(layered, problem.test, list(ranking))
    shuffled = torch.randperm(len(curve), generator=Generator().manual_seed(seed)).tolist()
    found |= {
        "layers, all 125": curve[-1],
        "layers, best P": curve[ranking.best - 1],
        "P": ranking.best,
        "layers, best 20": curve[19],
        "layers, random P": nested(layered, problem.test, shuffled)[ranking.best - 1],
    }
    few = build(problem, LayerEnsembles(OPTIONS), seed, draws=5)
    found["layers, 5 draws a step"] = nested(few, problem.test, list(range(len(curve))))[-1]
    without = build(problem, LayerEnsembles(OPTIONS, prior_scale=0.0), seed, draws=OPTIONS**3)
    found["layers, no prior"] = nested(without, problem.test, list(range(len(curve))))[-1]
    return found


def main() -> None:
    """Measures every setting with several seeds, and keeps the numbers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    seeds = (1, 2, 6, 0, 5, 17, 12, 260, 19, 98)[: parser.parse_args().seeds]  # the paper's
    torch.set_num_threads(1)
    runs = {str(setting): [measure(setting, seed) for seed in seeds] for setting in SETTINGS}
    names = list(next(iter(runs.values()))[0])
    means = {
        setting: {name: round(statistics.fmean(run[name] for run in found), 4) for name in names}
        for setting, found in runs.items()
    }
    result = {
        "command": f"python benchmarks/layer_ensembles_ranking.py --seeds {len(seeds)}",
        "settings": "inputs, training points for each input, standard deviation of the noise",
        "means over seeds": means,
        "means over settings": {
            name: round(statistics.fmean(mean[name] for mean in means.values()), 4) for name in names
        },
        "runs": runs,
        "versions": {"torch": torch.__version__},
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result["means over seeds"], indent=1))


if __name__ == "__main__":
    main()
