"""Perturbing ensembles: afterwards no tensor has the value it started with, as after training."""

import torch
from torch import Tensor

import pluribus as pl


def perturbed(ensemble: pl.Ensemble, seed: int = 1) -> pl.Ensemble:
    """Return the ensemble with every tensor changed in place: weights, statistics, masks, logits, priors."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in ensemble.state_dict().items():
            tensor.copy_(_changed(name, tensor, generator))
    return ensemble


def _changed(name: str, tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Return another value of the same kind: variances stay positive, masks binary, shares above zero."""
    if name.endswith("seeds"):
        return tensor + 1
    if not tensor.is_floating_point() or not tensor.numel():
        return tensor  # counters and kept combinations; layers that an exit does not need are empty
    noise = torch.rand(tensor.shape, generator=generator).to(tensor)
    if ".mask_" in name:
        # Other channels for each member, as many as before.
        order = noise.argsort(-1)
        return tensor.gather(-1, order)
    if any(word in name for word in ("running_var", "shares", "temperature", "scale", "variance")):
        return tensor.abs() * (0.5 + noise)
    if "running_mean" in name:
        return noise - 0.5
    return tensor + 0.2 * (noise - 0.5)
