"""Validation images with common corruptions, to try sharper predictions on."""

from torch import Tensor

from pluribus.data.corruptions import LEAST_SIDE, corrupt
from pluribus.data.scaling import Scaling

KINDS = ("gaussian_noise", "defocus_blur", "contrast", "jpeg_compression")
"""One of each family: noise, blur, weather and light, digital."""
SEVERITY = 3
ROUNDING = 1e-3


def corrupted_images(x: Tensor, scaling: Scaling | None) -> list[Tensor]:
    """Return one corrupted copy of the images for each of `KINDS`; none where inputs are no images.

    Args:
        x: Inputs of a network, `[count, 1 or 3, height, width]`.
        scaling: What they went through; if unknown, the range of each channel stands for that from 0 to 1.
    """
    if x.ndim != 4 or x.shape[1] not in (1, 3) or not x.is_floating_point():
        return []
    if min(x.shape[2:]) < LEAST_SIDE:
        return []
    if scaling is None or not _is_unit(scaling.invert(x)):
        scaling = range_of(x)
    # Rounding may leave the range by a little.
    images = scaling.invert(x).clamp(0, 1)
    return [scaling.apply(corrupt(images, kind, SEVERITY)).to(x) for kind in KINDS]


def _is_unit(images: Tensor) -> bool:
    """Return whether pixels lie in 0 to 1: a user's task may hold images that were scaled before."""
    return bool(images.min() > -ROUNDING and images.max() < 1 + ROUNDING)


def range_of(x: Tensor) -> Scaling:
    """Return the scaling whose inverse brings each channel into the range from 0 to 1."""
    low, high = x.amin((0, 2, 3)), x.amax((0, 2, 3))
    # x = (images − mean) / std, and images = (x − low) / (high − low).
    width = (high - low).clamp(min=1e-12).double()
    mean, std = -low.double() / width, 1 / width
    return Scaling(mean.reshape(-1, 1, 1).cpu(), std.reshape(-1, 1, 1).cpu())
