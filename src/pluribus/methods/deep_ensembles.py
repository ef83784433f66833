"""Deep Ensembles: M networks, initialised and trained independently.

Lakshminarayanan, Pritzel & Blundell, "Simple and scalable predictive uncertainty estimation using
deep ensembles", NeurIPS 2017. Randomized prior networks: Osband, Aslanides & Cassirer, NeurIPS 2018.

Members differ by their random initialisation alone and see the same batches. With a prior, member m
adds the output of a fixed random network of its own:

    L = 1/M Σ_m 1/B Σ_b ℓ(f_m(x_b), y_b)                                          (1)
    f_m(x) = f(x; θ_m) + β f(x; φ_m),    φ_m drawn once, no gradient              (2)

    symbol   here
    M        members
    β        prior_scale

Cost: M networks, trained and run; 2 M with priors. Deviation: adversarial training, which the paper
offers as an option, is left out. Frozen parameters of the network stay what they are, shared by all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from pluribus.binding import Binding, stack_modules
from pluribus.conversion import Row
from pluribus.method import Built, Choice, Method
from pluribus.network import Network
from pluribus.network.fresh import fresh_modules
from pluribus.settings import number, one_of, whole

PRIOR_SEED = 1 << 20
"""Offset that keeps the seeds of prior networks apart from those of members."""


@dataclass(frozen=True)
class DeepEnsembles(Method):
    """M networks with the same architecture and their own weights.

    Args:
        members: How many networks, at least 1.
        prior_scale: Factor of each member's fixed random prior network, at least 0; 0 is none.
        start: `fresh` initialises every member anew, from the model's own initialisers or by calling
            the factory again; `copy` starts all members from the model's weights.

    Example:
        >>> ensemble = pluribus.convert(torch.nn.Linear(3, 2), DeepEnsembles(members=5))
        >>> ensemble(torch.zeros(7, 3)).shape
        torch.Size([5, 7, 2])
    """

    members: int = 4
    prior_scale: float = 0.0
    start: str = "fresh"

    per_layer: ClassVar[frozenset[str]] = frozenset({"start"})

    def __post_init__(self) -> None:
        whole("members", self.members)
        number("prior_scale", self.prior_scale, least=0)
        one_of("start", self.start, ("fresh", "copy"))

    def build(self, network: Network, choices: Sequence[Choice], seed: int) -> Built:
        chosen = [
            (choice.site, choice.method.start) for choice in choices if isinstance(choice.method, type(self))
        ]
        modules, redrawn = {"copy": [network.module] * self.members}, list[str]()
        if any(start == "fresh" for _, start in chosen):
            modules["fresh"], redrawn = fresh_modules(network, self.members, seed)
        own: dict[str, Tensor] = {}
        for site, start in chosen:
            own |= stack_modules(modules[start], {*site.trained, *site.statistics})
        notes = []
        if redrawn:
            notes.append(f"bare parameters redrawn with their mean and deviation: {', '.join(redrawn)}")
        if self.members > 1 and own and all(_alike(network, name, value) for name, value in own.items()):
            notes.append("members start alike, and only other randomness in training tells them apart")
        notes += [f"gradients of {name} are dense" for name in network.allow_other_weights(own)]
        binding = Binding(network, own, self.members)
        if self.prior_scale:
            binding.add_prior(self._prior(network, seed), self.prior_scale)
        return Built(binding, tuple(_row(choice, self.members) for choice in choices), tuple(notes))

    def _prior(self, network: Network, seed: int) -> Binding:
        modules, _ = fresh_modules(network, self.members, seed + PRIOR_SEED)
        own = stack_modules(modules, set(network.tensors()))
        return Binding(network, own, self.members)


def _alike(network: Network, name: str, value: Tensor) -> bool:
    """Whether all members have the same; statistics are always alike at the start."""
    return not isinstance(network.tensors()[name], nn.Parameter) or bool((value == value[:1]).all())


def _row(choice: Choice, members: int) -> Row:
    site = choice.site
    if not isinstance(choice.method, DeepEnsembles):
        return Row(site.names, site.kind, "shared", choice.reason)
    if not site.trained and site.parameters:
        return Row(site.names, site.kind, f"shared, with {members} running statistics", "frozen")
    return Row(site.names, site.kind, f"{members} copies, start {choice.method.start}")
