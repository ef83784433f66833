"""A small problem that searches of the tests share: two moons, a residual MLP, a few steps."""

import functools
from pathlib import Path

from pluribus.backbones import residual_mlp
from pluribus.data import two_moons
from pluribus.methods import SAE, DeepEnsembles, Single
from pluribus.search import search
from pluribus.search.candidate import Candidate, Problem
from pluribus.search.making import read_space
from pluribus.search.objectives import parse_objectives
from pluribus.search.space import Configuration
from pluribus.search.study import Study, Trial
from pluribus.training import Training

SPACE = {"single": {}, "deep_ensembles": {"members": [2, 3]}}
OBJECTIVES = "nll,multiply_adds"


def network(width=4):
    return residual_mlp(2, 2, width=width, depth=2)


@functools.cache
def moons():
    return two_moons(train=40)


def problem(out, steps=2):
    return Problem(network, moons(), "network", Training(steps=steps), Path(out))


def candidate(out, method=None, **settings):
    return Candidate(problem(out), Configuration(method or Single(), **settings))


def small_search(out, **options):
    given = {"space": SPACE, "objectives": OBJECTIVES, "trials": 3, "training": Training(steps=2)}
    given |= {"show": False, "recipes": False, "sampler_seed": 0, "out": out}
    return search(network, moons(), **(given | options))


def made_up_study(out):
    """Return a study that was never run: values are made up."""
    names = parse_objectives(OBJECTIVES)
    space = read_space({"sae": {"inputs": [1, 2], "exits": [1, 2]}, "single": {}})
    trials = []
    for number, (inputs, exits, nll, work) in enumerate([(1, 1, 0.5, 10), (2, 1, 0.3, 20), (2, 2, 0.4, 30)]):
        ratio = work / 10
        trials.append(
            Trial(
                number,
                "complete",
                f"sae(inputs={inputs}, exits={exits})",
                {"method": "sae", "sae.inputs": inputs, "sae.exits": exits},
                {"nll": nll, "multiply_adds": work},
                {
                    "parameters": 5.0,
                    "multiply_adds": work,
                    "multiply_adds_ratio": ratio,
                    "parameters_ratio": 1.0,
                },
                key=f"key{number}",
                metrics={"nll": nll, "accuracy": 1 - nll},
            )
        )
    trials.append(Trial(3, "skipped", "sae(inputs=9)", reason="budget: parameters 9 ×"))
    trials.append(Trial(4, "failed", "single", reason="ValueError: no"))
    return Study(problem(out), space, names, (), tuple(trials))


METHODS = (Single(), DeepEnsembles(), SAE())
