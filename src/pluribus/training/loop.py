"""The training loop. Lightning Fabric runs it on any device, precision and number of processes.

    for each epoch: for each batch: loss, backward, step; then validate, log, write a checkpoint

Run again with the same arguments, it continues from its last epoch and ends with the same weights.
"""

import copy
import csv
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pluribus.data.task import Task, check_task
from pluribus.ensemble import Ensemble
from pluribus.errors import PluribusError, SettingError
from pluribus.fingerprint import fingerprint
from pluribus.mechanisms.network.dry_run import derived_seed
from pluribus.metrics import METRICS
from pluribus.training import checkpoint
from pluribus.training.checkpoint import Progress
from pluribus.training.clipping import clip_gradients
from pluribus.training.one_cpu import OneCPU, is_enough
from pluribus.training.progress import Show
from pluribus.training.settings import Training
from pluribus.writing import replacing

if TYPE_CHECKING:
    from lightning_fabric import Fabric

SCORES = ("nll", "gaussian_nll", "rmse")
"""Metrics of the validation set; the first that suits the prediction is used."""


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
) -> list[dict[str, float]]:
    """Train an ensemble in place, by the objective of its method.

    Args:
        ensemble: The ensemble. It ends in eval mode, on the device it was trained on.
        task: The data.
        training: Settings; by default `Training()`.
        out: A folder for the checkpoint and `log.csv`; with it an interrupted training can continue.
        fabric: A `lightning_fabric.Fabric` with devices, precision and strategy; by default one CPU or GPU.
        tensorboard: Write TensorBoard logs into `out` too.
        show: Show progress with the time left.
        on_epoch: Callback, called with the row of each epoch that ends.

    Returns:
        One row for each epoch: `epoch`, `lr`, `loss`, and `validation_nll` if the task has a validation set.

    Raises:
        SettingError: the task has no samples, or TensorBoard is missing.
        CheckpointError: `out` holds the checkpoint of another run.
        PluribusError: the loss is not finite.
    """
    check_task(task)
    training = training or Training()
    fabric = fabric or make_fabric()
    folder = _log_folder(out, tensorboard)
    optimizer = training.make_optimizer(ensemble.parameter_groups(training.lr, training.weight_decay))
    model, optimizer = _set_up(fabric, ensemble, optimizer)
    now = _resume(folder, ensemble, optimizer, task, training)
    steps = math.ceil(len(task.train) / training.batch)
    streams = ensemble.method.data_orders
    with Show(ensemble.method.kind(), training.epochs * steps, show, now.epoch * steps) as bar:
        while now.epoch < training.epochs and not _out_of_patience(now, training):
            model.train()
            losses = []
            for step, (x, y) in enumerate(_batches(task, training, now.epoch, fabric, streams)):
                progress = (now.epoch + step / steps) / training.epochs
                _set_rate(optimizer, training.rate(progress))
                loss = model.loss(x, y, progress=progress, dataset_size=len(task.train))
                optimizer.zero_grad()
                fabric.backward(loss)
                if training.clip is not None:
                    clip_gradients(ensemble, training.clip, model, optimizer, fabric)
                optimizer.step()
                losses.append(loss.detach())
                bar.advance()
            now.epoch += 1
            _validate(ensemble, task, training, now, _finite_mean(losses, now.epoch))
            bar.tell(f"epoch {now.epoch} of {training.epochs}, loss {now.history[-1]['loss']:.4g}")
            if on_epoch is not None:
                on_epoch(now.history[-1])
            if folder is not None and fabric.is_global_zero:
                checkpoint.write(folder, now, ensemble.state_dict(), optimizer.state_dict())
                _write_log(folder, now.history, tensorboard)
    ensemble.eval().load_state_dict(now.best_weights or ensemble.state_dict())
    return now.history


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
        fabric = Fabric(accelerator=accelerator, devices=devices, precision=precision)
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


def _batches(
    task: Task, training: Training, epoch: int, fabric: "Fabric | OneCPU", streams: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the batches of one epoch, in an order that depends on the seed and the epoch alone.

    Each of several processes takes its share of every batch. Each of several streams has its own order.
    """
    seed = training.seed * 1_000_003 + epoch
    seeds = [seed, *(derived_seed(seed, stream) for stream in range(1, streams))]
    orders = [task.train.batches(training.batch, torch.Generator().manual_seed(one)) for one in seeds]
    mine = slice(fabric.global_rank, None, fabric.world_size)
    # One batch holds the samples of all streams, one stream after the other.
    for batches in zip(*orders, strict=True):
        x = torch.cat([inputs[mine] for inputs, _ in batches])
        y = torch.cat([targets[mine] for _, targets in batches])
        yield x.to(fabric.device), y.to(fabric.device)


def _resume(
    folder: Path | None, ensemble: Ensemble, optimizer: Any, task: Task, training: Training
) -> Progress:
    """Return the state to begin with: a fresh one, or that of an interrupted training, restored."""
    settings: dict[str, Any] = {
        "method": ensemble.method.to_dict(),
        "likelihood": ensemble.likelihood.to_dict(),
        "training": training.to_dict(),
        "task": repr(task),
    }
    if folder is None:
        torch.manual_seed(training.seed)
        return Progress(settings)
    folder.mkdir(parents=True, exist_ok=True)
    # Before the seed is set: the network runs once, and may draw random numbers.
    settings[checkpoint.NETWORK] = fingerprint(ensemble, task.train.x)
    torch.manual_seed(training.seed)
    state = checkpoint.read(folder, settings)
    if state is None:
        return Progress(settings)
    return checkpoint.restore(folder, state, ensemble, optimizer)


def _validate(ensemble: Ensemble, task: Task, training: Training, now: Progress, loss: float) -> None:
    """Score the validation set, keep the best weights, and add the epoch to the history."""
    row = {"epoch": now.epoch, "lr": training.rate(now.epoch / training.epochs), "loss": loss}
    if len(task.validation):
        score = negative_log_likelihood(ensemble, task)
        row["validation_nll"] = score
        _keep_best(ensemble, training, now, score)
    now.history.append(row | ensemble.binding.readings())


def _keep_best(ensemble: Ensemble, training: Training, now: Progress, score: float) -> None:
    # NaN is not better than anything, and is never kept.
    if not score < now.best:
        return
    now.best = score
    now.best_epoch = now.epoch
    if training.keep == "best":
        now.best_weights = copy.deepcopy(ensemble.state_dict())


def negative_log_likelihood(ensemble: Ensemble, task: Task) -> float:
    """Return the negative log-likelihood of the validation set in nats; the RMSE of point predictions."""
    prediction = ensemble.predict(task.validation.x.to(ensemble.device), chunk=1024)
    metric = next(METRICS[name] for name in SCORES if METRICS[name].suits(prediction))
    return metric(prediction, task.validation.y.to(ensemble.device))


def _set_rate(optimizer: Any, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def _out_of_patience(now: Progress, training: Training) -> bool:
    return training.patience is not None and now.epoch - now.best_epoch >= training.patience


def _finite_mean(losses: list[Tensor], epoch: int) -> float:
    value = torch.stack(losses).mean().item()
    if not math.isfinite(value):
        raise PluribusError(
            f"the loss must stay finite, got {value} in epoch {epoch}. "
            "Lower lr, set clip, or normalise the inputs."
        )
    return value


def _write_log(folder: Path, history: list[dict[str, float]], tensorboard: bool) -> None:
    with (
        replacing(folder / "log.csv") as unfinished,
        unfinished.open("w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.DictWriter(file, fieldnames=list(history[0]))
        writer.writeheader()
        writer.writerows(history)
    if tensorboard:
        from torch.utils.tensorboard import SummaryWriter

        row = history[-1]
        with SummaryWriter(str(folder / "tensorboard")) as writer_:
            for name, value in row.items():
                writer_.add_scalar(name, value, int(row["epoch"]))
