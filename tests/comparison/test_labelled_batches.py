"""Labelled batches: every form of data gives the same samples, in chunks and up to a limit."""

import pytest
import torch

import pluribus as pl
from pluribus.comparison import labelled_batches as module
from pluribus.comparison.labelled_batches import labelled_batches
from pluribus.data import Split, Task

X, Y = torch.arange(12.0).reshape(6, 2), torch.tensor([0, 1, 0, 1, 0, 1])
FORMS = {
    "pair": (X, Y),
    "split": Split(X, Y),
    "task": Task("mine", Split(X + 9, Y), Split(X, Y), Split(X + 5, Y), classes=2),
    "loader": [(X[:4], Y[:4]), (X[4:], Y[4:])],
}


@pytest.mark.parametrize("form", FORMS)
def test_labelled_batches_give_the_samples_of_every_form(form):
    found = labelled_batches(FORMS[form], torch.device("cpu"))
    assert torch.equal(torch.cat([inputs.args[0] for inputs, _ in found]), X)
    assert torch.equal(torch.cat([y for _, y in found]), Y)


def test_labelled_batches_are_cut_into_chunks_up_to_a_limit(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 2)
    monkeypatch.setattr(module, "MOST_SAMPLES", 4)
    assert [len(y) for _, y in labelled_batches((X, Y), torch.device("cpu"))] == [2, 2]


def test_labelled_batches_refuse_a_single_sample():
    with pytest.raises(pl.InputError, match="at least two samples"):
        labelled_batches((X[:1], Y[:1]), torch.device("cpu"))
