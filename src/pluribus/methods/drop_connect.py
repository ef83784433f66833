"""DropConnect: single weights are dropped, also in prediction, and every draw of the masks is a member.

Wan, Zeiler, Zhang, LeCun & Fergus, "Regularization of neural networks using DropConnect", ICML 2013; as a
Bayesian network in Table 2 of Chang et al., "Ensemble model patching", 2019.

Where dropout drops an input of a layer with all of its weights, this drops each weight by itself.

    W_t = W ∘ Z_t / (1 − p),    Z_t ~ Bernoulli(1 − p) for every weight; biases are kept          (1)

    symbol   here
    p        rate
    Z_t      draw_assignment() of Mixture("element", (1.0,), rate)

Cost: one network to store, a mask as large as the weights in every pass, T passes in prediction.
Deviations: weights that are left are divided by 1 − p, as in dropout, so that their mean stays; the paper
of 2013 instead approximates the mean of the activations in prediction. One mask serves the whole batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pluribus.axes import Between, OneOf
from pluribus.conversion_record import LayerRecord
from pluribus.errors import ConversionError
from pluribus.mechanisms.members.code import PlainCode
from pluribus.mechanisms.members.index import Seeds
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.mixed import Mixed
from pluribus.mechanisms.members.mixture import Mixture
from pluribus.mechanisms.members.tree import stack_modules
from pluribus.mechanisms.network.layers import has_computed_weights, is_bias, is_norm, there_are
from pluribus.mechanisms.network.network import Network
from pluribus.method import Built, LayerChoice, Method
from pluribus.ranges import MOST_DRAWS
from pluribus.settings import setting


@dataclass(frozen=True)
class DropConnect(Method):
    """Every draw of a mask on all weights is a member.

    Weights are the parameters of at least two axes that are no biases, norms aside; those of embeddings,
    attention and recurrent layers too.

    Args:
        rate: Probability that a weight is dropped, at least 0 and below 1; 0 is neutral. May differ from
            layer to layer.
        draws: How many members in prediction, at least 1.
        train_draws: How many draws in a training step, at least 1.

    Example:
        >>> ensemble = pluribus.convert(torch.nn.Linear(3, 2), DropConnect(rate=0.2, draws=8)).eval()
        >>> ensemble(torch.zeros(7, 3)).shape
        torch.Size([8, 7, 2])
    """

    rate: float = setting(0.1, at_least=0, below=1, search=Between(0.01, 0.5, log=True))
    draws: int = setting(16, at_least=1, at_most=MOST_DRAWS, search=OneOf((4, 8, 16)))
    train_draws: int = setting(1, at_least=1, at_most=MOST_DRAWS)

    per_layer: ClassVar[frozenset[str]] = frozenset({"rate"})
    own_weights: ClassVar[bool] = False  # frozen weights may be dropped too

    @property
    def on_trained(self) -> str:
        # It never learnt to bear the noise.
        return "retrain" if self.rate else "kept"

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        # Find the weights.
        weights = {choice.site.name: _weights(choice, network) for choice in choices}
        rates = _rates(choices, weights)
        if not rates:
            raise ConversionError(
                "DropConnect must have a weight of at least two axes, got no chosen layer with one. "
                + there_are([choice.site for choice in choices])
            )

        # Make the tensors: one option for each weight, taken always, with a mask by its rate.
        own = stack_modules([network.module], set(rates))
        sites = {name: [name] for name in rates}
        mixtures = {name: Mixture("element", (1.0,), rate) for name, rate in rates.items()}
        notes = [f"gradients of {name} are dense" for name in network.allow_other_weights(rates)]

        # Make the members.
        index = Seeds(self.draws, self.train_draws, seed)
        code = PlainCode.of(network.module, network.output)
        members = Members(index, Mixed(network, own, sites, mixtures), code)

        # Record what happened.
        rows = tuple(_row(choice, weights[choice.site.name]) for choice in choices)
        return Built(members, rows, tuple(notes))


def _weights(choice: LayerChoice, network: Network) -> list[str]:
    """Return the names of the weights of a layer that are dropped."""
    site, held = choice.site, network.tensors()
    if choice.method is None or is_norm(site):
        return []
    # A mask on what a weight is computed from would not drop single weights.
    if has_computed_weights(site.module):
        return []
    weights = []
    for name in site.parameters:
        if held[name].ndim > 1 and not is_bias(name):
            weights.append(name)
    return weights


def _rates(choices: Sequence[LayerChoice], weights: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Map the name of each weight to the probability that it is dropped.

    Raises:
        ConversionError: Two layers hold one weight and differ in their rate.
    """
    rates: dict[str, float] = {}
    for choice in choices:
        for name in weights[choice.site.name]:
            rate = choice.method.rate  # type: ignore[union-attr]
            if rates.setdefault(name, rate) != rate:
                raise ConversionError(
                    f"layers that hold {name} must have the same rate, got {rate:g} in {choice.site} "
                    f"and {rates[name]:g} before it. Give all of them the same overrides."
                )
    return rates


def _row(choice: LayerChoice, weights: Sequence[str]) -> LayerRecord:
    """Record the rate of a layer, or why it is left."""
    site = choice.site
    if not weights:
        return LayerRecord(site.names, site.kind, "left", choice.reason or "no weights to drop")
    rate = choice.method.rate  # type: ignore[union-attr]
    return LayerRecord(site.names, site.kind, f"weights dropped with probability {rate:g}")
