"""Networks by name: built-in ones with a width and a depth, and those of the user."""

import pickle

import pytest
import torch

import pluribus as pl
from pluribus.data import two_moons
from pluribus.data.signature import Signature
from pluribus.data.table_task import table_task
from pluribus.data.tables import Table
from pluribus.runs.named_network import Build


def test_a_reference_must_return_a_network():
    with pytest.raises(pl.SettingError, match=r"must return a torch.nn.Module, got str"):
        Build("os:getcwd", two_moons(train=20))


@pytest.mark.parametrize(("name", "hint"), [("resnet19", "resnet1"), ("MLP", "mlp")])
def test_an_unknown_network_is_refused_with_the_nearest(name, hint):
    with pytest.raises(pl.SettingError, match=f"models are .*, got {name!r}. Did you mean '{hint}"):
        Build(name, two_moons(train=20))


def test_a_network_is_built_for_its_task_in_another_process_too():
    build = pickle.loads(pickle.dumps(Build("mlp", two_moons(train=20))))
    assert build()(torch.zeros(3, 2)).shape == (3, 2)


def test_network_may_have_a_width():
    task = two_moons(train=20)
    build = Build("residual_mlp(width=8)", task)
    assert any(parameter.shape[0] == 8 for parameter in build().parameters())
    assert build.default_size("width") == 8
    assert Build("residual_mlp", task).default_size("width") == 128
    assert len(Build("residual_mlp(width=8, depth=2)", task)().blocks) == 2


@pytest.mark.parametrize(
    "name",
    [
        "residual_mlp(inputs=2)",
        "residual_mlp()",
        "residual_mlp(depth=0)",
        "residual_mlp(width=4, inputs=2)",
        "residual_mlp(width=0)",
        "residual_mlp(width=8",
    ],
)
def test_network_with_other_options_is_refused(name):
    with pytest.raises(pl.SettingError, match=r"width|depth"):
        Build(name, two_moons(train=20))


def test_codes_of_a_table_become_vectors_in_the_network():
    cities = [("Bonn", "Oslo", "Rome")[i % 3] for i in range(60)]
    table = Table(
        "t", {"age": [i * 7 % 41 for i in range(60)], "city": cities, "y": ["a", "b"] * 30}, range(60)
    )
    task = table_task(table, "y", "t", kinds="city=code")
    assert task.codes == Signature.of(task).codes == {1: 3}
    network = Build("mlp", task)()
    assert [one.num_embeddings for one in network.codes.tables] == [4]
    assert Build("residual_mlp", Signature.of(task))().codes.counts == (3,)
    assert Build("mlp", two_moons(train=20)).known["codes"] == {}
