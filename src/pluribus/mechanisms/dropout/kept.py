"""Dropout with kept masks: every dropout of a forward pass takes its mask from one seed.

Layers (`nn.Dropout`), functions (`F.dropout`), attention (`scaled_dot_product_attention`,
`multi_head_attention_forward`) and recurrent layers are all intercepted where they call torch, so no
layer has to be replaced and none can be missed.
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

# The limit of SELU for small inputs, −λα (Klambauer et al. 2017): alpha dropout sets dropped units to it.
ALPHA = -1.7580993408473766


def keep_mask(shape: Sequence[int], rate: float, seed: int) -> Tensor:
    """Return 1 for each kept unit and 0 for each dropped one, the same on every device and in every dtype."""
    # Always drawn on the CPU: generators of other devices draw other numbers from the same seed.
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(list(shape), generator=generator, **ALIKE) >= rate).float()


class KeptMasks(TorchFunctionMode):
    """Give all dropouts of one forward pass the masks of one draw.

    Masks follow from the seed and the order of the calls; all samples of a batch get the same. While
    any such mode is on, torch takes none of its fused attention paths, which would skip dropout.

    Args:
        seed: From which the masks follow.
        batch: The number of samples.
        axes: By call, the axis of the samples, or None where there is none; beyond these calls it is the
            first axis of the batch's size.

    Attributes:
        shapes: By call so far, the shape of the values.
        drawn: By call so far, the shape of the mask and the rate.
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
        named = kwargs or {}
        if rule is None:
            return func(*args, **named)
        return rule(self, func, *args, **named)

    def mask(self, values: Tensor, rate: float, features: int | None = None) -> Tensor:
        """Return the next mask, which broadcasts to `values`.

        Args:
            values: What units are dropped from.
            rate: The probability of a unit to be dropped.
            features: How many first axes have a mask of their own; None is all. Whole channels are dropped
                with 2.
        """
        call, shape = len(self.shapes), list(values.shape)
        self.shapes.append(values.shape)
        axis = self.axes[call] if call < len(self.axes) else _first_axis(shape, self.batch)
        # Samples share the mask, and so do positions that share the axis with them.
        if axis is not None:
            shape[axis] = 1
        if features is not None:
            shape[features:] = [1] * (len(shape) - features)
        self.drawn.append((tuple(shape), rate))
        return keep_mask(shape, rate, derived_seed(self.seed, call)).to(values)

    def drop(self, values: Tensor, rate: float, features: int | None = None) -> Tensor:
        """Return `values` with dropped units, the others scaled, Eq. (1); arguments as for `mask`."""
        # With a rate of 1 all units are dropped, and zero must not be divided by zero.
        kept = max(1 - rate, torch.finfo(values.dtype).tiny)
        return values * self.mask(values, rate, features) / kept


class GivenMasks(KeptMasks):
    """Give the dropouts of one forward pass these masks, in the order of the calls."""

    def __init__(self, masks: Sequence[Tensor]) -> None:
        super().__init__(0, 0)
        self.masks = masks

    def mask(self, values: Tensor, rate: float, features: int | None = None) -> Tensor:
        self.shapes.append(values.shape)
        return self.masks[len(self.shapes) - 1].to(values)


def _first_axis(shape: Sequence[int], size: int) -> int | None:
    """Return the first axis of a size; None if there is none."""
    for axis, length in enumerate(shape):
        if length == size:
            return axis
    return None


def _dropout(features: int | None = None) -> Callable[..., Tensor]:
    """Return the rule of `dropout`; with `features`, of the kind that drops whole channels."""

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
    """Return the rule of `alpha_dropout`; with `features`, of the kind that drops whole channels."""

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
        # As torch does: the scale below is infinite.
        if p == 1:
            return input * 0
        keep = masks.mask(input, p, features)
        # Mean and variance stay 0 and 1, as for the activations of SELU.
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
    """Compute `scaled_dot_product_attention`, step by step where it drops weights."""
    # torch's function takes no mask for dropped weights, so it runs only where none are dropped.
    if not dropout_p:
        return func(  # type: ignore[no-any-return]
            query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    # With grouped queries several heads of queries share one of keys and values.
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    if scale is None:
        scale = query.shape[-1] ** -0.5
    scores = query @ key.transpose(-2, -1) * scale
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None:
        scores = scores + _penalty(attn_mask, kept=True, like=scores)
    weights = _without_blind_targets(scores.softmax(-1), scores)
    return masks.drop(weights, dropout_p) @ value


def _without_blind_targets(weights: Tensor, scores: Tensor) -> Tensor:
    """Return attention weights that are zero for targets that see nothing, as torch's fused paths do."""
    # Softmax gives NaN there.
    blind = (scores == -torch.inf).all(-1, keepdim=True)
    return weights.masked_fill(blind, 0)


def _multi_head_attention(
    masks: KeptMasks, func: Any, *args: Any, **kwargs: Any
) -> tuple[Tensor, Tensor | None]:
    """Compute `multi_head_attention_forward`, step by step where it drops weights.

    Tensors are `[sequence, batch, size]`, or without batch.
    """
    call = inspect.signature(func).bind(*args, **kwargs)
    call.apply_defaults()
    given = dict(call.arguments)
    if not given["training"] or not given["dropout_p"]:
        return func(*args, **kwargs)  # type: ignore[no-any-return]
    _check_attention(given)
    heads = given["num_heads"]
    split = [projected.view(*projected.shape[:-1], heads, -1) for projected in _projected(given)]
    query, key, value = (part.movedim(0, -2) for part in split)
    # [batch, heads, targets, sources]
    scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
    scores = _with_attention_masks(scores, given)
    weights = scores.softmax(-1)
    # torch 2.x returns NaN for blind targets where it returns the weights, and zeros on its other path.
    if not given["need_weights"]:
        weights = _without_blind_targets(weights, scores)
    weights = masks.drop(weights, given["dropout_p"])
    joined = (weights @ value).movedim(-2, 0).flatten(-2)
    output = F.linear(joined, given["out_proj_weight"], given["out_proj_bias"])
    if not given["need_weights"]:
        return output, None
    if given["average_attn_weights"]:
        weights = weights.mean(-3)
    return output, weights


def _check_attention(given: dict[str, Any]) -> None:
    """Raise for options of attention that add further keys, which this module does not compute."""
    adds_keys = given["bias_k"] is not None or given["add_zero_attn"]
    if adds_keys or given["static_k"] is not None:
        raise InputError(
            "attention whose dropout is kept must have no bias_k, add_zero_attn or static_k, got one of "
            "them. Exclude the layer."
        )


def _with_attention_masks(scores: Tensor, given: dict[str, Any]) -> Tensor:
    """Return scores `[batch, heads, targets, sources]` with the masks of a call added.

    Args:
        scores: The scores, or those of one sample without the axis of the batch.
        given: The arguments of `multi_head_attention_forward`.
    """
    mask, padding = given["attn_mask"], given["key_padding_mask"]
    if mask is not None:
        # A mask for each sample has samples and heads on one axis.
        if mask.ndim == 3 and scores.ndim == 4:
            mask = mask.view(-1, given["num_heads"], *mask.shape[1:])
        scores = scores + _penalty(mask, kept=False, like=scores)
    if padding is not None:
        # The same for all heads and targets.
        penalty = _penalty(padding, kept=False, like=scores)
        scores = scores + penalty.unsqueeze(-2).unsqueeze(-2)
    return scores


def _projected(given: dict[str, Any]) -> Iterator[Tensor]:
    """Yield queries, keys and values after their projections."""
    names = ("query", "key", "value")
    if given["use_separate_proj_weight"]:
        matrices = [given[f"{name[0]}_proj_weight"] for name in names]
    else:
        matrices = given["in_proj_weight"].chunk(3)
    biases = [None] * 3
    if given["in_proj_bias"] is not None:
        biases = given["in_proj_bias"].chunk(3)
    for name, matrix, bias in zip(names, matrices, biases, strict=True):
        yield F.linear(given[name], matrix, bias)


def _penalty(mask: Tensor, kept: bool, like: Tensor) -> Tensor:
    """Return what a mask adds to attention scores.

    Args:
        mask: Added as it is, if it is not boolean.
        kept: The value of a boolean mask where a source is seen; torch's two functions differ in that.
        like: The scores.
    """
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask != kept, -torch.inf)


def _recurrent(masks: KeptMasks, func: Any, *args: Any) -> Any:
    """Run an RNN layer by layer, with dropout in between.

    Args:
        masks: The masks of this pass.
        func: `torch.lstm` or another one.
        *args: Its arguments by position, as torch's layers pass them.
    """
    # For packed sequences the sizes of batches come second, and all others one place later.
    packed = not isinstance(args[3], bool)
    layers, rate, training = args[5:8] if packed else args[4:7]
    if not training or not rate or layers == 1:
        return func(*args)
    # Dropped units would need the position of each sample in the packed rows.
    if packed:
        raise InputError(
            "an RNN whose dropout is kept must run on padded sequences, got packed ones. Pad them with "
            "torch.nn.utils.rnn.pad_packed_sequence."
        )
    input, state, weights, biases, _, _, _, both_ways, batch_first = args
    ways, per_layer = 1 + both_ways, len(weights) // layers
    finals = []
    for layer in range(layers):
        if layer:
            input = masks.drop(input, rate)
        start = _rows_of_state(state, slice(layer * ways, (layer + 1) * ways))
        own = weights[layer * per_layer : (layer + 1) * per_layer]
        input, *final = func(input, start, own, biases, 1, 0.0, False, both_ways, batch_first)
        finals.append(final)
    joined = [torch.cat(parts) for parts in zip(*finals, strict=True)]
    return input, *joined


def _rows_of_state(state: Any, rows: slice) -> Any:
    """Return the state of some layers: one tensor, or the two of an LSTM."""
    if isinstance(state, tuple):
        return tuple(part[rows] for part in state)
    return state[rows]


def _operator(rule: Callable[..., Tensor], inplace: bool = False) -> Callable[..., Tensor]:
    """Return the rule of an operator of torch itself, which calls its last argument `train`."""

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
    """Run a network as one member, with one draw of all masks, as a context manager.

    Attributes:
        seed: From which the masks follow.
        owners: Names of the modules whose own code calls dropout; they run with `training` set, and
            nothing else does.
        axes: By call of dropout, the axis of the samples.
    """

    seed: int
    owners: tuple[str, ...]
    axes: tuple[int | None, ...] = ()

    @contextmanager
    def __call__(self, module: nn.Module, batch: int, masks: KeptMasks | None = None) -> Iterator[KeptMasks]:
        """Make runs of `module` inside of this context those of one member, or those with other masks."""
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
    """Return, by call of dropout in a forward pass, the axis that grows with one sample more.

    For a network that takes no other batch size, it is the first axis of the example's.
    """
    more = example.map(lambda tensor: torch.cat([tensor, tensor[:1]]))
    with accepting(example):
        few = _dropped_shapes(module, owners, example)
    try:
        many = _dropped_shapes(module, owners, more)
    # The user's code may raise anything for a batch size that it does not take.
    except Exception:
        many = []
    if len(few) != len(many):
        return tuple(_first_axis(shape, example.batch) for shape in few)
    axes = list[int | None]()
    for smaller, larger in zip(few, many, strict=True):
        axes.append(_growing_axis(smaller, larger))
    return tuple(axes)


def _growing_axis(smaller: torch.Size, larger: torch.Size) -> int | None:
    """Return the first axis that is longer in the second shape; None if there is none."""
    for axis, (before, after) in enumerate(zip(smaller, larger, strict=True)):
        if before < after:
            return axis
    return None


def _dropped_shapes(module: nn.Module, owners: tuple[str, ...], inputs: Inputs) -> list[torch.Size]:
    """Return the shapes that the dropouts of a forward pass see, in the order of the calls."""
    inputs = inputs.copy()
    with dry_run(module, training=False), torch.no_grad(), Draw(0, owners)(module, inputs.batch) as masks:
        module(*inputs.args, **inputs.keywords)
    return masks.shapes
