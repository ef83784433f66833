"""An ensemble in Lightning's Trainer, by `pluribus.lightning.EnsembleModule`."""

import lightning
from torch import nn
from torch.utils.data import DataLoader

import pluribus as pl
from pluribus.data import two_moons
from pluribus.lightning import EnsembleModule
from pluribus.methods import DeepEnsembles


def main(epochs: int = 20) -> float:
    """Trains on two moons and returns the test accuracy."""
    lightning.seed_everything(0, verbose=False)
    task = two_moons(train=200)
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2))
    ensemble = pl.convert(model, DeepEnsembles(members=4))
    training = pl.Training(optimizer="adamw", lr=1e-2, weight_decay=1e-4, schedule="constant")
    module = EnsembleModule(ensemble, training)
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(task.train, batch_size=32, shuffle=True))
    prediction = ensemble.predict(task.test.x)
    return (prediction.labels == task.test.y).double().mean().item()


if __name__ == "__main__":
    print("accuracy:", main())
