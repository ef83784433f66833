"""Check the inputs of a task: one kind of samples in all parts, and finite numbers."""

from torch import Tensor

from pluribus.data.split import CHECKED, Split
from pluribus.errors import InputError
from pluribus.likelihood import MISSING, check_finite


def check_split(part: str, split: Split, train: Split) -> None:
    """Raise for inputs of other names or shapes than those of training, NaN and infinity."""
    if not split.streams and isinstance(split.x, Tensor) and isinstance(train.example(1).x, Tensor):
        check_inputs(f"{part} inputs", split.x, next(iter(train.shapes.values())))
        return
    if not len(split):
        return
    inputs = split.example(CHECKED).inputs
    came, expected = list(split.shapes), list(train.shapes)
    if sorted(came) != sorted(expected):
        raise InputError(
            f"{part} inputs must be {', '.join(expected) or 'one tensor'} as in training, "
            f"got {', '.join(came) or 'one tensor'}. Give all parts samples of one kind."
        )
    for tensor in inputs.tensors():
        if tensor.is_floating_point():
            check_finite(f"{part} inputs", tensor, MISSING)


def check_inputs(name: str, x: Tensor, shape: tuple[int, ...]) -> None:
    """Raise for inputs of another shape than those of training, NaN and infinity."""
    if tuple(x.shape[1:]) != shape:
        raise InputError(
            f"{name} must have the shape {list(shape)} of the training inputs, "
            f"got {list(x.shape[1:])}. Resize them, or choose the same features."
        )
    if x.is_floating_point():
        check_finite(name, x, MISSING)
