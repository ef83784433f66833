"""Parameters that differ from sample to sample of one batch.

Such a tensor stands where a layer has one parameter for all samples, and replaces torch's functions there.
Norms normalise the batch as ever, then scale and shift each sample by its own numbers; linear layers and
convolutions use each sample's own weights.

    y_n = γ_n ∘ norm(x)_n + β_n,    y_n = W_n x_n + β_n    for sample n
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pluribus.errors import InputError
from pluribus.mechanisms.members.skeleton import Skeleton, blank
from pluribus.mechanisms.network.dry_run import dry_run
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.outputs import select_output
from pluribus.mechanisms.network.torch_private import without_subclass_rules

# torch's functions take these by position too, and a transposed convolution in another order.
CONVOLUTION = ("stride", "padding", "dilation", "groups")
TRANSPOSED = ("stride", "padding", "output_padding", "groups", "dilation")
"""Settings of convolutions in the order in which torch takes them."""


class PerSample(Tensor):
    """Hold a parameter `[...]` for each sample, `[batch, ...]`; inputs must have samples on their first axis.

    Its `shape` and `ndim` are those of one sample, as layers check them.
    """

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        # Attributes, as its shape and its precision, come as functions too.
        if getattr(func, "__name__", "") == "__get__":
            found = super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]
            if func == Tensor.ndim.__get__:  # type: ignore[attr-defined]
                return found - 1
            if isinstance(found, torch.Size):
                return found[1:]
            return found
        # A function without a rule would take samples for channels, and be silently wrong.
        if func not in RULES:
            name = getattr(func, "__name__", str(func))
            raise InputError(f"{name} takes one parameter for all samples, got one for each of them.")
        with without_subclass_rules():
            return RULES[func](*args, **kwargs or {})


def why_apart(
    network: Network, first: Mapping[str, Tensor], second: Mapping[str, Tensor], mixed: Mapping[str, Tensor]
) -> str:
    """Return why samples of different rows may not share a batch; empty where they may.

    It is tried on the example in eval mode.

    Args:
        network: The code, and the example.
        first: The tensors of a row.
        second: Those of another.
        mixed: Tensors with which the first half of the samples is of the first row, the others of the second.
    """
    example, skeleton = network.example, Skeleton(blank(network.module))
    half = example.batch // 2

    def outputs(tensors: Mapping[str, Tensor]) -> Tensor:
        module, inputs = skeleton.fill(tensors), example.copy()
        with dry_run(module, training=False), torch.no_grad():
            return select_output(module(*inputs.args, **inputs.keywords), network.output)

    expected = torch.cat([outputs(first)[:half], outputs(second)[half:]])
    try:
        found = outputs(mixed)
    except (RuntimeError, IndexError, ValueError, TypeError, InputError) as error:
        return str(error).splitlines()[0]
    # Sums come in another order, and round differently; mixed samples differ by far more.
    alike = found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-3, atol=1e-5)
    if alike:
        return ""
    return "samples have no axis of their own"


def _placed(parameter: Tensor, values: Tensor, first: bool) -> Tensor:
    """Return a parameter reshaped so that it broadcasts to the values.

    Args:
        parameter: One for all samples, or one for each.
        values: `[batch, ...]`.
        first: Whether the parameter's axes come right after the samples, as channels do; else they are last.
    """
    each = isinstance(parameter, PerSample)
    sample, own = parameter.shape[:each] or (1,), parameter.shape[each:]
    # Code may have given a parameter an axis for the samples, which is there already.
    while len(own) >= values.ndim and own[0] == 1:
        own = own[1:]
    ones = [1] * (values.ndim - 1 - len(own))
    if first:
        return parameter.reshape([*sample, *own, *ones])
    return parameter.reshape([*sample, *ones, *own])


def _affine(values: Tensor, weight: Tensor | None, bias: Tensor | None, first: bool) -> Tensor:
    """Return values scaled and shifted; the axes of the parameters lie as for `_placed`."""
    if weight is not None:
        values = values * _placed(weight, values, first)
    if bias is not None:
        values = values + _placed(bias, values, first)
    return values


def _norm(
    norm: Callable[..., Tensor],
    first: bool,
    input: Tensor,
    *settings: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    **named: Any,
) -> Tensor:
    """Run a norm without its parameters, then scale and shift each sample by its own."""
    return _affine(norm(input, *settings, **named), weight, bias, first)


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Run a linear layer with the weights, or the bias, of each sample."""
    if isinstance(weight, PerSample):
        values = torch.einsum("n...i,noi->n...o", input, weight)
    else:
        values = F.linear(input, weight)
    return _affine(values, None, bias, False)


def _convolution(
    convolve: Callable[..., Tensor],
    order: Sequence[str],
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *settings: Any,
    **named: Any,
) -> Tensor:
    """Run a convolution with the weights, or the bias, of each sample.

    Args:
        convolve: The function of torch.
        order: The names of the settings in the order of their positions.
        input: `[batch, channels, ...]`.
        weight: One for all samples, or one for each.
        bias: Likewise.
        *settings: By position.
        **named: By name.
    """
    named |= dict(zip(order, settings, strict=False))
    if not isinstance(weight, PerSample):
        return _affine(convolve(input, weight, None, **named), None, bias, True)
    # Each sample becomes a group of channels of one sample, as torch has no batch of weights.
    batch, joined = len(input), input.reshape(1, -1, *input.shape[2:])
    named["groups"] = batch * named.get("groups", 1)
    values = convolve(joined, weight.flatten(0, 1), None, **named)
    return _affine(values.reshape(batch, -1, *values.shape[2:]), None, bias, True)


def _reshaped(parameter: Tensor, *shape: Any) -> Tensor:
    """Reshape the parameter of each sample."""
    # torch takes sizes one by one, or as a list.
    one_list = len(shape) == 1 and not isinstance(shape[0], int)
    sizes = shape[0] if one_list else shape
    return parameter.reshape(len(parameter), *sizes).as_subclass(PerSample)


def _indexed(parameter: Tensor, index: Any) -> Tensor:
    """Index the parameter of each sample."""
    each = index if isinstance(index, tuple) else (index,)
    return parameter[(slice(None), *each)].as_subclass(PerSample)


def _same(function: Callable[..., Tensor], parameter: Tensor, *settings: Any, **named: Any) -> Tensor:
    """Run a function that treats every number alike, as a cast."""
    found = function(parameter, *settings, **named)
    # Plain values come here too, as in `values.type_as(parameter)`.
    if isinstance(parameter, PerSample):
        return found.as_subclass(PerSample)
    return found


def _elementwise(combine: Callable[[Any, Any], Tensor], left: Any, right: Any) -> Tensor:
    """Combine a parameter of each sample with values, a number or another parameter."""
    values = None
    for one in (left, right):
        if isinstance(one, Tensor) and one.ndim and type(one) is not PerSample:
            values = one
            break
    # Numbers and parameters have no axis of samples beside the parameter's own.
    if values is None:
        return combine(left, right).as_subclass(PerSample)
    if isinstance(left, PerSample):
        left = _placed(left, values, False)
    if isinstance(right, PerSample):
        right = _placed(right, values, False)
    return combine(left, right)


RULES: dict[Callable[..., Any], Callable[..., Tensor]] = {
    F.batch_norm: partial(_norm, F.batch_norm, True),
    F.group_norm: partial(_norm, F.group_norm, True),
    F.layer_norm: partial(_norm, F.layer_norm, False),
    F.rms_norm: partial(_norm, F.rms_norm, False),
    F.instance_norm: partial(_norm, F.instance_norm, True),
    F.linear: _linear,
    **{one: partial(_convolution, one, CONVOLUTION) for one in (F.conv1d, F.conv2d, F.conv3d)},
    **{
        one: partial(_convolution, one, TRANSPOSED)
        for one in (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
    },
    **{cast: partial(_same, cast) for cast in (Tensor.float, Tensor.double, Tensor.to, Tensor.type_as)},
    **dict.fromkeys((Tensor.view, Tensor.reshape), _reshaped),
    Tensor.__getitem__: _indexed,
    **dict.fromkeys((Tensor.mul, Tensor.__mul__, Tensor.__rmul__), partial(_elementwise, torch.mul)),
    **dict.fromkeys((Tensor.add, Tensor.__add__, Tensor.__radd__), partial(_elementwise, torch.add)),
}
"""By function of torch, the function that computes the same with parameters of samples."""
