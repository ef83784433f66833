"""Distance of a sample from the classes that were seen, by the outputs of all members.

Lee et al., "A simple unified framework for detecting out-of-distribution samples and adversarial attacks",
NeurIPS 2018, on outputs instead of hidden features. z(x) holds the outputs of all members, one after the
other. Each class c has a mean, and all classes share one covariance Σ:

    d(x) = min_c sqrt((z − μ_c)ᵀ Σ⁻¹ (z − μ_c))                                   (1)

Few samples give no covariance that can be inverted. It is shrunk towards a multiple of the identity, by the
amount of Ledoit & Wolf, "A well-conditioned estimator for large-dimensional covariance matrices", 2004:

    Σ = (1 − s) S + s tr(S)/d I                                                   (2)

    symbol   here
    z        outputs_side_by_side()
    μ_c      means, [classes, features]
    Σ⁻¹      whitening whiteningᵀ, with whitening [features, features]

Everything is computed in float64 on the CPU, as some devices have no such floats.
"""

import torch
from torch import Tensor

MOST_FEATURES = 1024
"""Most numbers in z: the covariance of as many takes 8 MB. With more, the mean over members is used."""
LEAST_OF_CLASS = 2
"""Samples of a class from which its own mean is computed; others share the mean of all samples."""
# Relative to the greatest eigenvalue: rounding of float32 outputs must not look like a distance.
LEAST_VARIANCE = 1e-6


def outputs_side_by_side(outputs: Tensor, weights: Tensor) -> Tensor | None:
    """Return z of each sample, `[batch, features]`; None where a sample has positions or too many outputs.

    Args:
        outputs: Of all members, `[members, batch]` or `[members, batch, outputs]`.
        weights: How much each member counts, `[members]`.
    """
    if outputs.ndim > 3:
        return None
    values = outputs.detach().to("cpu", torch.float64)
    if values.ndim == 2:
        values = values.unsqueeze(2)
    members, _, count = values.shape
    if members * count <= MOST_FEATURES:
        return values.movedim(0, 1).flatten(1)
    if count > MOST_FEATURES:
        return None
    shares = weights.detach().to("cpu", torch.float64)
    return (values * shares.reshape(-1, 1, 1)).sum(0)


def fit_distance(features: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the means, `[classes, features]`, and the whitening, `[features, features]`, of Eq. (1).

    Args:
        features: Outputs of samples that are not strange, `[samples, features]`.
        classes: The class of each, `[samples]`.
    """
    means, place = _means(features, classes)
    return means, whitening_of(shrunk_covariance(features - means[place]))


def _means(features: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean of each class with enough samples, one for the rest, and which is whose."""
    _, place, counts = torch.unique(classes, return_inverse=True, return_counts=True)
    frequent = counts >= LEAST_OF_CLASS
    # Rare classes share the last place.
    renumbered = torch.where(frequent, frequent.cumsum(0) - 1, frequent.sum())
    place = renumbered[place]
    groups = int(place.max()) + 1
    sums = features.new_zeros(groups, features.shape[1]).index_add_(0, place, features)
    means = sums / torch.bincount(place, minlength=groups).unsqueeze(1)
    if not frequent.all():
        # One or two samples of several classes are nowhere near each other: the mean of all is safer.
        means[-1] = features.mean(0)
    return means, place


def shrunk_covariance(residuals: Tensor) -> Tensor:
    """Return the covariance of Eq. (2) of centred residuals, `[samples, features]`."""
    samples, features = residuals.shape
    covariance = residuals.T @ residuals / samples
    target = covariance.trace() / features
    # How far the samples' own products are from their mean, and how far that mean is from the target.
    fourth = residuals.square().sum(1).square().sum() / samples
    size = covariance.square().sum()
    noise = (fourth - size) / (features * samples)
    distance = (size - features * target.square()) / features
    amount = 0.0 if noise <= 0 or distance <= 0 else min((noise / distance).item(), 1.0)
    identity = torch.eye(features, dtype=residuals.dtype)
    return (1 - amount) * covariance + amount * target * identity


def whitening_of(covariance: Tensor) -> Tensor:
    """Return a matrix W with W Wᵀ = Σ⁻¹; the identity where nothing varies."""
    variances, directions = torch.linalg.eigh(covariance)
    greatest = variances[-1]
    if greatest <= 0:
        return torch.eye(len(covariance), dtype=covariance.dtype)
    kept = variances.clamp(min=LEAST_VARIANCE * greatest.item())
    whitening: Tensor = directions * kept.rsqrt()
    return whitening


def distance(features: Tensor, means: Tensor, whitening: Tensor) -> Tensor:
    """Compute Eq. (1) of each sample, `[batch]`."""
    points, centres = features @ whitening, means @ whitening
    # torch.cdist chooses its algorithm by the size of the batch, which an exported graph must not depend on.
    squares = points.square().sum(1, keepdim=True) - 2 * points @ centres.T + centres.square().sum(1)
    return squares.amin(1).clamp(min=0).sqrt()
