"""EarlyExit: equal weights, evenly spread exits, the network at the end."""

import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

import pluribus as pl
from pluribus.errors import SettingError
from pluribus.methods import EarlyExit
from tests.cases import blocks, seeded

X, Y = torch.randn(8, 6, generator=seeded(0)), torch.arange(8) % 2


def made(**settings):
    return pl.convert(blocks(5), EarlyExit(**settings), example=X[:2])


def test_the_loss_is_the_mean_over_exits():
    ensemble = made().train()
    outputs = ensemble(X)
    assert len(outputs) == 5
    assert_close(ensemble.loss(X, Y), torch.stack([cross_entropy(one, Y) for one in outputs]).mean())


def test_a_last_batch_of_one_sample_is_learnt_from():
    ensemble = made().train()
    ensemble.loss(X[:1], Y[:1]).backward()
    assert all(parameter.grad is not None for parameter in ensemble.parameters())


def test_the_last_exit_is_the_network():
    model = blocks(5)
    ensemble = pl.convert(model, EarlyExit(), example=X[:2]).eval()
    assert_close(ensemble(X)[-1], model(X))


@pytest.mark.parametrize(
    ("exits", "names"), [(1, []), (2, ["2"]), (3, ["2", "3"]), (5, ["1", "2", "3", "4"])]
)
def test_exits_are_spread_evenly(exits, names):
    notes = made(exits=exits).conversion.notes
    assert [note.rpartition(" ")[2] for note in notes[:-1]] == names


def test_exits_are_named_by_pattern():
    assert made(where="[24]").conversion.notes[:2] == ("exit 1 after 2", "exit 2 after 4")


def test_nothing_but_weights_is_learnt():
    assert all("logits" not in name for name, _ in made().named_parameters())


def test_no_exits_are_refused():
    with pytest.raises(SettingError, match="exits must be at least 1"):
        EarlyExit(exits=0)
