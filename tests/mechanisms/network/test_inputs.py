"""Inputs: one call of the network, counted, cut, moved and read from loaders."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from pluribus.errors import InputError
from pluribus.mechanisms.network.inputs import Inputs

x, y = torch.randn(7, 3), torch.arange(7)


def test_a_tensor_a_tuple_and_a_mapping_are_inputs():
    assert Inputs.of(x).args == (x,)
    assert Inputs.of((x, 3)).args == (x, 3)
    assert Inputs.of({"a": x}).keywords == {"a": x}
    inputs = Inputs((x,), {"scale": 2})
    assert Inputs.of(inputs) is inputs


@pytest.mark.parametrize("value", [[x], None, 3, "x", x.numpy()], ids=lambda value: type(value).__name__)
def test_anything_else_is_refused_with_a_remedy(value):
    with pytest.raises(
        InputError, match=rf"got {type(value).__name__}\. Convert arrays with torch\.as_tensor"
    ):
        Inputs.of(value)


def test_keywords_are_a_new_dict():
    inputs = Inputs.of({"a": x})
    inputs.keywords["a"] = None
    assert inputs.keywords["a"] is x


def test_the_batch_is_the_first_axis_of_the_first_tensor():
    assert Inputs((3, torch.tensor(1.0), x), {}).batch == 7
    assert Inputs((), {"flag": True, "x": x}).batch == 7
    assert Inputs((x, torch.zeros(2, 2)), {}).batch == 7


def test_an_empty_batch_is_refused():
    with pytest.raises(InputError, match=r"at least one sample, got shape \(0, 3\)"):
        _ = Inputs.of(torch.zeros(0, 3)).batch


@pytest.mark.parametrize(
    "inputs", [Inputs(), Inputs((3,), {"a": None}), Inputs((torch.tensor(1.0),), {})], ids=str
)
def test_inputs_without_a_batch_are_refused(inputs):
    with pytest.raises(InputError, match="a dense tensor with a batch axis, got"):
        _ = inputs.batch


def test_only_tensors_with_the_batch_are_cut():
    mask, flag = torch.zeros(3, 3), object()
    part = Inputs((x, mask, flag), {"y": y, "scale": torch.tensor(2.0), "none": None}).take(slice(1, 3))
    assert_close(part.args[0], x[1:3])
    assert part.args[1] is mask
    assert part.args[2] is flag
    assert_close(part.keywords["y"], y[1:3])
    assert part.keywords["scale"] == 2
    assert part.keywords["none"] is None


def test_samples_are_taken_in_any_order():
    order = torch.tensor([4, 4, 0])
    part = Inputs((x,), {"y": y}).take(order)
    assert_close(part.args[0], x[order])
    assert_close(part.keywords["y"], y[order])
    assert part.batch == 3


def test_a_whole_batch_is_one_chunk_without_a_copy():
    inputs = Inputs((torch.randn(3, 2),), {})
    assert [next(iter(inputs.chunks(size))) is inputs for size in (None, 3, 9)] == [True] * 3
    assert next(iter(inputs.chunks(2))) is not inputs


@settings(deadline=None)
@given(st.integers(1, 12), st.one_of(st.none(), st.integers(1, 15)))
def test_chunks_are_the_batch_in_pieces(batch, size):
    values = torch.arange(batch)
    chunks = list(Inputs((values,), {"twice": 2 * values, "constant": torch.ones(20)}).chunks(size))
    assert_close(torch.cat([chunk.args[0] for chunk in chunks]), values)
    assert_close(torch.cat([chunk.keywords["twice"] for chunk in chunks]), 2 * values)
    assert all(chunk.batch == (size or batch) for chunk in chunks[:-1])
    assert 1 <= chunks[-1].batch <= (size or batch)
    assert all(len(chunk.keywords["constant"]) == 20 for chunk in chunks)


def test_parts_of_a_batch_are_joined_without_what_they_have_in_common():
    whole = Inputs((x[:6], torch.ones(2, 3)), {"scale": 2})
    parts = [whole.take(slice(start, start + 2)) for start in (0, 2, 4)]
    joined = Inputs.joined(parts)
    assert_close(joined.args[0], x[:6])
    assert joined.args[1] is whole.args[1]
    assert_close(Inputs.joined([whole, whole]).args[0], torch.cat([x[:6], x[:6]]))


def test_every_tensor_moves_to_another_device():
    moved = Inputs((x, torch.zeros(3, 3)), {"y": y, "scale": torch.tensor(1.0)}).to(torch.device("meta"))
    assert [tensor.device.type for tensor in moved.tensors()] == ["meta"] * 4


def test_inputs_print_dtypes_and_shapes():
    assert str(Inputs((x, 3), {"y": y})) == "(float32[7, 3], 3, y=int64[7])"


def test_the_device_is_shown_where_it_is_not_the_cpu():
    assert str(Inputs.of(torch.zeros(2, 3, device="meta"))) == "(float32[2, 3] on meta)"


def test_a_sparse_tensor_has_no_batch():
    adjacency = torch.eye(7).to_sparse()
    inputs = Inputs.of((x, adjacency))
    assert inputs.batch == 7
    assert inputs.take(slice(0, 3)).args[1] is adjacency
    with pytest.raises(InputError, match=r"dense tensor.*got \(sparse_coo float32\[7, 7\]\).*to_dense"):
        _ = Inputs.of(adjacency).batch


def test_free_sizes_stay_with_an_example():
    free = {0: frozenset({1})}
    example = Inputs((x,), {}, free)
    for same in (example.copy(), example.doubled(), example.take(slice(1)), example.to(x.device)):
        assert same.free == free
    assert Inputs.of(x).free is None
