"""Other engines compute what the frozen ensemble computes, or are refused by name."""

import copy
import pickle
import threading
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.export import compiled
from pluribus.export.runtime import Runtime
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.methods import DeepEnsembles, MCDropout
from tests.cases import case_named

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def frozen_mlp(method=None, **settings):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    ensemble = pl.convert(network, method or DeepEnsembles(members=3), example=torch.randn(2, 6))
    return ensemble.eval().freeze(**settings)


class Wrong(Runtime):
    """A runtime that returns something else than the graph, or fails."""

    name = "wrong"

    def __init__(self, change):
        self.change = change

    def check(self, device):
        assert device.type == "cpu"

    def compile(self, graph):
        return lambda *inputs: self.change(graph.module(*inputs))


def fail(outputs):
    raise OSError("no such instruction")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda outputs: outputs * 1.01,
            "what the graph computes within 1e-05, got a difference",
        ),
        (lambda outputs: outputs[:1], "got a difference of inf"),
        (lambda outputs: outputs * torch.nan, "got a difference of nan"),
        (fail, "engine 'wrong' must run the graph, got OSError: no such instruction. Use the frozen"),
    ],
)
def test_an_engine_that_computes_something_else_is_refused(change, message, monkeypatch):
    monkeypatch.setitem(compiled.RUNTIMES, "wrong", Wrong(change))
    with pytest.raises(pl.ExportError, match=message):
        frozen_mlp().with_engine("wrong")


def test_unknown_engines_and_looped_members_are_refused():
    with pytest.raises(pl.SettingError, match="one of onnxruntime, openvino, inductor, got 'x'"):
        frozen_mlp().with_engine("x")
    case = case_named("data_dependent")
    looped = pl.convert(case.model(), DeepEnsembles(members=2), example=case.inputs()).eval().freeze()
    with pytest.raises(pl.ExportError, match="must be a graph to be run by another engine, got: members are"):
        looped.with_engine("onnxruntime")


def check_engine(frozen, engine):
    """Compare an engine with the graph: in threads, copied, chunked and saved."""
    quick = frozen.with_engine(engine)
    assert (frozen.engine, quick.engine) == ("torch", engine)
    wrong = list[int]()

    def call(seed):
        generator = torch.Generator().manual_seed(seed)
        for batch in (1, 2, 5, 8):
            x = torch.randn(batch, 6, generator=generator)
            if not torch.allclose(quick(x), frozen(x), **CLOSE):
                wrong.append(batch)

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    x = torch.randn(9, 6)
    assert_close(quick.predict(x, chunk=4).probabilities, frozen.predict(x).probabilities, **CLOSE)
    assert_close(copy.deepcopy(quick)(x), frozen(x), **CLOSE)
    # The engine runs the plain graph, in which nothing is written in place.
    plain, reused = quick.explain(x), frozen.explain(x)
    assert replace(plain, peak_bytes=None) == replace(reused, peak_bytes=None)
    assert plain.peak_bytes.planned > reused.peak_bytes.planned
    with pytest.raises(pl.InputError, match="expected inputs of the kind"):
        quick(torch.randn(2, 7))
    with pytest.raises(pl.InputError, match="must be run by torch to be moved or cast"):
        quick.double()
    return quick


def test_onnxruntime_runs_a_frozen_ensemble(tmp_path):
    frozen = frozen_mlp(memory=1 << 20)
    quick = check_engine(frozen, "onnxruntime")
    quick.save(tmp_path / "frozen")
    # A loaded one has no example: inputs are made up.
    again, x = pl.load_frozen(tmp_path / "frozen"), torch.randn(4, 6)
    assert_close(again.with_engine("onnxruntime")(x), frozen(x), **CLOSE)


@pytest.mark.slow
def test_engines_are_made_again_from_a_pickle():
    frozen, x = frozen_mlp(), torch.randn(4, 6)
    quick = pickle.loads(pickle.dumps(frozen.with_engine("onnxruntime")))
    assert_close(quick(x), frozen(x), **CLOSE)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch imports modules of its own that warn
@pytest.mark.parametrize("engine", ["openvino", "inductor"])
def test_other_engines_run_a_frozen_ensemble(engine):
    if engine == "openvino":
        pytest.importorskip("openvino")
    check_engine(frozen_mlp(MCDropout(draws=4)), engine)


def as_float32(tensor):
    return tensor.float() if tensor.is_floating_point() else tensor


# The compiler of torch uses parts of torch that are deprecated.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.slow
@pytest.mark.parametrize("engine", list(compiled.RUNTIMES))
@pytest.mark.parametrize("name", ["residual_cnn", "hf_vit", "hf_bert", "monai_unet", "keywords"])
def test_every_engine_runs_every_kind_of_network(name, engine):
    if engine == "openvino":
        pytest.importorskip("openvino")
    case = case_named(name)
    inputs = Inputs.of(case.inputs()).each(as_float32)
    inputs = inputs.keywords or inputs.args
    frozen = pl.convert(case.model().float(), DeepEnsembles(members=2), example=inputs).eval().freeze()
    quick = frozen.with_engine(engine)
    assert_close(quick.predict(inputs).probabilities, frozen.predict(inputs).probabilities, **CLOSE)


def test_each_kind_of_inputs_has_a_compiled_graph(monkeypatch):
    monkeypatch.setitem(compiled.RUNTIMES, "same", Wrong(lambda outputs: outputs + 0.0))
    network = nn.Sequential(nn.Conv1d(2, 4, 3), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 3))
    ensemble = pl.convert(network, DeepEnsembles(members=2), example=torch.randn(2, 2, 8)).eval()
    frozen = ensemble.freeze(examples=[torch.randn(2, 2, 8), torch.randn(2, 2, 6)])
    quick = frozen.with_engine("same")
    for length in (8, 6):
        x = torch.randn(3, 2, length)
        assert_close(quick(x), frozen(x))
