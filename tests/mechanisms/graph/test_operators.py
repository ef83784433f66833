"""Operators: the table names operators that exist, and its sets mean what they say."""

import pytest
import torch
from torch import nn

from pluribus.mechanisms.graph import operators
from pluribus.mechanisms.graph.operators import (
    BATCH_RANKS,
    COPIES,
    MOVES,
    ORDER_KEEPING,
    SHAPE_TAKING,
    SPLITTING,
    SYM_SIZE,
    UNTAGGED_POINTWISE,
    ZERO_AT_ZERO,
    has_channels_first,
    has_features_last,
    is_pointwise,
    is_random,
    is_spatial,
    multiplies,
    normalises,
    operator_name,
    reads_shape_alone,
)
from pluribus.mechanisms.network.torch_private import argument_names

aten = torch.ops.aten
SETS = {name: value for name, value in vars(operators).items() if name.isupper() and name != "RESHAPES"}
TABLES = {name: value for name, value in SETS.items() if isinstance(value, frozenset | dict)}


@pytest.mark.parametrize("table", TABLES)
def test_every_name_is_an_operator_of_torch(table):
    assert [name for name in TABLES[table] if not hasattr(aten, name)] == []


def test_operator_name_drops_library_and_overload():
    program = torch.export.export(nn.Linear(3, 2), (torch.zeros(2, 3),))
    assert [operator_name(node) for node in program.graph.nodes if node.op == "call_function"] == ["linear"]


def test_sets_that_are_part_of_others_are():
    assert SHAPE_TAKING < SPLITTING < MOVES
    assert ORDER_KEEPING < MOVES


@pytest.mark.parametrize("name", sorted(ORDER_KEEPING))
def test_order_keeping_operators_keep_order(name):
    x = torch.arange(12.0).view(3, 1, 4)
    arguments = {"unsqueeze": (0,), "squeeze": (), "flatten": ()}.get(name, ([2, 6],))
    assert torch.equal(getattr(aten, name)(x, *arguments).flatten(), x.flatten())


@pytest.mark.parametrize("name", sorted(SHAPE_TAKING))
def test_shape_taking_operators_take_one_shape(name):
    assert len(argument_names(getattr(aten, name).default)) == 2


@pytest.mark.parametrize("name", sorted(ZERO_AT_ZERO - {"to"}))
def test_zero_stays_zero(name):
    assert not getattr(aten, name)(torch.zeros(3)).any()


@pytest.mark.parametrize("name", sorted(UNTAGGED_POINTWISE))
def test_untagged_pointwise_operators_lack_the_tag(name):
    packet = getattr(aten, name)
    assert any(not is_pointwise(getattr(packet, overload)) for overload in packet.overloads())


def test_tags_tell_pointwise_and_random_operators():
    assert is_pointwise(aten.relu.default)
    assert not is_pointwise(aten.linear.default)
    assert is_random(aten.dropout.default)
    assert is_random(aten.bernoulli.default)
    assert not is_random(aten.relu.default)
    assert not is_random(len)


@pytest.mark.parametrize("name", ["relu", "linear", "cat"])
def test_copies_leave_out_operators_that_compute(name):
    assert name not in COPIES


@pytest.mark.parametrize(
    ("tells", "those", "others"),
    [
        (is_spatial, ["max_pool2d", "adaptive_avg_pool1d", "upsample_nearest2d"], ["conv2d", "pad"]),
        (normalises, ["batch_norm", "native_layer_norm", "_fused_rms_norm"], ["linalg_vector_norm", "norm"]),
        (reads_shape_alone, ["zeros_like", "new_full"], ["zeros", "renorm"]),
        (has_channels_first, ["conv2d", "group_norm", "max_pool2d"], ["linear", "layer_norm"]),
        (has_features_last, ["linear", "layer_norm", "embedding", "lstm"], ["conv2d", "relu"]),
        (multiplies, ["addmm", "convolution", "_fft_c2c", "linalg_solve"], ["_thnn_fused_lstm_cell", "add"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_families_are_told_by_name(tells, those, others):
    assert [name for name in those if not tells(name)] == []
    assert [name for name in others if tells(name)] == []


def test_batch_ranks_are_those_of_one_batch_axis():
    assert (BATCH_RANKS["linear"], BATCH_RANKS["conv1d"], BATCH_RANKS["max_pool3d"]) == (2, 3, 5)


def test_sym_size_reads_a_size():
    assert SYM_SIZE(torch.zeros(2, 3), 1) == 3
