"""Members: a member is a set of tensors for the user's own code, and nothing else."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import pluribus as pl
from pluribus.errors import InputError
from pluribus.mechanisms.members.code import PlainCode
from pluribus.mechanisms.members.index import Fixed
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.skeleton import Skeleton, blank, materialise
from pluribus.mechanisms.members.stacked import Stacked
from pluribus.mechanisms.members.tree import named_tensors, stack_modules
from pluribus.mechanisms.network.network import Network
from pluribus.methods import BatchEnsemble, DeepEnsembles, Single
from tests import zoo
from tests.cases import CASES, case_named, each, logits, normal, run, seeded

NAMES = """residual_cnn shared_module repeated_child tied_linears tied_embedding root_layer parameter_list
    transformer_encoder mini_vit lstm weight_norm spectral_norm custom_matmul hf_bert"""
AWKWARD = [case_named(name) for name in NAMES.split()]


def filled(model, values=None):
    return Skeleton(blank(model)).fill(named_tensors(model) if values is None else values)


def separate(case, count=3):
    """Networks of one architecture with weights of their own, in eval mode."""
    models = [case.model().eval() for _ in range(count)]
    for seed, model in enumerate(models):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(
                    0.1 * torch.randn(parameter.shape, dtype=torch.float64, generator=seeded(seed))
                )
    return models


def bound(case, models):
    network = Network(case.model().eval())
    own = stack_modules(models, {name for name, t in network.tensors().items() if t.is_floating_point()})
    members = Members(Fixed(len(models)), Stacked.of_network(network, own), PlainCode.of(network.module))
    return members, Skeleton(blank(network.module))


@each(CASES, few=True)
def test_a_filled_skeleton_is_the_network(case):
    model, x = case.model().eval(), case.inputs()
    assert_close(logits(run(filled(model), x)), logits(run(model, x)), rtol=0, atol=0)


@each(AWKWARD)
def test_filling_again_leaves_nothing_of_the_first_filling(case):
    first, second = separate(case, 2)
    skeleton = Skeleton(blank(case.model().eval()))
    x = case.inputs()
    for model in (first, second, first):
        assert_close(
            logits(run(skeleton.fill(named_tensors(model)), x)), logits(run(model, x)), rtol=0, atol=0
        )


@each(CASES, few=True)
def test_a_blank_has_no_values_and_takes_none_from_the_model(case):
    model = case.model()
    before = copy.deepcopy(model.state_dict())
    made = named_tensors(blank(model))
    assert {tensor.device.type for tensor in made.values()} == {"meta"}
    own = named_tensors(model)
    assert {name: t.requires_grad for name, t in made.items()} == {n: t.requires_grad for n, t in own.items()}
    assert_close(model.state_dict(), before, rtol=0, atol=0)


def test_shared_layers_and_tied_tensors_stay_so():
    tied = filled(case_named("tied_linears").model())
    assert tied[1].weight is tied[3].weight
    embedding = filled(case_named("tied_embedding").model())
    assert embedding[0].weight is embedding[4].weight
    repeated = filled(case_named("repeated_child").model())
    assert repeated[1][0] is repeated[1][2] is repeated[3][1]
    member = materialise(
        case_named("tied_linears").model(), named_tensors(case_named("tied_linears").model())
    )
    assert member[1].weight is member[3].weight


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_read_the_filled_tensors(kind):
    layer = kind(4, 6, num_layers=2, bidirectional=True)
    module = filled(layer)
    assert [id(tensor) for tensor in module._flat_weights] == [id(w) for w in layer._flat_weights]


@pytest.mark.parametrize("has_run", [False, True])
def test_recurrent_layers_may_be_parametrised(has_run):
    layer = parametrizations.weight_norm(nn.LSTM(3, 4, batch_first=True), "weight_hh_l0")
    x = torch.randn(5, 6, 3)
    if has_run:
        layer(x)
    ensemble = pl.convert(layer, DeepEnsembles(members=2, start="copy"), example=x, output=0)
    assert_close(ensemble(x)[1], layer(x)[0])


@each([case for case in AWKWARD if not case.has_dropout])
def test_gradients_of_rows_are_those_of_separate_networks(case):
    models, x, y = separate(case), case.inputs(), case.target()
    members, skeleton = bound(case, models)
    for model in models:
        F.cross_entropy(logits(run(model, x)), y).backward()
    for values in members.tensors.of(range(3)):
        F.cross_entropy(logits(run(skeleton.fill(values), x)), y).backward(retain_graph=True)
    expected = [dict(model.named_parameters()) for model in models]
    for name, parameter in members.tensors.own.named_parameters():
        if parameter.requires_grad and expected[0][name].grad is not None:
            assert_close(parameter.grad, torch.stack([own[name].grad for own in expected]), msg=name)


@each(AWKWARD)
def test_rows_are_the_same_with_and_without_gradients(case):
    members, _ = bound(case, separate(case))
    with torch.no_grad():
        plain = [{name: value.clone() for name, value in row.items()} for row in members.tensors.of([2, 0])]
    for row, expected in zip(members.tensors.of([2, 0]), plain, strict=True):
        assert_close(row, expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["batch_norm_mlp", "spectral_norm", "monai_densenet"])
def test_training_moves_each_member_and_its_statistics_as_if_alone(name):
    case = case_named(name)
    ensemble = pl.convert(case.model(), DeepEnsembles(members=3)).train()
    alone = [ensemble.member(i).train() for i in range(3)]
    x, y = case.inputs(), case.target()
    optimizer = torch.optim.SGD(ensemble.parameters(), lr=0.3)
    for _ in range(3):
        optimizer.zero_grad()
        ensemble.loss(x, y).backward()
        optimizer.step()
        for model in alone:
            model.zero_grad()
            F.cross_entropy(model(x), y).backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.3 * parameter.grad
    for i, model in enumerate(alone):
        assert_close(dict(ensemble.member(i).state_dict()), dict(model.state_dict()))


@pytest.mark.parametrize("gradients", [True, False])
def test_statistics_are_updated_in_place_with_and_without_gradients(gradients):
    ensemble = pl.convert(case_named("batch_norm_mlp").model(), DeepEnsembles(members=2)).train()
    with torch.set_grad_enabled(gradients):
        ensemble(case_named("batch_norm_mlp").inputs())
    assert_close(ensemble.members.tensors.own.get_buffer("1.num_batches_tracked"), torch.tensor([1, 1]))
    assert (ensemble.members.tensors.own.get_buffer("1.running_mean") != 0).all()


class Averaging(nn.Module):
    """Replaces its buffer instead of writing into it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        y = self.layer(x)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * y.detach().mean(0)
        return y - self.mean


@pytest.mark.parametrize("method", [Single(), DeepEnsembles(members=2), BatchEnsemble(members=2)], ids=str)
def test_a_buffer_that_code_replaces_is_kept(method):
    ensemble = pl.convert(Averaging(), method).train()
    ensemble(torch.ones(4, 6))
    assert (ensemble.member(0).mean != 0).all()


class Growing(nn.Module):
    """Makes its buffer larger when it has to."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.register_buffer("positions", torch.zeros(5, 3), persistent=False)

    def forward(self, x):
        if len(self.positions) < x.shape[1]:
            self.positions = torch.ones(x.shape[1], 3)
        return self.layer(x + self.positions[: x.shape[1]]).mean(1)


@pytest.mark.parametrize("method", [Single(), DeepEnsembles(members=2), BatchEnsemble(members=2)], ids=str)
def test_a_buffer_that_code_makes_larger_does_not_hinder_a_run(method):
    ensemble = pl.convert(Growing(), method, example=torch.zeros(4, 5, 3)).eval()
    for length in (5, 7, 5):
        x = torch.randn(4, length, 3)
        assert_close(ensemble(x)[0], ensemble.member(0)(x))


def with_embedding(**settings):
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(9, 4, **settings), nn.Flatten(), nn.Linear(8, 3))


@pytest.mark.parametrize("method", [DeepEnsembles(members=2), BatchEnsemble(members=2)], ids=str)
def test_embeddings_that_write_into_their_weights_are_refused(method):
    with pytest.raises(pl.ConversionError, match=r"0 must not write into its weights.*max_norm=0.5"):
        pl.convert(with_embedding(max_norm=0.5), method)


@pytest.mark.parametrize("settings", [{"sparse": True}, {"padding_idx": 0}], ids=str)
@pytest.mark.parametrize("method", [Single(), DeepEnsembles(members=2), BatchEnsemble(members=2)], ids=str)
def test_special_embeddings_can_be_trained(method, settings):
    x, y = torch.randint(9, (6, 2), generator=seeded(0)), torch.tensor([0, 1, 2, 0, 1, 2])
    ensemble = pl.convert(with_embedding(**settings), method, example=x).train()
    ensemble.loss(x, y).backward()
    assert all(parameter.grad is not None for parameter in ensemble.parameters())


def test_a_member_is_a_copy_of_the_users_class():
    case = case_named("frozen_trunk")
    ensemble = pl.convert(case.model(), DeepEnsembles(members=2)).eval()
    member, rows = ensemble.member(1), ensemble(case.inputs())
    assert type(member) is type(case.model())
    assert not member.training
    assert [p.requires_grad for p in member.parameters()] == [
        p.requires_grad for p in case.model().parameters()
    ]
    with torch.no_grad():
        for tensor in named_tensors(member).values():
            tensor.zero_()
    assert_close(ensemble(case.inputs()), rows, rtol=0, atol=0)


def test_unsaved_buffers_are_bound_but_not_saved():
    ensemble = pl.convert(case_named("custom_matmul").model(), DeepEnsembles(members=2))
    saved = set(ensemble.state_dict())
    assert "members.tensors.own.scale" in saved
    assert not any("shift" in name for name in saved)
    assert "shift" in ensemble.members.tensors.stacked()


@pytest.mark.parametrize("member", [-1, 3, True, 0.0, "0", None])
def test_a_row_that_does_not_exist_is_refused(member):
    members, _ = bound(case_named("mlp"), separate(case_named("mlp")))
    with pytest.raises(InputError, match=rf"positions from 0 to 2, got {member!r}\."):
        members.index.pick([0, member])


def test_fixed_members_cannot_be_drawn():
    members, _ = bound(case_named("mlp"), separate(case_named("mlp")))
    with pytest.raises(InputError, match="got one with 3 fixed members"):
        members.index.draw(2, training=False)


class Checkpointed(nn.Module):
    def __init__(self, on):
        super().__init__()
        torch.manual_seed(0)
        self.layers, self.on = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), on

    def forward(self, x):
        return checkpoint(self.layers, x, use_reentrant=False) if self.on else self.layers(x)


def gradients(call, on):
    """Return the gradients of weights that are not the network's own, through `call(network, weights, x)`."""
    network = Checkpointed(on).double()
    weights = {name: (2 * p).detach().requires_grad_() for name, p in network.named_parameters()}
    x = torch.randn(5, 6, dtype=torch.float64, generator=seeded(1))
    call(network, weights, x).square().sum().backward()
    return {name: weight.grad for name, weight in weights.items()}


def test_functional_call_gives_checkpointed_networks_wrong_gradients():
    """Which is why a skeleton keeps its tensors: backward runs the network again, and finds its old ones."""

    def functional(network, weights, x):
        return torch.func.functional_call(network, weights, (x,))

    expected, came = gradients(functional, on=False), gradients(functional, on=True)
    with pytest.raises(AssertionError, match="not close"):
        assert_close(came, expected)


def test_a_skeleton_gives_checkpointed_networks_the_right_gradients():
    def skeletal(network, weights, x):
        return Skeleton(blank(network)).fill(weights)(x)

    assert_close(gradients(skeletal, on=True), gradients(skeletal, on=False))


def test_members_lie_in_memory_as_the_network_does(tmp_path):
    x, y = normal(2, 8, 8)(), torch.arange(10) % 3
    model = zoo.residual_cnn().double()
    last = copy.deepcopy(model).to(memory_format=torch.channels_last)
    one, other = (pl.convert(network, DeepEnsembles(members=3)) for network in (model, last))
    for ensemble in (one, other):
        ensemble.loss(x, y).backward()
    for first, second in zip(one.parameters(), other.parameters(), strict=True):
        assert_close(second.grad, first.grad)
        assert second.grad.stride() == second.stride()
    weight = other.members.tensors.own.get_parameter("0.weight")
    assert weight.shape == (3, 8, 2, 3, 3)
    assert weight[1].is_contiguous(memory_format=torch.channels_last)
    other.eval().save(tmp_path / "saved")
    assert_close(pl.load(tmp_path / "saved", last).eval()(x), other(x), rtol=0, atol=0)
