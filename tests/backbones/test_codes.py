"""Codes: vectors of categories, inputs between and beyond codes, all methods convert the network."""

import pytest
import torch
from torch.testing import assert_close

import pluribus as pl
from pluribus.backbones import mlp, residual_mlp
from pluribus.backbones.codes import Codes, vector_size
from pluribus.errors import SettingError

INPUTS = torch.tensor([[0.5, 3, -1, 0], [2.0, 0, 1, 2]])
"""Codes at places 1, of three categories, and 3, of two."""


def test_codes_become_their_vectors_behind_the_numbers():
    layer = Codes(4, {3: 2, 1: 3})
    numbers = layer.numbers(INPUTS[:, [0, 2]])
    first, last = layer.tables[0].weight, layer.tables[1].weight
    expected = torch.cat([numbers, first[[3, 0]], last[[0, 2]]], 1)
    assert_close(layer(INPUTS), expected)
    assert layer.width == expected.shape[1] == 2 + vector_size(3) + vector_size(2)


def test_an_unseen_category_adds_nothing_and_is_not_trained():
    layer = Codes(4, {1: 3, 3: 2})
    layer(INPUTS).square().sum().backward()
    for table in layer.tables:
        assert table.weight[0].eq(0).all()
        assert table.weight.grad[0].eq(0).all()
        assert table.weight.grad[1:].any()


def test_inputs_with_noise_are_the_nearest_code():
    layer = Codes(2, {0: 3, 1: 3})
    assert layer.numbers is None
    noisy = torch.tensor([[1.4, -7.0], [2.6, 1e9]])
    assert_close(layer(noisy), layer(torch.tensor([[1.0, 0.0], [3.0, 3.0]])))


def test_vectors_are_longer_for_more_categories_up_to_a_limit():
    assert [vector_size(count) for count in (1, 10, 500, 10_000)] == [2, 6, 50, 50]


@pytest.mark.parametrize("codes", [{4: 2}, {-1: 2}, {0: 0}, {}])
def test_codes_that_do_not_fit_are_refused(codes):
    with pytest.raises(SettingError, match=r"place of a code|categories|at least one place"):
        Codes(4, codes)


@pytest.mark.parametrize("build", [mlp, residual_mlp])
def test_networks_learn_from_a_code_alone(build):
    torch.manual_seed(0)
    x = torch.randint(1, 21, (200, 2)).float()
    # Classes that no linear function of the code separates.
    y = (x[:, 1].long() * 7 % 3 == 0).long()
    network = build(2, 2, codes={0: 20, 1: 20})
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(x), y).backward()
        optimizer.step()
    assert (network.eval()(x).argmax(1) == y).float().mean() > 0.99


@pytest.mark.parametrize(
    "method",
    ["mimo", "sae", "packed_ensembles", "masksembles", "batch_ensemble", "layer_ensembles(options=2)"],
)
def test_methods_convert_networks_with_codes(method):
    ensemble = pl.convert(mlp(4, 3, hidden=(16, 16), codes={1: 3, 3: 2}), method, example=INPUTS)
    ensemble.loss(INPUTS.repeat(8, 1), torch.arange(16) % 3).backward()
    found = ensemble.eval().predict(INPUTS).probabilities
    assert_close(ensemble.freeze().predict(INPUTS).probabilities, found, rtol=1e-5, atol=1e-6)
