"""The graph: every operation with its layer and its line, whatever the batch, and no trace left behind."""

import functools
import inspect

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from pluribus.errors import InputError, UnreadableError
from pluribus.mechanisms.graph import export as graph_module
from pluribus.mechanisms.graph.export import read_graph
from pluribus.mechanisms.network.dry_run import dry_run
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.network import Network
from tests import zoo
from tests.cases import BATCH, case_named, each, logits, run

recurrent = pytest.mark.filterwarnings("ignore:The tensor attributes self:UserWarning")


AWKWARD = [
    case_named(name)
    for name in (
        "batch_norm_mlp",
        "repeated_child",
        "tied_linears",
        "tied_embedding",
        "attention",
        "keywords",
        "frozen_trunk",
        "lstm",
        "spectral_norm",
        "unused_layer",
        "mini_vit",
    )
]


@functools.cache
def graph_of(name, training=True):
    case = case_named(name)
    return read_graph(case.model(), Inputs.of(case.inputs()), training)


def operators(graph):
    return [operation.operator for operation in graph.operations()]


def layers(graph, operator):
    return [operation.layer for operation in graph.operations() if operation.operator == operator]


def line_of(function, text):
    """`file:line` where a function says `text`."""
    source, start = inspect.getsourcelines(function)
    return f"{inspect.getsourcefile(function)}:{start + next(i for i, s in enumerate(source) if text in s)}"


@pytest.mark.parametrize(
    ("name", "operator", "expected"),
    [
        ("mlp", "linear", ["0", "2", "4"]),
        ("root_layer", "linear", [""]),
        ("shared_module", "linear", ["first", "middle", "middle", "head"]),
        ("residual_cnn", "conv2d", ["0", "3.0", "3.3"]),
        ("functional_dropout", "dropout", [""]),
        ("dropout_layers", "feature_dropout", ["2"]),
        ("dropout_layers", "dropout", ["7"]),
        ("mini_vit", "scaled_dot_product_attention", [""]),
        ("attention", "scaled_dot_product_attention", ["attention"]),
        ("lstm", "lstm", ["0"]),
        ("keywords", "linear", ["age", "head"]),
        ("two_inputs", "linear", ["left", "right", "head"]),
        ("module_dict", "linear", ["branches.left", "branches.right", "head"]),
        ("weight_norm", "conv2d", ["0"]),
    ],
)
@recurrent
def test_operations_know_their_layer(name, operator, expected):
    assert layers(graph_of(name), operator) == expected


class Twice(nn.Module):
    """A block and, in it, a layer that run twice."""

    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5))

    def forward(self, x):
        return self.block(self.block(x))


def test_a_block_that_runs_twice_has_one_name():
    graph = read_graph(Twice(), Inputs.of(torch.zeros(4, 6)), training=True)
    assert layers(graph, "linear") == ["block.0", "block.0"]
    assert layers(graph, "dropout") == ["block.1", "block.1"]


def test_operations_know_their_source_line():
    (operation,) = [one for one in graph_of("functional_dropout").operations() if one.operator == "dropout"]
    assert operation.source == line_of(zoo.FunctionalDropout.forward, "F.dropout")
    (operation,) = [one for one in graph_of("shared_module").operations() if one.layer == "first"]
    assert operation.source == line_of(zoo.SharedModule.forward, "self.first")


def test_no_source_line_is_one_of_ours():
    sources = {operation.source for operation in graph_of("dropout_layers").operations()}
    assert not [source for source in sources if source.startswith(graph_module.__file__)]


def test_arguments_are_read_by_their_names():
    (dropout,) = [one for one in graph_of("functional_dropout").operations() if one.operator == "dropout"]
    assert dropout.argument("p") == 0.2
    assert dropout.argument("train") is True
    assert dropout.argument("nothing", "default") == "default"
    (attention,) = [
        one for one in graph_of("mini_vit").operations() if one.operator.startswith("scaled_dot_product")
    ]
    assert attention.argument("dropout_p") == 0.1
    assert attention.argument("is_causal") is False


@recurrent
@each(AWKWARD)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.sampled(3)
def test_reading_leaves_no_trace(case, training):
    model, x = case.model(), case.inputs()
    model.train(not training)
    modes = [module.training for module in model.modules()]
    before, random = {name: t.clone() for name, t in model.state_dict().items()}, torch.get_rng_state()
    graph = read_graph(model, Inputs.of(x), training)
    assert graph.training is training
    assert [module.training for module in model.modules()] == modes
    assert_close(dict(model.state_dict()), before, rtol=0, atol=0)
    assert_close(torch.get_rng_state(), random)
    assert_close(logits(run(model.eval(), x)), logits(run(case.model().eval(), x)), rtol=0, atol=0)


@recurrent
@each(AWKWARD)
def test_all_parameters_of_the_data_flow_are_used(case):
    names = {name for name, _ in case.model().named_parameters()}
    assert graph_of(case.name).used() == names - set(case.unused)


@pytest.mark.parametrize("name", ["batch_norm_mlp", "two_inputs", "keywords", "mini_vit"])
def test_the_batch_is_dynamic(name):
    case = case_named(name)
    program = graph_of(name, training=False).program.module()
    part = Inputs.of(case.inputs()).take(slice(0, 3))
    expected = case.model().eval()(*part.args, **part.keywords)
    assert len(logits(expected)) == 3 != BATCH
    assert_close(logits(program(part.args, part.keywords)), logits(expected))


def test_a_graph_for_the_example_alone_has_the_same_operators():
    network = Network(zoo.batch_norm_mlp())
    free, fixed = network.graph(training=False), network.graph(training=False, any_batch=False)
    assert free is not fixed
    assert fixed is network.graph(training=False, any_batch=False)
    assert [one.operator for one in free.operations()] == [one.operator for one in fixed.operations()]
    for graph, is_free in ((free, True), (fixed, False)):
        values = [node.meta["val"] for node in graph.program.graph.nodes if "val" in node.meta]
        sizes = [size for value in values for size in value.shape]
        assert any(isinstance(size, torch.SymInt) for size in sizes) == is_free


def test_train_and_eval_graphs_differ_where_the_code_does():
    network = Network(case_named("mini_vit").model(), case_named("mini_vit").inputs())
    rates = [
        operation.argument("dropout_p")
        for training in (True, False)
        for operation in network.graph(training).operations()
        if operation.operator == "scaled_dot_product_attention"
    ]
    assert rates == [0.1, 0.0]
    assert network.graph(True) is network.graph(True)


def test_inputs_may_be_positional_and_named():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, x, *, scale, shift=None):
            return self.layer(x) * scale + shift

    inputs = Inputs((torch.zeros(4, 6),), {"scale": 2.0, "shift": torch.zeros(4, 3)})
    assert operators(read_graph(Scaled(), inputs, False)) == ["linear", "mul", "add"]


class Fussy(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return F.relu(x)
        raise ValueError("nothing")


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_a_network_that_cannot_be_read_is_refused_with_the_line_and_the_reason(training, capfd):
    mode, line = "train" if training else "eval", inspect.getsourcelines(Fussy.forward)[1] + 1
    message = rf"of Fussy cannot be read by torch.export in {mode} mode, at \S*:{line}: .*data-dependent"
    with pytest.raises(UnreadableError, match=message):
        read_graph(Fussy(), Inputs.of(torch.ones(4, 6)), training)
    assert capfd.readouterr().err == ""  # torch would show its graph


class NeedsTargets(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x, y=None):
        if self.training and y is None:
            raise ValueError("targets are needed")
        return self.layer(x)


def test_a_network_that_needs_more_in_training_cannot_be_read_there():
    with pytest.raises(UnreadableError, match="targets are needed"):
        read_graph(NeedsTargets(), Inputs.of(torch.ones(4, 6)), training=True)


def test_an_example_that_the_network_does_not_take_is_refused_as_such():
    with pytest.raises(
        InputError, match=r"example must be .* got \(float32\[4, 6\]\), on which it raised ValueError"
    ):
        read_graph(Fussy(), Inputs.of(torch.zeros(4, 6)), training=False)


def test_reading_does_not_disturb_a_rehearsal_around_it():
    model = case_named("batch_norm_mlp").model().eval()
    with dry_run(model, training=True):
        read_graph(model, Inputs.of(case_named("batch_norm_mlp").inputs()), training=False)
        assert model[1].training
    assert not model[1].training
