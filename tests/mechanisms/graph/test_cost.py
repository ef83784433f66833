"""Cost: closed forms of every layer kind, peak bytes, what is named, and that nothing is left changed."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn, zeros
from torch.nn.utils.rnn import pack_padded_sequence
from torch.testing import assert_close
from torch.utils.flop_counter import flop_registry, register_flop_formula

from pluribus.errors import InputError
from pluribus.mechanisms.graph.cost import _FORMULAS, Cost, cost
from tests.cases import CASES, Case, case_named, each
from tests.zoo import Residual

B, T = 3, 5  # batch, steps


def cost_of(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Cost:
    """The cost of a module, or of a function as the forward of one."""
    if isinstance(function, nn.Module):
        return cost(function, *args, **kwargs)
    module = nn.Module()
    module.forward = function
    return cost(module, *args, **kwargs)


def multiply_adds(function: Callable[..., Any], *args: Any, **kwargs: Any) -> int:
    """The count, where nothing is left uncounted."""
    found = cost_of(function, *args, **kwargs)
    assert found.uncounted == ()
    return found.multiply_adds


def peak(function: Callable[..., Any], *args: Any) -> int:
    return cost_of(function, *args).peak_activation_bytes


def chain(*widths: int) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise(widths)))


def rows(names: str, table: list[tuple[Any, ...]]) -> pytest.MarkDecorator:
    """Runs a test once for every row of a table; the first column is the row's name."""
    return pytest.mark.parametrize(names, [row[1:] for row in table], ids=[row[0] for row in table])


in_both_modes = pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])

PRODUCTS = [
    ("linear", nn.Linear(4, 6), (zeros(B, 4),), B * 4 * 6),
    ("linear_of_sequences", nn.Linear(4, 6, bias=False), (zeros(B, T, 4),), B * T * 4 * 6),
    ("bilinear", nn.Bilinear(4, 6, 7), (zeros(B, 4), zeros(B, 6)), B * 7 * (4 * 6 + 6)),
    ("matmul_broadcast", torch.matmul, (zeros(2, 1, 3, 4), zeros(5, 4, 6)), 2 * 5 * 3 * 4 * 6),
    ("baddbmm", torch.baddbmm, (zeros(3, 5), zeros(2, 3, 4), zeros(2, 4, 5)), 2 * 3 * 4 * 5),
    ("addbmm", torch.addbmm, (zeros(3, 5), zeros(2, 3, 4), zeros(2, 4, 5)), 2 * 3 * 4 * 5),
    ("addmm_in_place", Tensor.addmm_, (zeros(3, 5), zeros(3, 4), zeros(4, 5)), 3 * 4 * 5),
    ("mm_into_out", lambda a, b: torch.mm(a, b, out=zeros(0)), (zeros(3, 4), zeros(4, 5)), 3 * 4 * 5),
    ("mv", torch.mv, (zeros(3, 4), zeros(4)), 3 * 4),
    ("addmv", torch.addmv, (zeros(3), zeros(3, 4), zeros(4)), 3 * 4),
    ("dot", torch.dot, (zeros(4), zeros(4)), 4),
    ("vdot", torch.vdot, (zeros(4), zeros(4)), 4),
    ("einsum", torch.einsum, ("bij,kj->bik", zeros(2, 3, 4), zeros(5, 4)), 2 * 3 * 4 * 5),
    ("integers", torch._int_mm, [zeros(32, 32, dtype=torch.int8)] * 2, 32**3),
    ("vmapped_mv", torch.vmap(torch.mv), (zeros(7, 3, 4), zeros(7, 4)), 7 * 3 * 4),
    ("inference_mode", torch.inference_mode()(F.linear), (zeros(B, 4), zeros(6, 4)), B * 4 * 6),
    ("mkldnn_linear", torch._C._nn.mkldnn_linear, (zeros(B, 4).to_mkldnn(), zeros(6, 4)), B * 4 * 6),
]


PLAIN = (None, [0, 0], [1, 1], [1, 1])  # no bias, padding, stride, dilation
CONVOLUTIONS = [
    ("strided", nn.Conv2d(4, 6, 3, stride=2, padding=1), (zeros(B, 4, 9, 9),), B * 25 * 6 * 4 * 9),
    ("dilated", nn.Conv1d(4, 6, 3, dilation=2), (zeros(B, 4, 9),), B * 5 * 6 * 4 * 3),
    ("grouped", nn.Conv3d(4, 6, 3, groups=2), (zeros(B, 4, 5, 5, 5),), B * 27 * 6 * 2 * 27),
    ("depthwise", nn.Conv2d(4, 8, 3, groups=4, padding="same"), (zeros(B, 4, 5, 5),), B * 25 * 8 * 9),
    ("unbatched", nn.Conv2d(4, 6, 3), (zeros(4, 5, 5),), 9 * 6 * 4 * 9),
    ("transposed", nn.ConvTranspose2d(4, 6, 3, stride=2), (zeros(B, 4, 5, 5),), B * 25 * 4 * 6 * 9),
    ("transposed_3d", nn.ConvTranspose3d(4, 6, 2, groups=2), (zeros(B, 4, 3, 3, 3),), B * 27 * 4 * 3 * 8),
    ("mkldnn", torch.mkldnn_convolution, (zeros(B, 4, 5, 5), zeros(6, 2, 3, 3), *PLAIN, 2), B * 9 * 6 * 18),
    ("vmapped", torch.vmap(F.conv2d), (zeros(7, B, 4, 5, 5), zeros(7, 6, 4, 3, 3)), 7 * B * 9 * 6 * 4 * 9),
]


@rows("function, inputs, count", PRODUCTS + CONVOLUTIONS)
def test_products_and_convolutions_match_their_closed_forms(function, inputs, count):
    assert multiply_adds(function, *inputs) == count


one_or_two, up_to_three = st.integers(1, 2), st.integers(1, 3)
steps = st.fixed_dictionaries(
    {"kernel_size": up_to_three, "groups": up_to_three, "stride": one_or_two, "dilation": one_or_two}
)


@settings(deadline=None)
@given(up_to_three, one_or_two, one_or_two, steps, st.booleans())
def test_without_padding_the_count_is_what_a_convolution_of_ones_sums_to(
    dimensions, inward, outward, steps, transposed
):
    kind = getattr(nn, f"Conv{'Transpose' * transposed}{dimensions}d")
    layer = kind(inward * steps["groups"], outward * steps["groups"], bias=False, **steps)
    nn.init.ones_(layer.weight)
    x = torch.ones(2, layer.in_channels, *[6] * dimensions)
    assert multiply_adds(layer, x) == round(layer(x).double().sum().item())


QUERY = zeros(B, 4, 5, 8)
ATTENTION = [
    ("longer_keys", (QUERY, zeros(B, 4, 7, 8), zeros(B, 4, 7, 8)), {}, B * 4 * 5 * 7 * 16),
    ("narrow_values", (QUERY, zeros(B, 4, 7, 8), zeros(B, 4, 7, 6)), {}, B * 4 * 5 * 7 * 14),
    ("grouped", (QUERY, *[zeros(B, 2, 7, 8)] * 2), {"enable_gqa": True}, B * 4 * 5 * 7 * 16),
    ("causal", (QUERY, QUERY, QUERY), {"is_causal": True}, B * 4 * 5 * 5 * 16),
    ("scaled", (QUERY, QUERY, QUERY), {"scale": 0.5}, B * 4 * 5 * 5 * 16),
    ("dropout", (QUERY, QUERY, QUERY), {"dropout_p": 0.5}, B * 4 * 5 * 5 * 16),
]


@rows("inputs, named, count", ATTENTION)
def test_attention_counts_scores_and_their_mean_of_the_values(inputs, named, count):
    assert multiply_adds(F.scaled_dot_product_attention, *inputs, **named) == count


def attention_layer(width: int, queries: int, keys: int) -> int:
    """Four projections, scores and means, by hand."""
    return B * (2 * queries * width**2 + 2 * keys * width**2 + 2 * queries * keys * width)


@in_both_modes
@pytest.mark.parametrize("weights", [True, False], ids=["weights", "no_weights"])
def test_multihead_attention_costs_the_same_in_train_and_eval(training, weights):
    layer = nn.MultiheadAttention(8, 2, batch_first=True).train(training)
    for keys in (5, 7):
        x, y = zeros(B, 5, 8), zeros(B, keys, 8)
        assert multiply_adds(layer, x, y, y, need_weights=weights) == attention_layer(8, 5, keys)
        assert multiply_adds(layer, y, y, y, need_weights=weights) == attention_layer(8, keys, keys)


@in_both_modes
def test_transformer_layers_cost_the_same_in_train_and_eval(training):
    settings = {"dim_feedforward": 12, "dropout": 0.1, "batch_first": True}
    encoder = nn.TransformerEncoderLayer(8, 2, **settings)
    decoder = nn.TransformerDecoderLayer(8, 2, **settings).train(training)
    stack = nn.TransformerEncoder(encoder, 2).train(training)
    own, other = zeros(B, 5, 8), zeros(B, 7, 8)
    layer = attention_layer(8, 5, 5) + B * 5 * 2 * 8 * 12
    padding = torch.tensor([[False] * 4 + [True]] * B)
    assert multiply_adds(encoder.train(training), own) == layer
    assert multiply_adds(stack, own, src_key_padding_mask=padding) == 2 * layer
    assert multiply_adds(decoder, own, other) == layer + attention_layer(8, 5, 7)


GATES = {nn.LSTM: 4, nn.GRU: 3, nn.RNN: 1}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@in_both_modes
@pytest.mark.parametrize("kind", GATES, ids=lambda kind: kind.__name__)
def test_recurrent_layers_and_cells_match_their_closed_forms(kind, training, dtype):
    layer = kind(4, 6, num_layers=2, bidirectional=True, batch_first=True).to(dtype).train(training)
    each_step = GATES[kind] * 6 * ((4 + 6) + (12 + 6))  # the second layer reads both directions
    assert multiply_adds(layer, zeros(B, T, 4, dtype=dtype)) == B * T * 2 * each_step
    assert multiply_adds(layer, zeros(T, 4, dtype=dtype)) == T * 2 * each_step
    cell = getattr(nn, f"{kind.__name__}Cell")(4, 6, dtype=dtype)
    assert multiply_adds(cell, zeros(B, 4, dtype=dtype)) == B * GATES[kind] * 6 * (4 + 6)


def test_a_projected_lstm_counts_its_projections_on_the_cpu_and_in_cudnn():
    layer = nn.LSTM(4, 6, num_layers=2, proj_size=3).double()
    each_step = (4 * 6 * (4 + 3) + 6 * 3) + (4 * 6 * (3 + 3) + 6 * 3)
    x = zeros(T, B, 4).double()
    assert multiply_adds(layer, x) == T * B * each_step
    assert _FORMULAS["aten._cudnn_rnn"](None, x, list(layer.parameters())) == T * B * each_step


def test_a_packed_sequence_counts_its_steps_and_no_padding():
    layer, lengths = nn.LSTM(4, 6), [5, 4, 2]
    packed = pack_padded_sequence(zeros(T, B, 4), lengths)
    assert multiply_adds(layer, packed) == sum(lengths) * 4 * 6 * (4 + 6)


FREE = [
    ("embedding", nn.Embedding(5, 6), torch.tensor([1, 2])),
    ("batch_norm", nn.BatchNorm1d(4), zeros(B, 4)),
    ("cosine", lambda x: F.cosine_similarity(x, x).softmax(0), zeros(B, 4)),
    ("rrelu", nn.RReLU(), zeros(B, 4)),
    ("pooling", nn.AvgPool2d(2), zeros(B, 4, 6, 6)),
    ("resizing", nn.Upsample(scale_factor=2, mode="bilinear"), zeros(B, 4, 6, 6)),
    ("element_wise", lambda x: x * x + x.std(), zeros(B, 4)),
    ("outer", lambda x: torch.outer(x, x).addr(x, x), zeros(4)),
    ("profiled", torch.profiler.record_function("name")(torch.relu), zeros(B, 4)),
]


@rows("function, x", FREE)
def test_what_the_convention_leaves_out_counts_nothing_and_is_not_named(function, x):
    assert multiply_adds(function, x) == 0


@each(CASES, few=True)
def test_every_model_of_the_zoo_is_counted_whole_in_train_and_eval(case: Case):
    model, inputs = case.model(), case.inputs()
    for training in (True, False):
        found = cost(model.train(training), inputs)
        assert found.uncounted == ()
        assert min(found.multiply_adds, found.parameters, found.peak_activation_bytes) > 0


def test_a_residual_network_matches_the_sum_over_its_layers_by_hand():
    found = cost(case_named("residual_cnn").model(), zeros(B, 2, 8, 8, dtype=torch.float64))
    assert found.multiply_adds == B * (64 * 8 * 2 * 9 + 2 * 64 * 8 * 8 * 9 + 8 * 3)
    assert found.parameters == (8 * 2 * 9) + 2 * 8 + 2 * (8 * 8 * 9 + 8) + 2 * 8 + (8 * 3 + 3)


def test_a_hugging_face_vit_matches_its_formula():
    layers, tokens, width, hidden, patch, classes = 2, 1 + 4, 8, 12, 3 * 4 * 4, 3
    layer = 4 * tokens * width**2 + 2 * tokens**2 * width + 2 * tokens * width * hidden
    whole = (tokens - 1) * patch * width + layers * layer + width * classes
    found = cost(case_named("hf_vit").model(), pixel_values=zeros(B, 3, 8, 8, dtype=torch.float64))
    assert found.multiply_adds == B * whole


def test_a_vmapped_stack_of_networks_costs_its_number_times_one():
    models = [case_named("mlp").model() for _ in range(4)]
    parameters, _ = torch.func.stack_module_state(models)
    x = zeros(B, 6, dtype=torch.float64)
    stacked = torch.vmap(lambda p: torch.func.functional_call(models[0], p, (x,)))
    assert multiply_adds(lambda: stacked(parameters)) == 4 * multiply_adds(models[0], x)


def test_tied_weights_and_shared_modules_weigh_once_and_cost_every_run():
    layer, tied = nn.Linear(4, 4), nn.Linear(4, 4, bias=False)
    tied.weight = layer.weight
    found = cost(nn.Sequential(layer, layer, tied), zeros(B, 4))
    assert (found.parameters, found.weight_bytes) == (20, 80)
    assert found.multiply_adds == 3 * B * 16


def test_frozen_parameters_count_and_each_storage_of_buffers_weighs_once():
    module, shared = nn.BatchNorm1d(4).requires_grad_(False), zeros(10)
    module.register_buffer("left", shared[:4])
    module.register_buffer("right", shared[4:])
    found = cost(module, zeros(B, 4))
    assert found.parameters == 2 * 4
    # scale, shift, mean and variance; an integer counter; one storage under two names
    assert found.weight_bytes == 4 * (4 * 4) + 8 + 40


@settings(deadline=None)
@given(widths=st.lists(st.integers(1, 30), min_size=3, max_size=8))
def test_the_peak_of_a_chain_is_its_widest_pair_of_neighbours_without_the_input(widths):
    widest = max(a + b for a, b in pairwise(widths[1:]))
    assert peak(chain(*widths), zeros(B, widths[0])) == 4 * B * widest


def test_a_residual_keeps_its_skip_alive():
    block = nn.Sequential(nn.Linear(4, 6), Residual(*chain(6, 10, 6)))
    assert peak(block, zeros(B, 4)) == 4 * B * (6 + 10 + 6)


def test_views_and_in_place_operators_create_nothing_and_keep_the_storage_alive():
    assert peak(lambda x: x.exp()[:1].exp(), zeros(100)) == 4 * (100 + 1)
    assert peak(lambda x: x.view(-1)[1:].unsqueeze(0).relu_(), zeros(B, 4)) == 0
    assert peak(nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Flatten()), zeros(B, 4)) == 4 * B * 6


def test_values_made_from_literals_or_resized_weigh_what_they_end_with():
    assert peak(lambda: torch.tensor([1.0, 2.0]) + 1) == 4 * (2 + 2)
    assert peak(lambda a: torch.mm(a, a, out=torch.empty(0)), zeros(3, 3)) == 4 * 9


def test_float64_doubles_the_bytes_and_nothing_else():
    single, double = cost(chain(4, 6, 3), zeros(B, 4)), cost(chain(4, 6, 3).double(), zeros(B, 4).double())
    assert list(double.ratio_to(single).values()) == [1.0, 1.0, 2.0, 2.0]


def test_the_meta_device_costs_the_same_without_computing():
    model, x = case_named("residual_cnn").model(), zeros(B, 2, 8, 8, dtype=torch.float64)
    assert cost(model, x) == cost(model.to("meta"), x.to("meta"))


@torch.library.custom_op("pluribus_tests::square", mutates_args=())
def square(x: Tensor) -> Tensor:
    return x @ x


SQUARE, GRID = zeros(4, 4), zeros(1, 3, 3, 2)
UNCOUNTED = [
    ("fft", torch.fft.rfft2, (SQUARE,), "aten._fft_r2c"),
    ("cdist", torch.cdist, (SQUARE, SQUARE), "aten._cdist_forward"),
    ("grid", F.grid_sample, (zeros(1, 2, 4, 4), GRID, "nearest", "zeros", True), "aten.grid_sampler_2d"),
    ("inverse", torch.linalg.inv, (torch.eye(3),), "aten.linalg_inv_ex"),
    ("custom", square, (SQUARE,), "pluribus_tests.square"),
    ("sparse", torch.sparse.mm, (SQUARE.to_sparse(), SQUARE), "aten._sparse_addmm"),
    ("complex", torch.mm, (SQUARE.cfloat(), SQUARE.cfloat()), "aten.mm (complex, sparse or nested)"),
    ("two", lambda x: torch.fft.fft(square(x)), (SQUARE,), "aten._fft_r2c, pluribus_tests.square"),
]


@rows("function, inputs, names", UNCOUNTED)
def test_an_operator_without_a_formula_is_named(function, inputs, names):
    found = cost_of(function, *inputs)
    assert (found.multiply_adds, ", ".join(found.uncounted)) == (0, names)
    assert str(found).endswith("\nnot counted: " + names)


def test_a_formula_registered_with_torch_is_used():
    operator = torch.ops.pluribus_tests.square
    register_flop_formula(operator)(lambda shape, **_: 2 * shape[0] ** 3)
    try:
        assert multiply_adds(square, zeros(4, 4)) == 4**3
    finally:
        del flop_registry[operator]


class Forgetful(nn.Module):
    """Changes all it can: statistics, weights, attributes, tables, random states."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.calls, self.generator = nn.BatchNorm1d(4), 0, torch.Generator().manual_seed(0)
        self.embedding = nn.Embedding(3, 4, max_norm=0.1)
        self.register_buffer("mean", zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.mean = self.mean + 1
        self.register_buffer("late", zeros(1))
        self.eval() if self.training else self.train()
        noise = torch.rand(4) + torch.rand(4, generator=self.generator)
        F.batch_norm(x, self.norm.running_mean, self.norm.running_var, training=True)
        if x.isnan().any():
            raise RuntimeError("x must be finite")
        return x + noise + self.embedding(torch.tensor([1]))


@in_both_modes
@pytest.mark.parametrize("value", [1.0, math.nan], ids=["runs", "fails"])
def test_the_module_its_mode_and_random_states_are_the_same_afterwards(training, value):
    module = Forgetful().train(training)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    buffer, table, seed = module.mean, module._buffers, torch.get_rng_state()
    own, fused = module.generator.get_state(), torch.backends.mha.get_fastpath_enabled()
    with pytest.raises(RuntimeError, match="x must be finite") if math.isnan(value) else nullcontext():
        cost(module, torch.full((B, 4), value))
    assert_close(dict(module.state_dict()), before, rtol=0, atol=0)
    assert module.mean is buffer
    assert module._buffers is table
    assert (module.calls, module.training, module.norm.training) == (0, training, training)
    assert_close(torch.get_rng_state(), seed)
    assert_close(module.generator.get_state(), own)
    assert torch.backends.mha.get_fastpath_enabled() == fused


def test_other_threads_find_no_empty_table():
    class Whole(dict[str, Any]):
        def clear(self) -> None:
            raise AssertionError("another thread may run the module")

    module = nn.Linear(3, 2)
    module.__dict__["_parameters"] = Whole(module._parameters)
    assert cost(module, torch.zeros(4, 3)).multiply_adds == 24


def test_a_loss_computed_before_can_still_be_differentiated_after():
    module, x = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), zeros(B, 4)
    loss = module(x).sum()
    cost(module, x)
    loss.backward()
    assert_close(module[1].bias.grad, torch.full((2,), float(B)))


def test_a_single_tuple_or_dict_is_spread_into_arguments():
    two, keywords = case_named("two_inputs"), case_named("keywords")
    assert cost(two.model(), two.inputs()) == cost(two.model(), *two.inputs())
    assert cost(keywords.model(), keywords.inputs()) == cost(keywords.model(), **keywords.inputs())


def test_a_compiled_module_costs_what_the_plain_one_costs():
    module, x = nn.Sequential(nn.Linear(4, 6), nn.ReLU()), zeros(B, 4)
    assert cost(torch.compile(module, fullgraph=True), x) == cost(module, x)


def test_what_is_no_module_is_refused_with_a_remedy():
    with pytest.raises(InputError, match=r"expected a torch\.nn\.Module, got function\. Put a function"):
        cost(lambda x: x, zeros(1))  # type: ignore[arg-type]


def test_the_table_shows_exact_numbers_and_units():
    assert str(Cost(999, 1_814_073_344, 46_798_904, 4_096, ("aten._fft_r2c",))).splitlines() == [
        "parameters                         999  999",
        "multiply-adds            1,814,073,344  1.81 G",
        "weights                     46,798,904  46.80 MB",
        "peak activations                 4,096  4.10 kB",
        "not counted: aten._fft_r2c",
    ]


def test_a_ratio_to_nothing_is_not_a_number():
    ratios = Cost(6, 8, 4, 2).ratio_to(Cost(3, 0, 4, 8))
    assert list(ratios) == ["parameters", "multiply_adds", "weight_bytes", "peak_activation_bytes"]
    assert_close(list(ratios.values()), [2.0, math.nan, 1.0, 0.25], equal_nan=True)
