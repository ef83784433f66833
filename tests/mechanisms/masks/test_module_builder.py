"""Module builder: tensors of its own, and positions picked, padded or left as they are."""

import pytest
import torch
from torch import nn

from pluribus.mechanisms.masks.module_builder import ModuleBuilder
from pluribus.mechanisms.masks.positions import MustBeWhole, Positions

VALUE = torch.arange(10.0).view(2, 5)


def chosen(*positions):
    return Positions(1, torch.tensor([place in positions for place in range(5)]))


def fitted(there, wanted):
    """Fit the part of the value that is there; return the numbers and the operators."""
    builder = ModuleBuilder(torch.device("cpu"))
    entry = builder.graph.placeholder("value")
    module = builder.finish([builder.fit(entry, (2, 5), there, wanted)])
    value = VALUE if there is None else VALUE[:, there.chosen]
    calls = [node.target.__name__ for node in module.graph.nodes if node.op == "call_function"]
    return module(value)[0].tolist(), calls


def test_same_part_is_left_as_it_is():
    assert fitted(None, None)[1] == []
    assert fitted(chosen(0, 2), chosen(0, 2))[1] == []


def test_positions_in_a_row_are_a_slice():
    assert fitted(None, chosen(1, 2)) == ([[1, 2], [6, 7]], ["slice.Tensor"])


def test_other_positions_are_picked():
    assert fitted(None, chosen(0, 3)) == ([[0, 3], [5, 8]], ["index_select.default"])


def test_equal_positions_are_picked_once():
    builder = ModuleBuilder(torch.device("cpu"))
    entry = builder.graph.placeholder("value")
    first, again, other = (
        builder.fit(entry, (2, 5), None, chosen(*some)) for some in ((0, 3), (0, 3), (1, 4))
    )
    assert first is again
    assert first is not other


def test_missing_positions_are_zero():
    numbers, calls = fitted(chosen(0, 3), None)
    assert numbers == [[0, 0, 0, 3, 0], [5, 0, 0, 8, 0]]
    assert calls == ["constant_pad_nd.default", "index_select.default"]


def test_parts_along_different_axes_do_not_fit():
    builder = ModuleBuilder(torch.device("cpu"))
    entry = builder.graph.placeholder("value")
    with pytest.raises(MustBeWhole):
        builder.fit(entry, (5, 5), Positions(0, chosen(1).chosen), chosen(1))


def test_tensors_are_copies():
    builder, tensor = ModuleBuilder(torch.device("cpu")), torch.zeros(2)
    builder.hold(tensor)
    builder.hold(torch.arange(2))
    tensor += 1
    assert builder.root.tensor_0.tolist() == [0, 0]
    assert isinstance(builder.root.tensor_0, nn.Parameter)
    assert not isinstance(builder.root.tensor_1, nn.Parameter)


def test_submodules_are_held_once():
    builder = ModuleBuilder(torch.device("cpu"))
    builder.hold_module("part", nn.ReLU())
    builder.hold_module("part", nn.ReLU())
    assert len(list(builder.root.children())) == 1
