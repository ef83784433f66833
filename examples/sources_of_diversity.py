"""Measure three sources of diversity of an ensemble: Appendix F of the Packed-Ensembles paper, on digits.

Members may begin with different weights, see different batches, both, or neither. The third source of the
paper's Table 7, algorithms that are not deterministic, is one of GPUs and is left out.

    python examples/sources_of_diversity.py          # with Adam
    python examples/sources_of_diversity.py sgd      # with SGD and momentum, as in the paper
"""

import sys
from dataclasses import replace
from statistics import fmean, stdev

import torch

import pluribus as pl
from pluribus.backbones import cnn
from pluribus.data import digits
from pluribus.methods import PackedEnsembles
from pluribus.metrics import accuracy, ece, mutual_information
from pluribus.training import Training, train

METHOD = PackedEnsembles(members=4, alpha=2.0)
RATES = {"adam": 3e-3, "sgd": 0.05}


def alike(ensemble: pl.Ensemble) -> None:
    """Gives all members the weights of the first."""
    state = ensemble.state_dict()
    own = {name: value for name, value in state.items() if name.startswith("members.tensors.own.")}
    ensemble.load_state_dict(state | {name: value[:1].expand_as(value) for name, value in own.items()})


def study(
    epochs: int = 200, train_images: int = 300, optimizer: str = "adam", seed: int = 0
) -> dict[tuple[bool, bool], dict[str, float]]:
    """By whether weights and batches differ: accuracy, ECE, and how far the members disagree."""
    training = Training(epochs=epochs, optimizer=optimizer, lr=RATES[optimizer], keep="last", seed=seed)
    task, found = digits(train=train_images), {}
    for weights, batches in [(False, False), (True, False), (False, True), (True, True)]:
        torch.manual_seed(seed)
        method = replace(METHOD, shuffle_members=batches)
        ensemble = pl.convert(cnn(classes=10, in_channels=1), method, example=task.train.x[:2], seed=seed)
        if not weights:
            alike(ensemble)
        train(ensemble, task, training, show=False)
        seen, strange = ensemble.predict(task.test.x), ensemble.predict(task.ood["photographs"])
        found[weights, batches] = {
            "accuracy": accuracy(seen, task.test.y),
            "ECE": ece(seen, task.test.y),
            "disagreement on digits": mutual_information(seen, task.test.y),
            "disagreement on photographs": strange.mutual_information.mean().item(),
        }
    return found


def main(optimizer: str = "adam", seeds: int = 3) -> None:
    """Print means and standard deviations over seeds."""
    runs = [study(optimizer=optimizer, seed=seed) for seed in range(seeds)]
    for weights, batches in runs[0]:
        print(f"weights {'differ' if weights else 'equal'}, batches {'differ' if batches else 'equal'}:")
        for name in runs[0][weights, batches]:
            values = [run[weights, batches][name] for run in runs]
            print(f"    {name} {fmean(values):.4f} ± {stdev(values):.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
