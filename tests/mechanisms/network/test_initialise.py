"""Fresh weights: drawn by the network's own initialisers, and by nothing that it would not do itself."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.testing import assert_close

from pluribus.mechanisms.network.initialise import reinitialise
from tests import zoo
from tests.cases import CASES, each


def fresh(model, seed=1):
    model = copy.deepcopy(model)
    return model, reinitialise(model, seed)


torch.manual_seed(0)
WIDE = [
    nn.Linear(300, 200),
    nn.Conv2d(30, 40, 3),
    nn.ConvTranspose2d(30, 40, 3),
    nn.Embedding(300, 200),
    nn.LSTM(40, 60),
    nn.MultiheadAttention(60, 2),
    nn.Bilinear(20, 30, 40),
]


@pytest.mark.parametrize("layer", WIDE, ids=lambda layer: type(layer).__name__)
def test_fresh_weights_are_distributed_as_the_layer_draws_them(layer):
    model, redrawn = fresh(layer)
    assert redrawn == []
    for (name, old), new in zip(layer.state_dict().items(), model.state_dict().values(), strict=True):
        if old.ndim > 1:
            assert not torch.equal(old, new), name
            for share in (0.01, 0.1, 0.5, 0.9, 0.99):
                assert_close(new.quantile(share), old.quantile(share), atol=0.1 * float(old.std()), rtol=0.05)
            assert_close(new.abs().max(), old.abs().max(), rtol=0.25, atol=0)


@each(CASES)
def test_the_same_seed_draws_the_same_and_another_seed_differs(case):
    model, random = case.model(), torch.get_rng_state()
    first, again, other = (fresh(model, seed)[0].state_dict() for seed in (3, 3, 4))
    assert_close(dict(first), dict(again), rtol=0, atol=0)
    assert_close(torch.get_rng_state(), random)
    differing = [name for name in first if not torch.equal(first[name], other[name])]
    trained = {name for name, p in model.named_parameters() if p.requires_grad and p.ndim > 1}
    assert trained <= set(differing)


def test_running_statistics_start_anew():
    model = zoo.batch_norm_mlp()
    model(torch.randn(10, 6))
    model, _ = fresh(model)
    assert_close(model[1].running_mean, torch.zeros(8))
    assert_close(model[1].running_var, torch.ones(8))
    assert model[1].num_batches_tracked == 0


class Bare(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 4)
        self.token = nn.Parameter(3 + 0.5 * torch.randn(200, 300))
        self.scale = nn.Parameter(torch.full((300,), 0.1))
        self.temperature = nn.Parameter(torch.tensor(2.0))


def test_bare_parameters_are_redrawn_with_their_mean_and_deviation():
    old = Bare()
    model, redrawn = fresh(old)
    assert "token" in redrawn
    assert not torch.equal(model.token, old.token)
    assert_close(model.token.mean(), old.token.mean(), atol=0.02, rtol=0)
    assert_close(model.token.std(), old.token.std(), atol=0.02, rtol=0)


def test_constants_stay_constant():
    old = Bare()
    model, _ = fresh(old)
    assert_close(model.scale, old.scale, rtol=0, atol=0)
    assert_close(model.temperature, old.temperature, rtol=0, atol=0)


def test_constants_are_not_said_to_be_redrawn():
    assert fresh(Bare())[1] == ["token"]


def test_empty_parameters_are_left():
    model = nn.Linear(3, 2)
    model.register_parameter("extra", nn.Parameter(torch.empty(0)))
    assert reinitialise(model, 0) == []


class ThroughData(nn.Module):
    """Initialises `.data`, as many published layers do; torch's version counter does not see it."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(100, 200))
        self.reset_parameters()

    def reset_parameters(self):
        self.weight.data.uniform_(-0.5, 0.5)


def test_initialisers_that_go_through_data_are_heeded():
    model, redrawn = fresh(ThroughData())
    assert redrawn == []
    assert model.weight.abs().max() <= 0.5


def test_frozen_parameters_stay():
    old = zoo.frozen_trunk()
    model, _ = fresh(old)
    for (name, before), after in zip(old.named_parameters(), model.parameters(), strict=True):
        assert torch.equal(before, after) == (not before.requires_grad or "1" in name), name


def test_a_frozen_bias_beside_a_trained_weight_stays():
    old = nn.Linear(6, 4)
    old.bias.requires_grad_(False)
    model, _ = fresh(old)
    assert_close(model.bias, old.bias, rtol=0, atol=0)
    assert not torch.equal(model.weight, old.weight)


@pytest.mark.parametrize("build", [zoo.tied_linears, zoo.tied_embedding, zoo.repeated_child])
def test_tied_parameters_stay_tied(build):
    old = build()
    model, _ = fresh(old)
    assert list(dict(model.named_parameters())) == list(dict(old.named_parameters()))


def test_the_initialiser_of_the_network_overrules_those_of_its_layers():
    class Zeroed(nn.Sequential):
        def init_weights(self):
            nn.init.zeros_(self[1].weight)

    model, _ = fresh(Zeroed(nn.Linear(6, 4), nn.Linear(4, 3)))
    assert_close(model[1].weight, torch.zeros(3, 4), rtol=0, atol=0)
    assert model[0].weight.std() > 0


def test_an_initialiser_of_single_layers_is_applied_to_all():
    class Constant(nn.Sequential):
        def _init_weights(self, layer):
            if isinstance(layer, nn.Linear):
                nn.init.constant_(layer.weight, 7.0)

    model, _ = fresh(Constant(nn.Linear(6, 4), nn.Sequential(nn.Linear(4, 3))))
    assert_close(model[0].weight, torch.full((4, 6), 7.0), rtol=0, atol=0)
    assert_close(model[1][0].weight, torch.full((3, 4), 7.0), rtol=0, atol=0)


@pytest.mark.parametrize("build", [zoo.hf_vit, zoo.hf_bert])
def test_hugging_face_models_are_drawn_by_their_own_rule(build):
    """N(0, initializer_range²) for matrices and zero for biases, unlike torch's own layers."""
    old = build()
    model, redrawn = fresh(old)
    assert redrawn == []
    matrices = [p for name, p in model.named_parameters() if name.endswith("weight") and p.ndim == 2]
    values = torch.cat([matrix.flatten() for matrix in matrices])
    assert_close(values.std(), torch.tensor(0.2), atol=0.01, rtol=0)
    assert values.abs().max() > 0.45  # the uniform of nn.Linear ends at 0.354
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert_close(parameter, torch.zeros_like(parameter), rtol=0, atol=0)


def test_weight_normed_layers_are_drawn_afresh():
    old = parametrizations.weight_norm(nn.Linear(60, 50))
    model, _ = fresh(old)
    assert not torch.equal(model.weight, old.weight)
    assert_close(model.weight.std(), old.weight.std(), rtol=0.1, atol=0)


@pytest.mark.parametrize("layer", [nn.Linear(6, 3), nn.Linear(60, 50), nn.Conv2d(4, 6, 3)], ids=str)
def test_spectral_normed_layers_are_drawn_afresh_with_a_norm_of_one(layer):
    old = parametrizations.spectral_norm(layer).eval()
    model, _ = fresh(old)
    assert not torch.equal(model.weight, old.weight)
    assert_close(torch.linalg.matrix_norm(model.weight.flatten(1), 2), torch.tensor(1.0), rtol=0.15, atol=0)
    assert not any(part.training for part in model.modules())
