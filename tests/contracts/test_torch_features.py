"""Compilation, autocast and gradient checkpointing do not change what an ensemble computes."""

import copy
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import pluribus as pl
from pluribus.methods import BatchEnsemble, DeepEnsembles, MCDropout, Single

METHODS = [
    Single(),
    DeepEnsembles(members=3),
    DeepEnsembles(members=2, prior_scale=1.0),
    BatchEnsemble(members=3),
    MCDropout(rate=0.2, draws=3),
]
each_method = pytest.mark.parametrize("method", METHODS, ids=str)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )


class Checkpointed(nn.Module):
    def __init__(self, on: bool, reentrant: bool = False) -> None:
        super().__init__()
        self.first, self.block, self.head = nn.Linear(6, 8), mlp_block(), nn.Linear(8, 3)
        self.on, self.reentrant = on, reentrant

    def forward(self, x):
        x = self.first(x)
        if self.on and self.training:
            return self.head(checkpoint(self.block, x, use_reentrant=self.reentrant))
        return self.head(self.block(x))


def mlp_block() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 8), nn.Tanh())


@each_method
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # of torch's compiler, which hides it itself
@pytest.mark.parametrize(("build", "shape"), [(mlp, (6,)), (cnn, (2, 8, 8))])
def test_compiled_ensembles_compute_the_same(build, shape, method):
    ensemble = pl.convert(build(), method, example=torch.randn(4, *shape))
    x, y = torch.randn(12, *shape), torch.randint(3, (12,))
    compiled = torch.compile(ensemble, backend="eager")
    with torch.no_grad():
        assert_close(compiled.eval()(x), ensemble.eval()(x))
    assert_close(torch.compile(ensemble.freeze(), backend="eager")(x), ensemble(x).detach())
    ensemble.train()
    again = copy.deepcopy(ensemble)
    torch.manual_seed(0)
    expected = ensemble.loss(x, y)
    expected.backward()
    torch.manual_seed(0)
    loss = torch.compile(lambda x, y: again.loss(x, y) * 1.0, backend="eager")(x, y)
    loss.backward()
    assert_close(loss, expected)
    for one, other in zip(again.parameters(), ensemble.parameters(), strict=True):
        assert_close(one.grad, other.grad)


@each_method
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_networks_have_the_gradients_of_plain_ones(method, reentrant):
    ensembles = []
    x, y = torch.randn(12, 6, dtype=torch.float64), torch.randint(3, (12,))
    for on in (False, True):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = Checkpointed(on, reentrant).double()
        ensemble = pl.convert(model, method, example=x).train()
        torch.manual_seed(1)
        # Two passes before backward: the second must not disturb what the first has to recompute.
        (ensemble.loss(x, y) + ensemble.loss(x.flip(0), y)).backward()
        ensembles.append(ensemble)
    plain, checkpointed = ensembles
    for one, other in zip(checkpointed.parameters(), plain.parameters(), strict=True):
        assert_close(one.grad, other.grad)


PROBE = """
import torch
net, x = torch.nn.Sequential({layers}), torch.randn({shape})
with torch.autocast("cpu", torch.bfloat16):
    net(x).float().sum().backward()
"""


@each_method
@pytest.mark.parametrize(
    ("build", "shape", "layers"),
    [(mlp, (6,), "torch.nn.Linear(6, 16)"), (cnn, (2, 8, 8), "torch.nn.Conv2d(2, 8, 3)")],
)
@pytest.mark.sampled(5)
def test_autocast_computes_the_same_in_lower_precision(build, shape, layers, method):
    probe = PROBE.format(layers=layers, shape=(12, *shape))
    if subprocess.run([sys.executable, "-c", probe], capture_output=True, check=False).returncode:
        pytest.skip("this machine's torch cannot run a plain network so")
    ensemble = pl.convert(build(), method, example=torch.randn(4, *shape)).eval()
    x, y = torch.randn(12, *shape), torch.randint(3, (12,))
    expected = ensemble(x)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = ensemble(x)
        prediction = ensemble.predict(x)
        ensemble.train().loss(x, y).backward()
    assert_close(outputs.float(), expected, rtol=0.1, atol=0.1)
    assert_close(prediction.probabilities.sum(1), torch.ones(12))
    assert all(p.grad is not None for p in ensemble.parameters() if p.requires_grad)
