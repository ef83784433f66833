"""A small problem that searches of the tests share: two moons, a residual MLP, a few steps."""

import functools
import tempfile
from pathlib import Path

from pluribus.backbones import residual_mlp
from pluribus.comparison.record import Record
from pluribus.data import two_moons
from pluribus.methods import SAE, DeepEnsembles, Single
from pluribus.search import engine, search, worker
from pluribus.search.candidate import Candidate, Problem
from pluribus.search.making import read_space
from pluribus.search.objectives import parse_objectives
from pluribus.search.space import Configuration
from pluribus.search.storage import FILE, Storage
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


@functools.cache
def empty_database():
    """Return the bytes of a database without studies; making its tables takes longer than a small search."""
    with tempfile.TemporaryDirectory() as folder:
        Storage(f"sqlite:///{folder}/{FILE}").open().engine.dispose()
        return (Path(folder) / FILE).read_bytes()


def prepare(out):
    """Put an empty database into the folder of a search that has not begun."""
    file = Path(out) / FILE
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(empty_database())


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


def members_of(method):
    return getattr(method, "members", 1)


def made_up_costs(method, task, single, limits=()):
    """Return costs by the number of members, in place of converting and freezing."""
    count = float(members_of(method))
    costs = {"parameters": 10 * count, "multiply_adds": 100 * count}
    return costs | {"parameters_ratio": count, "multiply_adds_ratio": count}


def made_up_run(candidate, ensemble, on_epoch, on_wait):
    """Return a record without training; more members are better."""
    method = candidate.configuration.method
    for epoch in (1, 2):
        on_epoch(ensemble, {"epoch": epoch, "loss": 1.0})
    candidate.folder.mkdir(parents=True, exist_ok=True)
    metrics = {"nll": 1 / members_of(method), "ece": 0.1}
    settings = (method.to_dict(), "task", "network", 0, {})
    return Record(candidate.key, *settings, metrics=metrics, cost=made_up_costs(method, None, None))


def untrained(monkeypatch):
    """Let searches train and convert nothing, so that many of them take little time."""
    monkeypatch.setattr(worker, "run_candidate", made_up_run)
    monkeypatch.setattr(worker, "costs_ahead", made_up_costs)
    monkeypatch.setattr(
        worker, "measure_validation", lambda method, task: ({"nll": 1 / members_of(method)}, {})
    )
    monkeypatch.setattr(Problem, "digest", "digest")
    monkeypatch.setattr(Problem, "depths", 2)
    monkeypatch.setattr(Problem, "single_on", lambda self, device: None)
    monkeypatch.setattr(Candidate, "convert", lambda self: Untrained(self.configuration.method))
    monkeypatch.setattr(engine, "finish", lambda study, *options: study)
    begin = Storage.open
    empty_database()

    def open_prepared(place):
        if place.is_file:
            prepare(place.file.parent)
        return begin(place)

    monkeypatch.setattr(Storage, "open", open_prepared)


class Untrained:
    """Stand for an ensemble of a method."""

    training, device = True, "cpu"

    def __init__(self, method):
        self.members = members_of(method)

    def eval(self):
        return self

    def train(self, mode):
        return self
