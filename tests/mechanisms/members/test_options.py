"""The option bank: which rows there are, what they choose, and what is left when some are dropped."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from pluribus.errors import InputError
from pluribus.mechanisms.members.code import PlainCode
from pluribus.mechanisms.members.combinations import keep_rows
from pluribus.mechanisms.members.index import Combinations
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.options import OptionTensors, draw_options, start_alike, tie_sites
from pluribus.mechanisms.network.network import Network
from tests import zoo
from tests.cases import seeded

SITES = {"0": ["0.weight", "0.bias"], "2": ["2.weight", "2.bias"]}


def bank(options=(2, 3), draws=9, train_draws=2, seed=0):
    network = Network(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).double())
    wanted = {
        name: (count, "fresh") for names, count in zip(SITES.values(), options, strict=True) for name in names
    }
    tensors = OptionTensors(network, draw_options(network, wanted, seed)[0], SITES)
    index = Combinations(tensors.sizes, keep_rows(options, draws, seeded(seed)), train_draws)
    return Members(index, tensors, PlainCode.of(network.module)).eval()


def test_a_bare_tuple_may_be_rows_or_options_and_is_refused():
    assert bank().index.pick([(1, 2)]) == [(1, 2)]
    assert bank().index.pick([1, 2]) == bank().index.pick((1, 2, 3))[:2]
    assert bank().index.pick(((1, 2), (0, 0))) == [(1, 2), (0, 0)]
    with pytest.raises(InputError, match=r"Pass \[1, 2\] for the former, \[\(1, 2\)\] for the latter"):
        bank().index.pick((1, 2))


def test_a_row_has_the_tensors_of_its_options():
    one = bank()
    own = one.tensors.parts()[1]
    rows = [(1, 2), (0, 0), (1, 2)]
    for (first, second), bound in zip(rows, one.tensors.of(rows), strict=True):
        assert_close(bound["0.weight"], own["0.weight"][first], rtol=0, atol=0)
        assert_close(bound["0.bias"], own["0.bias"][first], rtol=0, atol=0)
        assert_close(bound["2.weight"], own["2.weight"][second], rtol=0, atol=0)
    assert one.tensors.keys((1, 2)) == {"0.weight": 1, "0.bias": 1, "2.weight": 2, "2.bias": 2}


def test_rows_are_kept_in_eval_mode_and_fresh_in_training():
    one = bank(options=(3, 3), draws=4, train_draws=5)
    assert one.index.rows(training=False) == [tuple(row) for row in one.index.kept.tolist()]
    assert one.count == 4
    drawn = {tuple(one.index.rows(training=True)) for _ in range(5)}
    assert len(drawn) == 5
    assert {len(rows) for rows in drawn} == {5}


def test_the_buffer_of_rows_is_saved_and_restored():
    one, other = bank(options=(3, 3), draws=4, seed=0), bank(options=(3, 3), draws=4, seed=1)
    assert one.index.rows(training=False) != other.index.rows(training=False)
    other.load_state_dict(one.state_dict())
    assert one.index.rows(training=False) == other.index.rows(training=False)
    assert not one.index.kept.is_floating_point()


def test_rows_are_named_by_position_or_by_options():
    one = bank()
    assert one.index.pick([5, (0, 1), [1, 0], 0, 0]) == [(1, 2), (0, 1), (1, 0), (0, 0), (0, 0)]


@pytest.mark.parametrize("row", [(0,), (0, 3), (-1, 0), (0, 1, 0), (0.0, 1), "01", None, (True, 1)])
def test_a_row_that_is_none_is_refused_with_the_sites(row):
    with pytest.raises(
        InputError, match=r"0 to 5, or name one option for each site.*'0': 2, '2': 3.*got "
    ):
        bank().index.pick([row])


def test_a_position_out_of_range_is_refused():
    with pytest.raises(InputError, match="positions from 0 to 5, got 6"):
        bank().index.pick([(0, 0), 6])


def test_shrinking_drops_what_no_kept_row_uses_and_renumbers():
    one = bank(options=(3, 3), draws=9).eval()
    small = one.keep([7, 1])  # (2, 1) and (0, 1)
    assert small.tensors.sizes == small.index.sizes == {"0": 2, "2": 1}
    assert small.index.rows(training=False) == [(1, 0), (0, 0)]
    pairs = zip(
        small.tensors.of(small.index.rows(training=False)), one.tensors.of([(2, 1), (0, 1)]), strict=True
    )
    for kept, before in pairs:
        assert_close(kept, before, rtol=0, atol=0)
    assert one.tensors.sizes == {"0": 3, "2": 3}


def test_shrinking_twice_is_shrinking_once():
    one = bank(options=(3, 3), draws=9)
    twice, once = one.keep([8, 3, 1, 4]).keep([2, 0]), one.keep([1, 8])
    assert_close(dict(twice.state_dict()), dict(once.state_dict()), rtol=0, atol=0)


def test_tied_layers_are_one_site():
    layers = {"a": ["w", "a.b"], "b": ["v"], "c": ["u"], "d": ["w", "u"]}
    assert tie_sites(layers) == {"a": ["w", "a.b", "u"], "b": ["v"]}


def test_options_are_drawn_as_many_as_wanted_and_start_as_wanted():
    network = Network(zoo.mlp().double())
    wanted = {"0.weight": (3, "fresh"), "0.bias": (2, "copy"), "2.weight": (1, "fresh")}
    own, notes = draw_options(network, wanted, seed=0)
    held = network.tensors()
    assert {name: len(value) for name, value in own.items()} == {"0.weight": 3, "0.bias": 2, "2.weight": 1}
    assert_close(own["0.bias"], held["0.bias"].detach().expand(2, -1), rtol=0, atol=0)
    assert len({tuple(value.flatten().tolist()) for value in [*own["0.weight"], held["0.weight"]]}) == 4
    assert notes == []


def test_a_start_is_alike_where_several_options_are_all_equal():
    network = Network(zoo.mlp())
    weight = network.tensors()["0.weight"].detach()
    assert start_alike(network, {"0.weight": torch.stack([weight, weight])})
    assert not start_alike(network, {"0.weight": torch.stack([weight, weight + 1])})
    assert not start_alike(network, {"0.weight": weight[None]})
