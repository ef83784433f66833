"""Arrays to predict for come in chunks, one or several."""

import numpy as np
import pytest
import torch

from pluribus.data.input_spec import InputSpec
from pluribus.data.raw_arrays import array_inputs, several_inputs
from pluribus.errors import InputError

X = np.arange(14.0).reshape(7, 2)
SPECS = (InputSpec("ids", (4,), "int64"), InputSpec("mask", (4,), "bool"))


@pytest.mark.parametrize("kind", ["npy", "npz", "fortran"])
def test_chunks_are_the_rows_of_the_array(tmp_path, kind):
    path = tmp_path / ("x.npz" if kind == "npz" else "x.npy")
    if kind == "npz":
        np.savez_compressed(path, x=X)
    else:
        np.save(path, np.asfortranarray(X) if kind == "fortran" else X)
    chunks = list(array_inputs(path, (2,), 3, 10**6))
    assert [len(chunk) for chunk in chunks] == [3, 3, 1]
    assert torch.equal(torch.cat(chunks), torch.from_numpy(X))


def test_memory_of_a_chunk_is_limited(tmp_path):
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(InputError, match=r"3 rows of .* must take at most 40 bytes"):
        list(array_inputs(tmp_path / "x.npy", (2,), 3, 40))


def test_several_inputs_are_read_side_by_side(tmp_path):
    path = tmp_path / "x.npz"
    ids, mask = np.arange(20).reshape(5, 4), np.ones((5, 4), bool)
    np.savez(path, ids=ids, mask=mask, other=X)
    chunks = list(several_inputs(path, SPECS, 2, 10**6))
    assert [len(chunk["ids"]) for chunk in chunks] == [2, 2, 1]
    assert torch.equal(torch.cat([chunk["ids"] for chunk in chunks]), torch.from_numpy(ids))
    assert chunks[0]["mask"].dtype == torch.bool


def test_arrays_that_do_not_fit_are_refused(tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, ids=np.zeros((5, 4)), mask=np.zeros((4, 4)))
    with pytest.raises(InputError, match="as many rows in each of ids, mask"):
        list(several_inputs(path, SPECS, 8, 10**6))
    np.savez(path, ids=np.zeros((5, 4)))
    with pytest.raises(InputError, match=r"the inputs as ids, mask, got ids. Write it with numpy.savez"):
        list(several_inputs(path, SPECS, 8, 10**6))
    with pytest.raises(InputError, match=r"must be a .npz file with ids, mask"):
        list(several_inputs(tmp_path / "x.csv", SPECS, 8, 10**6))
