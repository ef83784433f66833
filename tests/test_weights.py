"""Tensors of files are checked against the network: names, shapes, types, values."""

import pytest
import torch
from torch import nn

import pluribus as pl
from pluribus.weights import check_exact_types, check_saved_types, check_shapes, check_values

HELD = {"w": torch.zeros(2, 3), "n": torch.zeros(2, dtype=torch.int64)}


def test_shapes_that_differ_are_named():
    check_shapes(HELD, HELD, "file")
    with pytest.raises(pl.CheckpointError, match=r"file must fit .* w \(2, 3\) and \(3, 2\)"):
        check_shapes(HELD, HELD | {"w": torch.zeros(3, 2)}, "file")


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_saved_types_may_all_be_of_one_other_float(dtype):
    check_saved_types(HELD, HELD | {"w": torch.zeros(2, 3, dtype=dtype)}, "file")


@pytest.mark.parametrize(
    "came",
    [
        {"w": torch.zeros(2, 3, dtype=torch.int64)},
        {"w": torch.zeros(2, 3, dtype=torch.complex64)},
        {"n": torch.zeros(2, dtype=torch.int32)},
        {"n": torch.zeros(2)},
    ],
    ids=["integers", "complex", "narrow integers", "floats"],
)
@pytest.mark.parametrize("check", [check_saved_types, check_exact_types])
def test_types_that_lose_something_are_refused(check, came):
    (name,) = came
    with pytest.raises(pl.CheckpointError, match=rf"file must have {name} of type torch\.\w+, .* got torch"):
        check(HELD, HELD | came, "file")


def test_one_tensor_of_another_float_is_refused():
    held = {"a": torch.zeros(2), "b": torch.zeros(2)}
    with pytest.raises(pl.CheckpointError, match=r"must have b of type torch.float32, .* got torch.float64"):
        check_saved_types(held, held | {"b": torch.zeros(2).double()}, "file")


def test_exact_types_may_widen_and_not_narrow():
    check_exact_types(HELD, HELD | {"w": torch.zeros(2, 3).half()}, "file")
    with pytest.raises(pl.CheckpointError, match=r"got torch\.float64"):
        check_exact_types(HELD, HELD | {"w": torch.zeros(2, 3).double()}, "file")


def test_values_must_be_finite_and_masks_may_be_infinite():
    mask = torch.tensor([0.0, -torch.inf])
    check_values({"mask": mask}, [], "file")
    for wrong, parameters in ((mask, ["mask"]), (torch.tensor([torch.nan]), [])):
        with pytest.raises(pl.CheckpointError, match=r"got 1 of . numbers of mask that are NaN or infinite"):
            check_values({"mask": wrong}, parameters, "file")


def nan(tensor):
    return torch.full_like(tensor, torch.nan)


@pytest.mark.parametrize(
    "change", [lambda t: t.to(torch.complex64) + 1j, nan, lambda t: t.long(), torch.Tensor.double]
)
def test_from_checkpoints_loses_nothing_in_silence(change, tmp_path):
    model = nn.Linear(3, 2)
    state = model.state_dict()
    torch.save(state | {"weight": change(state["weight"])}, tmp_path / "one.pt")
    with pytest.raises(pl.CheckpointError, match=r"one.pt must .* weight"):
        pl.from_checkpoints(model, [tmp_path / "one.pt"])
