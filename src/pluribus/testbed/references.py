"""References: samplers of known distributions, by which the score itself is calibrated.

Functions drawn from the exact posterior score near 0: the rest, about 3 / (4 draws), comes from the finite
number of draws. Functions that are too sure, or that know nothing of the data, do not.
"""

import torch
from torch import Generator, Tensor

from pluribus.data.testbed import JITTER, Problem, wide_kernel
from pluribus.testbed.presets import DRAWS

TOO_SURE = 0.5
"""Width of the sampler that is too sure, as a share of the posterior's."""


def sample_reference(name: str, problem: Problem, seed: int) -> Tensor:
    """Return functions at the test points, `[draws, points]`.

    Args:
        name: `exact_posterior`, `half_as_wide` (the posterior with half its deviation), or `prior`.
        problem: Whose posterior it is.
        seed: Of the draws.
    """
    x, posterior = problem.test
    mean, covariance, width = posterior[:, 0], problem.test_covariance, 1.0
    if name == "half_as_wide":
        width = TOO_SURE
    if name == "prior":
        mean, covariance = torch.zeros_like(mean), wide_kernel(x.double(), x.double())
    # The posterior is nearly singular where data are many; the eigenvectors do not mind.
    values, vectors = torch.linalg.eigh(covariance + JITTER * torch.eye(len(x), dtype=torch.float64))
    generator = Generator().manual_seed(seed)
    drawn = torch.randn(DRAWS, len(x), generator=generator, dtype=torch.float64)
    functions: Tensor = (drawn * values.clamp(min=0).sqrt()) @ vectors.T
    return mean + width * functions
