"""finetune: a trained network becomes an ensemble, tuned a little, calibrated, and measured before and after.

1. Members start as the network: methods that can start from copies do.
2. The ensemble trains with a low learning rate; shared weights may be frozen.
3. `train` calibrates it on validation data.
4. Network and ensemble are measured on the same test data.
"""

import copy
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from pluribus.comparison.diagnosis import doctor
from pluribus.comparison.evaluation import evaluate
from pluribus.comparison.record import Record
from pluribus.conversion import convert
from pluribus.conversion_record import ON_TRAINED
from pluribus.data.task import Task, check_task
from pluribus.ensemble import Ensemble
from pluribus.errors import SettingError
from pluribus.method import Method
from pluribus.method_text import read_method
from pluribus.methods import DropConnect, Laplace, MCDropout, Single
from pluribus.notebook import html_table
from pluribus.training import Training, train

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from pluribus.training.one_cpu import OneCPU

LOGGER = logging.getLogger(__name__)

TUNING = Training(epochs=5, lr=1e-4, optimizer="adamw")
"""How a network that is kept is tuned: with a tenth of the usual rate it keeps what it has learnt."""
ROWS = {
    "accuracy": "accuracy",
    "rmse": "RMSE",
    "nll": "NLL",
    "gaussian_nll": "NLL",
    "scaled_nll": "NLL calibrated",
    "scaled_gaussian_nll": "NLL calibrated",
    "ece": "ECE",
    "scaled_ece": "ECE calibrated",
    "parameters": "parameters",
    "multiply_adds": "multiply-adds",
}
"""Metrics and costs of the table before and after, with their titles."""
NOISES = (MCDropout, DropConnect)
"""Methods that keep all weights, and add a noise that the network may not have learnt to bear."""
ALIKE = ("collapsed", "dropout_off")
"""Findings of `doctor` that mean that members hardly differ."""
WORSE = 0.01
"""Rise of the NLL, in nats, above which a tuning made the network worse."""
REMEDIES = {
    "noise": "The network did not learn to bear what is dropped. Tune for more epochs, give a lower rate, or "
    "take a network that was trained with dropout.",
    "retrain": "What the network had learnt is not kept, and this training did not reach it again. Train "
    "longer, or take a method that keeps the network: `pluribus methods` lists them.",
    "width": "The network knows its training data by heart, which leaves open how wide the draws may be. "
    "Set prior_precision to 10 or 100, or take a network that was stopped earlier.",
    "other": "Tune with a lower learning rate, or take the calibrated NLL if that is lower.",
}
"""Advice where the NLL rose, by the reason."""


@dataclass(frozen=True)
class Finetuned:
    """A tuned ensemble with what it was before.

    Attributes:
        ensemble: Trained and calibrated, in eval mode.
        before: The network alone.
        after: The ensemble.
        history: One row for each epoch.
        notes: What else a user should know of the conversion, and a warning where members hardly differ.
    """

    ensemble: Ensemble
    before: Record
    after: Record
    history: tuple[Mapping[str, float], ...] = ()
    notes: tuple[str, ...] = ()

    def table(self) -> list[tuple[str, float, float]]:
        """Return name, value before and value after of each number that both records have."""
        found = []
        before, after = (run.metrics | run.posthoc | run.cost for run in (self.before, self.after))
        for name, title in ROWS.items():
            if name in before and name in after:
                found.append((title, before[name], after[name]))
        for kind, scores in self.after.ood.items():
            # Each by the score that was chosen on validation data: the best on test data would be luck.
            alone = self.before.ood.get(kind, {})
            if "auroc_chosen" in scores and "auroc_chosen" in alone:
                found.append((f"AUROC on {kind}", alone["auroc_chosen"], scores["auroc_chosen"]))
        return found

    @property
    def advice(self) -> str:
        """Return a warning with a remedy if the NLL is higher than before; empty if not."""
        for name in ("nll", "gaussian_nll"):
            before, after = (run.metrics.get(name, math.nan) for run in (self.before, self.after))
            if after > before + WORSE:
                return (
                    f"The NLL is higher than that of the network: {after:.4g} instead of {before:.4g}. "
                    f"{REMEDIES[_reason(self.ensemble.method)]}"
                )
        return ""

    def __str__(self) -> str:
        lines = [f"{self.ensemble.method}", f"{'':22} {'before':>12} {'after':>12}"]
        lines += [f"{name:22} {before:12.4g} {after:12.4g}" for name, before, after in self.table()]
        return "\n".join([*lines, *self._remarks()])

    def _repr_html_(self) -> str:
        """Return the same table for notebooks."""
        rows = [(name, f"{before:.4g}", f"{after:.4g}") for name, before, after in self.table()]
        return html_table(str(self.ensemble.method), ("", "before", "after"), rows, self._remarks())

    def _remarks(self) -> tuple[str, ...]:
        """Return all sentences below the table."""
        return (*self.notes, self.advice) if self.advice else self.notes


def _reason(method: Method) -> str:
    """Return why a method made a network worse, a key of `REMEDIES`."""
    if isinstance(method, NOISES):
        return "noise"
    if isinstance(method, Laplace):
        return "width"
    return "retrain" if method.on_trained == "retrain" else "other"


def finetune(
    model: nn.Module,
    method: Method | str,
    task: Task,
    *,
    training: Training | None = None,
    freeze_shared: bool | None = None,
    out: str | Path | None = None,
    seed: int = 0,
    show: bool = True,
    fabric: "Fabric | OneCPU | None" = None,
    network: str | None = None,
) -> Finetuned:
    """Make a trained network uncertain: convert it, tune it, calibrate it, and compare it with what it was.

    Args:
        model: A network with trained weights. It is not changed.
        method: The kind of ensemble. Where it can start from the network, it does: see `Method.for_trained`.
        task: Data with validation and test samples.
        training: By default five epochs with a learning rate of 1e-4, or what the method's recipe tells;
            methods that keep nothing of a trained network train as from scratch.
        freeze_shared: Whether what members share stays as it is, for methods that have the setting.
        out: A folder for checkpoint, log and the ensemble; an interrupted tuning continues from it.
        seed: Of everything random in the conversion.
        show: Show progress.
        fabric: As for `train`.
        network: Name of the network in the records; by default its class.

    Raises:
        SettingError: `freeze_shared` is given to a method without it.

    Example:
        >>> from pluribus.data import two_moons
        >>> short = pluribus.Training(epochs=1)
        >>> network = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> method = "lora_ensembles(members=2)"
        >>> found = pluribus.finetune(network, method, two_moons(train=40), training=short, show=False)
        >>> found.ensemble.calibration is not None
        True
    """
    check_task(task)
    method = warm_start(read_method(method) if isinstance(method, str) else method, freeze_shared)
    options: dict[str, Any] = {"likelihood": task.likelihood, "example": task.train.example_for(model)}
    alone = convert(copy.deepcopy(model).eval(), Single(), **options).eval()
    before = evaluate(alone, task, network=network)

    ensemble = convert(model, method, seed=seed, **options)
    training = training or usual_training(method)
    history = train(ensemble, task, training, out=out, show=show, fabric=fabric)
    if out is not None:
        ensemble.save(Path(out) / "ensemble")
    after = evaluate(ensemble, task, single=alone.to(ensemble.device), training=training, network=network)
    return Finetuned(ensemble, before, after, tuple(history), _notes(ensemble, task))


def _notes(ensemble: Ensemble, task: Task) -> tuple[str, ...]:
    """Return what a user should know of a tuned ensemble besides its scores."""
    found = [f"note: {note}" for note in ensemble.conversion.notes]
    # Members that stayed one network cost M times as much as it, and the scores do not show it.
    for one in doctor(ensemble, task) if len(task.validation) else ():
        if one.code in ALIKE:
            found.append(f"{one.code}: {one.message}. {one.remedy}")
    return tuple(found)


def warm_start(method: Method, freeze_shared: bool | None) -> Method:
    """Return the method with members that start from the network, where it can.

    Raises:
        SettingError: `freeze_shared` is given to a method without it.
    """
    method = method.for_trained()
    if freeze_shared is None:
        return method
    if "freeze_shared" not in {one.name for one in fields(method)}:
        raise SettingError(
            f"freeze_shared needs a method with that setting, such as LoRAEnsembles or EMP, got {method}. "
            "Set requires_grad of the network's parameters instead."
        )
    changes: dict[str, Any] = {"freeze_shared": freeze_shared}
    return replace(method, **changes)


def usual_training(method: Method) -> Training:
    """Return a short training with a low learning rate, or the usual one where nothing is kept."""
    if method.on_trained != "retrain" or isinstance(method, NOISES):
        recipe = method.recipe()
        rate = TUNING.lr if recipe.tuning_lr is None else recipe.tuning_lr
        return replace(TUNING, lr=rate, schedule=recipe.schedule or TUNING.schedule)
    LOGGER.warning("%s: %s. It trains as from scratch.", type(method).__name__, ON_TRAINED["retrain"])
    return Training()
