"""An ensemble in Lightning's Trainer: a small LightningModule around `loss` and `parameter_groups`."""

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import pluribus as pl
from pluribus.data import two_moons
from pluribus.methods import DeepEnsembles


class LitEnsemble(lightning.LightningModule):
    """Trains any ensemble by its own objective."""

    def __init__(self, ensemble: pl.Ensemble, dataset_size: int, lr: float = 1e-2) -> None:
        super().__init__()
        self.ensemble, self.dataset_size, self.lr = ensemble, dataset_size, lr

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        """The loss of one batch; `progress` drives the schedules that some methods have."""
        progress = min(1.0, self.global_step / max(1, int(self.trainer.estimated_stepping_batches)))
        return self.ensemble.loss(*batch, progress=progress, dataset_size=self.dataset_size)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam, with the method's exceptions from weight decay."""
        return torch.optim.AdamW(self.ensemble.parameter_groups(self.lr, weight_decay=1e-4))


def main(epochs: int = 20) -> float:
    """Trains on two moons and returns the test accuracy."""
    lightning.seed_everything(0, verbose=False)
    task = two_moons(train=200)
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))
    ensemble = pl.convert(model, DeepEnsembles(members=4))
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(LitEnsemble(ensemble, len(task.train)), DataLoader(task.train, batch_size=32, shuffle=True))
    prediction = ensemble.predict(task.test.x)
    return (prediction.labels == task.test.y).double().mean().item()


if __name__ == "__main__":
    print("accuracy:", main())
