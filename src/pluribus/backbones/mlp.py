"""Fully connected networks, plain and residual.

The residual one is that of Ferianc, Fan and Rodrigues, "SAE: Single Architecture Ensemble Neural
Networks", BMVC 2024: a linear layer, then blocks x + ReLU(BatchNorm(Linear(x))) of one width, so
that an exit can be attached after each block.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from torch import nn

from pluribus.backbones.codes import Codes
from pluribus.backbones.parts import Residual, counts, drop, wholes
from pluribus.ranges import check

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU, "tanh": nn.Tanh}


def mlp(
    inputs: int,
    outputs: int,
    hidden: Sequence[int] = (50, 50),
    activation: str = "relu",
    batch_norm: bool = False,
    dropout: float = 0.0,
    codes: Mapping[int, int] | None = None,
) -> nn.Sequential:
    """Build hidden layers of Linear, BatchNorm (optional), activation and dropout, and a Linear output.

    Args:
        inputs: Numbers per sample, at least 1; the input is flattened, `[batch, ...]` to `[batch, inputs]`.
        outputs: Numbers predicted per sample, `[batch, outputs]`, at least 1.
        hidden: Width of each hidden layer, each at least 1; none gives a linear model.
        activation: `relu`, `gelu`, `silu` or `tanh`.
        batch_norm: Normalise each hidden layer before its activation.
        dropout: Rate after each hidden layer, in [0, 1).
        codes: Number of categories of each input that is a code, by its place: `task.codes` of a table. Each
            category becomes a learnt vector.

    Example:
        >>> mlp(4, 2, hidden=(8,))(torch.zeros(3, 4)).shape
        torch.Size([3, 2])
    """
    counts(inputs=inputs, outputs=outputs)
    wholes("hidden", hidden)
    check("activation", activation, choices=ACTIVATIONS)
    check("batch_norm", batch_norm, choices=(False, True))
    check("dropout", dropout, float, at_least=0, below=1)

    def layer(before: int, width: int) -> nn.Sequential:
        norm = {"norm": nn.BatchNorm1d(width)} if batch_norm else {}
        rest = {"activation": ACTIVATIONS[activation](), "dropout": drop(dropout)}
        return nn.Sequential(OrderedDict({"linear": nn.Linear(before, width), **norm, **rest}))

    # Named layers, so that users can pick them by pattern: `hidden.0.linear`, `output`.
    first, width = _first(inputs, codes)
    widths = (width, *hidden)
    return nn.Sequential(
        OrderedDict(
            **first,
            hidden=nn.Sequential(*(layer(*pair) for pair in pairwise(widths))),
            output=nn.Linear(widths[-1], outputs),
        )
    )


def _first(inputs: int, codes: Mapping[int, int] | None) -> tuple[dict[str, nn.Module], int]:
    """Return the layer that the inputs enter by, with its name, and how many numbers it gives."""
    if not codes:
        return {"flatten": nn.Flatten()}, inputs
    layer = Codes(inputs, codes)
    return {"codes": layer}, layer.width


def residual_mlp(
    inputs: int, outputs: int, width: int = 128, depth: int = 5, codes: Mapping[int, int] | None = None
) -> nn.Sequential:
    """Build Linear, ReLU, `depth` blocks x + ReLU(BatchNorm(Linear(x))), and a Linear to the outputs.

    Args:
        inputs: Numbers per sample, at least 1; the input is flattened, `[batch, ...]` to `[batch, inputs]`.
        outputs: Numbers predicted per sample, `[batch, outputs]`, at least 1.
        width: Width of all hidden layers, at least 1.
        depth: Number of residual blocks, `blocks.0` and on, at least 1.
        codes: Number of categories of each input that is a code, by its place, as of `mlp`.

    Example:
        >>> residual_mlp(784, 2)(torch.zeros(3, 1, 28, 28)).shape
        torch.Size([3, 2])
    """
    counts(inputs=inputs, outputs=outputs, width=width, depth=depth)

    def block() -> Residual:
        return Residual(
            OrderedDict(linear=nn.Linear(width, width), norm=nn.BatchNorm1d(width), relu=nn.ReLU())
        )

    first, entering = _first(inputs, codes)
    return nn.Sequential(
        OrderedDict(
            **first,
            input=nn.Linear(entering, width),
            relu=nn.ReLU(),
            blocks=nn.Sequential(*(block() for _ in range(depth))),
            output=nn.Linear(width, outputs),
        )
    )
