"""The 19 corruptions of ImageNet-C, one function each.

A function takes images `[batch, channels, height, width]` in [0, 1], the samples' streams of random numbers
and its constants, and gives images that may leave [0, 1]; `corrupt` clips. Layers that do not depend on the
images are made in float64 on the CPU: thresholds then fall alike however the samples are batched.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pluribus.data import image_filters as filters
from pluribus.data.jpeg import jpeg
from pluribus.data.streams import Streams

WATER = (175 / 255, 238 / 255, 238 / 255)
MUD = (63 / 255, 42 / 255, 20 / 255)
# Mean red, green and blue, and contrast, of the five photographs of frost behind the published data.
FROSTS = (
    (0.31, 0.58, 0.65, 0.06),
    (0.78, 0.79, 0.83, 0.075),
    (0.78, 0.79, 0.83, 0.075),
    (0.57, 0.63, 0.68, 0.10),
    (0.40, 0.44, 0.49, 0.135),
)
TINTED = ("frost", "spatter", "saturate")  # these put colour even into grey images


def gaussian_noise(images: Tensor, streams: Streams, scale: float) -> Tensor:
    """Adds normal noise of standard deviation `scale`."""
    return images + streams.normal(*images.shape[1:]).to(images) * scale


def shot_noise(images: Tensor, streams: Streams, photons: float) -> Tensor:
    """Counts of photons, `photons` of them on average where the image is 1."""
    return streams.poisson(images.to("cpu", torch.float64) * photons).div(photons).to(images)


def impulse_noise(images: Tensor, streams: Streams, amount: float) -> Tensor:
    """Turns the share `amount` of the values to 0 or 1."""
    chance = streams.uniform(0, 1, *images.shape[1:]).to(images.device)
    return images.masked_fill(chance < amount / 2, 0).masked_fill(chance >= 1 - amount / 2, 1)


def speckle_noise(images: Tensor, streams: Streams, scale: float) -> Tensor:
    """Adds normal noise in proportion to the image."""
    return images + images * streams.normal(*images.shape[1:]).to(images) * scale


def defocus_blur(images: Tensor, _: Streams, radius: float, alias_sigma: float) -> Tensor:
    """Blurs by a disk with a rim softened by `alias_sigma`."""
    return filters.filtered(images, filters.disk_kernel(radius, alias_sigma))


def gaussian_blur(images: Tensor, _: Streams, sigma: float) -> Tensor:
    """Gaussian blur."""
    return filters.gaussian_blur(images, sigma)


def glass_blur(images: Tensor, streams: Streams, sigma: float, reach: int, rounds: int) -> Tensor:
    """Blurs, lets every pixel take the value of one at most `reach` away, `rounds` times, and blurs again.

    Pixels are visited from the last to the first, each seeing what was changed before it, as the published
    data were made: meant as a swap, the code overwrote one of the two.
    """
    batch, _, height, width = images.shape
    rows, columns = height - 2 * reach, width - 2 * reach
    moves = streams.integers(-reach, reach, 2, rounds, rows, columns)
    moves = moves[:, 0] * width + moves[:, 1]
    origin = torch.arange(height * width).repeat(batch, 1)
    slope = reach + 1  # no pixel sees another with equal slope·row + column, so these are visited at once
    row, column = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    turns = (slope * row + column).flatten()
    order = turns.argsort(stable=True).tensor_split(turns.bincount().cumsum(0)[:-1].tolist())
    row, column = row.flatten(), column.flatten()
    for moved in moves.unbind(1):
        for visited in order:
            y, x = row[visited], column[visited]
            place = (height - reach - y) * width + (width - reach - x)
            origin[:, place] = origin.gather(1, place + moved[:, y, x])
    source = origin.to(images.device)[:, None].expand(-1, images.shape[1], -1)
    shuffled = filters.gaussian_blur(images, sigma).flatten(2).gather(2, source).view_as(images)
    return filters.gaussian_blur(shuffled, sigma)


def motion_blur(images: Tensor, streams: Streams, radius: int, sigma: float) -> Tensor:
    """Motion blur in a direction up to 45° from the horizontal."""
    return filters.motion_blur(images, radius, sigma, streams.uniform(-45, 45))


def zoom_blur(images: Tensor, _: Streams, count: int, step: float) -> Tensor:
    """Mean of the image and `count` enlargements, the first by 1, each by `step` more."""
    step = (1 + step) - 1  # the rounded step that the published enlargements were counted in
    return (images + filters.zoom(images, [1 + i * step for i in range(count)])) / (count + 1)


def snow(
    images: Tensor,
    streams: Streams,
    mean: float,
    scale: float,
    zoom: float,
    threshold: float,
    radius: int,
    sigma: float,
    keep: float,
) -> Tensor:
    """Whitens all but `keep` of the image and adds flakes: normal noise, enlarged, cut off and smeared."""
    flakes = filters.zoom(mean + scale * streams.normal(1, *images.shape[2:]).double(), [zoom])
    flakes = torch.where(flakes < threshold, 0.0, flakes.clamp(0, 1))
    flakes = filters.motion_blur(flakes, radius, sigma, streams.uniform(-135, -45))
    white = torch.maximum(images, filters.luma(images) * 1.5 + 0.5)
    return keep * images + (1 - keep) * white + (flakes + flakes.flip(2, 3)).to(images)


def clouds(streams: Streams, height: int, width: int, decay: float) -> Tensor:
    """A fractal for every sample, `[batch, 1, height, width]` in [0, 1]."""
    size = 1 << (max(height, width) - 1).bit_length()
    fractals = filters.plasma_fractal(streams.uniform(-1, 1, size, size).double(), decay)
    return fractals[:, None, :height, :width]


def frost(images: Tensor, streams: Streams, keep: float, add: float) -> Tensor:
    """Darkens to `keep` and adds `add` of a frosted pane: a fractal under needles in three directions.

    Needles are noise smeared over 1/20 of the image. The pane has the mean colour and the contrast of one of
    the photographs that the published data were made with.
    """
    height, width = images.shape[2:]
    sigma = min(height, width) / 20
    radius = math.ceil(sigma)
    margin = 2 * radius + 1
    noise = streams.normal(3, height + 2 * margin, width + 2 * margin)
    angles = streams.uniform(-180, 180, 3).flatten()
    needles = filters.motion_blur(noise.flatten(0, 1)[:, None], radius, sigma, angles)
    needles = filters.gaussian_blur(needles, 0.3 + min(height, width) / 500)
    needles = needles.view_as(noise)[..., margin:-margin, margin:-margin].amax(1, keepdim=True)
    texture = 0.8 * standardised(needles) + 0.6 * standardised(clouds(streams, height, width, decay=1.75))
    pane = torch.tensor(FROSTS, dtype=torch.float64)[streams.integers(0, len(FROSTS))][:, :, None, None]
    light = 0.035 * streams.normal(1, 1, 1).double()
    pane = (pane[:, :3] + light + pane[:, 3:] * standardised(texture)).clamp(0, 1)
    return keep * images + add * pane.to(images)


def standardised(fields: Tensor) -> Tensor:
    """Fields `[batch, 1, height, width]` of mean 0 and variance 1 for every sample."""
    centred = fields - fields.mean((2, 3), keepdim=True)
    return centred / centred.square().mean((2, 3), keepdim=True).sqrt()


def fog(images: Tensor, streams: Streams, thickness: float, decay: float) -> Tensor:
    """Adds clouds of `thickness` and scales back to the image's largest value."""
    largest = images.amax((1, 2, 3), keepdim=True)
    foggy = images + thickness * clouds(streams, images.shape[2], images.shape[3], decay).to(images)
    return foggy * largest / (largest + thickness)


def brightness(images: Tensor, _: Streams, add: float) -> Tensor:
    """Raises the value of hue, saturation and value."""
    value = images.amax(1, keepdim=True)
    brighter = (value + add).clamp(max=1)
    return torch.where(value > 0, images / value * brighter, brighter)


def contrast(images: Tensor, _: Streams, keep: float) -> Tensor:
    """Shrinks the distance to the mean of each channel to `keep` of it."""
    mean = images.mean((2, 3), keepdim=True)
    return (images - mean) * keep + mean


def saturate(images: Tensor, _: Streams, factor: float, add: float) -> Tensor:
    """Scales and raises the saturation of hue, saturation and value; grey, of hue 0, turns to red."""
    value, least = images.amax(1, keepdim=True), images.amin(1, keepdim=True)
    depth = value - least
    saturation = (depth / value.clamp(min=1e-12) * factor + add).clamp(0, 1)
    red = torch.tensor([0.0, 1.0, 1.0]).to(images).view(3, 1, 1)
    shade = torch.where(depth > 0, (value - images) / depth.clamp(min=1e-12), red)
    return value * (1 - saturation * shade)


def elastic_transform(images: Tensor, streams: Streams, force: float, sigma: float, shift: float) -> Tensor:
    """Moves three points by up to `shift` with all between, then every pixel by a smooth random field.

    The field is uniform in [-1, 1], blurred by `sigma`, times `force`; all in parts of the shorter side.
    """
    height, width = images.shape[2:]
    side = min(height, width)
    y, x = torch.meshgrid(torch.arange(height).double(), torch.arange(width).double(), indexing="ij")
    centre = torch.tensor([width // 2, height // 2])
    points = centre + side // 3 * torch.tensor([[1, 1], [1, -1], [-1, -1]], dtype=torch.float64)
    moved = points + streams.uniform(-shift * side, shift * side, 3, 2).double()
    affine = torch.linalg.solve(torch.cat([moved, torch.ones(len(moved), 3, 1)], 2), points.expand_as(moved))
    columns, rows = (torch.stack([x, y, torch.ones_like(x)], 2) @ affine[:, None]).unbind(3)
    images = filters.warp(images, rows, columns, mirror_last=False)
    if force == 0:
        return images
    field = streams.uniform(-1, 1, 2, height, width).double()
    field = filters.gaussian_blur(field, sigma * side, truncate=3, edges="reflect") * (force * side)
    return filters.warp(images, y + field[:, 1], x + field[:, 0], mirror_last=True)


def pixelate(images: Tensor, _: Streams, share: float) -> Tensor:
    """Shrinks to `share` of the size by means over boxes, and enlarges by repeating pixels."""
    rows, columns = (
        filters.box_matrix(int(size * share), size) @ filters.box_matrix(size, int(size * share))
        for size in images.shape[2:]
    )
    return filters.separable(images, [rows], [columns])


def jpeg_compression(images: Tensor, _: Streams, quality: int) -> Tensor:
    """Saves as JPEG and reads back."""
    return jpeg(images, quality)


def spatter(
    images: Tensor,
    streams: Streams,
    mean: float,
    scale: float,
    sigma: float,
    threshold: float,
    opacity: float,
    mud: int,
) -> Tensor:
    """Drops of water, or with `mud` of mud: normal noise, blurred by `sigma` and cut off at `threshold`.

    For mud, `opacity` is the blur of the drops' shapes.
    """
    liquid = filters.gaussian_blur(mean + scale * streams.normal(1, *images.shape[2:]).double(), sigma)
    if mud:
        drops = filters.gaussian_blur((liquid > threshold).double(), opacity)
        drops = torch.where(drops < 0.8, 0.0, drops).to(images)
        return images * (1 - drops) + drops * torch.tensor(MUD).to(images).view(3, 1, 1)
    drops = torch.where(liquid < threshold, 0.0, (liquid * 255).floor())
    drops = drops * relief(drops[:, 0])[:, None]
    drops = opacity * drops / drops.amax((2, 3), keepdim=True).clamp(min=1e-12)
    return images + drops.to(images) * torch.tensor(WATER).to(images).view(3, 1, 1)


def relief(levels: Tensor) -> Tensor:
    """Light on drops `[batch, height, width]`: the slope, towards a corner, of the distance to edges."""
    distance = filters.capped_distance(filters.canny_edges(levels, 50, 150), cap=20)[:, None]
    box = torch.full((3, 3), 1 / 9, dtype=torch.float64)
    mean = filters.filtered(distance, box) + 1e-9  # whole means may come out a hair too small
    height = filters.equalised(mean.floor())
    slope = torch.tensor([[-2.0, -1.0, 0.0], [-1.0, 1.0, 1.0], [0.0, 1.0, 2.0]])
    return filters.filtered(filters.filtered(height, slope).clamp(0, 255), box).round()[:, 0]


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    function.__name__: function
    for function in (
        gaussian_noise,
        shot_noise,
        impulse_noise,
        defocus_blur,
        glass_blur,
        motion_blur,
        zoom_blur,
        snow,
        frost,
        fog,
        brightness,
        contrast,
        elastic_transform,
        pixelate,
        jpeg_compression,
        speckle_noise,
        gaussian_blur,
        spatter,
        saturate,
    )
}
