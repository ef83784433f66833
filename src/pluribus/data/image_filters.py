"""Filters of image tensors `[batch, channels, height, width]`: blurs, resampling, warps, edges, fractals."""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import grid_sample, pad


def luma(images: Tensor) -> Tensor:
    """Grey of RGB, one channel; grey stays as it is."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.chunk(3, 1)
    return 0.299 * red + 0.587 * green + 0.114 * blue


def separable(images: Tensor, rows: Iterable[Tensor], columns: Iterable[Tensor]) -> Tensor:
    """Σ_i R_i X C_iᵀ for every channel X, with square matrices that act on lines of pixels."""
    total = torch.zeros_like(images)
    for row, column in zip(rows, columns, strict=True):
        total += row.to(images) @ images @ column.to(images).T
    return total


def line_filter(weights: Tensor, size: int, edges: str) -> Tensor:
    """Correlation of a line of pixels with an odd number of weights, as a matrix `[size, size]`.

    Args:
        weights: The weights; the middle one is the pixel's own.
        size: Pixels in the line.
        edges: What follows pixels `a b c`: with "nearest" `c c`, with "reflect" `c b`, with "mirror" `b a`.
    """
    radius = len(weights) // 2
    source = torch.arange(size)[:, None] + torch.arange(-radius, radius + 1)
    if edges == "nearest":
        source = source.clamp(0, size - 1)
    else:
        repeated = int(edges == "reflect")
        period = 2 * (size - 1 + repeated)
        source = source % period
        source = torch.minimum(source, period - repeated - source)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    return matrix.scatter_add_(1, source, weights.double().expand(size, -1))


def gaussian(sigma: float, radius: int) -> Tensor:
    """Weights of a Gaussian at whole pixels up to `radius`, of sum 1."""
    taps = torch.arange(-radius, radius + 1, dtype=torch.float64)
    return torch.softmax(-(taps**2) / (2 * sigma**2), 0) if radius else torch.ones(1, dtype=torch.float64)


def gaussian_blur(images: Tensor, sigma: float, truncate: float = 4.0, edges: str = "nearest") -> Tensor:
    """Gaussian blur, cut off at `truncate` sigmas; for `edges` see `line_filter`."""
    weights = gaussian(sigma, int(truncate * sigma + 0.5))
    rows, columns = (line_filter(weights, size, edges) for size in images.shape[-2:])
    return separable(images, [rows], [columns])


def filtered(images: Tensor, kernel: Tensor) -> Tensor:
    """Correlation of every channel with an odd square kernel; outside, the image is mirrored ("mirror").

    Computed as the sum of the kernel's rank-one parts, of which symmetric kernels have few.
    """
    left, strengths, right = torch.linalg.svd(kernel.double())
    rank = int((strengths > 1e-12 * strengths[0]).sum())
    height, width = images.shape[-2:]
    rows = [line_filter(left[:, i] * strengths[i], height, "mirror") for i in range(rank)]
    columns = [line_filter(right[i], width, "mirror") for i in range(rank)]
    return separable(images, rows, columns)


def disk_kernel(radius: float, alias_sigma: float) -> Tensor:
    """A disk of sum 1 with its rim softened by a small Gaussian, `[2r + 1, 2r + 1]` with r at least 8."""
    half = max(8, math.ceil(radius))
    line = torch.arange(-half, half + 1, dtype=torch.float64)
    disk = (line[:, None] ** 2 + line**2 <= radius**2).double()
    soft = line_filter(gaussian(alias_sigma, 1 if radius <= 8 else 2), len(line), "mirror")
    return soft @ (disk / disk.sum()) @ soft.T


def motion_blur(images: Tensor, radius: int, sigma: float, degrees: Tensor) -> Tensor:
    """Smear along a line: the sum of copies moved by whole pixels, weighted by half a Gaussian.

    Args:
        images: The images; what lies outside repeats their edges.
        radius: The line is `2 radius + 1` pixels long.
        sigma: Standard deviation of the weights in pixels.
        degrees: Direction for each sample, `[batch]`.
    """
    batch, channels, height, width = images.shape
    taps = torch.arange(2 * radius + 1, dtype=torch.float64)
    weights = torch.exp(-(taps**2) / (2 * sigma**2))
    turn = torch.deg2rad(degrees.double())[:, None]
    down = torch.ceil(taps * turn.sin() - 0.5).long().to(images.device)
    right = torch.ceil(taps * turn.cos() - 0.5).long().to(images.device)
    rows = torch.arange(height, device=images.device)[:, None]
    columns = torch.arange(width, device=images.device)
    flat, total = images.flatten(2), torch.zeros_like(images).flatten(2)
    for tap, weight in enumerate((weights / weights.sum()).tolist()):
        source = (rows + down[:, tap, None, None]).clamp(0, height - 1) * width
        source = source + (columns + right[:, tap, None, None]).clamp(0, width - 1)
        total += flat.gather(2, source.flatten(1)[:, None].expand(-1, channels, -1)) * weight
    return total.view(batch, channels, height, width)


def zoom_matrix(size: int, factor: float) -> Tensor:
    """The middle of a line of pixels enlarged linearly to the same size, end on end, `[size, size]`."""
    part = math.ceil(size / factor)
    enlarged = round(part * factor)
    place = (torch.arange(size, dtype=torch.float64) + (enlarged - size) // 2) * ((part - 1) / (enlarged - 1))
    place = place[:, None] + (size - part) // 2
    return (1 - (place - torch.arange(size)).abs()).clamp(min=0)


def zoom(images: Tensor, factors: Sequence[float]) -> Tensor:
    """Sum of the images' middles enlarged by each factor."""
    height, width = images.shape[-2:]
    rows, columns = ([zoom_matrix(size, factor) for factor in factors] for size in (height, width))
    return separable(images, rows, columns)


def box_matrix(size: int, new_size: int) -> Tensor:
    """Resampling of a line of pixels as a matrix `[new_size, size]`.

    A new pixel is the mean of the pixels whose centres lie in it, and in an enlargement the nearest pixel.
    """
    scale = size / new_size
    centres = (torch.arange(new_size, dtype=torch.float64)[:, None] + 0.5) * scale
    offsets = (torch.arange(size, dtype=torch.float64) + 0.5 - centres) / max(scale, 1.0)
    inside = ((offsets > -0.5) & (offsets <= 0.5)).double()
    return inside / inside.sum(1, keepdim=True)


def warp(images: Tensor, rows: Tensor, columns: Tensor, mirror_last: bool) -> Tensor:
    """Images read at `rows` and `columns`, each `[batch, height, width]` in pixels, linearly.

    Args:
        images: The images.
        rows: The row where each pixel is read.
        columns: The column where each pixel is read.
        mirror_last: Outside, whether the mirror repeats the last pixel.
    """
    height, width = images.shape[-2:]
    if mirror_last:
        y, x = (2 * rows + 1) / height - 1, (2 * columns + 1) / width - 1
    else:
        y, x = 2 * rows / (height - 1) - 1, 2 * columns / (width - 1) - 1
    grid = torch.stack([x, y], -1).to(images)
    return grid_sample(images, grid, padding_mode="reflection", align_corners=not mirror_last)


def plasma_fractal(wobbles: Tensor, decay: float) -> Tensor:
    """Clouds by the diamond-square algorithm, scaled to [0, 1].

    Args:
        wobbles: Random numbers in [-1, 1], `[batch, size, size]`, with size a power of two.
        decay: By how much the wobble shrinks each time the grid is halved; 1 is rough, 3 smooth.
    """
    size = wobbles.shape[-1]
    field, step, strength = torch.zeros_like(wobbles), size, 100.0
    while step >= 2:
        wobble = wobbles * strength**2
        corner, middle = slice(0, None, step), slice(step // 2, None, step)
        corners = field[:, corner, corner]
        pairs = corners + corners.roll(-1, 1)
        centres = (pairs + pairs.roll(-1, 2)) / 4 + wobble[:, middle, middle]
        field[:, middle, middle] = centres
        above = centres + centres.roll(1, 1) + corners + corners.roll(-1, 2)
        field[:, corner, middle] = above / 4 + wobble[:, corner, middle]
        beside = centres + centres.roll(1, 2) + corners + corners.roll(-1, 1)
        field[:, middle, corner] = beside / 4 + wobble[:, middle, corner]
        step, strength = step // 2, strength / decay
    field -= field.amin((1, 2), keepdim=True)
    return field / field.amax((1, 2), keepdim=True)


def canny_edges(levels: Tensor, low: float, high: float) -> Tensor:
    """Canny's edges of levels `[batch, height, width]` in 0 to 255, as booleans.

    Args:
        levels: Whole numbers.
        low: The gradient, as |dx| + |dy| of the Sobel filter, above which a ridge continues an edge.
        high: The gradient above which a ridge starts an edge.
    """
    around = pad(levels[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]
    slope = around[:, :, 2:] - around[:, :, :-2]
    dx = slope[:, :-2] + 2 * slope[:, 1:-1] + slope[:, 2:]
    slope = around[:, 2:] - around[:, :-2]
    dy = slope[:, :, :-2] + 2 * slope[:, :, 1:-1] + slope[:, :, 2:]
    wide, tall = dx.abs(), dy.abs()
    size = wide + tall
    flat = tall < wide * math.tan(math.pi / 8)
    steep = tall > wide * math.tan(3 * math.pi / 8)
    across = (size > beside(size, 0, -1)) & (size >= beside(size, 0, 1))
    upright = (size > beside(size, -1, 0)) & (size >= beside(size, 1, 0))
    falling = (size > beside(size, -1, -1)) & (size > beside(size, 1, 1))
    rising = (size > beside(size, -1, 1)) & (size > beside(size, 1, -1))
    slanted = torch.where(dx * dy < 0, rising, falling)
    ridge = (size > low) & torch.where(flat, across, torch.where(steep, upright, slanted))
    edges, reached = ridge & (size > high), torch.zeros_like(ridge)
    while not torch.equal(edges, reached):
        reached = edges
        grown = edges | beside(edges, 0, -1) | beside(edges, 0, 1)
        edges = ridge & (grown | beside(grown, -1, 0) | beside(grown, 1, 0))
    return edges


def beside(fields: Tensor, down: int, right: int) -> Tensor:
    """The neighbours of the pixels of `[batch, height, width]`, 0 outside."""
    height, width = fields.shape[1:]
    return pad(fields, (1, 1, 1, 1))[:, 1 + down : 1 + down + height, 1 + right : 1 + right + width]


def capped_distance(targets: Tensor, cap: float) -> Tensor:
    """Distance of every pixel to the nearest target, at most `cap`, `[batch, height, width]`.

    It is the length of the shortest path of steps to the 8 neighbours (1 and 1.4) and of knight's moves
    (2.1969), within 2 % of the Euclidean distance: Borgefors, "Distance transformations in digital images",
    1986. One sweep finds the paths from above and from the left, one those from below and from the right.
    """
    distance = torch.where(targets, 0.0, cap).double()
    return swept(swept(distance, cap).flip(1, 2), cap).flip(1, 2)


def swept(distance: Tensor, cap: float) -> Tensor:
    width = distance.shape[2]
    ramp = torch.arange(width, dtype=torch.float64)
    padded = pad(distance, (2, 2, 2, 0), value=cap)
    knight = [(1, -2, 2.1969), (1, 2, 2.1969), (2, -1, 2.1969), (2, 1, 2.1969)]
    moves = [(1, 0, 1.0), (1, -1, 1.4), (1, 1, 1.4), *knight]
    for row in range(2, padded.shape[1]):
        least = padded[:, row, 2:-2]
        for up, right, length in moves:
            least = torch.minimum(least, padded[:, row - up, 2 + right : 2 + right + width] + length)
        padded[:, row, 2:-2] = (least - ramp).cummin(1).values + ramp
    return padded[:, 2:, 2:-2]


def equalised(levels: Tensor) -> Tensor:
    """Levels `[batch, height, width]` of 0 to 255 spread evenly by their rank; a constant image stays."""
    flat = levels.flatten(1).long()
    counts = torch.zeros(len(flat), 256, dtype=torch.float64).scatter_add_(
        1, flat, torch.ones_like(flat, dtype=torch.float64)
    )
    lowest = counts.gather(1, flat.amin(1, keepdim=True))
    rest = flat.shape[1] - lowest
    ranks = (255 * (counts.cumsum(1) - lowest) / rest.clamp(min=1)).round()
    return torch.where(rest > 0, ranks.gather(1, flat), flat.double()).view_as(levels)
