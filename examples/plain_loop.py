"""An ensemble in a plain PyTorch loop: nothing of Pluribus but `convert`, `loss` and `predict`."""

import torch
from torch import nn

import pluribus as pl
from pluribus.methods import BatchEnsemble


def main(steps: int = 300) -> float:
    """Trains on three noisy clouds and returns the accuracy on new points."""
    torch.manual_seed(0)
    centres = torch.tensor([[0.0, 2.0], [2.0, -1.0], [-2.0, -1.0]])
    y = torch.randint(3, (600,))
    x = centres[y] + 0.7 * torch.randn(600, 2)

    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 3))
    ensemble = pl.convert(model, BatchEnsemble(members=4))
    optimizer = torch.optim.AdamW(ensemble.parameter_groups(lr=1e-2, weight_decay=1e-2))
    for step in range(steps):
        batch = torch.randint(500, (64,))
        loss = ensemble.loss(x[batch], y[batch], progress=step / steps, dataset_size=500)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    prediction = ensemble.predict(x[500:])
    far = ensemble.predict(torch.tensor([[0.0, 40.0], [30.0, 30.0]]))
    print(
        "disagreement near and far:",
        prediction.mutual_information.mean().item(),
        far.mutual_information.tolist(),
    )
    return (prediction.labels == y[500:]).double().mean().item()


if __name__ == "__main__":
    print("accuracy:", main())
