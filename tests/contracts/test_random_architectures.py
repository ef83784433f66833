"""Random small networks through every method: converted rightly or refused by name, never in silence."""

import copy
import math
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.running.batched import STACKED_ROWS
from pluribus.methods import (
    ECMP,
    EMP,
    BatchEnsemble,
    DeepEnsembles,
    DeepSubEnsembles,
    LayerEnsembles,
    Masksembles,
    MCDropout,
    PackedEnsembles,
    Single,
)
from tests.cases import logits, run, seeded
from tests.zoo import Apply, Residual

BATCH, CLASSES, SIDE, LENGTH, VOCABULARY = 8, 3, 6, 5, 11
WIDTHS = st.integers(3, 7)  # below 3, normalisation leaves no signal
RATE = 0.5
PATCHES = {
    "where": st.sampled_from([("norm", "output"), ("input", "norm", "output"), "*"]),
    "perturbation": st.just(0.5),
    "train_draws": st.integers(1, 2),
    "objective": st.sampled_from(["decay", "kl"]),
}
METHODS = {
    Masksembles: st.builds(
        Masksembles,
        members=st.integers(1, 3),
        scale=st.sampled_from([1, 1.7, 3.0, math.inf]),
        repeat=st.booleans(),
        align=st.just(1),
    ),
    Single: st.just(Single()),
    DeepEnsembles: st.builds(
        DeepEnsembles,
        members=st.sampled_from([1, 3, STACKED_ROWS]),
        prior_scale=st.sampled_from([0.0, 0.5]),
        start=st.sampled_from(["fresh", "copy"]),
    ),
    BatchEnsemble: st.builds(
        BatchEnsemble, members=st.integers(1, 3), std=st.sampled_from([0.0, 0.5]), repeat=st.booleans()
    ),
    MCDropout: st.builds(  # so many draws of so many units are all alike about once in a million
        MCDropout,
        rate=st.sampled_from([0.0, 0.3, 0.6]),
        draws=st.just(6),
        train_draws=st.integers(1, 2),
        insert=st.sampled_from([None, True, False]),
    ),
    PackedEnsembles: st.builds(
        PackedEnsembles,
        members=st.integers(2, 3),
        alpha=st.sampled_from([1.0, 1.6, 4.0]),
        gamma=st.integers(1, 2),
        min_channels=st.just(1),
    ),
    LayerEnsembles: st.builds(
        LayerEnsembles,
        options=st.integers(2, 3),
        prior_scale=st.sampled_from([0.0, 0.5]),
        draws=st.sampled_from([3, 9]),
        train_draws=st.integers(1, 3),
    ),
    EMP: st.builds(EMP, options=st.integers(1, 3), draws=st.just(9), divide=st.booleans(), **PATCHES),
    ECMP: st.builds(ECMP, options=st.integers(1, 3), draws=st.just(3), per_sample=st.booleans(), **PATCHES),
    DeepSubEnsembles: st.builds(
        DeepSubEnsembles, members=st.integers(2, 3), trunk=st.sampled_from([0.0, 0.3, 0.7])
    ),
}
EXAMPLES = {Single: 4, DeepEnsembles: 6, BatchEnsemble: 6, MCDropout: 5, PackedEnsembles: 4}
EXAMPLES |= {LayerEnsembles: 3, DeepSubEnsembles: 3, Masksembles: 4, EMP: 2, ECMP: 2}
"""Networks that a test tries of each method; the slow test tries ten times as many, `make fuzz` thousands."""


class Functional(nn.Module):
    """Dropout that is a function, not a layer."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, RATE, training=self.training)


class Checked(nn.Module):
    """Looks at its values, so that the data flow of the network cannot be read."""

    def forward(self, x: Tensor) -> Tensor:
        if not x.isfinite().all():
            raise ValueError("x must be finite")
        return x


class Bare(nn.Module):
    """Parameters without a layer: a vector and a matrix."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.matrix = nn.Parameter(torch.rand(1)), nn.Parameter(torch.randn(width, width))

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.matrix * (1 + self.scale)).tanh()


class Listed(nn.Module):
    """Layers in a `ModuleList`, one of them called twice; what they give is concatenated."""

    def __init__(self, layers, axis: int) -> None:
        super().__init__()
        self.layers, self.axis = nn.ModuleList(layers), axis

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([*(layer(x) for layer in self.layers), self.layers[0](-x)], self.axis)


class Attend(nn.Module):
    def __init__(self, width: int, dropout: float, weights: bool, batch_first: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 1, dropout=dropout, batch_first=batch_first)
        self.weights, self.batch_first = weights, batch_first

    def forward(self, x: Tensor) -> Tensor:
        y = x if self.batch_first else x.transpose(0, 1)
        y = self.attention(y, y, y, need_weights=self.weights)[0]
        return x + (y if self.batch_first else y.transpose(0, 1))


class TwoTowers(nn.Module):
    def __init__(self, left: nn.Module, right: nn.Module) -> None:
        super().__init__()
        self.left, self.right, self.head = left, right, nn.Linear(2 * CLASSES, CLASSES)

    def forward(self, x: Tensor, *, context: Tensor) -> dict[str, Tensor]:
        both = torch.cat([self.left(x), self.right(context)], 1)
        return {"both": both, "logits": self.head(both.tanh())}


@dataclass
class Blocks:
    """Draws one block after the other and keeps the width of what the last one gives."""

    draw: st.DrawFn
    width: int
    axes: int  # of space; 0 for vectors and sequences
    sequence: bool = False

    def pick(self, *options):
        return self.draw(st.sampled_from(options))

    def block(self, depth: int = 0) -> list[nn.Module]:
        kinds = [self.layer, self.layer, self.norm, self.dropout, self.odd]
        kinds += [self.residual, self.branches, self.repeated] if depth < 2 else []
        kinds += [self.recurrent, self.attention] if self.sequence else []
        kind = self.pick(*kinds)
        return kind(depth) if kind in (self.residual, self.branches, self.repeated) else kind()

    def layer(self, to: int | None = None) -> list[nn.Module]:
        """A layer with weights and an activation; it keeps the sides."""
        before, self.width = self.width, to or self.draw(WIDTHS)
        bias = self.draw(st.booleans())
        activation = self.pick(nn.Tanh(), nn.GELU(), nn.ELU(inplace=True), nn.PReLU())
        norm = self.pick(
            *[lambda layer: layer] * 4, parametrizations.weight_norm, parametrizations.spectral_norm
        )
        if not self.axes:
            return [norm(nn.Linear(before, self.width, bias=bias)), activation]
        groups = self.pick(1, math.gcd(before, self.width))
        dilation, transposed = self.pick(1, 2), self.draw(st.booleans())
        kind = getattr(nn, f"Conv{'Transpose' * transposed}{self.axes}d")
        options = {"padding": dilation, "dilation": dilation, "groups": groups, "bias": bias}
        return [norm(kind(before, self.width, 3, **options)), activation]

    def norm(self) -> list[nn.Module]:
        affine = self.draw(st.booleans())
        if self.sequence or not self.axes:
            norms = [nn.LayerNorm(self.width, elementwise_affine=affine)]
            norms += [] if self.sequence else [nn.BatchNorm1d(self.width, affine=affine)]
        else:
            batch, instance = (getattr(nn, f"{name}Norm{self.axes}d") for name in ("Batch", "Instance"))
            tracked, groups = self.draw(st.booleans()), self.pick(1, self.width)
            norms = [batch(self.width, affine=affine), nn.GroupNorm(groups, self.width, affine=affine)]
            norms += [instance(self.width, affine=affine, track_running_stats=tracked)]
        return [self.pick(*norms), nn.SiLU()]

    def odd(self) -> list[nn.Module]:
        """Return the layers that are not usual ones."""
        return [self.pick(*[Checked(), nn.Identity()], *([] if self.axes else [Bare(self.width)]))]

    def dropout(self) -> list[nn.Module]:
        layers = [nn.Dropout(RATE), nn.AlphaDropout(RATE), Functional(F.dropout)]
        if self.axes:
            layers += [getattr(nn, f"Dropout{self.axes}d")(RATE), nn.FeatureAlphaDropout(RATE)]
        return [self.pick(*layers)]

    def residual(self, depth: int) -> list[nn.Module]:
        width = self.width
        inner = self.block(depth + 1)
        return [Residual(*inner, *(self.layer(width) if self.width != width else []))]

    def branches(self, depth: int) -> list[nn.Module]:
        width, branches, widths = self.width, [], []
        for _ in range(2):
            self.width = width
            branches.append(nn.Sequential(*self.block(depth + 1)))
            widths.append(self.width)
        self.width = sum(widths) + widths[0]
        return [Listed(branches, -1 if self.sequence else 1), *self.layer()]

    def repeated(self, depth: int) -> list[nn.Module]:
        """One child under two names, with a layer in between that is not shared."""
        once = nn.Sequential(*self.layer(self.width), *self.norm())
        return [once, *self.layer(self.width), once]

    def recurrent(self) -> list[nn.Module]:
        kind, both = self.pick(nn.LSTM, nn.GRU, nn.RNN), self.draw(st.booleans())
        layers, before = self.pick(1, 2), self.width
        self.width = self.draw(WIDTHS)
        options = {"num_layers": layers, "dropout": RATE * (layers - 1), "bidirectional": both}
        layer = kind(before, self.width, batch_first=True, **options)
        self.width *= 1 + both
        return [layer, Apply(_first)]

    def attention(self) -> list[nn.Module]:
        dropout = self.pick(0.0, RATE)
        if self.draw(st.booleans()):
            return [Attend(self.width, dropout, self.draw(st.booleans()), self.draw(st.booleans()))]
        return [nn.TransformerEncoderLayer(self.width, 1, 6, dropout=dropout, batch_first=True)]


def _first(output):
    return output[0]


def _mean(x: Tensor) -> Tensor:
    return x.mean(1)


@st.composite
def towers(draw: st.DrawFn) -> tuple[nn.Module, Tensor]:
    """A network of one input, and that input."""
    axes, width = draw(st.sampled_from([0, 0, 1, 2, 2, 3])), draw(WIDTHS)
    sequence = axes == 0 and draw(st.booleans())
    tokens = sequence and draw(st.booleans())
    torch.manual_seed(draw(st.integers(0, 99)))
    blocks = Blocks(draw, width, axes, sequence)
    stem: list[nn.Module] = [nn.Embedding(VOCABULARY, width)] if tokens else []
    body = [layer for _ in range(draw(st.integers(1, 3))) for layer in blocks.block()]
    nested = nn.Sequential(nn.Sequential(*body)) if draw(st.booleans()) else nn.Sequential(*body)
    pool = [getattr(nn, f"AdaptiveMaxPool{axes}d")(1), nn.Flatten()] if axes else [Apply(_mean)] * sequence
    network = nn.Sequential(*stem, nested, *pool, nn.Linear(blocks.width, CLASSES))
    for layer in nested.modules():
        if not list(layer.children()) and draw(st.integers(0, 5)) == 0:
            layer.requires_grad_(False)
    if tokens:
        return network, torch.randint(VOCABULARY, (BATCH, LENGTH), generator=seeded(0))
    shape = (BATCH, LENGTH, width) if sequence else (BATCH, width, *[SIDE] * axes)
    return network, torch.randn(shape, dtype=torch.float64, generator=seeded(0))


@st.composite
def networks(draw: st.DrawFn):
    """A network in float64, in train or eval mode, and its inputs."""
    network, inputs = draw(towers())
    if draw(st.integers(0, 4)) == 0:
        other, context = draw(towers())
        network, inputs = TwoTowers(network, other), {"x": inputs, "context": context}
    return network.double().train(draw(st.booleans())), inputs


def drops(network: nn.Module) -> bool:
    """Return True if the network has its own dropout; functions are found where the data flow is readable."""
    layers = list(network.modules())
    unread = any(isinstance(layer, Checked) for layer in layers)
    return any(
        isinstance(layer, nn.modules.dropout._DropoutNd)
        or (isinstance(layer, Functional) and not unread)
        or (isinstance(layer, nn.RNNBase | nn.MultiheadAttention) and layer.dropout > 0)
        for layer in layers
    )


def must_differ(method: pl.Method) -> bool:
    """Return True if a conversion with equal members did nothing."""
    several = getattr(method, "members", 2) > 1
    match method:
        case DeepEnsembles():
            return several and (method.start == "fresh" or method.prior_scale > 0)
        case BatchEnsemble():
            return several and method.std > 0
        case MCDropout():
            return method.rate > 0
        case EMP() | ECMP():
            return method.options > 1
        case PackedEnsembles() | LayerEnsembles() | DeepSubEnsembles():
            return True
    return False


def check(model: nn.Module, x, method: pl.Method) -> None:
    note(f"{method}\n{model}")
    before, modes = copy.deepcopy(model.state_dict()), [layer.training for layer in model.modules()]
    due = isinstance(method, MCDropout) and method.rate and method.insert is False and not drops(model)
    if due:
        with pytest.raises(pl.ConversionError, match="must have dropout"):
            pl.convert(model, method, example=x)
        return
    unread = any(isinstance(layer, Checked) for layer in model.modules())
    if isinstance(method, PackedEnsembles) and unread:
        with pytest.raises(pl.ConversionError, match=r"cannot be read by torch\.export"):
            pl.convert(model, method, example=x)
        return
    try:
        ensemble = pl.convert(model, method, example=x)
    except pl.ConversionError as error:
        due = {Masksembles: "reads hidden values", ECMP: "per_sample=True needs"}.get(type(method))
        if due is None or due not in str(error):
            raise
        return
    check_rows(ensemble.eval(), x)
    check_training(ensemble.train(), x)
    assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert [layer.training for layer in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())


def check_rows(ensemble: pl.Ensemble, x) -> None:
    rows = run(ensemble, x)
    assert rows.shape == (len(ensemble.weights), BATCH, CLASSES)
    for i, row in enumerate(rows):
        assert_close(logits(run(ensemble.member(i), x)), row)
    alike = all(torch.allclose(row, rows[0], rtol=1e-9, atol=1e-12) for row in rows)
    assert not (alike and must_differ(ensemble.method)), "all members are alike"
    assert_close(ensemble.predict(x, chunk=3).members, rows)
    if isinstance(ensemble.method, Masksembles):  # what members are cut out of was read already
        assert_close(run(ensemble.freeze(), x), rows)


def check_training(ensemble: pl.Ensemble, x) -> None:
    loss = ensemble.loss(x, torch.arange(BATCH) % CLASSES)
    assert loss.isfinite()
    loss.backward()
    for name, parameter in ensemble.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
        assert parameter.grad is None or parameter.grad.isfinite().all(), name


def try_networks(kind: type[pl.Method], count: int) -> None:
    """Check so many networks with settings of that method, the same ones every time."""

    @settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(networks(), METHODS[kind])
    def attempt(network, method):
        check(*network, method)

    attempt()


@pytest.mark.parametrize("kind", list(EXAMPLES))
def test_random_networks_are_converted_or_refused_by_name(kind):
    try_networks(kind, EXAMPLES[kind])


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(EXAMPLES))
def test_many_random_networks_are_converted_or_refused_by_name(kind):
    try_networks(kind, 10 * EXAMPLES[kind])
