"""How fast a Single Architecture Ensemble is, beside one network: the limit is 1.2 times its time.

    python benchmarks/sae_speed.py [--only resnet18 train] [--rounds 15] [--busy]

Two inputs with two exits each, ResNet-18, batches of 32 images 32 x 32. Nothing is learnt, so the deepest
exits are used and no part of the network is left out. `frozen` has these exits alone, `ensemble` has all.
`single` is the network in its better memory format, not folded; `single, frozen` is folded as `frozen` is.
`timing.py` says how times are taken.
"""

import torch
import torch.nn.functional as F
from timing import LAST, Contestants, Line, better, line, measure, rounds, step

import pluribus as pl
from pluribus.backbones import resnet18
from pluribus.methods import SAE, Single

METHOD = SAE(inputs=2, exits=2)


def inference(number: int) -> list[Line]:
    x = torch.randn(32, 3, 32, 32)
    x_last = x.contiguous(memory_format=LAST)
    single, last = resnet18().eval(), resnet18().to(memory_format=LAST).eval()
    ensemble = pl.convert(resnet18(), METHOD, example=x[:2]).eval()
    frozen, folded = ensemble.freeze(), pl.convert(resnet18(), Single(), example=x[:2]).eval().freeze()
    contestants: Contestants = {
        "single, contiguous": lambda: single(x),
        "single, channels last": lambda: last(x_last),
        "single, frozen": lambda: folded(x),
        "frozen": lambda: frozen(x),
        "ensemble": lambda: ensemble(x),
    }
    with torch.no_grad():
        times = rounds(contestants, number)
    best = better(times, ["single, contiguous", "single, channels last"])
    costs = [pl.cost(one, x) for one in (frozen, single)]
    counted: Line = {
        "ratio": "frozen / single: multiply-adds, parameters",
        "exact": [
            round(costs[0].multiply_adds / costs[1].multiply_adds, 4),
            round(costs[0].parameters / costs[1].parameters, 4),
        ],
    }
    pairs = [("frozen", best), ("frozen", "single, frozen"), ("ensemble", best)]
    return [counted, *(line(*pair, times) for pair in pairs)]


def training(number: int) -> list[Line]:
    """A step with the batch as it is, and with the batch repeated as usual."""
    y = torch.randint(10, (32,))
    x = torch.randn(32, 3, 32, 32)
    single = resnet18()
    contestants: Contestants = {
        "single": step(single.parameters(), "sgd", lambda: F.cross_entropy(single(x), y))
    }
    for times in (1, METHOD.batch_repetition):
        method = SAE(inputs=2, exits=2, batch_repetition=times)
        ensemble = pl.convert(resnet18(), method, example=x[:2]).train()
        contestants[f"batch × {times}"] = step(
            ensemble.parameters(), "sgd", lambda net=ensemble: net.loss(x, y)
        )
    times_taken = rounds(contestants, number)
    return [line(name, "single", times_taken) for name in contestants if name != "single"]


if __name__ == "__main__":
    measure("sae_speed", {"resnet18": inference, "train": training})
