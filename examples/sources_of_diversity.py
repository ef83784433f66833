"""Where the diversity of an ensemble comes from: Appendix F of the Packed-Ensembles paper, on digits.

Members may begin with different weights, see different batches, both, or neither. The third source of the
paper's Table 7, algorithms that are not deterministic, is one of GPUs and is left out.
"""

from dataclasses import replace

import torch

import pluribus as pl
from pluribus.backbones import cnn
from pluribus.data import digits
from pluribus.methods import PackedEnsembles
from pluribus.metrics import accuracy, ece, mutual_information
from pluribus.training import Training, train

METHOD = PackedEnsembles(members=4, alpha=2.0)


def alike(ensemble: pl.Ensemble) -> None:
    """Gives all members the weights of the first."""
    state = ensemble.state_dict()
    own = {name: value for name, value in state.items() if name.startswith("members.tensors.own.")}
    ensemble.load_state_dict(state | {name: value[:1].expand_as(value) for name, value in own.items()})


def study(epochs: int = 60, train_images: int = 300) -> dict[tuple[bool, bool], dict[str, float]]:
    """By whether weights and batches differ: accuracy, ECE, and how far the members disagree."""
    task, found = digits(train=train_images), {}
    for weights, batches in [(False, False), (True, False), (False, True), (True, True)]:
        torch.manual_seed(0)
        method = replace(METHOD, shuffle_members=batches)
        ensemble = pl.convert(cnn(classes=10, in_channels=1), method, example=task.train.x[:2])
        if not weights:
            alike(ensemble)
        train(ensemble, task, Training(epochs=epochs, batch=64, lr=3e-3, keep="last"), show=False)
        seen, strange = ensemble.predict(task.test.x), ensemble.predict(task.ood["photographs"])
        found[weights, batches] = {
            "accuracy": accuracy(seen, task.test.y),
            "ECE": ece(seen, task.test.y),
            "disagreement on digits": mutual_information(seen, task.test.y),
            "disagreement on photographs": strange.mutual_information.mean().item(),
        }
    return found


if __name__ == "__main__":
    for (weights, batches), numbers in study().items():
        print(f"weights {'differ' if weights else 'equal'}, batches {'differ' if batches else 'equal'}:")
        print("   ", ", ".join(f"{name} {value:.4f}" for name, value in numbers.items()))
