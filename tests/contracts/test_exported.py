"""Every method exports to every format, and the file predicts what the ensemble predicts."""

import pytest
import torch
from torch import nn

import pluribus as pl
from pluribus.methods import (
    ECMP,
    EMP,
    MIMMO,
    MIMO,
    SAE,
    SWAG,
    BatchEnsemble,
    DeepEnsembles,
    DeepSubEnsembles,
    DropConnect,
    EarlyExit,
    Laplace,
    LayerEnsembles,
    LoRAEnsembles,
    Masksembles,
    MCDropout,
    PackedEnsembles,
    Single,
)
from tests.cases import case_named
from tests.perturb import perturbed

METHODS = [
    Single(),
    DeepEnsembles(members=2, prior_scale=0.5),
    DeepSubEnsembles(members=2),
    BatchEnsemble(members=3),
    PackedEnsembles(members=2, alpha=1.5),
    Masksembles(members=3, scale=2.0),
    MCDropout(rate=0.2, draws=3),
    DropConnect(rate=0.2, draws=3),
    LayerEnsembles(options=2, prior_scale=0.0, draws=3),
    EMP(options=3, draws=3),
    ECMP(options=2, draws=3, perturbation=0.5),
    SWAG(members=3),
    LoRAEnsembles(members=2),
    Laplace(draws=3),
    SAE(),
    MIMO(),
    MIMMO(),
    EarlyExit(),
]


def mlp() -> nn.Module:
    hidden = [nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(24, 3))


def cnn() -> nn.Module:
    layers = list[nn.Module]()
    for channels, wider in ((2, 8), (8, 16), (16, 16)):
        layers += [nn.Conv2d(channels, wider, 3, padding=1, bias=False), nn.BatchNorm2d(wider), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 3))


def resnet18() -> nn.Module:
    return pl.backbones.resnet18(in_channels=3, classes=4)


NETWORKS = {
    "mlp": (mlp, lambda: torch.randn(4, 6)),
    "cnn": (cnn, lambda: torch.randn(4, 2, 8, 8)),
    "resnet18": (resnet18, lambda: torch.randn(2, 3, 16, 16)),
    "hf_vit": (case_named("hf_vit").build, lambda: {"pixel_values": torch.randn(4, 3, 8, 8)}),
    "hf_bert": (case_named("hf_bert").build, case_named("hf_bert").inputs),
    "monai_unet": (case_named("monai_unet").build, lambda: torch.randn(4, 1, 16, 16)),
}


def converted(network: str, method: pl.Method) -> pl.Ensemble:
    """Return an ensemble whose members and statistics differ, in float32."""
    build, inputs = NETWORKS[network]
    torch.manual_seed(0)
    ensemble = pl.convert(build(), method, example=inputs()).float()
    for step in range(3):
        # SWAG keeps snapshots of its weights; other methods do nothing here.
        perturbed(ensemble, seed=step).after_step(1.0)
    # Laplace sees the training data.
    ensemble.finish([inputs()])
    return ensemble.eval()


def test_every_method_is_here():
    assert {type(method) for method in METHODS} == set(pl.Method.known().values())


QUICK = [(METHODS[4], "cnn", "onnx"), (METHODS[6], "mlp", "pt2"), (METHODS[14], "mlp", "pt2")]
EVERY = [(method, network, form) for method in METHODS for network in NETWORKS for form in ("onnx", "pt2")]
SLOW = [pytest.param(*case, marks=pytest.mark.slow) for case in EVERY if case not in QUICK]


@pytest.mark.parametrize(("method", "network", "form"), [*QUICK, *SLOW], ids=str)
def test_a_file_predicts_what_the_ensemble_predicts(method, network, form, tmp_path):
    try:
        ensemble = converted(network, method)
    except pl.ConversionError as error:
        pytest.skip(f"refused by the method: {error}")
    path = ensemble.export(tmp_path / "model", form)
    assert path.is_file()
