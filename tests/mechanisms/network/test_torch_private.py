"""torch's private names: what is expected of each, so that a new version of torch fails here, by name."""

import re
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import pluribus
from pluribus.mechanisms.network import torch_private
from pluribus.mechanisms.network.torch_private import (
    HOOK_TABLES,
    MKLDNN_LAYOUT,
    BatchNorm,
    Convolution,
    Dropout,
    FakeTensorMode,
    NormBase,
    TorchDispatchMode,
    argument_names,
    buffer_table,
    child_table,
    flat_weights,
    forward_pre_hooks,
    has_hooks,
    has_storage,
    is_free_size,
    is_run_again,
    kept_random_state,
    mark_free_batch,
    module_stack,
    module_tables,
    operator_packet,
    own_tensors,
    parameter_table,
    schema_of,
    size_in_example,
    tree_flatten,
    tree_leaves,
    tree_unflatten,
    with_generator,
    without_dispatch_modes,
    without_lines,
    without_subclass_rules,
    write_count,
)

PRIVATE = re.compile(
    r"torch\._(?!_)|from torch\.[\w.]*\b_\w+ import|from torch[\w.]* import _|nn\.modules\.\w+\._"
    r"|\._(parameters|buffers|modules|flat_weights|version|schema|overloadpacket|forward_pre_hooks)\b(?!\()"
    r"|\"_(parameters|buffers|modules|flat_weights|schema|overloadpacket|forward_hooks)\""
    r"|\.node\.(hint|maybe_as_int)|nn_module_stack|torch\.fx\.experimental"
)


def exported(module, batch=4):
    shapes = ({0: torch.export.Dim.AUTO},)
    return torch.export.export(module, (torch.zeros(batch, 3),), dynamic_shapes=shapes)


def calls(program):
    return [node for node in program.graph.nodes if node.op == "call_function"]


def test_no_other_file_uses_private_names():
    source = Path(pluribus.__file__).parent
    offenders = []
    for file in sorted(source.rglob("*.py")):
        if file == Path(torch_private.__file__):
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if PRIVATE.search(line):
                offenders.append(f"{file.relative_to(source)}:{number}: {line.strip()}")
    assert offenders == []


@pytest.mark.parametrize(
    ("base", "layers"),
    [
        (
            Convolution,
            [nn.Conv1d(1, 1, 1), nn.Conv2d(1, 1, 1), nn.Conv3d(1, 1, 1), nn.ConvTranspose2d(1, 1, 1)],
        ),
        (NormBase, [nn.BatchNorm1d(2), nn.SyncBatchNorm(2), nn.InstanceNorm2d(2)]),
        (BatchNorm, [nn.BatchNorm1d(2), nn.BatchNorm2d(2), nn.BatchNorm3d(2), nn.SyncBatchNorm(2)]),
        (Dropout, [nn.Dropout(), nn.Dropout2d(), nn.AlphaDropout(), nn.FeatureAlphaDropout()]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_base_class_covers_its_layers(base, layers):
    assert [type(layer) for layer in layers if not isinstance(layer, base)] == []


def test_base_classes_leave_out_other_layers():
    assert not isinstance(nn.InstanceNorm1d(2), BatchNorm)
    assert not isinstance(nn.LayerNorm(2), NormBase)
    assert not isinstance(nn.Linear(1, 1), Convolution)


def test_convolution_has_the_attributes_that_are_read():
    layer = nn.ConvTranspose2d(4, 6, (3, 5), groups=2)
    assert isinstance(layer, Convolution)
    assert (layer.in_channels, layer.out_channels, layer.groups, layer.transposed) == (4, 6, 2, True)
    assert layer.kernel_size == (3, 5)


def test_trees_flatten_depth_first_and_return():
    tree = ({"a": 1, "b": [2, 3]}, (4,))
    leaves, structure = tree_flatten(tree)
    assert leaves == tree_leaves(tree) == [1, 2, 3, 4]
    assert tree_unflatten(leaves, structure) == tree
    assert str(structure) == str(tree_flatten(({"a": 5, "b": [6, 7]}, (8,)))[1])


def test_dispatch_mode_sees_operators_unless_disabled():
    class Recorder(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.seen = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.append(str(operator_packet(func)))
            return func(*args, **kwargs or {})

    with Recorder() as recorder:
        torch.ones(2).exp()
        before = list(recorder.seen)
        with without_dispatch_modes():
            torch.ones(2).tanh()
    assert "aten.exp" in before
    assert recorder.seen == before


def test_subclass_rules_are_off_inside_the_context():
    class Loud(Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            raise RuntimeError("rule")

    loud = torch.ones(2).as_subclass(Loud)
    with pytest.raises(RuntimeError, match="rule"):
        loud.exp()
    with without_subclass_rules():
        assert loud.exp().shape == (2,)


def test_fake_tensors_have_shapes_and_no_values():
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = mode.from_tensor(torch.ones(2, 3))
        assert (fake @ torch.ones(3, 5)).shape == (2, 5)


def test_mkldnn_layout_is_that_of_packed_tensors():
    if not torch.backends.mkldnn.is_available():
        pytest.skip("torch without oneDNN")
    assert torch.ones(2).to_mkldnn().layout == MKLDNN_LAYOUT
    assert torch.ones(2).layout != MKLDNN_LAYOUT


def test_tables_are_those_the_module_reads():
    layer = nn.BatchNorm1d(3)
    parameter_table(layer)["weight"] = nn.Parameter(torch.full((3,), 2.0))
    buffer_table(layer)["running_mean"] = torch.ones(3)
    assert layer.weight.tolist() == [2, 2, 2]
    assert layer.running_mean.tolist() == [1, 1, 1]
    assert len(own_tensors(layer)) == 5
    assert own_tensors(nn.Linear(2, 2, bias=False))[0].shape == (2, 2)
    assert parameter_table(nn.Linear(2, 2, bias=False))["bias"] is None


def test_module_tables_are_parameters_buffers_and_children():
    layer = nn.BatchNorm1d(3)
    assert module_tables(layer) == [parameter_table(layer), buffer_table(layer), child_table(layer)]


def test_child_table_has_both_keys_of_a_child_held_twice():
    layer = nn.Linear(2, 2)
    assert list(child_table(nn.Sequential(layer, layer))) == ["0", "1"]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layer_reads_its_flat_weights(kind):
    layer, x = kind(2, 3, batch_first=True), torch.ones(1, 4, 2)
    weights = flat_weights(layer)
    assert {id(one) for one in weights} == {id(one) for one in layer.parameters()}
    for place, weight in enumerate(weights):
        weights[place] = torch.zeros_like(weight)
    assert not layer(x)[0].any()
    assert flat_weights(nn.Linear(1, 1)) == []


def test_hooks_are_seen():
    assert not has_hooks(nn.Linear(1, 1))
    assert forward_pre_hooks(nn.Linear(1, 1)) == []
    for register in ("forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook"):
        layer = nn.Linear(1, 1)
        getattr(layer, f"register_{register}")(lambda *_: None)
        assert has_hooks(layer), register
    assert len(HOOK_TABLES) == 4
    layer = nn.Linear(1, 1)
    layer.register_forward_pre_hook(print)
    assert forward_pre_hooks(layer) == [print]


def test_write_count_grows_with_every_write():
    tensor = torch.zeros(2)
    before = write_count(tensor)
    tensor.add_(1)
    assert write_count(tensor) == before + 1
    with torch.inference_mode():
        assert write_count(torch.zeros(2)) == -1


def test_dense_tensors_have_storage_and_sparse_ones_none():
    assert has_storage(torch.ones(2))
    assert not has_storage(torch.ones(2).to_sparse())


@pytest.mark.parametrize("reentrant", [True, False])
def test_only_reentrant_checkpointing_runs_again_without_gradients(reentrant):
    x = torch.ones(2, requires_grad=True)
    assert is_run_again(checkpoint(torch.exp, x * 2, use_reentrant=reentrant) + 1) is reentrant
    assert not is_run_again(x.exp())
    assert not is_run_again(torch.ones(2))


def test_schema_names_arguments_and_writes():
    assert argument_names(torch.ops.aten.linear.default) == ["input", "weight", "bias"]
    assert schema_of(torch.ops.aten.add_.Tensor).is_mutable
    assert not schema_of(torch.ops.aten.add.Tensor).is_mutable
    assert schema_of(len) is None
    assert argument_names(len) == []


def test_operator_packet_drops_the_overload():
    assert str(operator_packet(torch.ops.aten.add.Tensor)) == "aten.add"
    assert operator_packet(len) is len


@pytest.mark.parametrize(
    "operator", [torch.ops.aten.bernoulli.default, torch.ops.aten.bernoulli.p, torch.ops.aten.rand.default]
)
def test_random_operators_have_a_form_with_a_generator(operator):
    assert "generator" in argument_names(with_generator(operator))


def test_operators_without_such_a_form_have_none():
    assert with_generator(torch.ops.aten.native_dropout.default) is None


def test_export_keeps_the_random_state_through_a_name_that_can_be_replaced():
    from torch._functorch import aot_autograd

    before = aot_autograd.preserve_rng_state
    assert before.__name__ == "preserve_rng_state"
    with kept_random_state():
        assert aot_autograd.preserve_rng_state is nullcontext
    assert aot_autograd.preserve_rng_state is before


def test_symbolic_sizes_know_the_example():
    program = exported(nn.Linear(3, 2))
    rows, columns = calls(program)[-1].meta["val"].shape
    assert (size_in_example(rows), size_in_example(columns)) == (4, 2)
    assert is_free_size(rows)
    assert not is_free_size(columns)
    assert not is_free_size(3)


def test_module_stack_ends_with_the_layer_and_its_class():
    node = calls(exported(nn.Sequential(nn.Sequential(nn.Linear(3, 2)))))[-1]
    name, kind = module_stack(node)[-1]
    assert name == "0.0"
    assert kind.endswith("Linear")
    assert module_stack(torch.fx.Graph().placeholder("x")) == []


@pytest.mark.slow
def test_code_for_a_free_batch_is_compiled_once():
    compiled = []

    def backend(module, example):
        compiled.append(module)
        return module.forward

    function, x = torch.compile(torch.exp, backend=backend), torch.ones(3, 4)
    mark_free_batch(x)
    for tensor in (x, torch.ones(7, 4), torch.ones(2, 4)):
        assert function(tensor).shape == tensor.shape
    assert len(compiled) == 1


def test_exports_can_leave_out_the_lines_of_code():
    before = torch.fx.config.do_not_emit_stack_traces
    with without_lines():
        quiet = exported(nn.Linear(3, 2))
    assert torch.fx.config.do_not_emit_stack_traces == before
    assert not any(node.meta.get("stack_trace") for node in calls(quiet))
    assert all(node.meta.get("nn_module_stack") for node in calls(quiet))
    assert any(node.meta.get("stack_trace") for node in calls(exported(nn.Linear(3, 2))))
