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
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from pluribus.conversion_record import LayerRecord
from pluribus.errors import ConversionError, UnreadableError
from pluribus.mechanisms.dropout.code import KeptDropoutCode
from pluribus.mechanisms.dropout.kept import batch_axes
from pluribus.mechanisms.graph.export import Graph
from pluribus.mechanisms.members.caller import Caller
from pluribus.mechanisms.members.index import Seeds
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.stacked import Stacked
from pluribus.mechanisms.network.insert import insert, prove
from pluribus.mechanisms.network.layers import Site, there_are
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.torch_private import Convolution, Dropout
from pluribus.method import Built, LayerChoice, Method
from pluribus.settings import MOST_DRAWS, setting

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


@dataclass(frozen=True)
class Found:
    """The dropouts in one module's own code: their rates, and where the first of them stands."""

    owner: str
    rates: tuple[float, ...]
    source: str

    def __str__(self) -> str:
        rates = " and ".join(f"{rate:g}" for rate in dict.fromkeys(self.rates))
        return f"dropout {rates} kept on" + f" ({self.source})" * bool(self.source)


def find_dropouts(graph: Graph) -> list[Found]:
    """The active dropouts in the data flow of train mode."""
    found: dict[str, Found] = {}
    for operation in graph.operations():
        rate = operation.argument(RATES.get(operation.operator.removesuffix("_"), ""), 0.0)
        between_layers = operation.argument("num_layers", 2) > 1
        if rate and operation.argument("train", True) and between_layers:
            known = found.get(operation.layer, Found(operation.layer, (), operation.source))
            found[operation.layer] = replace(known, rates=(*known.rates, rate))
    for operation in graph.operations():
        if operation.operator in TRAINING_ONLY and operation.layer in found:
            raise ConversionError(
                f"the dropout of {operation.layer or 'the network itself'} cannot be kept on alone: the same "
                f"code calls {operation.operator} in training ({operation.source}). "
                "Make the dropout a layer (nn.Dropout)."
            )
    return list(found.values())


def find_dropout_layers(module: nn.Module) -> list[Found]:
    """The layers that drop units, for a network whose data flow cannot be read."""
    found = []
    for name, layer in module.named_modules():
        rate = getattr(layer, "p", 0.0) if isinstance(layer, Dropout) else 0.0
        if isinstance(layer, nn.MultiheadAttention) or (
            isinstance(layer, nn.RNNBase) and layer.num_layers > 1
        ):
            rate = layer.dropout
        if rate:
            found.append(Found(name, (rate,), ""))
    return found


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

    rate: float = setting(0.1, at_least=0, below=1)
    draws: int = setting(16, at_least=1, at_most=MOST_DRAWS)
    train_draws: int = setting(1, at_least=1, at_most=MOST_DRAWS)
    insert: bool | None = setting(None, kind=bool)

    per_layer: ClassVar[frozenset[str]] = frozenset({"rate"})
    own_weights: ClassVar[bool] = False  # dropout may stand before frozen layers, and where no weights are

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        notes: list[str] = []
        try:
            graph = network.graph(training=True)
            found, used = find_dropouts(graph), graph.used()
            choices = [_unless_idle(choice, used) for choice in choices]
        except UnreadableError as error:
            found = find_dropout_layers(network.module)
            notes.append(f"only layers were searched for dropout, not functions: {error}")
        off = {name for choice in choices if not _rate(choice) for name in choice.site.names}
        named = {name for choice in choices for name in choice.site.names}
        # Code that calls dropout between layers is no layer, and not among those that `include` picks.
        chooses_functions = self.rate and not any(choice.picked for choice in choices)
        kept = {
            one.owner: one
            for one in found
            if one.owner not in off and (one.owner in named or chooses_functions)
        }
        places = {choice.site: AlwaysDropout(_rate(choice)) for choice in self._places(choices, kept)}
        if places:
            prove(network.module, insert(places), network.example)
        axes = batch_axes(network.module, tuple(kept), network.example)
        if not axes and any(_rate(choice) for choice in choices):
            raise ConversionError(
                "MCDropout needs dropout, or a layer to put it before, however: there is neither. "
                + there_are([choice.site for choice in choices])
            )
        for choice in choices:
            for name in kept.keys() & set(choice.site.names):
                if choice.overridden:
                    kept[name] = _with_rate(choice, kept[name])
        # In training torch's own random numbers are drawn, for every sample anew.
        index = Seeds(self.draws, self.train_draws, seed, anonymous=True)
        code = KeptDropoutCode(Caller(network.module, network.output), tuple(kept), axes)
        members = Members(index, Stacked.of_network(network, {}), code)
        return Built(members, tuple(_rows(choices, kept, places)), tuple(notes))

    def _places(self, choices: Sequence[LayerChoice], kept: Mapping[str, Found]) -> list[Any]:
        """The layers before which dropout is put."""
        wanted = self.insert or (self.insert is None and not kept)
        return [
            choice
            for choice in choices
            if _rate(choice)
            and not kept.keys() & set(choice.site.names)
            and (choice.picked or (wanted and isinstance(choice.site.module, INSERT_BEFORE)))
        ]


def _rate(choice: LayerChoice) -> float:
    """The rate that is asked for at a layer; 0 where it is left."""
    return choice.method.rate if isinstance(choice.method, MCDropout) else 0.0


def _with_rate(choice: LayerChoice, found: Found) -> Found:
    """Gives a layer's own dropout the rate that `overrides` asks for."""
    layer, rate = choice.site.module, _rate(choice)
    if isinstance(layer, Dropout):
        layer.p = rate
    elif isinstance(layer, nn.MultiheadAttention | nn.RNNBase):
        layer.dropout = rate
    else:
        raise ConversionError(
            f"overrides may change the rate of dropout layers, however: {choice.site} calls dropout in its "
            f"own code ({found.source}). Change it there."
        )
    return replace(found, rates=(rate,))


def _unless_idle(choice: LayerChoice, used: set[str]) -> LayerChoice:
    """A layer whose parameters the data flow never reads is left, unless the user named it."""
    idle = choice.site.parameters and not used.intersection(choice.site.parameters)
    return replace(choice, method=None, reason="never runs") if idle and not choice.picked else choice


def _rows(
    choices: Sequence[LayerChoice], kept: Mapping[str, Found], places: Mapping[Site, AlwaysDropout]
) -> Iterator[LayerRecord]:
    for choice in choices:
        site = choice.site
        own = next((kept[name] for name in site.names if name in kept), None)
        if own:
            yield LayerRecord(site.names, site.kind, str(own))
        elif site in places:
            yield LayerRecord(site.names, site.kind, f"dropout {places[site].rate:g} before it")
        else:
            yield LayerRecord(site.names, site.kind, "left", choice.reason or "no dropout here")
    names = {name for choice in choices for name in choice.site.names}
    for owner, found in kept.items():
        if owner not in names:
            yield LayerRecord((owner,), "functional", str(found))
