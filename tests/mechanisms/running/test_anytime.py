"""Anytime prediction: samples leave where they are sure, and only then."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.errors import InputError, SettingError
from pluribus.mechanisms.running.anytime import Leaving
from pluribus.methods import MIMO, SAE, DeepEnsembles, EarlyExit
from tests.cases import blocks, seeded
from tests.verify import change_code, code_of

X = torch.randn(9, 6, generator=seeded(0)) * 3


def made(method, depth=3, seed=0):
    torch.manual_seed(seed)
    model = blocks(depth)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return pl.convert(model, method, example=X[:2], seed=seed).eval()


def reference(ensemble, x, sure):
    """One sample after the other, in the obvious way: probabilities and the depth at which it left."""
    pairs, weights = ensemble.members.index.rows(training=False), ensemble.weights
    outputs = ensemble(x)
    found, left = [], []
    for sample in range(len(x)):
        for depth in sorted({depth for _, depth in pairs}):
            reached = [row for row, (_, at) in enumerate(pairs) if at <= depth]
            share = weights[reached] / weights[reached].sum()
            mean = (outputs[reached, sample].softmax(-1) * share[:, None]).sum(0)
            if mean.max() >= sure:
                break
        found.append(mean)
        left.append(depth)
    return torch.stack(found), left


@pytest.mark.parametrize("method", [EarlyExit(), SAE(inputs=2, exits=2), MIMO(inputs=2)], ids=str)
@pytest.mark.parametrize("sure", [0.0, 0.75, 1.0])
def test_each_sample_is_told_the_mean_of_the_exits_it_reached(method, sure):
    ensemble = made(method)
    prediction = ensemble.predict(X, exit_when=sure)
    expected, left = reference(ensemble, X, sure)
    assert_close(prediction.probabilities, expected, atol=1e-5, rtol=1e-4)
    assert prediction.spent.tolist() == [price(ensemble, depth) for depth in left]


def price(ensemble, depth):
    """The multiply-adds of one sample with the exits up to a depth alone."""
    rows = [row for row, (_, at) in enumerate(ensemble.members.index.rows(training=False)) if at <= depth]
    return pl.cost(Rows(ensemble, rows), X[:1]).multiply_adds


class Rows(nn.Module):
    def __init__(self, ensemble, rows):
        super().__init__()
        self.ensemble, self.rows = ensemble, rows

    def forward(self, x):
        return self.ensemble(x, members=self.rows)


def test_a_sample_leaves_by_the_weights_of_the_exits_it_reached():
    rows, weights = [(0, 0), (0, 1), (1, 1), (0, 2)], torch.tensor([0.1, 0.6, 0.2, 0.1])
    leaving = Leaving(rows, weights, pl.Categorical(), 0.8, batch=2)

    def says(depth, *yes):
        yes = torch.tensor(yes)  # of samples and rows
        return leaving(depth, torch.stack((yes, 1 - yes), -1).log()).tolist()

    assert says(0, [0.5], [0.7]) == [True, True]
    assert says(1, [0.96, 0.5], [0.7, 0.9]) == [False, True]
    assert leaving.left_at.tolist() == [1, 2]
    told = (0.1 * 0.5 + 0.6 * 0.96 + 0.2 * 0.5) / 0.9
    assert_close(leaving.members[3, 0].exp(), torch.tensor([told, 1 - told]))


def test_a_threshold_in_between_parts_the_batch():
    spent = made(EarlyExit()).predict(X, exit_when=0.75).spent
    assert len(set(spent.tolist())) > 1


def test_what_follows_an_exit_is_not_run_for_samples_that_left():
    ensemble, seen = made(EarlyExit()), []
    watched = code_of(ensemble).network[3]

    def watch(module):
        if module is watched:
            module.register_forward_hook(lambda module, args, out: seen.append(len(args[0])))

    change_code(ensemble, watch)
    spent = ensemble.predict(X, exit_when=0.75).spent
    gone_on = int((spent == spent.max()).sum())
    assert 0 < gone_on < len(X)
    assert seen[-1] == gone_on
    seen.clear()
    ensemble.predict(X, exit_when=0.0)
    assert seen == []  # the prices are known by now


def test_chunks_are_joined_and_samples_picked_with_what_they_spent():
    ensemble = made(EarlyExit())
    whole, parts = ensemble.predict(X, exit_when=0.75), ensemble.predict(X, exit_when=0.75, chunk=4)
    assert parts.spent.equal(whole.spent)
    assert_close(parts.probabilities, whole.probabilities)
    assert whole[2:4].spent.equal(whole.spent[2:4])
    assert whole.to(torch.float64).spent.equal(whole.spent)
    assert ensemble.predict(X).spent is None


class Counting(nn.Sequential):
    """Uses the size of the batch that came in at the end."""

    def forward(self, x):
        return super().forward(x).view(len(x), -1)


def test_a_network_that_keeps_the_size_of_its_batch_goes_on_with_single_samples():
    torch.manual_seed(0)
    model = Counting(*blocks(3))
    ensemble = pl.convert(model, EarlyExit(exits=2), example=X[:2]).eval()
    sure = float(ensemble(X)[0].detach().softmax(-1).amax(-1).median())
    with pytest.raises(InputError, match=r"must go on when samples have left[^.]*a mask [^.]*. Use chunk=1"):
        ensemble.predict(X, exit_when=sure)
    found = ensemble.predict(X, exit_when=sure, chunk=1)
    assert_close(found.probabilities, reference(ensemble, X, sure)[0])


def dense(method):
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Conv1d(8, 8, 1), nn.Tanh()) for _ in range(3)]
    return pl.convert(nn.Sequential(*layers, nn.Conv1d(8, 2, 1)), method, example=torch.zeros(2, 8, 3)).eval()


def test_a_sample_leaves_when_all_of_its_positions_are_sure():
    ensemble, x = dense(EarlyExit(exits=2)), torch.randn(9, 8, 3, generator=seeded(0))
    first = ensemble(x)[0].detach().softmax(1)
    least = first.amax(1).amin(1)
    sure = float(least.sort().values[4:6].mean())
    prediction = ensemble.predict(x, exit_when=sure)
    left = prediction.spent < prediction.spent.max()
    assert left.tolist() == (least >= sure).tolist()
    assert left.sum() == 4
    assert_close(prediction.probabilities[left], first[left])
    assert_close(prediction.probabilities[~left], ensemble.predict(x).probabilities[~left])


def test_exits_of_several_precisions_are_told_apart_from_samples_that_left():
    class Exact(nn.Sequential):
        def forward(self, x):
            return super().forward(x).float()

    ensemble = pl.convert(Exact(*blocks(3)), EarlyExit(), example=X[:2]).eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ensemble.predict(X, exit_when=1.0).members.isfinite().all()


class Again(nn.Module):
    """Runs its last block as often as it is told."""

    def __init__(self):
        super().__init__()
        self.layers = blocks(3)

    def forward(self, x, times=1):
        x = self.layers[:3](x)
        for _ in range(times):
            x = self.layers[3](x)
        return self.layers[4](x)


def test_what_a_sample_spends_is_that_of_its_own_call():
    ensemble = pl.convert(Again(), EarlyExit(exits=2), example=X[:2]).eval()
    once, thrice = (ensemble.predict({"x": X, "times": times}, exit_when=1.0).spent for times in (1, 3))
    assert (thrice - once).tolist() == [2 * 8 * 8] * len(X)


def test_it_is_for_classes_and_exits():
    with pytest.raises(InputError, match=r"network with exits, .*, got a network without exits"):
        pl.convert(blocks(2), DeepEnsembles(2)).predict(X, exit_when=0.9)
    with pytest.raises(InputError, match="exit_when needs classes"):
        pl.convert(blocks(2), EarlyExit(), "gaussian", example=X[:2]).predict(X, exit_when=0.9)
    with pytest.raises(InputError, match="exclude each other"):
        made(EarlyExit()).predict(X, exit_when=0.9, memory=10**9)
    with pytest.raises(SettingError, match="exit_when must be at most 1"):
        made(EarlyExit()).predict(X, exit_when=95)
