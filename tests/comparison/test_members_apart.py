"""Members trained as separate jobs end at the weights of training together."""

from concurrent.futures import Executor, Future, ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.comparison.members_apart import train_members
from pluribus.data import Split, Task
from pluribus.methods import BatchEnsemble, DeepEnsembles
from pluribus.training import Training, train

LAST = Training(epochs=3, batch=16, lr=1e-2, weight_decay=1e-2, clip=0.5, keep="last")


def make_task():
    torch.manual_seed(5)
    parts = []
    for count in (45, 25, 10):
        x = torch.randn(count, 3, dtype=torch.float64)
        parts.append(Split(x, x.argmax(1)))
    return Task("corners", *parts, classes=3)


THREE = DeepEnsembles(members=3)


def make(method=THREE):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
    return pl.convert(network, method, example=torch.zeros(2, 3)).double()


def test_members_trained_apart_equal_those_trained_together():
    task, together = make_task(), make()
    with ThreadPoolExecutor(1) as pool:
        joined = train_members(make(), task, LAST, executor=pool)
    train(together, task, LAST, show=False)
    x = task.test.x
    assert_close(joined(x), together(x))
    for row in range(3):
        assert_close(joined.member(row).state_dict(), together.member(row).state_dict())
    assert joined.calibration.temperature == pytest.approx(together.calibration.temperature)


@pytest.mark.parametrize(
    ("method", "training", "message"),
    [
        (BatchEnsemble(members=2), LAST, "must share nothing"),
        (DeepEnsembles(members=2, prior_scale=1.0), LAST, "must share nothing"),
        (DeepEnsembles(members=2, reduction="mean"), LAST, "must share nothing"),
        (DeepEnsembles(members=2, start="copy"), LAST, "in one order"),
        (DeepEnsembles(members=2), Training(epochs=1), "must keep their last weights, got keep='best'"),
    ],
)
def test_trainings_that_are_not_separate_are_refused(method, training, message):
    with pytest.raises(pl.SettingError, match=message):
        train_members(make(method), make_task(), training, executor="dask://nowhere:1")


class Failing(Executor):
    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        future.set_exception(OSError("gone"))
        return future


def test_a_member_that_cannot_be_trained_is_an_error():
    with pytest.raises(pl.PluribusError, match=r"failed with OSError: gone, twice, for member 0"):
        train_members(make(), make_task(), LAST, executor=Failing())
