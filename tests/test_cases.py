"""The zoo itself: every case builds, runs, and is what its facts say."""

import functools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx import Node
from torch.nn.modules.dropout import _DropoutNd
from torch.testing import assert_close
from torch.utils import _pytree as pytree

from tests.cases import BATCH, CASES, Case, Inputs, case_named, each, logits, run

aten: Any = torch.ops.aten

DROPOUT_ARGUMENT = {
    aten.dropout.default: "p",
    aten.feature_dropout.default: "p",
    aten.alpha_dropout.default: "p",
    aten.feature_alpha_dropout.default: "p",
    aten.scaled_dot_product_attention.default: "dropout_p",
    aten.lstm.input: "dropout",
    aten.gru.input: "dropout",
}

# Tracing replaces the list of weights that an RNN keeps beside its parameters, and torch says so.
recurrent_export = pytest.mark.filterwarnings("ignore:The tensor attributes self:UserWarning")


# The other tests export most cases anyway; these check the declarations themselves.
SAMPLE = {"mlp", "transformer_layer", "lstm", "functional_dropout", "weight_norm", "hf_vit"}


def sampled(test):
    """Run a test on a few cases that export; on all others in the slow run."""
    cases = [case for case in CASES if case.exports]
    marks = {case.name: [] if case.name in SAMPLE else [pytest.mark.slow] for case in cases}
    given = [pytest.param(case, id=case.name, marks=marks[case.name]) for case in cases]
    return pytest.mark.parametrize("case", given)(test)


def first(samples: int, inputs: Inputs) -> Any:
    """The first samples of every tensor."""
    return pytree.tree_map(lambda x: x[:samples], inputs)


@functools.cache
def exported(name: str, training: bool) -> ExportedProgram:
    """The graph of a case, its batch dynamic."""
    inputs = case_named(name).inputs()
    arguments, keywords = ((), inputs) if isinstance(inputs, dict) else (inputs, {})
    arguments = (arguments,) if isinstance(arguments, Tensor) else arguments
    shapes = pytree.tree_map(lambda _: {0: Dim.DYNAMIC}, keywords or arguments)
    model = case_named(name).model().train(training)
    return torch.export.export(model, arguments, keywords, dynamic_shapes=shapes, strict=False)


def dropout_probability(node: Node) -> float:
    """Return the dropout of a dropout, attention or recurrent operator; 0 for any other."""
    if node.target not in DROPOUT_ARGUMENT:
        return 0.0
    operator: Any = node.target
    names = [argument.name for argument in operator._schema.arguments]
    values = dict(zip(names, node.args, strict=False)) | node.kwargs
    return values.get(DROPOUT_ARGUMENT[operator], 0.0)


def seeded_run(case: Case, seed: int) -> Tensor:
    """The logits of a fresh model in train mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return logits(run(case.model(), case.inputs()))


def test_names_are_unique():
    names = [case.name for case in CASES]
    assert sorted(set(names)) == sorted(names)


def check_shapes(case):
    for tensor in pytree.tree_leaves(case.inputs()):
        assert tensor.dtype in (torch.float64, torch.int64)
        assert len(tensor) == BATCH
    tensors = [*pytree.tree_leaves(first(1, case.inputs())), *case.model().state_dict().values()]
    # An axis that is taken for the batch is noticed only if no other axis is as long.
    assert not [tensor.shape for tensor in tensors if BATCH in tensor.shape]
    assert sum(parameter.numel() for parameter in case.model().parameters()) < 3_000
    target = case.target()
    assert target.shape == (BATCH, *case.dense)
    assert 0 <= target.min() <= target.max() < case.classes


def check_outputs(case):
    assert all(module.training for module in case.model().modules())
    for training in (True, False):
        output = logits(run(case.model().train(training), case.inputs()))
        assert output.shape == case.shape
        assert output.dtype == torch.float64
        assert output.isfinite().all()


def check_same_at_every_call(case):
    before = torch.get_rng_state()
    assert_close(dict(case.model().state_dict()), dict(case.model().state_dict()), rtol=0, atol=0)
    assert_close(case.inputs(), case.inputs(), rtol=0, atol=0)
    assert_close(case.target(), case.target(), rtol=0, atol=0)
    assert_close(torch.get_rng_state(), before)


def check_randomness(case):
    assert_close(seeded_run(case, 0), seeded_run(case, 0), rtol=0, atol=0)
    assert torch.equal(seeded_run(case, 0), seeded_run(case, 1)) is not case.random_in_training


def check_eval_mode(case):
    model, inputs = case.model().eval(), case.inputs()
    expected = logits(run(model, inputs))
    with torch.no_grad():  # torch has fused paths without gradients
        assert_close(logits(run(model, inputs)), expected)
    assert_close(logits(run(model, first(4, inputs))), expected[:4])


def check_gradients(case):
    model = case.model()
    nn.functional.cross_entropy(logits(run(model, case.inputs())), case.target()).backward()
    trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert [name for name, p in trainable.items() if p.grad is None] == list(case.unused)


FACTS = [check_shapes, check_outputs, check_same_at_every_call, check_randomness]
FACTS += [check_eval_mode, check_gradients]


@each(CASES)
def test_case_is_what_it_declares(case):
    for check in FACTS:
        check(case)


@recurrent_export
@sampled
def test_dropout_in_the_graph_is_as_declared(case):
    nodes = exported(case.name, training=True).graph.nodes
    assert any(dropout_probability(node) > 0 for node in nodes) is case.has_dropout


@recurrent_export
@sampled
def test_the_graph_computes_the_model_for_another_batch_size(case):
    inputs = first(7, case.inputs())
    graph = exported(case.name, training=False).module()
    assert_close(logits(run(graph, inputs)), logits(run(case.model().eval(), inputs)))


@each([case for case in CASES if not case.exports])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_no_graph_is_to_be_had_where_none_is_declared(case, training):
    with pytest.raises(Exception, match=r"data-dependent|specialized it to be a constant"):
        exported(case.name, training)


@each([case for case in CASES if not case.exports])
def test_dropout_layers_are_as_declared_without_a_graph(case):
    layers = [module for module in case.model().modules() if isinstance(module, _DropoutNd)]
    assert any(layer.p > 0 for layer in layers) is case.has_dropout
