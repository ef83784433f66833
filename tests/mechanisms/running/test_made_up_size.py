"""Made-up sizes: a network that takes images of all sizes is frozen for one that nobody chose."""

import warnings

import pytest
import torch
from torch import nn

import pluribus as pl
from pluribus.errors import InputError
from pluribus.mechanisms.network.example import takes_other_sizes
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.running.frozen import MADE_UP


def any_size() -> nn.Module:
    layers = [nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))


def one_size() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 26 * 26, 3))


@pytest.mark.parametrize("method", ["masksembles", "deep_ensembles(members=2)"])
def test_a_made_up_size_is_warned_of_noted_and_the_reason_of_the_error(method, tmp_path):
    ensemble = pl.convert(any_size(), method)
    with pytest.warns(UserWarning, match=r"like \(float32\[2, 1, 32, 32\]\) alone: .*made up.*example=x"):
        frozen = ensemble.freeze()
    assert MADE_UP in frozen.notes
    with pytest.raises(InputError, match=r"got \(float32\[2, 1, 20, 20\]\): .*made up.*freeze\(examples="):
        frozen(torch.zeros(2, 1, 20, 20))
    frozen.save(tmp_path)
    with pytest.raises(InputError, match="made up"):
        pl.load_frozen(tmp_path)(torch.zeros(2, 1, 20, 20))


@pytest.mark.parametrize("how", ["convert", "seen", "freeze"])
def test_a_size_that_was_given_needs_no_warning(how):
    x = torch.zeros(2, 1, 20, 20)
    ensemble = pl.convert(any_size(), "masksembles", example=x if how == "convert" else None).eval()
    if how == "seen":
        ensemble(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frozen = ensemble.freeze([x] if how == "freeze" else None)
    assert MADE_UP not in frozen.notes
    with pytest.raises(InputError) as caught:
        frozen(torch.zeros(2, 1, 32, 32))
    assert "made up" not in str(caught.value)


def test_a_size_that_the_network_fixes_needs_no_warning():
    for network in (one_size(), nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert MADE_UP not in pl.convert(network, "masksembles").freeze().notes


def test_export_warns_of_a_made_up_size_unless_it_is_free(tmp_path):
    pytest.importorskip("onnxscript")
    ensemble = pl.convert(any_size(), "deep_ensembles(members=2)")
    with pytest.warns(UserWarning, match="made up"):
        ensemble.export(tmp_path / "fixed.onnx")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="the frozen ensemble takes")
        ensemble.export(tmp_path / "free.onnx", dynamic={"input": {2: "height", 3: "width"}})


def test_sizes_of_tokens_and_of_square_images_are_free():
    tokens = Inputs.of(torch.zeros(2, 8, dtype=torch.long))
    assert takes_other_sizes(nn.EmbeddingBag(4, 3), tokens)

    class Square(nn.Module):
        def forward(self, x):
            return (x @ x).sum((1, 2, 3))

    assert takes_other_sizes(Square(), Inputs.of(torch.zeros(2, 1, 4, 4)))
