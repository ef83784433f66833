"""Splits: whatever a user has becomes one, and batches of it are the same."""

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from pluribus.data import Split
from pluribus.data.split import InputBatches
from pluribus.errors import InputError

A, B, Y = torch.arange(14.0).reshape(7, 2), torch.arange(35.0).reshape(7, 5), torch.arange(7) % 3
PAIRS = list(zip(A, Y, strict=True))
DICTS = [{"a": a, "b": b, "label": int(y)} for a, b, y in zip(A, B, Y, strict=True)]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(DICTS)


def test_several_inputs_lie_in_memory():
    for x in ((A, B), {"a": A, "b": B}):
        split = Split(x, Y)
        assert not split.streams
        assert split.example(3).inputs.batch == 3
    assert repr(Split({"a": A, "b": B}, Y)) == "Split(7 × a [2], b [5])"
    tokenised = Split({"a": A.numpy(), "labels": Y.numpy()})
    assert torch.equal(tokenised.y, Y)
    assert list(tokenised.x) == ["a"]


@pytest.mark.parametrize(
    "given", [DICTS, DataLoader(DICTS, batch_size=2), Stream()], ids=["list", "loader", "stream"]
)
def test_samples_that_are_dicts_stream(given):
    split = Split(given, length=7) if isinstance(given, Stream) else Split(given)
    assert split.streams
    assert split.shapes == {"a": (2,), "b": (5,)}
    batches = list(split.read(4))
    assert torch.equal(torch.cat([batch.x["b"] for batch in batches]), B)
    assert torch.equal(torch.cat([batch.target for batch in batches]), Y)
    with pytest.raises(InputError, match=r"Use split\.read"):
        _ = split.x
    assert torch.equal(split.in_memory().x["a"], A)


def test_hugging_face_datasets_stream():
    datasets = pytest.importorskip("datasets")
    columns = {"a": A.tolist(), "label": Y.tolist(), "text": ["word"] * 7}
    split = Split(datasets.Dataset.from_dict(columns))
    batch = next(split.read(4))
    assert torch.equal(batch.x["a"], A[:4])
    assert torch.equal(batch.target, Y[:4])
    assert split[2]["a"].tolist() == A[2].tolist()
    lazy = datasets.Dataset.from_dict(columns).to_iterable_dataset()
    assert torch.equal(next(Split(lazy, length=7).read(4)).x["a"], A[:4])


def test_transform_and_collate_apply_to_tensors_too():
    split = Split(A, Y, transform=lambda sample: (sample[0] + 1, sample[1]))
    assert torch.equal(next(split.read(7)).x, A + 1)
    padded = Split(
        [(torch.ones(length), 1) for length in (2, 4, 3)],
        collate=lambda samples: (
            torch.nn.utils.rnn.pad_sequence([x for x, _ in samples], batch_first=True),
            torch.tensor([y for _, y in samples]),
        ),
    )
    assert [tuple(batch.x.shape) for batch in padded.read(2)] == [(2, 4), (1, 3)]


def test_of_inputs_has_no_targets():
    for x in (A, (A, B), {"a": A}, list(A)):
        assert next(Split.of_inputs(x).read(2)).y is None
    split = Split(A, Y)
    assert Split.of_inputs(split) is split


def test_input_batches_can_be_gone_through_again():
    batches = InputBatches(Split(DICTS), 4, lambda a: a)
    for _ in range(2):
        assert torch.equal(torch.cat([inputs.keywords["a"] for inputs in batches]), A)
        assert all(list(inputs.keywords) == ["a"] for inputs in batches)


def test_an_empty_split_has_no_shapes():
    assert repr(Split(A[:0], Y[:0])) == "Split(0 samples)"


def test_sample_reads_a_part_of_a_stream():
    assert Split(A, Y).sample(2).x is A
    assert torch.equal(Split(PAIRS).sample(3).x, A[[0, 3, 6]])
    assert torch.equal(Split(DICTS).sample(100).y, Y)
    first = Split(Stream(), length=7).sample(5)
    assert torch.equal(first.x["a"], A)
