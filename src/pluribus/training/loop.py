"""The training loop. Lightning Fabric runs it on any device, precision and number of processes.

    for each epoch: for each batch: loss, backward, step; then validate, log, write a checkpoint

Run again with the same arguments, it continues from its last epoch and ends with the same weights.
"""

import copy
import csv
import logging
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pluribus.calibration.fit import LEAST_SAMPLES
from pluribus.data.split import InputBatches
from pluribus.data.task import Task, check_task
from pluribus.ensemble import Ensemble
from pluribus.errors import InputError, PluribusError, SettingError
from pluribus.fingerprint import fingerprint
from pluribus.mechanisms.network.batches import accepted_by
from pluribus.metrics import METRICS
from pluribus.metrics.positions import hard_targets
from pluribus.training import checkpoint
from pluribus.training.augment import check_augment
from pluribus.training.averaging import averaged, set_weights, start_mean
from pluribus.training.budget import is_scored_early
from pluribus.training.checkpoint import Progress
from pluribus.training.one_cpu import OneCPU, is_enough
from pluribus.training.processes import copy_buffers, from_first, launched_processes
from pluribus.training.progress import Show
from pluribus.training.settings import Training
from pluribus.training.smoothing import check_smoothing
from pluribus.training.split_prediction import tally_split
from pluribus.training.stepping import SEEDS, Stepper
from pluribus.writing import replacing

logger = logging.getLogger("pluribus")

if TYPE_CHECKING:
    from lightning_fabric import Fabric

SCORES = ("nll", "gaussian_nll", "rmse")
"""Metrics of the validation set; the first that suits the prediction is used."""

LOGGER = logging.getLogger("pluribus")
STILL_IMPROVING = "%s is still improving: epoch %d of %d was the best. Train for more steps."


def train(
    ensemble: Ensemble,
    task: Task,
    training: Training | None = None,
    *,
    out: str | Path | None = None,
    fabric: "Fabric | OneCPU | None" = None,
    tensorboard: bool = False,
    show: bool = True,
    on_epoch: Callable[[dict[str, float]], None] | None = None,
    calibrate: bool = True,
) -> list[dict[str, float]]:
    """Train an ensemble in place, by the objective of its method, and calibrate it on the validation data.

    Args:
        ensemble: The ensemble. It ends in eval mode, on the device it was trained on.
        task: The data.
        training: Settings; by default `Training()`.
        out: A folder for the checkpoint and `log.csv`; with it an interrupted training can continue.
        fabric: A `lightning_fabric.Fabric` with devices, precision and strategy; by default one CPU or GPU.
        tensorboard: Write TensorBoard logs into `out` too.
        show: Show progress with the time left.
        on_epoch: Callback, called with the row of each epoch that ends.
        calibrate: Call `ensemble.calibrate(task)` at the end, if there is validation data.

    Returns:
        One row for each epoch: `epoch`, `step`, `lr`, `loss`; with a validation set also `validation_nll`,
        and the score that `keep` names.

    Raises:
        SettingError: a setting does not suit the task, or TensorBoard is missing.
        CheckpointError: `out` holds the checkpoint of another run.
        PluribusError: the loss is not finite.
    """
    check_task(task)
    training = (training or Training()).suited_to(task.train)
    check_order(ensemble, task)
    fabric = fabric or make_fabric()
    folder = _log_folder(out, tensorboard)
    check_smoothing(task, training.label_smoothing)
    check_augment(task, training.augment)
    check_score(ensemble, task, training.keep)
    optimizer = training.make_optimizer(ensemble.parameter_groups(training.lr, training.weight_decay))
    model, optimizer = _set_up(fabric, ensemble, optimizer)
    now = _resume(folder, ensemble, optimizer, task, training, fabric)
    if training.ema and not now.mean_weights:
        now.mean_weights = start_mean(ensemble)
    stepper = Stepper(ensemble, model, optimizer, fabric, task, training)
    budget = training.budget(len(task.train))
    with Show(ensemble.method.kind(), budget.steps, _shows(show, fabric), budget.done(now.epoch)) as bar:
        while now.epoch < budget.epochs and not _out_of_patience(now, training):
            loss = stepper.run_epoch(now, bar)
            now.epoch += 1
            copy_buffers(ensemble, fabric)
            with averaged(ensemble, now.mean_weights):
                _validate(ensemble, task, training, now, loss)
            bar.tell(f"epoch {now.epoch} of {budget.epochs}, loss {loss:.4g}")
            logger.info("epoch %d of %d: %s", now.epoch, budget.epochs, now.history[-1])
            if on_epoch is not None:
                on_epoch(now.history[-1])
            checked = budget.is_checked(now.epoch, training.checked_every(len(task.train)))
            if folder is not None and fabric.is_global_zero and checked:
                checkpoint.write(folder, now, ensemble.state_dict(), optimizer.state_dict())
                _write_log(folder, now.history, tensorboard)
    _finish(ensemble, training, now, len(task.train))
    ensemble.finish(InputBatches(task.train, training.batch, ensemble.members.code.forward))
    if calibrate:
        _calibrate(ensemble, task)
    return now.history


def _shows(show: bool, fabric: "Fabric | OneCPU") -> bool:
    """Return whether this process shows progress: the first of several does."""
    return show and fabric.is_global_zero


def _calibrate(ensemble: Ensemble, task: Task) -> None:
    """Calibrate on the validation data, if there is enough of it; log why not."""
    if len(task.validation) < LEAST_SAMPLES or not ensemble.method.is_ready(ensemble.members):
        return
    try:
        ensemble.calibrate(task)
    # Hours of training must not be lost because targets suit no set or interval.
    except InputError as error:
        LOGGER.warning("the ensemble is not calibrated: %s", error)


def check_order(ensemble: Ensemble, task: Task) -> None:
    """Raise if members need orders of the samples of their own, and the samples have one order."""
    kept = task.train.samples.own_order
    if kept and ensemble.method.data_orders > 1:
        raise SettingError(
            f"{ensemble.method.kind()} gives each member the samples in an order of its own, got training "
            f"samples of {kept}, which keeps one order for all. Give a dataset that is read by numbers, "
            "without a sampler, or choose another method."
        )


def make_fabric(accelerator: str = "auto", devices: int = 1, precision: Any = "32-true") -> "Fabric | OneCPU":
    """Return a Fabric for one or several devices, or `OneCPU` if a plain CPU is enough.

    Raises:
        PluribusError: Lightning Fabric is not installed.
        SettingError: Fabric does not offer this on the machine.
    """
    if is_enough(accelerator, devices, precision):
        return OneCPU()
    try:
        from lightning_fabric import Fabric
    except ImportError as error:
        raise PluribusError(
            "training needs lightning-fabric: install pluribus with the extra train."
        ) from error
    try:
        nodes, devices = launched_processes(devices)
        several = nodes > 1 or (isinstance(devices, int) and devices > 1)
        # A step may leave tensors of some members without a gradient.
        strategy = "ddp_find_unused_parameters_true" if several else "auto"
        fabric = Fabric(
            accelerator=accelerator,
            devices=devices,
            precision=precision,
            num_nodes=nodes,
            strategy=strategy,
        )
    # Fabric and its plugins raise errors without a common parent for what this machine lacks.
    except Exception as error:
        raise SettingError(
            "accelerator, devices and precision must be what Lightning Fabric offers on this machine, "
            f"got {str(error).rstrip('.!')}."
        ) from error
    fabric.launch()
    return fabric


def _set_up(fabric: "Fabric | OneCPU", ensemble: Ensemble, optimizer: Any) -> tuple[Any, Any]:
    """Move the ensemble to the device, and wrap it and its optimizer as the strategy needs."""
    if isinstance(fabric, OneCPU):
        return fabric.setup(ensemble, optimizer)
    model, optimizer = fabric.setup(ensemble, optimizer)
    # Fabric's wrapper prepares precision and synchronisation only in methods that it knows.
    model.mark_forward_method("loss")
    return model, optimizer


def _log_folder(out: str | Path | None, tensorboard: bool) -> Path | None:
    """Return the folder of logs, or None; raise `SettingError` if TensorBoard logs cannot be written."""
    if tensorboard and out is None:
        raise SettingError("tensorboard=True needs a folder for its logs, got out=None. Give out=.")
    if tensorboard:
        try:
            import torch.utils.tensorboard  # noqa: F401
        except ImportError as error:
            raise SettingError(
                "tensorboard=True needs the package tensorboard, but it is not installed. "
                "Run `pip install tensorboard`."
            ) from error
    return None if out is None else Path(out)


def _resume(
    folder: Path | None,
    ensemble: Ensemble,
    optimizer: Any,
    task: Task,
    training: Training,
    fabric: "Fabric | OneCPU",
) -> Progress:
    """Return the state to begin with: a fresh one, or that of an interrupted training, restored."""
    settings: dict[str, Any] = {
        "method": ensemble.method.to_dict(),
        "likelihood": ensemble.likelihood.to_dict(),
        "training": training.to_dict(),
        "task": repr(task),
        checkpoint.DATA: task.fingerprint,
    }
    if folder is None:
        torch.manual_seed(training.seed % SEEDS)
        return Progress(settings)
    # Before the seed is set: the network runs once, and may draw random numbers.
    settings[checkpoint.NETWORK] = fingerprint(ensemble, task.train.example().inputs)
    torch.manual_seed(training.seed % SEEDS)
    state = from_first(fabric, lambda: _read_checkpoint(folder, settings))
    if state is None:
        return Progress(settings)
    restored = checkpoint.restore(folder, state, ensemble, optimizer)
    logger.info("continuing the training in %s after epoch %d", folder, restored.epoch)
    return restored


def _read_checkpoint(folder: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """Return the state of an interrupted training, or None; make the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return checkpoint.read(folder, settings)


def check_score(ensemble: Ensemble, task: Task, keep: str) -> None:
    """Raise if weights are kept by a metric that does not suit the predictions of the ensemble."""
    if keep not in METRICS or not len(task.validation):
        return
    # Two samples are enough to try a metric, before any training.
    two = task.validation.example(2).to(ensemble.device)
    prediction = ensemble.predict(accepted_by(two.inputs, ensemble.members.code.forward))
    METRICS[keep](prediction, hard_targets(two.target, ensemble.likelihood))


def _validate(ensemble: Ensemble, task: Task, training: Training, now: Progress, loss: float) -> None:
    """Score the validation set, keep the best weights, and add the epoch to the history."""
    budget = training.budget(len(task.train))
    step = budget.done(now.epoch)
    row = {"epoch": now.epoch, "step": step, "lr": training.rate(step / budget.steps), "loss": loss}
    if len(task.validation):
        checked = budget.is_checked(now.epoch, training.checked_every(len(task.train)))
        ready = ensemble.method.is_ready(ensemble.members)
        # All rows of the log have the same columns.
        unknown = dict.fromkeys(_score_names(training.keep), math.nan)
        scores = _scores(ensemble, task, training.keep) if checked and ready else unknown
        row |= {f"validation_{name}": value for name, value in scores.items()}
        _keep_best(ensemble, training, now, _decisive(scores, training.keep))
        if not ready:
            now.best_epoch = now.epoch  # nothing can be scored yet, so that patience does not begin yet
    now.history.append(row | ensemble.members.index.readings())


def _keep_best(ensemble: Ensemble, training: Training, now: Progress, score: float) -> None:
    # NaN is not less than anything, and is never kept.
    if not score < now.best:
        return
    now.best = score
    now.best_epoch = now.epoch
    if training.keep != "last":
        now.best_weights = copy.deepcopy(ensemble.state_dict())


def _scores(ensemble: Ensemble, task: Task, keep: str) -> dict[str, float]:
    """Return the scores of the validation set: `nll`, or the RMSE under that name, and that of `keep`."""
    tally = tally_split(ensemble, task.validation, chunk=1024)
    usual = next(METRICS[name] for name in SCORES if METRICS[name].suits(tally.prediction))
    metrics = {name: METRICS[name] for name in _score_names(keep)} | {"nll": usual}
    return {name: tally.compute(metric) for name, metric in metrics.items()}


def _score_names(keep: str) -> list[str]:
    """Return the names of the scores of a validation."""
    return ["nll", keep] if keep in METRICS and keep != "nll" else ["nll"]


def _decisive(scores: Mapping[str, float], keep: str) -> float:
    """Return the score by which weights are kept, negated if more is better."""
    if keep not in METRICS:
        return scores["nll"]
    if METRICS[keep].direction == "higher":
        return -scores[keep]
    return scores[keep]


def negative_log_likelihood(ensemble: Ensemble, task: Task) -> float:
    """Return the negative log-likelihood of the validation set in nats; the RMSE of point predictions."""
    return _scores(ensemble, task, "best")["nll"]


def _finish(ensemble: Ensemble, training: Training, now: Progress, samples: int) -> None:
    """Load the weights that are kept, and log if longer training would have given better ones."""
    set_weights(ensemble, now.mean_weights)
    ensemble.eval().load_state_dict(now.best_weights or ensemble.state_dict())
    scores = [row.get("validation_nll", math.nan) for row in now.history]
    if is_scored_early(scores) and training.budget(samples).is_late(now.best_epoch):
        LOGGER.warning(STILL_IMPROVING, ensemble.method.kind(), now.best_epoch, now.epoch)


def _out_of_patience(now: Progress, training: Training) -> bool:
    return training.patience is not None and now.epoch - now.best_epoch >= training.patience


def _write_log(folder: Path, history: list[dict[str, float]], tensorboard: bool) -> None:
    with (
        replacing(folder / "log.csv") as unfinished,
        unfinished.open("w", newline="", encoding="utf-8") as file,
    ):
        # Rows of a checkpoint that was changed by hand need not have the same fields.
        fields = dict.fromkeys(name for row in history for name in row)
        writer = csv.DictWriter(file, fieldnames=list(fields))
        writer.writeheader()
        writer.writerows(history)
    if tensorboard:
        from torch.utils.tensorboard import SummaryWriter

        row = history[-1]
        with SummaryWriter(str(folder / "tensorboard")) as writer_:
            for name, value in row.items():
                writer_.add_scalar(name, value, int(row["epoch"]))
