"""Batches of loaders: what of them is an input of the network."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

import pluribus as pl
from pluribus.mechanisms.network.batches import accepted_by, inputs_of_batch
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.methods import DeepEnsembles
from tests.zoo import Keywords, TwoInputs

x, y = torch.randn(7, 3), torch.arange(7)


class Plain(nn.Module):
    def forward(self, x):
        return x


class Masked(nn.Module):
    def forward(self, x, mask=None):
        return x


class HuggingFace(nn.Module):
    def forward(self, input_ids=None, attention_mask=None, labels=None, **kwargs):
        return input_ids


@pytest.mark.parametrize(
    ("module", "batch", "args", "names"),
    [
        (Plain(), x, 1, []),
        (Plain(), [x], 1, []),
        (Plain(), (x, y), 1, []),
        (Plain(), [x, y], 1, []),
        (nn.Linear(3, 2), [x, y], 1, []),
        (nn.Sequential(nn.Linear(3, 2)), [x, y], 1, []),
        (Masked(), [x, y], 1, []),
        (TwoInputs(), (x, x), 2, []),
        (TwoInputs(), (x, x, y), 2, []),
        (Plain(), {"x": x, "y": y}, 0, ["x"]),
        (Keywords(), {"image": x, "age": x, "labels": y}, 0, ["age", "image"]),
        (HuggingFace(), {"input_ids": x, "labels": y}, 0, ["input_ids"]),
        (HuggingFace(), ({"input_ids": x, "attention_mask": x}, y), 0, ["attention_mask", "input_ids"]),
        (Plain(), [{"x": x, "y": y}, y], 0, ["x"]),
        (
            HuggingFace(),
            {"input_ids": x, "attention_mask": x, "token_type": x},
            0,
            ["attention_mask", "input_ids", "token_type"],
        ),
    ],
)
def test_a_batch_of_a_loader_loses_its_targets(module, batch, args, names):
    inputs = inputs_of_batch(batch, module.forward)
    assert len(inputs.args) == args
    assert sorted(inputs.keywords) == names
    assert all(tensor.is_floating_point() for tensor in inputs.tensors())


@pytest.mark.parametrize("targets", [True, False])
def test_predictions_over_a_loader_are_those_over_the_whole(targets):
    ensemble = pl.convert(nn.Linear(3, 4), DeepEnsembles(members=2))
    data = TensorDataset(x, y) if targets else TensorDataset(x)
    whole = ensemble.predict(x)
    assert_close(ensemble.predict(DataLoader(data, batch_size=3)).probabilities, whole.probabilities)
    assert_close(ensemble.predict(x, chunk=2).probabilities, whole.probabilities)


def test_a_sample_without_a_batch_axis_is_refused_with_how_to_add_it():
    ensemble = pl.convert(nn.Linear(3, 4), DeepEnsembles(members=2))
    with pytest.raises(pl.InputError, match=r"a single sample is x\[None\]"):
        ensemble.predict(x[0])


def test_batches_of_several_inputs_with_targets_are_told_apart():
    a, b, y = torch.zeros(3, 2), torch.zeros(3, 5), torch.zeros(3)

    def forward(a, b):
        return a

    for batch in (((a, b), y), [[a, b], y], (a, b, y), (a, b)):
        assert [tensor.shape for tensor in inputs_of_batch(batch, forward).args] == [a.shape, b.shape]
    assert list(inputs_of_batch(({"a": a, "b": b, "age": y}, y), forward).keywords) == ["a", "b"]


def test_accepted_by_leaves_out_what_forward_does_not_take():
    sample = Inputs((), {"a": torch.zeros(2), "text": ["x", "y"], "age": torch.zeros(2)})
    assert list(accepted_by(sample, lambda a: a).keywords) == ["a"]
    # Text is no input even where all names are taken.
    assert list(accepted_by(sample, lambda **kwargs: kwargs).keywords) == ["a", "age"]
    plain = Inputs.of(torch.zeros(2, 3))
    assert accepted_by(plain, lambda x: x) is plain
