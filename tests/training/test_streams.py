"""Training on streams: the weights of training in memory, resumed too, with weights and several inputs."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, Dataset, IterableDataset, WeightedRandomSampler

import pluribus as pl
from pluribus.data import Split, Task
from pluribus.errors import SettingError
from pluribus.methods import DeepEnsembles
from pluribus.training import Training, train

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(70, 4, generator=GENERATOR)
Y = (X[:, 0] > 0).long()
PAIRS = list(zip(X, Y, strict=True))


class Numbered(Dataset):
    def __init__(self, pairs=PAIRS):
        self.pairs = pairs

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, place):
        return self.pairs[place]


class Noisy(Numbered):
    """A dataset that augments by itself."""

    def __getitem__(self, place):
        x, y = self.pairs[place]
        return x + 0.1 * torch.randn(4), y


class Rotated(IterableDataset):
    """A stream whose order depends on the epoch."""

    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter(PAIRS[self.epoch :] + PAIRS[: self.epoch])


def task_of(split, test=None):
    return Task("mine", split, Split(X[:20], Y[:20]), test or Split(X[:20], Y[:20]), classes=2)


def trained(split, method=None, out=None, stop=None, **settings):
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))
    torch.manual_seed(1)
    for layer in (network[0], network[3]):
        layer.reset_parameters()
    ensemble = pl.convert(network, method or DeepEnsembles(members=2), example=X[:2])
    task = task_of(split)

    def interrupt(row):
        if row["epoch"] == stop:
            raise KeyboardInterrupt

    training = Training(epochs=4, batch=16, **settings)
    train(ensemble, task, training, out=out, show=False, on_epoch=None if stop is None else interrupt)
    return ensemble.state_dict()


def same(one, other):
    for name, value in one.items():
        assert_close(value, other[name], rtol=0, atol=0, msg=name)


SHUFFLED = DeepEnsembles(members=2, shuffle_members=True)


@pytest.mark.parametrize("method", [DeepEnsembles(members=2), SHUFFLED], ids=["one order", "two orders"])
def test_streamed_samples_train_to_the_weights_of_samples_in_memory(method):
    expected = trained(Split(X, Y), method)
    same(trained(Split(Numbered()), method), expected)
    same(trained(Split(DataLoader(Numbered(), batch_size=16, shuffle=True)), method), expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Split(Numbered()),
        lambda: Split(Noisy()),
        lambda: Split(Rotated(), length=70),
        lambda: Split(
            DataLoader(
                Numbered(),
                batch_size=16,
                sampler=WeightedRandomSampler(torch.ones(70), 70, generator=torch.Generator().manual_seed(3)),
            )
        ),
    ],
    ids=["numbered", "augmented", "iterable", "sampler"],
)
def test_resumed_training_ends_with_the_same_weights(tmp_path, make):
    whole = trained(make(), out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        trained(make(), out=tmp_path / "cut", stop=3)
    same(trained(make(), out=tmp_path / "cut"), whole)


def test_batches_of_a_loader_replace_those_of_the_settings():
    loader = DataLoader(Numbered(), batch_size=10)
    ensemble = pl.convert(nn.Linear(4, 2), DeepEnsembles(members=2))
    rows = train(ensemble, task_of(Split(loader)), Training(epochs=2, batch=64), show=False)
    assert rows[-1]["step"] == 14


def test_an_order_per_member_is_refused_by_name():
    ensemble = pl.convert(nn.Linear(4, 2), SHUFFLED, example=X[:2])
    with pytest.raises(
        SettingError, match=r"deep_ensembles gives each member .* got training samples of Rotated"
    ):
        train(ensemble, task_of(Split(Rotated(), length=70)), Training(epochs=1), show=False)


def test_samples_of_weight_zero_are_not_learnt():
    # Half of the labels are wrong, and do not count.
    wrong = torch.cat((X, X)), torch.cat((Y, 1 - Y))
    weights = torch.cat((torch.ones(70), torch.zeros(70)))
    ensemble = pl.convert(nn.Linear(4, 2), DeepEnsembles(members=2))
    train(ensemble, task_of(Split(*wrong, weights=weights)), Training(epochs=60, lr=0.05), show=False)
    assert (ensemble.predict(X).labels == Y).double().mean() > 0.9


def test_probabilities_of_classes_are_learnt():
    soft = nn.functional.one_hot(Y, 2) * 0.8 + 0.1
    ensemble = pl.convert(nn.Linear(4, 2), DeepEnsembles(members=2))
    split = Split(X, soft)
    task = Task("soft", split, split, split, classes=2)
    training = Training(epochs=100, lr=0.05, label_smoothing=0.1)
    train(ensemble, task, training, show=False)
    confidence = ensemble.predict(X).confidence
    assert (ensemble.predict(X).labels == Y).double().mean() > 0.9
    assert confidence.median() < 0.95


def test_class_weights_move_the_decision():
    ensemble = pl.convert(nn.Linear(4, 2), DeepEnsembles(members=2))
    split = Split(X, Y)
    task = Task("mine", split, split, split, classes=2, class_weights=(1.0, 50.0))
    train(ensemble, task, Training(epochs=30, lr=0.05), show=False)
    assert (ensemble.predict(X).labels == 1).double().mean() > Y.double().mean() + 0.1
