"""Files of frozen ensembles: small, and only for graphs."""

import itertools

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.graph.packing import FEWEST_BITS
from pluribus.mechanisms.running.frozen_file import _packed
from pluribus.methods import (
    ECMP,
    EMP,
    VNN,
    BatchEnsemble,
    BayesByBackprop,
    DeepEnsembles,
    DeepSubEnsembles,
    DropConnect,
    LayerEnsembles,
    LoRAEnsembles,
    MCDropout,
)
from tests.cases import case_named

WIDTHS = (32, 64, 48, 8)
WEIGHTS = 32 * 64 + 64 * 48 + 48 * 8
BIASES = 64 + 48 + 8


def stored(method, tmp_path):
    """Return the bytes of a frozen ensemble's tensors in its file, after a look at what is read from it."""
    torch.manual_seed(0)
    layers = list[nn.Module]()
    for inputs, outputs in itertools.pairwise(WIDTHS):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    x = torch.randn(3, WIDTHS[0])
    ensemble = pl.convert(nn.Sequential(*layers[:-1]), method, example=x).eval()
    with torch.no_grad():
        for parameter in ensemble.parameters():
            # Matrices that start at zero would be stored as bits.
            parameter.add_(0.1 * torch.randn_like(parameter))
    frozen = ensemble.freeze()
    frozen.save(tmp_path / "frozen")
    again = pl.load_frozen(tmp_path / "frozen")
    # What is computed when a file is read is what was there before, bit for bit.
    assert_close(again(x), frozen(x), rtol=0, atol=0)
    for kind in (nn.Module.parameters, nn.Module.buffers):
        shapes = [sorted(tuple(tensor.shape) for tensor in kind(one)) for one in (again, frozen)]
        assert shapes[0] == shapes[1]
    tensors = load_file(tmp_path / "frozen" / "weights.safetensors")
    # Positions of rows, which are whole numbers, are left out.
    return sum(tensor.nbytes for tensor in tensors.values() if tensor.dtype != torch.int64)


FACTORS = sum(WIDTHS[:-1]) + sum(WIDTHS[1:])
HIDDEN = 64 + 48
FIRST = 32 * 64 + 64
LAST = 48 * 8 + 8
TRUNK = WEIGHTS + BIASES - LAST
BYTES = [
    # Two vectors and a bias for each member.
    (BatchEnsemble(members=4), 4 * (WEIGHTS + 4 * (FACTORS + BIASES))),
    # Matrices of rank 2 of all layers but the last, of which each member has its own.
    (
        LoRAEnsembles(members=4, rank=2),
        4 * (32 * 64 + 64 * 48 + HIDDEN) + 4 * 4 * (2 * (32 + 64 + 64 + 48) + 48 * 8 + 8),
    ),
    # A bit for each weight and draw.
    (DropConnect(draws=8), 4 * (WEIGHTS + BIASES) + WEIGHTS),
    # A bit for each input of a layer and draw.
    (MCDropout(rate=0.2, draws=16), 4 * (WEIGHTS + BIASES) + 16 * sum(WIDTHS[:-1]) // 8),
    # Both options of the last layer; a bit for each of its weights and draw, and a byte for each bias.
    (ECMP(options=2, draws=8), 4 * (TRUNK + 2 * LAST) + 8 * (48 * 8 // 8 + 8)),
    # A choice of three takes a byte.
    (ECMP(options=3, draws=8), 4 * (TRUNK + 3 * LAST) + 8 * LAST),
    # The first layer, which all members share, and all others of each.
    (DeepSubEnsembles(members=4), 4 * (FIRST + 4 * (WEIGHTS + BIASES - FIRST))),
    # Means and deviations, and a random number for each output and draw.
    (VNN(draws=8), 4 * (2 * (WEIGHTS + BIASES) + 8 * BIASES)),
    # Random numbers for each weight take as much as the weights.
    (BayesByBackprop(draws=8), 8 * 4 * (WEIGHTS + BIASES)),
    # All options of all layers.
    (LayerEnsembles(options=2, draws=8, prior_scale=0.0), 2 * 4 * (WEIGHTS + BIASES)),
]


@pytest.mark.parametrize(("method", "count"), BYTES, ids=lambda one: type(one).__name__)
def test_files_have_the_bytes_of_what_members_share_and_what_they_own(method, count, tmp_path):
    assert stored(method, tmp_path) == count


def test_patches_are_stored_once(tmp_path):
    method = EMP(options=3, draws=30)
    count = stored(method, tmp_path)
    assert 4 * (WEIGHTS + BIASES) < count <= 4 * (WEIGHTS + 3 * BIASES + 3 * 48 * 8)


@pytest.mark.parametrize("name", ["attention", "lstm"])
def test_operators_that_may_contain_dropout_are_saved(name, tmp_path):
    case = case_named(name)
    frozen = pl.convert(case.model(), DeepEnsembles(members=2), example=case.inputs()).eval().freeze()
    frozen.save(tmp_path / "frozen")
    assert_close(pl.load_frozen(tmp_path / "frozen")(case.inputs()), frozen(case.inputs()), rtol=0, atol=0)


def test_looped_members_cannot_be_saved(tmp_path):
    case = case_named("data_dependent")
    frozen = pl.convert(case.model(), DeepEnsembles(members=2), example=case.inputs()).freeze()
    with pytest.raises(pl.InputError, match="members that are looped"):
        frozen.save(tmp_path / "frozen")
    assert not (tmp_path / "frozen").exists()


def test_masks_alone_are_bits():
    mask = (torch.rand(FEWEST_BITS) > 0.5).float() * 2
    mask[:2] = torch.tensor([0.0, 2.0])
    assert _packed(mask, parameter=False)[0].dtype == torch.uint8
    for other, parameter in ((mask, True), (mask[:9], False), (torch.rand(FEWEST_BITS), False)):
        assert _packed(other, parameter)[0] is other
