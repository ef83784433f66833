"""The folder of a run names its task and network, and holds a signature without samples."""

import json

import torch
from torch import nn

import pluribus as pl
from pluribus.comparison.run_folder import FILE, described, given_delimiter, write_run
from pluribus.data import Split, Task
from pluribus.data.signature import FILE as SIGNATURE
from pluribus.data.signature import Signature
from pluribus.methods import DeepEnsembles
from pluribus.training import Training


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(2, 3), nn.Linear(5, 3)

    def forward(self, a, b):
        return self.first(a) + self.second(b)


def test_a_run_with_two_inputs_is_described(tmp_path):
    x = {"a": torch.full((9, 2), 77.0), "b": torch.zeros(9, 5), "age": torch.zeros(9)}
    split = Split(x, torch.arange(9) % 3)
    task = Task("both", split, split, split, classes=3, class_names=("u", "v", "w"))
    ensemble = pl.convert(Both(), DeepEnsembles(members=2), example={"a": x["a"][:2], "b": x["b"][:2]})
    write_run(tmp_path, "mine:task", ["delimiter=;"], "mine:net", Training(epochs=1), task, ensemble)
    document = json.loads((tmp_path / FILE).read_text())
    assert (document["task"], document["model"]) == ("mine:task", "mine:net")
    assert document["data"] == described(task)
    signature = Signature.load(tmp_path)
    assert [one.key for one in signature.inputs] == ["a", "b"]  # the network takes no age
    assert signature.has_several_inputs
    assert signature.delimiter == ";"
    example = signature.example()
    assert ensemble(*example.args, **example.keywords).shape == (2, 2, 3)
    assert "77" not in (tmp_path / SIGNATURE).read_text()


def test_given_delimiter_has_a_default():
    assert given_delimiter(None) == ","
    assert given_delimiter(["path=x", "delimiter=;"]) == ";"
