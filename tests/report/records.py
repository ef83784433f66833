"""Records of runs that never ran: predictions drawn at random, measured by the real functions."""

import torch

from pluribus.comparison.outcomes import make_gallery, read_outcomes, stored_ood_scores
from pluribus.comparison.record import Record
from pluribus.likelihood import Categorical, Gaussian
from pluribus.metrics import evaluate_all, evaluate_ood
from pluribus.report.groups import group_records

COSTS = {"single": 1.0, "deep_ensembles": 4.0, "batch_ensemble": 1.1, "mc_dropout": 1.0}
DIGITS = "Task(digits: 300 train, 60 validation, 200 test; inputs [1, 8, 8]; 10 classes; no shifted)"
HOUSES = "Task(houses: 300 train, 60 validation, 200 test; inputs [4]; Gaussian; no shifted)"


def classes(kind="single", seed=0, skill=2.0, samples=200, task=DIGITS, images=True, **changes):
    """A run on ten classes; the members are right the more often the greater `skill` is."""
    generator = torch.Generator().manual_seed(seed + 100 * len(kind))
    target = torch.randint(10, (samples,), generator=torch.Generator().manual_seed(7))
    noise = torch.randn(4, samples, 10, generator=generator)
    logits = noise + skill * torch.nn.functional.one_hot(target, 10)
    prediction = Categorical().prediction(logits)
    other = Categorical().prediction(torch.randn(4, 50, 10, generator=generator))
    outcomes = read_outcomes(prediction, target)
    outcomes.ood["noise"] = stored_ood_scores(other)
    if images:
        pictures = torch.rand(samples, 1, 8, 8, generator=generator)
        names = tuple(f"class <{i}>" for i in range(10))
        object.__setattr__(outcomes, "gallery", make_gallery(prediction, target, pictures, names))
    measured = evaluate_all(prediction, target)
    worse = {name: measured[name] for name in ("accuracy", "nll", "ece")}
    shifted = {
        f"{name}/{n}": {**worse, "accuracy": measured["accuracy"] * (1 - n / 20)}
        for name in ("fog", "gaussian_noise")
        for n in range(1, 6)
    }
    values = {
        "metrics": measured,
        "shifted": shifted,
        "ood": {"noise": evaluate_ood(prediction, other)},
        "cost": _costs(kind),
        "versions": {"pluribus": "0"},
        "outcomes": outcomes,
        **changes,
    }
    return _record(kind, seed, task, "cnn", values)


def numbers(kind="single", seed=0, noise=1.0, samples=200, task=HOUSES, **changes):
    """A run of regression; its means are the nearer the smaller `noise` is, its intervals are right."""
    generator = torch.Generator().manual_seed(seed + 100 * len(kind))
    target = torch.randn(samples, 1, generator=torch.Generator().manual_seed(7))
    means = target + noise * torch.randn(samples, 1, generator=generator)
    raw = torch.full((samples, 1), noise**2).expm1().log()
    prediction = Gaussian().prediction(torch.cat((means, raw), 1).unsqueeze(0))
    values = {
        "metrics": evaluate_all(prediction, target),
        "cost": _costs(kind),
        "outcomes": read_outcomes(prediction, target),
        **changes,
    }
    return _record(kind, seed, task, "mlp", values)


def sae(inputs, exits, seed=0, depth=3, epochs=4, **changes):
    """A run that comes to prefer the deepest of its exits, the later inputs the less."""
    history = {"epoch": list(range(1, epochs + 1))}
    for i in range(1, inputs + 1):
        for d in range(1, depth + 1):
            share = [(e / epochs) / (i + 1) for e in range(epochs)]
            rest = [(1 - one) / depth for one in share]
            deepest = [one + other for one, other in zip(share, rest, strict=True)]
            history[f"preference_{i}_{d}"] = deepest if d == depth else rest
    run = classes("sae", seed, 1 + exits / inputs, images=False, **{"history": history, **changes})
    run.method.update(inputs=inputs, exits=exits)
    return run


def failed(kind="mimo", seed=0, task=DIGITS, error="ValueError: no <such> layer"):
    return _record(kind, seed, task, "cnn", {"error": error})


def only_group(*records):
    (group,) = group_records(records)
    return group


def _record(kind, seed, task, network, values):
    method = {"kind": kind, "version": 1}
    return Record(f"{kind}-{seed}-{network}", method, task, network, seed, {"epochs": 3}, **values)


def _costs(kind):
    ratio = COSTS.get(kind, 2.0)
    found = {"parameters": 1000 * ratio, "multiply_adds": 5000 * ratio}
    return found | {"parameters_ratio": ratio, "multiply_adds_ratio": ratio, "latency_ratio": ratio}
