"""Single: the network itself, as an ensemble of one.

The baseline of every comparison. Cost: one network.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pluribus.conversion_record import LayerRecord
from pluribus.mechanisms.members.code import PlainCode
from pluribus.mechanisms.members.index import Fixed
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.stacked import Stacked
from pluribus.mechanisms.network.network import Network
from pluribus.method import Built, LayerChoice, Method


@dataclass(frozen=True)
class Single(Method):
    """Keep the network as it is: one member with all of its weights.

    Example:
        >>> ensemble = pluribus.convert(torch.nn.Linear(3, 2), Single())
        >>> ensemble(torch.zeros(7, 3)).shape
        torch.Size([1, 7, 2])
    """

    @property
    def on_trained(self) -> str:
        return "kept"

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        rows = tuple(LayerRecord(c.site.names, c.site.kind, "left", "a single network") for c in choices)
        tensors = Stacked.of_network(network, {})
        code = PlainCode.of(network.module, network.output)
        return Built(Members(Fixed(1), tensors, code), rows)
