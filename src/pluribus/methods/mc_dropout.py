"""MC Dropout: dropout stays on in prediction, and every draw of its masks is a member.

Gal & Ghahramani, "Dropout as a Bayesian approximation: representing model uncertainty in deep
learning", ICML 2016.

    p(y|x) ≈ 1/T Σ_t p(y | x, W ∘ z_t),    z_t ~ Bernoulli(1 − p), scaled by 1 / (1 − p)          (1)

    symbol   here
    T        draws
    p        rate
    z_t      Draw(seed of draw t)

Cost: one network in training, T passes in prediction; no parameters.
Deviations: in prediction a mask is drawn once for a whole batch and kept (by its seed), so that a
member is a function of its input; training draws for each sample, as usual.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from pluribus.axes import Between, OneOf
from pluribus.conversion_record import LayerRecord
from pluribus.errors import ConversionError, UnreadableError
from pluribus.mechanisms.dropout.code import KeptDropoutCode
from pluribus.mechanisms.dropout.kept import batch_axes
from pluribus.mechanisms.graph.operation import Graph, Operation
from pluribus.mechanisms.members.caller import Caller
from pluribus.mechanisms.members.index import Seeds
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.stacked import Stacked
from pluribus.mechanisms.network.insert import find_uncalled, insert, refuse_uncalled
from pluribus.mechanisms.network.layers import Site, there_are
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.torch_private import Convolution, Dropout
from pluribus.method import Built, LayerChoice, Method
from pluribus.ranges import MOST_DRAWS
from pluribus.settings import setting

INSERT_BEFORE = (nn.Linear, nn.Bilinear, Convolution, nn.MultiheadAttention, nn.RNNBase)
RATES = {
    "dropout": "p",
    "feature_dropout": "p",
    "alpha_dropout": "p",
    "feature_alpha_dropout": "p",
    "scaled_dot_product_attention": "dropout_p",
    "lstm": "dropout",
    "gru": "dropout",
    "rnn_tanh": "dropout",
    "rnn_relu": "dropout",
}
"""Operators that drop units, and the argument that holds their rate."""
TRAINING_ONLY = {
    *("batch_norm", "bernoulli", "normal", "rand", "rand_like", "randint", "randn", "randn_like", "uniform"),
}
"""Operators that must not run in prediction though their code runs as in training."""
NOT_CALLED = "not called"
"""Why a layer is left before which dropout would never run."""


@dataclass(frozen=True)
class Found:
    """Hold the dropouts in one module's own code: their rates, and where the first of them stands."""

    owner: str
    rates: tuple[float, ...]
    source: str

    def __str__(self) -> str:
        rates = " and ".join(f"{rate:g}" for rate in dict.fromkeys(self.rates))
        return f"dropout {rates} kept on" + f" ({self.source})" * bool(self.source)


def find_dropouts(graph: Graph) -> list[Found]:
    """Return the active dropouts in the data flow of train mode."""
    found: dict[str, Found] = {}
    for operation in graph.operations():
        rate = _rate_of(operation)
        if rate:
            known = found.get(operation.layer, Found(operation.layer, (), operation.source))
            found[operation.layer] = replace(known, rates=(*known.rates, rate))
    _refuse_other_randomness(graph, found)
    return list(found.values())


def _rate_of(operation: Operation) -> float:
    """Return the rate with which an operation drops units in training, 0 if it drops none."""
    # In-place variants end in an underscore and have the same arguments.
    name = RATES.get(operation.operator.removesuffix("_"), "")
    rate: float = operation.argument(name, 0.0)
    if not operation.argument("train", True):
        return 0.0
    # Recurrent layers drop between their layers, so a single one ignores its rate.
    if operation.argument("num_layers", 2) <= 1:
        return 0.0
    return rate


def _refuse_other_randomness(graph: Graph, found: Mapping[str, Found]) -> None:
    """Raise if code that drops units does something else that prediction must not do."""
    for operation in graph.operations():
        # Dropout is kept on by the train mode of the module that calls it, which switches all of its code.
        if operation.operator in TRAINING_ONLY and operation.layer in found:
            raise ConversionError(
                f"code that calls dropout must call nothing else that is for training alone, "
                f"got {operation.operator} in {operation.layer or 'the network itself'} "
                f"({operation.source}). "
                "Make the dropout a layer (nn.Dropout)."
            )


def find_dropout_layers(module: nn.Module) -> list[Found]:
    """Return the layers that drop units, for a network whose data flow cannot be read.

    Args:
        module: The network, in any mode.

    Returns:
        One entry for each layer with a rate above 0, in the order of `named_modules`.
    """
    found = []
    for name, layer in module.named_modules():
        rate = _rate_of_layer(layer)
        if rate:
            found.append(Found(name, (rate,), ""))
    return found


def _rate_of_layer(layer: nn.Module) -> float:
    """Return the rate with which a layer drops units in training, 0 if it drops none."""
    if isinstance(layer, nn.RNNBase):
        # Recurrent layers drop between their layers, so a single one ignores its rate.
        return float(layer.dropout) if layer.num_layers > 1 else 0.0
    if isinstance(layer, nn.MultiheadAttention):
        return float(layer.dropout)
    if isinstance(layer, Dropout):
        return float(getattr(layer, "p", 0.0))
    return 0.0


@dataclass(frozen=True)
class AlwaysDropout:
    """Dropout that is on in every mode, put before a layer."""

    rate: float

    def __call__(self, layer: nn.Module, position: int, values: Tensor) -> Tensor:
        return F.dropout(values, self.rate, training=True)


@dataclass(frozen=True)
class MCDropout(Method):
    """Every draw of the dropout masks is a member.

    The network's own dropout, layers and functions, is kept on with the rates it has. Where there is
    none, or with `insert=True`, dropout is put before linear, convolutional, attention and recurrent
    layers, or before those that `include` picks.

    Args:
        rate: Probability that a unit is dropped where dropout is put in, at least 0 and below 1; 0
            switches all dropout off in prediction, which leaves the network itself.
        draws: How many members in prediction, at least 1.
        train_draws: How many passes in a training step, at least 1.
        insert: Whether to put dropout in; None is only where the network has none of its own.

    Example:
        >>> ensemble = pluribus.convert(torch.nn.Linear(3, 2), MCDropout(rate=0.2, draws=8)).eval()
        >>> ensemble(torch.zeros(7, 3)).shape
        torch.Size([8, 7, 2])
    """

    rate: float = setting(0.1, at_least=0, below=1, search=Between(0.01, 0.5, log=True))
    draws: int = setting(16, at_least=1, at_most=MOST_DRAWS, search=OneOf((4, 8, 16)))
    train_draws: int = setting(1, at_least=1, at_most=MOST_DRAWS)
    insert: bool | None = setting(None, kind=bool)

    per_layer: ClassVar[frozenset[str]] = frozenset({"rate"})
    own_weights: ClassVar[bool] = False  # dropout may stand before frozen layers, and where no weights are

    @property
    def on_trained(self) -> str:
        if not self.rate:
            return "kept"
        # Of its own dropout the network has learnt to bear the noise.
        return "retrain" if self.insert else "approximate"

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        # Find the network's own dropout, and the layers to put one before.
        found, choices, notes = _search(network, choices)
        kept = self._kept(found, choices)
        places = self._places(choices, kept)
        choices, idle = _insert(network, places, choices)
        notes += idle
        axes = batch_axes(network.module, tuple(kept), network.example)
        if not axes:
            _refuse_no_dropout(choices)
        kept = _override_rates(kept, choices)
        notes += self._unused_rate(kept, places)

        # Make the members, which share all tensors.
        tensors = Stacked.of_network(network, {})
        # In training torch's own random numbers are drawn, for every sample anew.
        index = Seeds(self.draws, self.train_draws, seed, anonymous=True)
        code = KeptDropoutCode(Caller(network.module, network.output), tuple(kept), axes)
        members = Members(index, tensors, code)

        # Record what happened.
        rows = tuple(_rows(choices, kept, places))
        left = {choice.site.name: NOT_CALLED for choice in choices if choice.reason == NOT_CALLED}
        on_trained = "retrain" if places else ""
        return Built(members, rows, tuple(notes), left=left, on_trained=on_trained)

    def _unused_rate(self, kept: Mapping[str, Found], places: Mapping[Site, AlwaysDropout]) -> list[str]:
        """Return a note where `rate` holds for nothing, because the network has dropout of its own."""
        rates = sorted({rate for one in kept.values() for rate in one.rates})
        if places or rates in ([], [self.rate]):
            return []
        own = " and ".join(f"{rate:g}" for rate in rates)
        return [
            f"rate={self.rate:g} is not used: the network's own dropout keeps its rate, {own}. Give it "
            "another with overrides={'name': {'rate': ...}}, or add dropout with insert=True"
        ]

    def _kept(
        self,
        found: Sequence[Found],
        choices: Sequence[LayerChoice],
    ) -> dict[str, Found]:
        """Return the dropouts that stay on in prediction, by the module that owns them."""
        on: set[str] = set()
        off: set[str] = set()
        picked = False
        for choice in choices:
            names = on if _rate(choice) else off
            names.update(choice.site.names)
            picked |= choice.picked
        # Code that calls dropout between layers is no layer, and not among those that `include` picks.
        keeps_functions = self.rate > 0 and not picked
        kept = {}
        for one in found:
            if one.owner in off:
                continue
            if one.owner in on or keeps_functions:
                kept[one.owner] = one
        return kept

    def _places(
        self,
        choices: Sequence[LayerChoice],
        kept: Mapping[str, Found],
    ) -> dict[Site, AlwaysDropout]:
        """Return the layers before which dropout is put, each with its dropout.

        Args:
            choices: What the user wants of every layer.
            kept: The dropouts that stay on, by the module that owns them.
        """
        kinds: tuple[type[nn.Module], ...] = INSERT_BEFORE
        wanted = not kept if self.insert is None else self.insert
        if not wanted:
            kinds = ()
        places = {}
        for choice in choices:
            site, rate = choice.site, _rate(choice)
            if not rate:
                continue
            # A layer that drops units itself needs no second dropout.
            if not kept.keys().isdisjoint(site.names):
                continue
            # Any layer may be picked by name; by default only those that mix their inputs are useful.
            if choice.picked or isinstance(site.module, kinds):
                places[site] = AlwaysDropout(rate)
        return places


def _search(
    network: Network,
    choices: Sequence[LayerChoice],
) -> tuple[list[Found], list[LayerChoice], list[str]]:
    """Return the dropouts of a network, the choices without layers that never run, and notes."""
    try:
        graph = network.graph(training=True)
        found, used = find_dropouts(graph), graph.used()
    except UnreadableError as error:
        notes = [f"only layers were searched for dropout, not functions: {error}"]
        return find_dropout_layers(network.module), list(choices), notes
    return found, [_unless_idle(choice, used) for choice in choices], []


def _insert(
    network: Network, places: dict[Site, AlwaysDropout], choices: Sequence[LayerChoice]
) -> tuple[list[LayerChoice], list[str]]:
    """Put dropout before layers; those that the network does not call are taken out of `places`.

    Returns:
        The choices, in which uncalled layers are left, and a note for each of these.

    Raises:
        ConversionError: The user picked a layer that is not called.
    """
    if not places:
        return list(choices), []
    inserted = insert(places)
    # Code may read the weight of a layer that it never calls (Mamba), or route no sample to it.
    uncalled = find_uncalled(network.module, inserted, network.example)
    kept, notes = list[LayerChoice](), list[str]()
    for choice in choices:
        mode = uncalled.get(choice.site)
        if mode is None:
            kept.append(choice)
            continue
        if choice.picked:
            refuse_uncalled(choice.site, mode)
        inserted[choice.site].detach()
        del places[choice.site]
        kept.append(replace(choice, method=None, reason=NOT_CALLED))
        notes.append(f"no dropout before {choice.site}: the network does not call it in {mode} mode")
    return kept, notes


def _refuse_no_dropout(choices: Sequence[LayerChoice]) -> None:
    """Raise if a layer has a rate above 0, for a network in which nothing drops units."""
    # With rate 0 everywhere the ensemble is the network itself, which needs no dropout.
    if not any(_rate(choice) for choice in choices):
        return
    sites = [choice.site for choice in choices]
    raise ConversionError(
        f"MCDropout must have dropout, or a layer to put it before, got neither. {there_are(sites)}"
    )


def _rate(choice: LayerChoice) -> float:
    """Return the rate that is set for a layer; 0 where the layer is left."""
    return choice.method.rate if isinstance(choice.method, MCDropout) else 0.0


def _override_rates(
    kept: Mapping[str, Found],
    choices: Sequence[LayerChoice],
) -> dict[str, Found]:
    """Set the rates that `overrides` gives to layers, and return the dropouts with them."""
    changed = dict(kept)
    for choice in choices:
        if not choice.overridden:
            continue
        for name in kept.keys() & set(choice.site.names):
            changed[name] = _with_rate(choice, kept[name])
    return changed


def _with_rate(choice: LayerChoice, found: Found) -> Found:
    """Set the rate that `overrides` gives to a layer's own dropout."""
    layer, rate = choice.site.module, _rate(choice)
    if isinstance(layer, Dropout):
        layer.p = rate
    elif isinstance(layer, nn.MultiheadAttention | nn.RNNBase):
        layer.dropout = rate
    else:
        raise ConversionError(
            f"overrides of the rate must name dropout layers, got {choice.site}, which calls dropout in its "
            f"own code ({found.source}). Change the rate there."
        )
    return replace(found, rates=(rate,))


def _unless_idle(choice: LayerChoice, used: set[str]) -> LayerChoice:
    """Leave a layer whose parameters the data flow never reads, unless the user named it."""
    if choice.picked or not choice.site.parameters:
        return choice
    if used.intersection(choice.site.parameters):
        return choice
    return replace(choice, method=None, reason="never runs")


def _rows(
    choices: Sequence[LayerChoice],
    kept: Mapping[str, Found],
    places: Mapping[Site, AlwaysDropout],
) -> Iterator[LayerRecord]:
    """Record what happened to every layer, and to dropout in code between layers."""
    functions = dict(kept)
    for choice in choices:
        site = choice.site
        own = [kept[name] for name in site.names if name in kept]
        for name in site.names:
            functions.pop(name, None)
        if own:
            became, reason = str(own[0]), ""
        elif site in places:
            became, reason = f"dropout {places[site].rate:g} before it", ""
        else:
            became, reason = "left", choice.reason or "no dropout here"
        yield LayerRecord(site.names, site.kind, became, reason)
    # Dropout that no layer owns is called by the code between them.
    for owner, found in functions.items():
        yield LayerRecord((owner,), "functional", str(found))
