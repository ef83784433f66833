"""Pieces: batches are cut so that activations fit, and only where samples are independent."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.graph.cost import Meter
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.running.pieces import cut
from pluribus.methods import BatchEnsemble, DeepEnsembles, LayerEnsembles, MCDropout, Single

X = torch.randn(400, 8, generator=torch.Generator().manual_seed(0))
METHODS = [
    Single(),
    DeepEnsembles(members=3),
    DeepEnsembles(members=10),
    BatchEnsemble(members=3),
    MCDropout(draws=3),
    LayerEnsembles(options=2, draws=4),
]
KB = 1 << 10


def mlp():
    return nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


def sizes(inputs, most_bytes, run, chunk=None):
    return [piece.batch for piece in cut(inputs, chunk, most_bytes, run, {})]


def widened(inputs):
    """Take 4000 bytes for every sample, and 1000 for any batch."""
    x = inputs.args[0]
    return (torch.zeros(250).sum() + torch.zeros(len(x), 999).sum(1) + x[:, 0])[None]


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_predict_keeps_counted_activations_within_the_limit(method):
    ensemble = pl.convert(mlp(), method, example=X[:2]).eval()
    whole = ensemble.predict(X)
    limit = 200 * KB
    ensemble.predict(X, most_bytes=limit)  # what is read and counted once is not counted again
    with Meter() as meter:
        found = ensemble.predict(X, most_bytes=limit)
    result = found.members.nbytes + found.member_log_probabilities.nbytes
    assert meter.peak <= limit + 2 * result
    with Meter() as uncut:
        ensemble(X)
    assert uncut.peak > 1.3 * limit
    assert_close(found.members, whole.members)


def test_frozen_predict_keeps_the_limit():
    frozen = pl.convert(mlp(), DeepEnsembles(members=3), example=X[:2]).freeze()
    frozen.predict(X, most_bytes=200 * KB)
    with Meter() as meter:
        found = frozen.predict(X, most_bytes=200 * KB)
    assert meter.peak <= 200 * KB + 4 * found.members.nbytes
    assert_close(found.members, frozen(X))


def test_pieces_are_as_large_as_fits():
    assert max(sizes(Inputs.of(X), 100 * KB, widened)) in range(20, 27)
    assert sum(sizes(Inputs.of(X), 100 * KB, widened)) == 400
    assert sizes(Inputs.of(X), 4000 * KB, widened) == [400]


def test_a_single_sample_always_runs():
    assert sizes(Inputs.of(X), 1, widened) == [1] * 400


def test_chunk_is_taken_as_it_is():
    assert sizes(Inputs.of(X), 1, widened, chunk=150) == [150, 150, 100]


def test_a_batch_is_counted_once():
    calls = []

    def run(inputs):
        calls.append(inputs.batch)
        return widened(inputs)

    cache = {}
    for _ in range(2):
        assert len(list(cut(Inputs.of(X), None, 100 * KB, run, cache))) > 1
    assert calls == [1, 1, 3]


def test_samples_that_depend_on_one_another_are_not_cut():
    def centred(inputs):
        x = inputs.args[0]
        return (torch.zeros(len(x), 999).sum(1) + x[:, 0] - x[:, 0].mean())[None]

    assert sizes(Inputs.of(X), 100 * KB, centred) == [400]
    normed = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.Linear(8, 2))
    ensemble = pl.convert(normed, DeepEnsembles(members=2), example=X[:4]).eval()
    assert_close(ensemble.predict(X, most_bytes=KB).members, ensemble(X))


def test_inputs_that_all_samples_share_keep_a_batch_whole():
    edges = torch.zeros(2, 900, dtype=torch.long)
    assert sizes(Inputs.of((X, edges)), 100 * KB, widened) == [400]
    assert sizes(Inputs((X,), {"scale": 3}), 100 * KB, widened) == [400]


def test_a_network_that_fails_on_one_sample_runs_whole():
    def picky(inputs):
        if inputs.batch < 400:
            raise pl.InputError("too few")
        return widened(inputs)

    assert sizes(Inputs.of(X), 100 * KB, picky) == [400]


def test_most_bytes_is_checked():
    ensemble = pl.convert(mlp(), Single())
    with pytest.raises(pl.SettingError, match="most_bytes must be"):
        ensemble.predict(X, most_bytes=0)
