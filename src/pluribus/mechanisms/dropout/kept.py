"""Dropout with kept masks: every dropout of a forward pass takes its mask from one seed.

Layers (`nn.Dropout`), functions (`F.dropout`), attention (`scaled_dot_product_attention`,
`multi_head_attention_forward`) and recurrent layers are all met where they call torch, so nothing
has to be replaced and nothing can be skipped.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import disable_saved_tensors_hooks
from torch.overrides import TorchFunctionMode

from pluribus.errors import InputError
from pluribus.mechanisms.network.dry_run import ALIKE, accepting, derived_seed, dry_run
from pluribus.mechanisms.network.inputs import Inputs

ALPHA = -1.7580993408473766  # of SELU: the value that alpha dropout gives to dropped units


def keep_mask(shape: Sequence[int], rate: float, seed: int) -> Tensor:
    """1 for a kept unit and 0 for a dropped one, the same on every device and for every dtype."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(list(shape), generator=generator, **ALIKE) >= rate).float()


class KeptMasks(TorchFunctionMode):
    """Gives the dropouts of one forward pass the masks of one draw, whoever calls them.

    Masks follow from the seed and the order of the calls; all samples of a batch get the same. While
    any such mode is on, torch takes none of its fused attention paths, which would skip dropout.

    Args:
        seed: From which the masks follow.
        batch: The number of samples.
        axes: Of each call, the axis of the samples, or None where there is none; beyond these calls it
            is the first axis of the batch's size.

    Attributes:
        shapes: Of each call so far, the shape of what was dropped from.
        drawn: Of each call so far, the shape of the mask and the rate.
    """

    def __init__(self, seed: int, batch: int, axes: Sequence[int | None] = ()) -> None:
        super().__init__()
        self.seed, self.batch, self.axes = seed, batch, axes
        self.shapes: list[torch.Size] = []
        self.drawn: list[tuple[tuple[int, ...], float]] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        rule = RULES.get(func)
        return rule(self, func, *args, **(kwargs or {})) if rule else func(*args, **(kwargs or {}))

    def mask(self, values: Tensor, rate: float, features: int | None = None) -> Tensor:
        """The next mask, broadcast to `values`; with `features`, one for each entry of the first axes."""
        call, shape = len(self.shapes), list(values.shape)
        self.shapes.append(values.shape)
        guess = shape.index(self.batch) if self.batch in shape else None
        axis = self.axes[call] if call < len(self.axes) else guess
        if axis is not None:
            shape[axis] = 1  # positions that share the axis with samples share the mask too
        if features is not None:
            shape[features:] = [1] * (len(shape) - features)
        self.drawn.append((tuple(shape), rate))
        return keep_mask(shape, rate, derived_seed(self.seed, call)).to(values)

    def drop(self, values: Tensor, rate: float, features: int | None = None) -> Tensor:
        """Eq. (1): `values` with dropped units, the others scaled."""
        return values * self.mask(values, rate, features) / max(1 - rate, torch.finfo(values.dtype).tiny)


class GivenMasks(KeptMasks):
    """Gives the dropouts of one forward pass these masks, in the order of the calls."""

    def __init__(self, masks: Sequence[Tensor]) -> None:
        super().__init__(0, 0)
        self.masks = masks

    def mask(self, values: Tensor, rate: float, features: int | None = None) -> Tensor:
        self.shapes.append(values.shape)
        return self.masks[len(self.shapes) - 1].to(values)


def _dropout(features: int | None = None) -> Callable[..., Tensor]:
    def rule(
        masks: KeptMasks,
        func: Any,
        input: Tensor,
        p: float = 0.5,
        training: bool = True,
        inplace: bool = False,
    ) -> Tensor:
        if not training or not p:
            return input
        dropped = masks.drop(input, p, features)
        return input.copy_(dropped) if inplace else dropped

    return rule


def _alpha_dropout(features: int | None = None) -> Callable[..., Tensor]:
    def rule(
        masks: KeptMasks,
        func: Any,
        input: Tensor,
        p: float = 0.5,
        training: bool = False,
        inplace: bool = False,
    ) -> Tensor:
        if not training or not p:
            return input
        if p == 1:
            return input * 0
        keep = masks.mask(input, p, features)
        scale = ((1 - p) * (1 + p * ALPHA**2)) ** -0.5
        dropped = scale * (input * keep + ALPHA * (1 - keep) - ALPHA * p)
        return input.copy_(dropped) if inplace else dropped

    return rule


def _attention(
    masks: KeptMasks,
    func: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`scaled_dot_product_attention`, written out where it drops weights: it takes no mask for that."""
    if not dropout_p:
        return func(  # type: ignore[no-any-return]
            query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if enable_gqa:
        key, value = (t.repeat_interleave(query.shape[-3] // t.shape[-3], -3) for t in (key, value))
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None:
        scores = scores + _penalty(attn_mask, kept=True, like=scores)
    # A target that sees nothing attends to nothing: torch gives zeros where softmax gives NaN.
    weights = scores.softmax(-1).masked_fill((scores == -torch.inf).all(-1, keepdim=True), 0)
    return masks.drop(weights, dropout_p) @ value


def _multi_head_attention(
    masks: KeptMasks, func: Any, *args: Any, **kwargs: Any
) -> tuple[Tensor, Tensor | None]:
    """`multi_head_attention_forward`, likewise; tensors are `[sequence, batch, size]`, or without batch."""
    call = inspect.signature(func).bind(*args, **kwargs)
    call.apply_defaults()
    given = dict(call.arguments)
    if not given["training"] or not given["dropout_p"]:
        return func(*args, **kwargs)  # type: ignore[no-any-return]
    if given["bias_k"] is not None or given["add_zero_attn"] or given["static_k"] is not None:
        raise InputError(
            "dropout in attention with bias_k or add_zero_attn cannot be kept; exclude the layer."
        )
    heads = given["num_heads"]
    query, key, value = (t.view(*t.shape[:-1], heads, -1).movedim(0, -2) for t in _projected(given))
    scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5  # [batch, heads, targets, sources]
    if given["attn_mask"] is not None:
        mask = given["attn_mask"]
        mask = mask.view(-1, heads, *mask.shape[1:]) if mask.ndim == 3 and scores.ndim == 4 else mask
        scores = scores + _penalty(mask, kept=False, like=scores)
    if given["key_padding_mask"] is not None:
        padding = _penalty(given["key_padding_mask"], kept=False, like=scores)
        scores = scores + padding.unsqueeze(-2).unsqueeze(-2)
    weights = scores.softmax(-1)
    if not given["need_weights"]:  # as torch has it: zeros by one path, NaN by the other
        weights = weights.masked_fill((scores == -torch.inf).all(-1, keepdim=True), 0)
    weights = masks.drop(weights, given["dropout_p"])
    joined = (weights @ value).movedim(-2, 0).flatten(-2)
    output = F.linear(joined, given["out_proj_weight"], given["out_proj_bias"])
    if not given["need_weights"]:
        return output, None
    return output, weights.mean(-3) if given["average_attn_weights"] else weights


def _projected(given: dict[str, Any]) -> Iterator[Tensor]:
    """Queries, keys and values after their projections."""
    names = ("query", "key", "value")
    if given["use_separate_proj_weight"]:
        matrices = [given[f"{name[0]}_proj_weight"] for name in names]
    else:
        matrices = given["in_proj_weight"].chunk(3)
    biases = [None] * 3 if given["in_proj_bias"] is None else given["in_proj_bias"].chunk(3)
    for name, matrix, bias in zip(names, matrices, biases, strict=True):
        yield F.linear(given[name], matrix, bias)


def _penalty(mask: Tensor, kept: bool, like: Tensor) -> Tensor:
    """What a mask adds to attention scores; a boolean one marks what is kept, or what is not."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask != kept, -torch.inf)


def _recurrent(masks: KeptMasks, func: Any, *args: Any) -> Any:
    """An RNN layer by layer, dropout in between."""
    packed = not isinstance(args[3], bool)  # then the batch sizes come second
    layers, rate, training = args[5:8] if packed else args[4:7]
    if not training or not rate or layers == 1:
        return func(*args)
    if packed:
        raise InputError("dropout inside an RNN on packed sequences cannot be kept; pass padded sequences.")
    input, state, weights, biases, _, _, _, both_ways, batch_first = args
    ways, per_layer, finals = 1 + both_ways, len(weights) // layers, []
    for layer in range(layers):
        if layer:
            input = masks.drop(input, rate)
        rows = slice(layer * ways, (layer + 1) * ways)
        start = tuple(part[rows] for part in state) if isinstance(state, tuple) else state[rows]
        own = weights[layer * per_layer : (layer + 1) * per_layer]
        input, *final = func(input, start, own, biases, 1, 0.0, False, both_ways, batch_first)
        finals.append(final)
    return input, *(torch.cat(parts) for parts in zip(*finals, strict=True))


def _operator(rule: Callable[..., Tensor], inplace: bool = False) -> Callable[..., Tensor]:
    """The rule of an operator of torch itself, which calls its last argument `train`."""

    def operator(masks: KeptMasks, func: Any, input: Tensor, p: float, train: bool) -> Tensor:
        return rule(masks, func, input, p, train, inplace)

    return operator


RULES: dict[Any, Callable[..., Any]] = {
    F.dropout: _dropout(),
    F.dropout1d: _dropout(2),
    F.dropout2d: _dropout(2),
    F.dropout3d: _dropout(2),
    F.alpha_dropout: _alpha_dropout(),
    F.feature_alpha_dropout: _alpha_dropout(2),
    torch.dropout: _operator(_dropout()),
    torch.dropout_: _operator(_dropout(), inplace=True),
    torch.feature_dropout: _operator(_dropout(2)),
    torch.feature_dropout_: _operator(_dropout(2), inplace=True),
    torch.alpha_dropout: _operator(_alpha_dropout()),
    torch.alpha_dropout_: _operator(_alpha_dropout(), inplace=True),
    torch.feature_alpha_dropout: _operator(_alpha_dropout(2)),
    torch.feature_alpha_dropout_: _operator(_alpha_dropout(2), inplace=True),
    F.scaled_dot_product_attention: _attention,
    F.multi_head_attention_forward: _multi_head_attention,
    torch.lstm: _recurrent,
    torch.gru: _recurrent,
    torch.rnn_tanh: _recurrent,
    torch.rnn_relu: _recurrent,
}


@dataclass(frozen=True)
class Draw:
    """One draw of all masks: what surrounds a run of the network as one member.

    Attributes:
        seed: From which the masks follow.
        owners: Names of the modules whose own code calls dropout; they run with `training` set, and
            nothing else does.
        axes: Of each call of dropout, the axis of the samples.
    """

    seed: int
    owners: tuple[str, ...]
    axes: tuple[int | None, ...] = ()

    @contextmanager
    def __call__(self, module: nn.Module, batch: int, masks: KeptMasks | None = None) -> Iterator[KeptMasks]:
        """Runs of `module` inside of this context are those of one member, or those with other masks."""
        masks = masks or KeptMasks(self.seed, batch, self.axes)
        layers = [module.get_submodule(owner) for owner in self.owners]
        before = [layer.training for layer in layers]
        try:
            for layer in layers:
                layer.training = True
            # Checkpointing would run dropout again during backward, when these masks are gone.
            message = "kept dropout masks exclude gradient checkpointing; use torch.no_grad()"
            with disable_saved_tensors_hooks(message), masks:
                yield masks
        finally:
            for layer, training in zip(layers, before, strict=True):
                layer.training = training


def batch_axes(module: nn.Module, owners: tuple[str, ...], example: Inputs) -> tuple[int | None, ...]:
    """Of each call of dropout in a forward pass, the axis that grows with one sample more.

    For a network that takes no other batch size, the first axis of the example's.
    """
    more = example.map(lambda tensor: torch.cat([tensor, tensor[:1]]))
    with accepting(example):
        few = _dropped_shapes(module, owners, example)
    try:
        many = _dropped_shapes(module, owners, more)
    except Exception:  # a batch size that the user's code does not take
        many = []
    if len(few) != len(many):
        return tuple(shape.index(example.batch) if example.batch in shape else None for shape in few)
    return tuple(
        next((axis for axis, sizes in enumerate(zip(a, b, strict=True)) if sizes[0] < sizes[1]), None)
        for a, b in zip(few, many, strict=True)
    )


def _dropped_shapes(module: nn.Module, owners: tuple[str, ...], inputs: Inputs) -> list[torch.Size]:
    inputs = inputs.copy()
    with dry_run(module, training=False), torch.no_grad(), Draw(0, owners)(module, inputs.batch) as masks:
        module(*inputs.args, **inputs.keywords)
    return masks.shapes
