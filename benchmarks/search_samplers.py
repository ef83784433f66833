"""Compare the samplers of a search on made-up problems, where nothing is trained.

    python benchmarks/search_samplers.py [--problems 36] [--first 0] [--trials 20]

Three seeds of a real search are few: chance decides them. Here a study takes less than a second, so that many
can be compared. The spaces are those of real searches, all default methods or SAE alone. The quality of a
configuration is a random function of its settings, another in each problem, with noise as of training:

    log q = (base + Σ_i a_i e_i(x_i) + Σ_ij w_ij x_i x_j / d + noise) / 2,    x in [0, 1]^d
    e_i   a parabola with its minimum anywhere, a line, or a step anywhere

The cost follows from the settings as multiply-adds do. Both are minimised. Samplers begin as in a search:
with methods that have no settings and, but for random search, with the defaults of the others, which mean
nothing here. For each problem hypervolumes are the share of the box between the best and worst values of the
samplers that are compared. Results go to `benchmarks/results/search_samplers.json`.
"""

import argparse
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution
from optuna.trial import TrialState

from pluribus.axes import Between, OneOf
from pluribus.method import Method
from pluribus.methods import SAE
from pluribus.search.engine import METHODS
from pluribus.search.enumeration import default_parameters, first_parameters
from pluribus.search.front import hypervolumes
from pluribus.search.making import make_space
from pluribus.search.queue import quiet
from pluribus.search.samplers import Sampler, silence
from pluribus.search.space import METHOD
from pluribus.search.worker import distribution

RESULTS = Path(__file__).parent / "results" / "search_samplers.json"
SPACES: dict[str, Sequence[Method]] = {"five methods": METHODS, "sae": (SAE(),)}
COMPARED = ("random", "tpe", "improvement")
DEPTHS = 4
NOISE = 0.1
STEEPNESS = 12
MOST_DRAWS = 6
"""Draws for each trial that is wanted; equal configurations are not tried twice."""

Parameters = Mapping[str, Any]


class Quality:
    """A random function of the settings of one method."""

    def __init__(self, axes: Mapping[str, Between | OneOf], random: np.random.Generator) -> None:
        self.axes, size = axes, len(axes)
        self.base = random.normal() / 2
        self.heights = random.exponential(0.6, size)
        self.shapes = random.integers(0, 3, size)
        self.places = random.random(size)
        self.products = np.triu(random.normal(size=(size, size)), 1) / 2

    def __call__(self, parameters: Parameters) -> float:
        x = np.array([place(axis, parameters[name]) for name, axis in self.axes.items()])
        if not len(x):
            return float(self.base)
        shapes = (3 * (x - self.places) ** 2, 1.5 * x, 1 / (1 + np.exp(STEEPNESS * (self.places - x))))
        alone = np.choose(self.shapes, shapes) @ self.heights / math.sqrt(len(x))
        return float(self.base + alone + x @ self.products @ x / len(x))


def place(axis: Between | OneOf, value: Any) -> float:
    """Return where a value lies on its axis, from 0 to 1."""
    found = distribution(axis)
    if isinstance(found, CategoricalDistribution):
        return found.choices.index(value) / max(1, len(found.choices) - 1)
    low, high = found.low, found.high  # type: ignore[attr-defined]
    if found.log:  # type: ignore[attr-defined]
        low, high, value = math.log(low), math.log(high), math.log(value)
    return float((value - low) / (high - low))


def cost(kind: str, parameters: Parameters) -> float:
    """Return about as many multiply-adds as a method has, as a multiple of one network."""
    own = {name.partition(".")[2]: value for name, value in parameters.items()}
    if kind == "sae":
        return float(0.7 + 0.02 * own["exits"] * own["inputs"])
    if kind == "deep_ensembles":
        return float(own["members"])
    if kind == "packed_ensembles":
        return float(own["alpha"] ** 2 / own["members"] / own["gamma"] + 0.05 * own["members"])
    if kind == "mc_dropout":
        return float(0.6 + 0.4 * own["draws"])
    return 1.0


class MadeUp:
    """A problem on the space of some methods."""

    def __init__(self, methods: Sequence[Method], seed: int) -> None:
        self.seed = seed
        self.space = make_space(methods, training=[], depths=DEPTHS, enumerated=[])
        random = np.random.default_rng(seed)
        self.qualities = {}
        for choice in self.space.choices:
            self.qualities[choice.kind] = Quality(self.space.own_parameters(choice, False), random)

    def values(self, parameters: Parameters) -> tuple[float, float]:
        """Return quality and cost. Equal configurations have equal noise."""
        kind = parameters.get(METHOD, self.space.kinds[0])
        noise = np.random.default_rng([self.seed, zlib.crc32(repr(sorted(parameters.items())).encode())])
        quality = self.qualities[kind](parameters) + NOISE * noise.normal()
        return math.exp(quality / 2), cost(kind, parameters)


def search(problem: MadeUp, name: str, seed: int, trials: int) -> list[tuple[float, float]]:
    """Return the values of all trials of a sampler, in their order."""
    sampler = Sampler(name, seed)
    made = sampler.make(trials, problem.space)
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=made)
    first = first_parameters(problem.space)
    own = default_parameters(problem.space) if sampler.begins_with_defaults else []
    for parameters in first + own:
        study.enqueue_trial(parameters)
    found: dict[str, tuple[float, float]] = {}
    for _ in range(MOST_DRAWS * trials):
        trial = study.ask()
        problem.space.suggest(lambda name, axis, trial=trial: trial._suggest(name, distribution(axis)))
        key = repr(sorted(trial.params.items()))
        if key in found:
            study.tell(trial, state=TrialState.PRUNED)
            continue
        found[key] = problem.values(trial.params)
        study.tell(trial, found[key])
        if len(found) == trials:
            break
    return list(found.values())


def compare(methods: Sequence[Method], seed: int, trials: int) -> dict[str, float]:
    """Return the last hypervolume of every sampler on one problem."""
    problem = MadeUp(methods, seed)
    studies = {name: search(problem, name, seed, trials) for name in COMPARED}
    everything = [point for points in studies.values() for point in points]
    return {name: round(hypervolumes(points, everything)[-1], 4) for name, points in studies.items()}


def summary(found: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return the means, and how often each sampler is at least as good as random search."""
    means = {name: round(mean(one[name] for one in found), 4) for name in COMPARED}
    won = {name: sum(one[name] >= one["random"] for one in found) for name in COMPARED[1:]}
    return {"problems": len(found), "means": means, "at least random": won, "each": list(found)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--problems", type=int, default=36)
    parser.add_argument("--first", type=int, default=0, help="problem")
    parser.add_argument("--trials", type=int, default=20)
    given = parser.parse_args()
    silence()
    for name, methods in SPACES.items():
        found = []
        for seed in range(given.first, given.first + given.problems):
            with quiet():
                found.append(compare(methods, seed, given.trials))
            known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
            known[f"{name}, {given.trials} trials, problems from {given.first}"] = summary(found)
            RESULTS.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        print(name, {key: value for key, value in summary(found).items() if key != "each"}, flush=True)


if __name__ == "__main__":
    main()
