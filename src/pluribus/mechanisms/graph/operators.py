"""Operators: the one table of torch's operators, and what each does to the entries of its input.

Graph passes ask this table and nothing else: following widths, cutting masked channels, folding norms,
stacking members, finding cut points, counting costs. Names are those of `aten` without the overload:
`linear` for `aten.linear.default`. An operator that is in no set is unknown, and every pass must then do
what is slow and right: refuse, or compute the value whole.
"""

import re
from typing import Any

import torch
from torch.fx import Node

from pluribus.mechanisms.network.torch_private import schema_of


def names(*lines: str) -> frozenset[str]:
    """Return the words of some lines."""
    return frozenset(name for line in lines for name in line.split())


def operator_name(node: Node) -> str:
    """Return the name of a node's operator without its library and overload."""
    return str(node.target).removeprefix("aten.").split(".")[0]


# --- Products with weights: they sum over the channels of their input. ---

CONVOLUTIONS = names("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d")
MATRIX_PRODUCTS = names("matmul mm bmm mv dot vdot inner")
# Their first argument is added to the product of the other two.
ADDED_PRODUCTS = names("addmm baddbmm addmv")
RECURRENT = names("lstm gru rnn_tanh rnn_relu")

# --- Norms, and what treats every channel, axis 1, by numbers of its own. ---

# The second is what `run_decompositions` makes of the first; it returns three values.
BATCH_NORMS = names("batch_norm _native_batch_norm_legit_no_training")
CHANNEL_NORMS = names("batch_norm instance_norm group_norm prelu")
LAST_AXIS_NORMS = names("layer_norm rms_norm")
# A channel of the result depends on the same channel of the input alone, unlike in a group norm.
CHANNELWISE = BATCH_NORMS | names("instance_norm prelu")

# --- Operators that move entries and change none. ---

# They may split one axis into several, or join several: heads come and go in these.
SPLITTING = names("view reshape _unsafe_view unflatten view_as")
MOVES = SPLITTING | names(
    "flatten permute transpose t numpy_T mT matrix_H adjoint squeeze unsqueeze slice select narrow split",
    "split_with_sizes chunk tensor_split unbind expand expand_as repeat repeat_interleave roll flip movedim",
    "swapaxes pixel_shuffle pixel_unshuffle channel_shuffle unfold",
)
# All entries stay, in the same order; those above that take a second tensor or a list of sizes to split
# an axis into are left out, because no pass that asks for this set reads such arguments.
ORDER_KEEPING = names("view reshape _unsafe_view flatten unsqueeze squeeze")
# These take the whole new shape as an argument.
SHAPE_TAKING = names("view reshape _unsafe_view")
CONCATENATIONS = names("cat concat concatenate")
PADS = names("constant_pad_nd pad")
PICKS = names("index index_select gather")
# They refuse, or read differently, a tensor whose channels are last in memory.
MEMORY_ORDER = names("view _unsafe_view view_as_real view_as_complex as_strided")

# --- Operators with a result of the shape of their input. ---

# Every entry depends on all others along one axis, and the axis stays.
MIXES = names("softmax log_softmax cumsum")
DROPOUTS = names("dropout feature_dropout alpha_dropout feature_alpha_dropout")
COPIES = (
    MIXES
    | DROPOUTS
    | names(
        "to contiguous clone alias detach detach_ dropout_ _to_copy type_as",
        "lift_fresh_copy zeros_like ones_like full_like rand_like randn_like empty_like bernoulli bernoulli_",
    )
)
# torch does not tag these as pointwise (2.13).
UNTAGGED_POINTWISE = names("__and__ __or__ __xor__ masked_fill masked_fill_")
# Zero stays zero: a masked channel is still masked after them.
ZERO_AT_ZERO = names("relu gelu silu tanh elu leaky_relu contiguous clone to")

# --- Operators that sum over axes, or create tensors. ---

REDUCTIONS = names(
    "mean sum amax amin max min var std norm linalg_vector_norm logsumexp prod any all argmax argmin"
)
# Those that take a list of axes and return one tensor.
PLAIN_REDUCTIONS = names("mean sum amax amin var std")
CREATIONS = names("zeros ones full arange rand randn empty new_zeros new_ones new_full new_empty eye")

# --- Families, by how the names begin or by what they contain. ---

# They see all positions of a channel, `[batch, channel, ...]`, alike.
_SPATIAL = ("avg_pool", "max_pool", "adaptive_", "upsample_", "lp_pool", "reflection_pad", "replication_pad")
# Whichever variant of a norm the export chose: `native_layer_norm`, `_fused_rms_norm`.
_NORM = re.compile(r"(batch|layer|group|instance|rms)_norm")
# They read a shape and no numbers, so that no numbers flow through them.
_READS_SHAPE = re.compile(r"^(zeros|ones|full|empty|rand|randn)_like|^new_")
_CHANNELS_FIRST = re.compile(r"conv|batch_norm|group_norm|instance_norm|pool|upsample")
_FEATURES_LAST = re.compile(r"linear|layer_norm|rms_norm|embedding|lstm|gru|rnn_")
# They multiply in ways that a count of multiply-adds includes. Fused cells (`_thnn`) follow a product that
# is counted; resizing is left out like pooling.
_MULTIPLIES = re.compile(
    r"^(?!_thnn|_?upsample)\w*(mm(_|$)|matmul|conv(?!ert)|linear|attention|transformer|lstm|gru|rnn"
    r"|fft|[cp]dist_|euclidean_dist|grid_sampler|affine_grid|linalg_(?!check|cross|diagonal|vector_norm|_powsum)"
    r"|cholesky|(?<!re)solve|svd|geqrf|orgqr|ormqr|_lu_with)"
)

# --- Operators that treat every entry of axis 0 alike. ---

# By operator, the number of axes that the first argument must have; members are then stacked along axis 0.
# Norms and `linear` need at least so many, the others exactly so many: without a batch, axis 0 is channels.
BATCH_RANKS = dict.fromkeys(("linear", "batch_norm", "group_norm", "layer_norm"), 2)
for _sides in (1, 2, 3):
    for _family in (
        "conv",
        "conv_transpose",
        "max_pool",
        "avg_pool",
        "adaptive_avg_pool",
        "upsample_nearest",
    ):
        BATCH_RANKS[f"{_family}{_sides}d"] = _sides + 2

# Give the numbers of their argument another shape. Overloads count here: `view.dtype` reinterprets bytes.
RESHAPES: frozenset[Any] = frozenset(
    (
        torch.ops.aten.view.default,
        torch.ops.aten._unsafe_view.default,
        torch.ops.aten.reshape.default,
        torch.ops.aten.flatten.using_ints,
    )
)

# Reads one size of a tensor; sizes are the same for all members.
SYM_SIZE: Any = torch.ops.aten.sym_size.int


def is_spatial(name: str) -> bool:
    """Return whether an operator pools, resizes or mirrors the positions of each channel."""
    return name.startswith(_SPATIAL)


def normalises(name: str) -> bool:
    """Return whether an operator is a batch, layer, group, instance or RMS norm."""
    return _NORM.search(name) is not None


def reads_shape_alone(name: str) -> bool:
    """Return whether an operator reads the shape of its input and no numbers, as `zeros_like` does."""
    return _READS_SHAPE.search(name) is not None


def has_channels_first(name: str) -> bool:
    """Return whether the features of an operator's result lie on axis 1."""
    return _CHANNELS_FIRST.search(name) is not None


def has_features_last(name: str) -> bool:
    """Return whether the features of an operator's result lie on the last axis."""
    return _FEATURES_LAST.search(name) is not None


def multiplies(name: str) -> bool:
    """Return whether a count of multiply-adds includes an operator of `aten`."""
    return _MULTIPLIES.match(name) is not None


def is_pointwise(target: Any) -> bool:
    """Return whether torch tags an operator as one that treats every entry by itself."""
    return torch.Tag.pointwise in getattr(target, "tags", ())


def is_random(target: Any) -> bool:
    """Return whether torch tags an operator as one that draws random numbers; dropout is, even when off."""
    return torch.Tag.nondeterministic_seeded in getattr(target, "tags", ())


# --- Operators that a file may name. ---

# Beside the sets above: what graphs of networks use besides, none of which reads files or draws numbers.
_OTHERS = names(
    "linear bilinear embedding embedding_bag _embedding_bag stack sym_size sym_numel sym_stride",
    "scaled_dot_product_attention where einsum baddbmm native_layer_norm native_group_norm glu cumprod",
    "_native_batch_norm_legit_no_training topk sort argsort tril triu diagonal diag_embed masked_select",
    "scatter scatter_add index_put one_hot meshgrid linspace broadcast_to cosine_similarity",
    "pairwise_distance rms_norm group_norm instance_norm hardtanh tile unsafe_split count_nonzero mish",
    "outer cross kron addcmul addcdiv lerp nan_to_num grid_sampler",
    "lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell",
    "affine_grid_generator im2col col2im unfold std_mean var_mean aminmax logaddexp cdist heaviside",
    # torch does not tag these as pointwise (2.13), or knows them by a second name.
    "hardswish log_sigmoid floor_divide isclose isin absolute negative add subtract multiply divide fix",
    "greater greater_equal less less_equal not_equal fill clip square degrees radians isreal",
    "arccos arccosh arcsin arcsinh arctan arctan2 arctanh",
    # Parts of a tensor that are exchanged.
    "slice_scatter select_scatter diagonal_scatter scatter_reduce index_add index_fill index_reduce",
    "masked_scatter take take_along_dim copy",
    # Frequencies and complex numbers.
    "fft_fft fft_fft2 fft_fftn fft_ifft fft_ifft2 fft_ifftn fft_rfft fft_rfft2 fft_rfftn fft_irfft",
    "fft_irfft2 fft_irfftn fft_hfft fft_ihfft fft_fftshift fft_ifftshift fft_fftfreq fft_rfftfreq stft istft",
    "hann_window hamming_window view_as_complex view_as_real real imag complex polar conj _conj",
    "resolve_conj resolve_neg",
    # Linear algebra.
    "addbmm addr trace inverse det logdet matrix_power matrix_exp tensordot chain_matmul cholesky diag",
    "linalg_inv linalg_solve linalg_solve_triangular linalg_cholesky linalg_qr linalg_svd linalg_eigh",
    "linalg_det linalg_slogdet linalg_pinv linalg_matrix_exp linalg_matrix_power linalg_multi_dot",
    "linalg_norm linalg_matrix_norm linalg_vecdot linalg_cross linalg_matmul linalg_diagonal frobenius_norm",
    "_weight_norm pdist dist",
    # Tensors that are joined, cut or turned.
    "hstack vstack dstack column_stack row_stack atleast_1d atleast_2d atleast_3d block_diag diagflat",
    "hsplit vsplit dsplit broadcast_tensors moveaxis swapdims rot90 fliplr flipud ravel reshape_as mH",
    "tril_indices triu_indices native_channel_shuffle unsafe_chunk unsafe_split_with_sizes",
    # Sums and orders along an axis.
    "cummax cummin logcumsumexp median nanmedian kthvalue nanmean nansum bucketize searchsorted msort diff",
    "histc",
    "_upsample_bilinear2d_aa _upsample_bicubic2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d",
    "_upsample_nearest_exact3d",
)
_NAMED = (
    (CONVOLUTIONS | MATRIX_PRODUCTS | ADDED_PRODUCTS | RECURRENT)
    | (CHANNEL_NORMS | LAST_AXIS_NORMS | BATCH_NORMS | MOVES | CONCATENATIONS | PADS | PICKS | COPIES)
    | (UNTAGGED_POINTWISE | REDUCTIONS | CREATIONS | _OTHERS)
)
_OVERLOAD = re.compile(r"aten\.([A-Za-z0-9_]+)\.([A-Za-z0-9_]+)")


def find_operator(name: str) -> Any:
    """Return the operator of a full name, `aten.linear.default`; None unless files may name it.

    They may name operators of this table and pointwise ones, if these write nowhere and draw no numbers.
    """
    found = _OVERLOAD.fullmatch(name)
    if found is None:
        return None
    base, overload = found.groups()
    target = getattr(getattr(torch.ops.aten, base, None), overload, None)
    schema = schema_of(target)
    # An attribute of another kind is no operator, and has no schema.
    if schema is None or schema.is_mutable:
        return None
    if base not in _NAMED and not is_spatial(base) and not is_pointwise(target):
        return None
    # Dropout has the tag of random operators even where it is off, and so has all that may contain it.
    may_be_off = DROPOUTS | RECURRENT | {"scaled_dot_product_attention"}
    return None if is_random(target) and base not in may_be_off else target
