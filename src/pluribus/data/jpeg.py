"""JPEG compression of image tensors, as libjpeg with its default settings does it.

ITU-T T.81 (1992), Annex K for the quantisation tables; Loeffler, Ligtenberg and Moschytz, "Practical
fast 1-D DCT algorithms with 11 multiplications", ICASSP 1989, for the cosine transform.

Only what loses information is computed: 8 bits, YCbCr with halved chroma (4:2:0), the cosine transform of
8×8 blocks, quantisation, and all of it backwards. Entropy coding is lossless and left out. A pass of
libjpeg's integer transform multiplies by a fixed matrix and shifts, so one product with `BASIS` and one
rounding equals it to the last bit; float64 holds all integers that occur exactly.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

LUMA_TABLE = torch.tensor(
    [
        [16, 11, 10, 16, 24, 40, 51, 61],
        [12, 12, 14, 19, 26, 58, 60, 55],
        [14, 13, 16, 24, 40, 57, 69, 56],
        [14, 17, 22, 29, 51, 87, 80, 62],
        [18, 22, 37, 56, 68, 109, 103, 77],
        [24, 35, 55, 64, 81, 104, 113, 92],
        [49, 64, 78, 87, 103, 121, 120, 101],
        [72, 92, 95, 98, 112, 100, 103, 99],
    ]
)
CHROMA_TABLE = torch.full((8, 8), 99)
CHROMA_TABLE[:4, :4] = torch.tensor([[17, 18, 24, 47], [18, 21, 26, 66], [24, 26, 56, 99], [47, 66, 99, 99]])

# Left half of the cosine basis in 13 bit fixed point; odd rows are mirrored with the opposite sign. Sums of
# rounded constants, hence entries that differ by one where the cosines are equal.
HALF_BASIS = torch.tensor(
    [
        [8192, 8192, 8192, 8192],
        [11363, 9633, 6437, 2260],
        [10703, 4433, -4433, -10703],
        [9633, -2259, -11362, -6436],
        [8192, -8192, -8192, 8192],
        [6437, -11362, 2261, 9633],
        [4433, -10704, 10704, -4433],
        [2260, -6436, 9633, -11363],
    ],
    dtype=torch.float64,
)
BASIS = torch.cat([HALF_BASIS, HALF_BASIS.flip(1) * torch.tensor([1.0, -1.0]).repeat(4)[:, None]], 1)

TO_YCBCR = torch.tensor(
    [[19595, 38470, 7471], [-11059, -21709, 32768], [32768, -27439, -5329]], dtype=torch.float64
)
FROM_YCBCR = torch.tensor([[0, 91881], [-22554, -46802], [116130, 0]], dtype=torch.float64)


def jpeg(images: Tensor, quality: int) -> Tensor:
    """Images as they are after being saved as JPEG and read back.

    Args:
        images: `[batch, channels, height, width]` in [0, 1]; 3 channels are RGB, 1 is grey.
        quality: 1 to 100.

    Returns:
        Multiples of 1/255, of the shape, dtype and device of `images`.
    """
    device = "cpu" if images.device.type == "mps" else images.device  # which has no float64
    levels = (images.to(device, torch.float64) * 255).round()
    if images.shape[1] == 1:
        decoded = coded_planes(levels, scaled_table(LUMA_TABLE, quality))
    else:
        decoded = coded_colours(levels, quality)
    return (decoded / 255).to(images)


def scaled_table(table: Tensor, quality: int) -> Tensor:
    """The quantisation table of a quality."""
    scale = 5000 // quality if quality < 50 else 200 - 2 * quality
    return ((table * scale + 50) // 100).clamp(1, 255).double()


def coded_colours(levels: Tensor, quality: int) -> Tensor:
    """RGB levels `[batch, 3, height, width]` after coding with chroma at half the resolution."""
    height, width = levels.shape[-2:]
    flat = TO_YCBCR.to(levels.device) @ levels.flatten(2)
    flat = shifted(flat + torch.tensor([[0.0], [2**23 - 1.0], [2**23 - 1.0]], device=levels.device), 16)
    planes = flat.view_as(levels)
    luma = coded_planes(planes[:, :1], scaled_table(LUMA_TABLE, quality))
    halves = coded_planes(halved(planes[:, 1:]), scaled_table(CHROMA_TABLE, quality))
    chroma = doubled(halves[..., : (height + 1) // 2, : (width + 1) // 2])[..., :height, :width]
    difference = shifted(FROM_YCBCR.to(levels.device) @ (chroma.flatten(2) - 128), 16).view_as(levels)
    return (luma + difference).clamp(0, 255)


def coded_planes(planes: Tensor, table: Tensor) -> Tensor:
    """Planes of levels after the transform of 8×8 blocks, quantisation by `table`, and back."""
    height, width = planes.shape[-2:]
    padded = pad_edges(planes, -height % 8, -width % 8)
    blocks = padded.reshape(*planes.shape[:2], (height + 7) // 8, 8, (width + 7) // 8, 8).transpose(-2, -3)
    basis, step = BASIS.to(planes.device), table.to(planes.device) * 8
    coefficients = shifted(basis @ shifted((blocks - 128) @ basis.T, 11), 15)
    kept = coefficients.sign() * ((coefficients.abs() + step // 2) / step).floor()
    restored = shifted(shifted(basis.T @ (kept * step / 8), 11) @ basis, 18) + 128
    return restored.clamp(0, 255).transpose(-2, -3).reshape(padded.shape)[..., :height, :width]


def shifted(values: Tensor, bits: int) -> Tensor:
    """Integers divided by 2^bits and rounded to the nearest, halves upwards."""
    return ((values + (1 << bits - 1)) / (1 << bits)).floor()


def pad_edges(planes: Tensor, bottom: int, right: int) -> Tensor:
    return pad(planes, (0, right, 0, bottom), mode="replicate")


def halved(chroma: Tensor) -> Tensor:
    """Means of 2×2 pixels, halves rounded down and up in turn along a row."""
    height, width = chroma.shape[-2:]
    padded = pad_edges(chroma, height % 2, -width % 16)
    sums = padded[..., ::2, ::2] + padded[..., ::2, 1::2] + padded[..., 1::2, ::2] + padded[..., 1::2, 1::2]
    bias = torch.tensor([1.0, 2.0], device=chroma.device).repeat(sums.shape[-1] // 2)
    return ((sums + bias) / 4).floor()


def doubled(chroma: Tensor) -> Tensor:
    """Twice the resolution: 3/4 of the nearer and 1/4 of the farther pixel in either direction."""
    padded = pad(chroma, (1, 1, 1, 1), mode="replicate")
    near = 3 * padded[..., 1:-1, :]
    rows = torch.stack([near + padded[..., :-2, :], near + padded[..., 2:, :]], -2).flatten(-3, -2)
    near = 3 * rows[..., 1:-1]
    left, right = near + rows[..., :-2] + 8, near + rows[..., 2:] + 7
    return (torch.stack([left, right], -1).flatten(-2) / 16).floor()
