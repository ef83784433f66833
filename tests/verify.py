"""Verify: how tests reach what is inside an ensemble, and check all its forms against one another.

Tests of mechanisms need the machine underneath. They reach it through these functions alone, so that a change
inside of it changes this file and not fifty tests.
"""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.members.caller import Caller
from pluribus.mechanisms.members.index import Row
from pluribus.mechanisms.members.skeleton import Modes, modes_of
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.running.engine import Job


def caller_of(ensemble: pl.Ensemble) -> Caller:
    """Return what calls the network's code."""
    return ensemble.members.code.caller


def code_of(ensemble: pl.Ensemble) -> nn.Module:
    """Return the network's code, from which skeletons are copied."""
    return caller_of(ensemble).module


def modes(ensemble: pl.Ensemble) -> Modes:
    """Return the mode of every module of the code."""
    return caller_of(ensemble).modes


def change_code(ensemble: pl.Ensemble, change: Callable[[nn.Module], None]) -> None:
    """Apply a change to every module of the code; the next call sees it."""
    caller = caller_of(ensemble)
    for module in caller.module.modules():
        change(module)
    # Modes are read when `train` sets them, and idle skeletons are copies of the code as it was.
    caller.modes = modes_of(caller.module)
    caller._skeletons._idle.clear()


def job(ensemble: pl.Ensemble, *inputs: Tensor, rows: Sequence[Row] | None = None, memory: int | None = None):
    """Return what an engine is given for these rows, or for all rows of the ensemble's mode."""
    rows = ensemble.members.index.rows(ensemble.training) if rows is None else rows
    given = tuple(Inputs.of(one) for one in inputs)
    return Job(ensemble.members, tuple(rows), given, modes(ensemble), memory)


def looped_copy(ensemble: pl.Ensemble) -> pl.Ensemble:
    """Return an equal ensemble whose members are not stacked."""
    looped = copy.deepcopy(ensemble)
    caller_of(looped).cache["stacked"] = "for this test"
    return looped


def refused_by_vmap(ensemble: pl.Ensemble) -> list[object]:
    """Return the ways of running that `torch.vmap` refused for this network."""
    return [key for key in caller_of(ensemble).cache if "vmap" in key]


def member_outputs(ensemble: pl.Ensemble, inputs: Tensor) -> Tensor:
    """Return the outputs of `member(i)`, one network after the other: the executable specification."""
    with torch.no_grad():
        return torch.stack([ensemble.member(place)(inputs) for place in range(len(ensemble.weights))])


def verify_forms(
    ensemble: pl.Ensemble, network: Callable[[], nn.Module], inputs: Tensor, folder: Path
) -> None:
    """Check that an ensemble, frozen, planned, shrunk, saved and copied, computes what its members do."""
    expected = member_outputs(ensemble.eval(), inputs)
    some = [len(expected) - 1, 0]
    assert not torch.equal(expected[0], expected[-1])
    with torch.no_grad():
        assert_close(ensemble(inputs), expected)
        assert_close(copy.deepcopy(ensemble)(inputs), expected)
        assert_close(ensemble.freeze()(inputs), expected)
        planned = ensemble.predict(inputs, memory=1 << 40)
        assert_close(planned.member_probabilities, expected.softmax(2))
        few = ensemble.shrink(some)
        assert_close(few(inputs), expected[some])
        assert_close(few.freeze()(inputs), expected[some])
        few.save(folder / "few")
        assert_close(pl.load(folder / "few", network(), example=inputs)(inputs), expected[some])
