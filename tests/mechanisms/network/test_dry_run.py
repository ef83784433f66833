"""Rehearsals: the network runs, and afterwards nothing has happened."""

import logging
import sys
import warnings
from io import StringIO

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.network.dry_run import dry_run, seeded, silence
from pluribus.methods import MCDropout
from tests.cases import CASES, case_named, each, run


@each([case for case in CASES if not case.name.startswith("hf")])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_a_rehearsal_leaves_no_trace(case, training):
    model, x = case.model(), case.inputs()
    next(model.children(), model).eval()
    modes = [module.training for module in model.modules()]
    state, random = {name: t.clone() for name, t in model.state_dict().items()}, torch.get_rng_state()
    with dry_run(model, training):
        assert {module.training for module in model.modules()} == {training}
        run(model, x)
    assert [module.training for module in model.modules()] == modes
    assert_close(dict(model.state_dict()), state, rtol=0, atol=0)
    assert_close(torch.get_rng_state(), random)


def test_an_error_leaves_no_trace_either():
    case = case_named("batch_norm_mlp")
    model = case.model().eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def fail():
        with dry_run(model, training=True):
            model(case.inputs())
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert not model[1].training
    assert_close(dict(model.state_dict()), before, rtol=0, atol=0)


def test_unsaved_buffers_are_restored_too():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()), persistent=False)

        def forward(self, x):
            self.calls += 1
            return x

    model = Counting()
    with dry_run(model, training=True):
        model(torch.zeros(1))
    assert_close(model.calls, torch.zeros(()))


class Replacing(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        self.mean = x.mean(0)
        return x


def test_a_buffer_that_code_replaces_is_restored():
    model = Replacing()
    with dry_run(model, training=True):
        model(torch.ones(4, 3))
    assert_close(model.mean, torch.zeros(3))


class Lazy(nn.Module):
    """Registers a buffer when it first runs."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        if not hasattr(self, "mask"):
            self.register_buffer("mask", torch.ones(2, device=x.device), persistent=False)
        return self.layer(x) * self.mask


def test_a_buffer_that_the_run_registers_is_gone_afterwards():
    model = Lazy()
    with dry_run(model, training=True):
        model(torch.zeros(4, 3))
    assert not hasattr(model, "mask")


def test_a_network_that_registers_buffers_late_can_be_converted():
    ensemble = pl.convert(Lazy(), MCDropout(rate=0.5, draws=2), example=torch.zeros(4, 3)).eval()
    assert ensemble(torch.ones(4, 3)).shape == (2, 4, 2)


def test_warnings_wait_for_a_real_run():
    class Warning(nn.Module):
        def forward(self, x):
            warnings.warn("careful", UserWarning, stacklevel=2)
            return x

    with dry_run(Warning(), training=False):
        Warning()(torch.zeros(1))
    with pytest.warns(UserWarning, match="careful"):
        Warning()(torch.zeros(1))


def test_seeded_random_numbers_follow_from_the_seed_and_are_restored():
    before = torch.get_rng_state()
    draws = []
    for seed in (3, 3, 4):
        with seeded(seed):
            draws.append(torch.rand(5))
    assert_close(draws[0], draws[1], rtol=0, atol=0)
    assert not torch.equal(draws[0], draws[2])
    assert_close(torch.get_rng_state(), before)


def test_silence_keeps_graphs_and_logs_of_torch_from_the_user(capsys):
    heard, logger = StringIO(), logging.getLogger("torch.some.part")
    handler = logging.StreamHandler(heard)
    logger.addHandler(handler)
    try:
        with silence():
            logger.error("a traceback")
            print("a graph", file=sys.stderr)
        logger.error("afterwards")
    finally:
        logger.removeHandler(handler)
    assert (heard.getvalue(), capsys.readouterr().err) == ("afterwards\n", "")
