"""Augmentation: images are changed at random in every epoch, a batch at a time, in torch.

    flip        half of the images are mirrored
    crop        images are moved by up to `crop` pixels, as a crop of an image padded with zeros
    randaugment `n` changes, drawn for each image, of strength `m` / 10, m ~ N(strength, spread²) in [0, 10]
    mixup       x = λ x_1 + (1 − λ) x_2,    λ ~ Beta(α, α)
    cutmix      a rectangle of x_1 comes from x_2; λ is the share of the rest

Mixed targets are probabilities λ y_1 + (1 − λ) y_2. Random numbers follow from the seed, the epoch and the
batch alone, so that a training that continues sees what it would have seen.

RandAugment: Cubuk et al., 2020, with its fourteen changes and their greatest strengths; the spread of
strengths is timm's `mstd`. What enters at an edge is zero. Mixup: Zhang et al., 2018. Cutmix: Yun et al.,
2019; where both are on, each batch has one of the two, by a fair coin, as in timm.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor
from torch.distributions import Beta

from pluribus.data.task import Task
from pluribus.errors import SettingError
from pluribus.likelihood import Categorical
from pluribus.mechanisms.network.dry_run import derived_seed, seeded
from pluribus.ranges import LARGEST
from pluribus.settings import Settings, setting
from pluribus.training import image_changes as changes

STRONGEST = 10
"""The greatest strength of RandAugment."""
ROTATION, SHEAR, TRANSLATION = 30.0, 0.3, 0.45
"""Degrees, slant and share of the side at the greatest strength, as in RandAugment."""
GREY = 0.9
"""Share of brightness, contrast, colour and sharpness at the greatest strength."""
LOST_BITS = 4
"""Bits of eight that posterising takes at the greatest strength."""
AUGMENTED = 1 << 22
"""Offset that keeps the random numbers of augmentation apart from those of the order of samples."""
Change = Callable[[Tensor, Tensor], Tensor]
"""Changes images by strengths in [-1, 1]."""
CHANGES: dict[str, Change] = {
    "identity": lambda x, by: x,
    "autocontrast": lambda x, by: changes.autocontrast(x),
    "equalise": lambda x, by: changes.equalise(x),
    "rotate": lambda x, by: changes.rotate(x, ROTATION * by),
    "solarise": lambda x, by: changes.solarise(x, by.abs()),
    "colour": lambda x, by: changes.colour(x, GREY * by),
    "posterise": lambda x, by: changes.posterise(x, 8 - (LOST_BITS * by.abs()).round()),
    "contrast": lambda x, by: changes.contrast(x, GREY * by),
    "brightness": lambda x, by: changes.brighten(x, GREY * by),
    "sharpness": lambda x, by: changes.sharpen(x, GREY * by),
    "shear_x": lambda x, by: changes.shear(x, SHEAR * by, torch.zeros_like(by)),
    "shear_y": lambda x, by: changes.shear(x, torch.zeros_like(by), SHEAR * by),
    "translate_x": lambda x, by: changes.translate(x, TRANSLATION * by, torch.zeros_like(by)),
    "translate_y": lambda x, by: changes.translate(x, torch.zeros_like(by), TRANSLATION * by),
}
"""The changes of RandAugment, in the order of its paper."""


@dataclass(frozen=True)
class Augment(Settings):
    """Settings of augmentation. Inputs are images `[batch, channels, height, width]`.

    Args:
        flip: Whether half of the images are mirrored left to right.
        crop: Images are moved by up to so many pixels, at least 0.
        operations: Changes of RandAugment for each image, at least 0.
        strength: Of these changes, from 0 to 10.
        spread: Standard deviation of the strength of a change, at least 0.
        mixup: α of mixup, at least 0; 0 is none.
        cutmix: α of cutmix, at least 0; 0 is none.
        each: Whether members that have an order of the samples of their own (`shuffle_members`) have random
            changes of their own too. All other members see the same images.
    """

    flip: bool = setting(False)
    crop: int = setting(0, at_least=0, at_most=4096)
    operations: int = setting(0, at_least=0, at_most=16)
    strength: float = setting(9.0, at_least=0, at_most=STRONGEST)
    spread: float = setting(0.0, at_least=0, at_most=STRONGEST)
    mixup: float = setting(0.0, at_least=0, at_most=LARGEST)
    cutmix: float = setting(0.0, at_least=0, at_most=LARGEST)
    each: bool = setting(True)

    # Version 1 had six of the changes of RandAugment, and a brightness that moved all pixels.
    version: ClassVar[int] = 2

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain data; as version 1 wrote them where RandAugment is off.

        Nothing else has changed since, so that records and checkpoints of that time compare equal.
        """
        values = super().to_dict()
        if self.operations or self.spread:
            return values
        del values["spread"]
        return values | {"version": 1}

    @property
    def mixes(self) -> bool:
        """Return whether samples are mixed, so that targets become probabilities."""
        return bool(self.mixup or self.cutmix)

    @property
    def is_active(self) -> bool:
        """Return whether anything is changed."""
        return self.mixes or self.flip or self.crop > 0 or self.operations > 0


def generator_of(seed: int, batch: int, order: int, augment: Augment | None) -> Generator:
    """Return the random numbers of one batch, which follow from these numbers alone.

    Args:
        seed: Of the epoch.
        batch: Number of the batch in the epoch.
        order: Number of the order of the samples.
        augment: Whether orders have numbers of their own.
    """
    own = order if augment is not None and augment.each else 0
    return Generator().manual_seed(derived_seed(derived_seed(seed, AUGMENTED + batch), own))


def check_augment(task: Task, augment: Augment | None) -> None:
    """Raise `SettingError` if the inputs of the task are no images, or its targets cannot be mixed."""
    if augment is None:
        return
    first = task.train.example(1)
    x = first.x
    if not isinstance(x, Tensor) or x.ndim != 4 or not x.is_floating_point():
        raise SettingError(
            "augment needs images as floats [batch, channels, height, width], got "
            f"{first.inputs}. Leave augment out."
        )
    # Samples of a stream are not all read for this: a wrong class is found when it comes.
    y = first.target if task.train.streams else task.train.y
    if augment.mixes and isinstance(task.likelihood, Categorical) and (y < 0).any():
        raise SettingError(
            "mixup and cutmix need a class at every position, got ignored ones. Set them to 0."
        )


def change_images(x: Tensor, augment: Augment, generator: Generator) -> Tensor:
    """Return a batch with flips, crops and RandAugment.

    Args:
        x: `[batch, channels, height, width]`, on the CPU.
        augment: The settings.
        generator: Of the random numbers.
    """
    size = len(x)
    if augment.flip:
        x = changes.flip(x, torch.rand(size, generator=generator) < 0.5)
    if augment.crop:
        down, right = torch.randint(-augment.crop, augment.crop + 1, (2, size), generator=generator).unbind()
        x = changes.shift(x, down, right)
    for _ in range(augment.operations):
        x = _randaugment(x, augment, generator)
    return x


def _randaugment(x: Tensor, augment: Augment, generator: Generator) -> Tensor:
    """Return a batch in which one change of RandAugment was made to each image."""
    kinds = torch.randint(len(CHANGES), (len(x),), generator=generator)
    # A change goes either way with equal probability.
    signs = torch.randint(2, (len(x),), generator=generator) * 2.0 - 1
    strengths = torch.full((len(x),), augment.strength)
    if augment.spread:
        noise = augment.spread * torch.randn(len(x), generator=generator)
        strengths = (strengths + noise).clamp(0, STRONGEST)
    by = (signs * strengths / STRONGEST).to(x)
    changed = x.clone()
    for kind, change in enumerate(CHANGES.values()):
        chosen = (kinds == kind).nonzero().flatten()
        if len(chosen):
            changed[chosen] = change(x[chosen], by[chosen])
    return changed


def mix_samples(x: Tensor, y: Tensor, augment: Augment, generator: Generator) -> tuple[Tensor, Tensor]:
    """Return images and targets mixed with those of other samples of the batch.

    Args:
        x: `[batch, channels, height, width]`.
        y: Probabilities or numbers, `[batch, ...]`.
        augment: Which mixing, and how much.
        generator: Of the random numbers.
    """
    coin = float(torch.rand((), generator=generator))
    order = torch.randperm(len(x), generator=generator)
    cuts = augment.cutmix > 0 and (not augment.mixup or coin < 0.5)
    if cuts:
        x, share = cut_and_paste(x, order, _beta(augment.cutmix, generator), generator)
    else:
        share = _beta(augment.mixup, generator)
        x = share * x + (1 - share) * x[order]
    return x, share * y + (1 - share) * y[order]


def cut_and_paste(x: Tensor, order: Tensor, share: float, generator: Generator) -> tuple[Tensor, float]:
    """Return images with a rectangle of others, and the share of each that is its own.

    Args:
        x: `[batch, channels, height, width]`.
        order: By image, the one whose rectangle it gets.
        share: About the share that stays; whole pixels, and the edge of the image, make it another.
        generator: Of the place.
    """
    sides = x.shape[-2:]
    spans = []
    for side in sides:
        half = side * (1 - share) ** 0.5 / 2
        centre = int(torch.randint(side, (), generator=generator))
        spans.append((max(0, round(centre - half)), min(side, round(centre + half))))
    (top, bottom), (left, right) = spans
    pasted = x.clone()
    pasted[:, :, top:bottom, left:right] = x[order, :, top:bottom, left:right]
    return pasted, 1 - (bottom - top) * (right - left) / (sides[0] * sides[1])


def _beta(alpha: float, generator: Generator) -> float:
    """Draw from Beta(α, α)."""
    # Distributions of torch take no generator: they draw from the global one, which is put back.
    with seeded(int(torch.randint(2**31 - 1, (), generator=generator))):
        return float(Beta(alpha, alpha).sample())
