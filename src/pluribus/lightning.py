"""An ensemble in Lightning's `Trainer`: devices, precision, loggers and checkpoints are Lightning's."""

import math
from typing import Any, final

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from pluribus.ensemble import Ensemble
from pluribus.errors import PluribusError
from pluribus.prediction import Prediction
from pluribus.ranges import check, invalid
from pluribus.training.other_loops import clip_separately, complete, read_batch, score, warn_of_orders
from pluribus.training.settings import Training

try:
    from lightning.pytorch import LightningModule
except ImportError as error:
    raise PluribusError(
        "pluribus.lightning needs the package lightning, got none. "
        "Install it: pip install 'pluribus[lightning]'"
    ) from error

RANDOM = "pluribus_random"
"""Name of the state of torch's generator in checkpoints."""


@final
class EnsembleModule(LightningModule):
    """Train an ensemble by the objective of its method.

    Batches are pairs, tuples that end with the target, or dicts with `labels`. `train_loss` is logged, and on
    validation data `val_nll` (`val_gaussian_nll` or `val_rmse` of numbers). After the last step the method
    completes its members, and the ensemble is calibrated on the validation data. Checkpoints hold the state
    of torch's generator, so that a resumed training ends with the same weights.

    Args:
        ensemble: It is trained in place and ends in eval mode.
        training: Optimizer, learning rate, weight decay and schedule; by default `Training()`. The number of
            epochs and clipping are those of Lightning's `Trainer`.
        dataset_size: The size of the training set, for methods with a prior term; None takes that of the
            loader's dataset.
        calibrate: Calibrate at the end, if the `Trainer` has validation data.

    Example:
        >>> from torch.utils.data import DataLoader, TensorDataset
        >>> ensemble = pluribus.convert(torch.nn.Linear(3, 2), DeepEnsembles(members=2))
        >>> module = EnsembleModule(ensemble, pluribus.Training(lr=0.01))
        >>> loader = DataLoader(TensorDataset(torch.zeros(8, 3), torch.arange(8) % 2), batch_size=4)
        >>> lightning.Trainer(max_epochs=5).fit(module, loader)  # doctest: +SKIP
    """

    def __init__(
        self,
        ensemble: Ensemble,
        training: Training | None = None,
        *,
        dataset_size: int | None = None,
        calibrate: bool = True,
    ) -> None:
        super().__init__()
        if not isinstance(ensemble, Ensemble):
            raise invalid("ensemble", "an Ensemble, made by pluribus.convert", ensemble)
        if not isinstance(training, Training | None):
            raise invalid("training", "a Training or None", training)
        check("dataset_size", dataset_size, int, at_least=1, optional=True)
        check("calibrate", calibrate, bool)
        self.ensemble, self.settings = ensemble, training or Training()
        self.dataset_size, self.calibrates = dataset_size, calibrate

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the outputs of all members, `[members, batch, ...]`."""
        outputs: Tensor = self.ensemble(*args, **kwargs)
        return outputs

    def on_train_start(self) -> None:
        """Log a warning for methods whose members share out each batch."""
        warn_of_orders(self.ensemble)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the objective of one batch."""
        samples = read_batch(self.ensemble, batch)
        loss = self.ensemble.loss(
            samples.inputs,
            samples.target,
            progress=self._progress(self.global_step),
            dataset_size=self._dataset_size(),
            weights=samples.weights,
        )
        self.log("train_loss", loss, batch_size=len(samples))
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Log the score of one batch of validation data."""
        self._log_score("val", batch)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Log the score of one batch of test data."""
        self._log_score("test", batch)

    def predict_step(self, batch: Any, batch_idx: int) -> Prediction:
        """Return the prediction of one batch."""
        return self.ensemble.predict(read_batch(self.ensemble, batch).inputs)

    def configure_optimizers(self) -> Any:
        """Return the optimizer and the schedule of the learning rate, step by step."""
        settings = self.settings
        groups = self.ensemble.parameter_groups(settings.lr, settings.weight_decay)
        optimizer = settings.make_optimizer(groups)
        schedule = LambdaLR(optimizer, lambda step: settings.rate(self._progress(step)) / settings.lr)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip gradients as Lightning does; of members that share nothing, each by its own norm."""
        by_norm = gradient_clip_algorithm in (None, "norm")
        if gradient_clip_val and by_norm and clip_separately(self.ensemble, float(gradient_clip_val)):
            return
        self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Take a step, after which the method may update its members."""
        super().optimizer_step(*args, **kwargs)
        # Lightning counts the step after this call.
        self.ensemble.after_step(self._progress(self.global_step + 1))

    def on_train_end(self) -> None:
        """Complete the members, and calibrate the ensemble."""
        validation = self.trainer.val_dataloaders if self.calibrates else None
        if isinstance(validation, list):
            validation = validation[0] if validation else None
        loader: Any = self.trainer.train_dataloader
        complete(self.ensemble, loader, validation, self.trainer.world_size)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Store the state of torch's generator, from which orders and draws follow."""
        checkpoint[RANDOM] = torch.get_rng_state()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the state of torch's generator."""
        if RANDOM in checkpoint:
            torch.set_rng_state(checkpoint[RANDOM].cpu())

    def _progress(self, step: int) -> float:
        total = float(self.trainer.estimated_stepping_batches)
        # A training without an end makes no progress.
        return min(1.0, step / total) if math.isfinite(total) and total > 0 else 0.0

    def _dataset_size(self) -> int | None:
        if self.dataset_size is not None:
            return self.dataset_size
        dataset: Any = getattr(self.trainer.train_dataloader, "dataset", None)
        return len(dataset) if hasattr(dataset, "__len__") else None

    def _log_score(self, part: str, batch: Any) -> None:
        # Some methods have no members to predict with before a part of training is done.
        if not self.ensemble.method.is_ready(self.ensemble.members):
            return
        samples = read_batch(self.ensemble, batch)
        prediction = self.ensemble.predict(samples.inputs)
        name, value = score(self.ensemble, prediction, samples.target)
        self.log(f"{part}_{name}", value, batch_size=len(samples), on_epoch=True)
