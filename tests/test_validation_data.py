"""Validation data is read in every form in which a user has it."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

from pluribus import InputError, SettingError
from pluribus.data import Split, two_moons
from pluribus.validation_data import read_shifted, read_validation

X, Y = torch.randn(10, 2), torch.arange(10) % 2
CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "data",
    [(X, Y), Split(X, Y), DataLoader(TensorDataset(X, Y), batch_size=4), [(X[:5], Y[:5]), (X[5:], Y[5:])]],
    ids=["pair", "split", "loader", "list"],
)
def test_data_is_read_in_order(data):
    found = read_validation(data, nn.Linear(2, 2).forward, CPU)
    assert_close(found.inputs.args[0], X)
    assert_close(found.target, Y)
    assert found.scaling is None


def test_tasks_give_their_validation_data_and_its_scaling():
    task = two_moons(train=20)
    found = read_validation(task, nn.Linear(2, 2).forward, CPU)
    assert_close(found.inputs.args[0], task.validation.x)
    assert found.scaling is task.scaling


def test_data_without_targets_is_refused():
    with pytest.raises(InputError, match=r"data must be \(x, y\) or a loader"):
        read_validation(X, nn.Linear(2, 2).forward, CPU)


def test_shifted_data_is_none_auto_or_data():
    forward = nn.Linear(2, 2).forward
    assert read_shifted(None, forward, CPU) is None
    assert read_shifted("auto", forward, CPU) is None
    assert_close(read_shifted((X, Y), forward, CPU).target, Y)
    with pytest.raises(SettingError, match='shifted must be "auto", None or data'):
        read_shifted("noise", forward, CPU)
