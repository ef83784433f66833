"""BatchEnsemble: the equations of the paper, the factors, and the division of a batch."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.errors import ConversionError
from pluribus.mechanisms.members.axis import split_batch
from pluribus.methods import BatchEnsemble
from pluribus.methods.batch_ensemble import rank_one
from tests import zoo
from tests.cases import CASES, case_named, each, logits, run, seeded
from tests.reference import batch_ensemble as reference


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=seeded(seed))


def converted(layer, **settings):
    """An ensemble of one layer in float64, and of each member weight, r, s and b by the weight's name."""
    torch.manual_seed(0)
    ensemble = pl.convert(layer.double(), BatchEnsemble(members=3), example=torch.zeros(1), **settings).eval()
    with torch.no_grad():
        for bias in ensemble.members.tensors.own.parameters():
            bias += torch.randn_like(bias)
    return ensemble


def tensors(ensemble, member, weight="weight", bias="bias", transposed=False):
    tensors = ensemble.members.tensors
    first, second = (t.get_parameter(weight)[member] for t in (tensors.first, tensors.second))
    r, s = (first, second) if transposed else (second, first)
    own = (tensors.own.get_parameter(bias)[member],) if bias else ()
    return tensors.shared.get_parameter(weight), r, s, *own


def test_linear_layers_are_equation_2():
    ensemble, x = converted(nn.Linear(5, 4)), normal(7, 5)
    for member, row in enumerate(ensemble(x)):
        assert_close(row, reference.linear(x, *tensors(ensemble, member)))


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("dilation", [1, 2])
def test_convolutions_are_equation_2(groups, dilation):
    ensemble, x = converted(nn.Conv2d(6, 12, 3, groups=groups, dilation=dilation)), normal(7, 6, 8, 8)
    for member, row in enumerate(ensemble(x)):
        assert_close(row, reference.convolution(x, *tensors(ensemble, member), groups, dilation))


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_transposed_convolutions_are_equation_2(groups):
    ensemble, x = converted(nn.ConvTranspose2d(6, 12, 3, stride=2, groups=groups)), normal(7, 6, 4, 4)
    for member, row in enumerate(ensemble(x)):
        given = tensors(ensemble, member, transposed=True)
        assert given[1].shape == (6,)
        assert given[2].shape == (12,)
        assert_close(row, reference.transposed_convolution(x, *given, groups, 2))


def test_embeddings_are_equation_2():
    ensemble, x = converted(nn.Embedding(9, 4)), torch.arange(12).view(6, 2) % 9
    for member, row in enumerate(ensemble(x)):
        assert_close(row, reference.embedding(x, *tensors(ensemble, member, bias="", transposed=True)))


def test_attention_is_equation_2():
    ensemble, x = converted(nn.MultiheadAttention(8, 2, batch_first=True), output=0), normal(7, 5, 8)
    for member, row in enumerate(ensemble(x, x, x)):
        inner = tensors(ensemble, member, "in_proj_weight", "in_proj_bias")
        outer = tensors(ensemble, member, "out_proj.weight", "out_proj.bias")
        assert_close(row, reference.attention(x, 2, inner, outer))


def test_recurrent_layers_are_equation_2():
    ensemble, x = converted(nn.LSTM(4, 3, batch_first=True), output=0), normal(7, 5, 4)
    for member, row in enumerate(ensemble(x)):
        inner, hidden = (tensors(ensemble, member, f"weight_{i}_l0", f"bias_{i}_l0") for i in ("ih", "hh"))
        assert_close(row, reference.lstm(x, inner, hidden))


def test_rank_one_is_an_outer_product():
    weight, s, r = normal(4, 3, 2), normal(5, 4, seed=1), normal(5, 3, seed=2)
    expected = torch.stack([weight * torch.outer(a, b)[..., None] for a, b in zip(s, r, strict=True)])
    assert_close(rank_one(weight, s, r), expected)


@each(CASES, few=True)
def test_no_deviation_is_the_model_exactly(case):
    model, x = case.model().eval(), case.inputs()
    ensemble = pl.convert(model, BatchEnsemble(members=2, std=0))
    for row in run(ensemble, x):
        assert_close(row, logits(run(model, x)), rtol=0, atol=0)


@pytest.mark.parametrize("std", [0.1, 0.5, 2.0])
def test_factors_are_normal_around_one(std):
    ensemble = pl.convert(nn.Linear(300, 200), BatchEnsemble(members=50, std=std))
    for factor in (
        *ensemble.members.tensors.first.parameters(),
        *ensemble.members.tensors.second.parameters(),
    ):
        values = (factor.detach().flatten() - 1) / std
        assert_close(values.mean(), torch.tensor(0.0), atol=0.04, rtol=0)
        assert_close(values.std(), torch.tensor(1.0), atol=0.03, rtol=0)
        points = torch.tensor([0.1, 0.25, 0.75, 0.9])
        assert_close(values.quantile(points), torch.special.ndtri(points), atol=0.06, rtol=0)


@pytest.mark.parametrize(
    ("layer", "more"),
    [
        (nn.Linear(5, 4), 5 + 4 + 4),
        (nn.Linear(5, 4, bias=False), 5 + 4),
        (nn.Conv2d(6, 12, 3, groups=3), 6 + 12 + 12),
        (nn.ConvTranspose2d(6, 12, 3, groups=3), 6 + 12 + 12),
        (nn.Embedding(9, 4), 9 + 4),
        (nn.BatchNorm2d(4), None),
    ],
    ids=str,
)
@pytest.mark.parametrize("members", [1, 4])
def test_parameters_are_those_of_the_paper(layer, more, members):
    """One network, and inputs plus outputs plus biases for each member."""
    model = nn.Sequential(nn.Linear(2, 2, bias=False), layer)
    ensemble = pl.convert(model, BatchEnsemble(members=members), example=torch.zeros(1))
    bias = sum(p.numel() for n, p in layer.named_parameters() if n == "bias") if more else 0
    single = sum(p.numel() for p in model.parameters())
    assert sum(p.numel() for p in ensemble.parameters()) == single - bias + members * (4 + (more or 0))


def test_tied_weights_have_one_factor():
    for build, name in ((zoo.tied_linears, "1.weight"), (zoo.tied_embedding, "0.weight")):
        ensemble = pl.convert(build(), BatchEnsemble(members=2), example=torch.zeros(1))
        model = build()
        tied = dict(model.named_parameters(remove_duplicate=False))
        others = [other for other in tied if tied[other] is tied[name] and other != name]
        factors = dict(ensemble.members.tensors.first.named_parameters())
        assert name in factors
        assert not set(others) & set(factors)
    member = pl.convert(zoo.tied_linears(), BatchEnsemble(members=2)).member(1)
    assert member[1].weight is member[3].weight


def test_biases_are_each_members_own_and_norms_are_shared_with_own_statistics():
    ensemble = pl.convert(zoo.residual_cnn(), BatchEnsemble(members=3)).train()
    shared, own = (
        dict(tree.named_parameters())
        for tree in (ensemble.members.tensors.shared, ensemble.members.tensors.own)
    )
    assert set(own) == {"3.0.bias", "3.3.bias", "7.bias"}
    assert {"1.weight", "1.bias", "3.1.weight", "3.1.bias"} < set(shared)
    ensemble(torch.randn(10, 2, 8, 8))
    means = ensemble.members.tensors.own.get_buffer("1.running_mean")
    assert means.shape == (3, 8)
    assert not torch.equal(means[0], means[1])
    assert ensemble.conversion["1"].became == "shared, with 3 running statistics"


def test_weight_decay_leaves_the_factors_alone():
    ensemble = pl.convert(zoo.mlp(), BatchEnsemble(members=2))
    decayed, exempt = ensemble.parameter_groups(lr=0.1, weight_decay=0.5)
    factors = [*ensemble.members.tensors.first.parameters(), *ensemble.members.tensors.second.parameters()]
    assert {id(p) for p in exempt["params"]} == {id(p) for p in factors}
    assert (decayed["weight_decay"], exempt["weight_decay"]) == (0.5, 0.0)


def test_frozen_matrices_have_no_factors():
    ensemble = pl.convert(zoo.frozen_trunk(), BatchEnsemble(members=2))
    assert set(dict(ensemble.members.tensors.first.named_parameters())) == {"7.weight"}


def test_a_class_token_is_no_matrix():
    ensemble = pl.convert(zoo.MiniViT(), BatchEnsemble(members=2))
    assert not {"token", "positions"} & set(dict(ensemble.members.tensors.first.named_parameters()))


def test_added_keys_are_biases_and_no_matrices():
    layer = nn.MultiheadAttention(8, 2, add_bias_kv=True)
    ensemble = pl.convert(layer, BatchEnsemble(members=2), example=torch.zeros(1), output=0)
    assert not {"bias_k", "bias_v"} & set(dict(ensemble.members.tensors.first.named_parameters()))


@pytest.mark.parametrize("groups", [3, nn.ModuleList()], ids=["number", "list"])
def test_groups_are_those_of_convolutions_alone(groups):
    layer = zoo.CustomMatmul()
    layer.groups = groups
    ensemble = pl.convert(layer, BatchEnsemble(members=2))
    assert ensemble.members.tensors.second.get_parameter("weight").shape == (2, 8)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_grouped_kernels_may_be_normed_along_any_axis(dim):
    layer = nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 6, 3, groups=2), dim=dim)
    ensemble, x = converted(layer), normal(7, 4, 8)
    assert_close(ensemble.freeze()(x), ensemble(x))


def test_a_network_without_a_matrix_is_refused():
    with pytest.raises(
        ConversionError, match=r"a trained weight matrix to convert, .*type BatchNorm1d, named ''"
    ):
        pl.convert(nn.BatchNorm1d(3), BatchEnsemble())


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, 12))
def test_a_batch_is_divided_without_rest(batch, members):
    parts = split_batch(batch, members)
    assert len(parts) == members
    assert sorted(torch.cat(parts).tolist()) == list(range(batch))
    sizes = [len(part) for part in parts if len(part)]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= min(2, batch)
    assert len(sizes) == max(1, min(members, batch // 2))


def test_samples_meet_members_at_random():
    torch.manual_seed(0)
    counts = torch.zeros(3, 6)
    for _ in range(2000):
        for member, part in enumerate(split_batch(6, 3)):
            counts[member, part] += 1
    assert_close(counts / 2000, torch.full((3, 6), 1 / 3), atol=0.05, rtol=0)


def test_the_loss_of_a_divided_batch_is_the_mean_over_its_samples():
    case = case_named("mlp")
    ensemble, x, y = pl.convert(case.model(), BatchEnsemble(members=3)), case.inputs(), case.target()
    torch.manual_seed(3)
    loss = ensemble.train().loss(x, y)
    torch.manual_seed(3)
    rows, parts = ensemble(x), split_batch(10, 3)
    losses = [
        nn.functional.cross_entropy(r[p], y[p], reduction="sum") for r, p in zip(rows, parts, strict=True)
    ]
    assert_close(loss, sum(losses) / 10)


def test_frozen_ensembles_have_nothing_left_to_compute():
    frozen = pl.convert(zoo.mlp(), BatchEnsemble(members=2)).freeze()
    called = {node.target for node in frozen.module.graph.nodes if node.op == "call_function"}
    assert torch.ops.aten.mul.Tensor not in called
