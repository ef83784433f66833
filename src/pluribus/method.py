"""Method: a way of making an ensemble, as a value."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

from torch import Tensor

from pluribus.conversion_record import Row
from pluribus.errors import SettingError
from pluribus.mechanisms.members.members import Binding
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.sites import Site
from pluribus.settings import Settings


@dataclass(frozen=True)
class Choice:
    """What is to become of one layer.

    Attributes:
        site: The layer.
        method: The method with this layer's settings; None leaves the layer as it is.
        reason: Why it is left.
        picked: Whether the user named it with `include`, or a file says that it was picked.
        overridden: Whether `overrides` gave it settings of its own.
    """

    site: Site
    method: "Method | None"
    reason: str = ""
    picked: bool = False
    overridden: bool = False


@dataclass(frozen=True)
class Built:
    """What a method makes of a network.

    Attributes:
        binding: The tensors of all members.
        rows: What became of every layer.
        notes: What else a user should know.
        no_decay: Names of the binding's parameters that weight decay must leave alone.
    """

    binding: Binding
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    no_decay: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True)
class Method(Settings, ABC):
    """A frozen dataclass of settings that knows how to turn a network into an ensemble."""

    per_layer: ClassVar[frozenset[str]] = frozenset()
    """Settings that `overrides` may change for single layers."""

    trains: ClassVar[bool] = True
    """Whether it gives members weights of their own, so that layers without trained ones are left."""

    picks: ClassVar[bool] = False
    """Whether it picks layers by what the network does with its example, so that files keep which."""

    @abstractmethod
    def build(self, network: Network, choices: Sequence[Choice], seed: int) -> Built:
        """The members' tensors and the record of the conversion; may edit `network`, a copy."""

    def named(self, sites: Sequence[Site]) -> Self:
        """The method with the names of layers in place of what selects them, so that it goes to files."""
        return self

    def left(self, site: Site) -> str:
        """Why a layer has nothing that this method converts; empty where it has."""
        if not self.trains:
            return ""
        if not site.parameters and not site.statistics:
            return "no parameters"
        return "frozen" if site.frozen and not site.statistics else ""

    def parts(self, batch: int, rows: Sequence[Any], progress: float) -> list[Tensor] | None:
        """Which samples of a training batch each row sees; None is all of them."""
        return None

    def total(self, losses: Tensor, shares: Tensor, binding: Binding, progress: float) -> Tensor:
        """The training objective from the losses of the rows, before any penalty.

        Args:
            losses: The mean loss of each row on the samples that it saw, `[rows]`.
            shares: How much each row counts, `[rows]`, summing to one: its part of the samples, or its
                weight in eval mode.
            binding: The tensors of all members.
            progress: How much of training is done, in [0, 1].
        """
        return (losses * shares).sum()

    def penalty(self, binding: Binding, batch: int, samples: int, progress: float) -> Tensor | float:
        """What the training objective adds to the losses, such as a prior on the weights.

        Args:
            binding: The tensors of all members.
            batch: How many samples the losses are a mean over.
            samples: The size of the training set.
            progress: How much of training is done, in [0, 1].
        """
        return 0.0

    @property
    def streams(self) -> int:
        """How many orders of the samples training goes through at once; a batch is then a batch of the
        first order, followed by one of the second, and so on.
        """
        return 1

    def changed(self, override: "Method | Mapping[str, Any]", pattern: str) -> Self:
        """The method with a layer's own settings."""
        if isinstance(override, Method):
            if type(override) is not type(self):
                raise SettingError(
                    f"overrides[{pattern!r}] must be settings of {type(self).__name__}, or Single() to "
                    f"leave the layer as it is, however: {override!r}."
                )
            override = {
                name: getattr(override, name)
                for name in (field.name for field in fields(override))
                if getattr(override, name) != getattr(self, name)
            }
        if not isinstance(override, Mapping):
            raise SettingError(
                f"overrides[{pattern!r}] must be a dict of settings or a method, however: {override!r}."
            )
        self.check_names(override)
        for name in override:
            if name not in self.per_layer:
                raise SettingError(
                    f"overrides[{pattern!r}] may change {', '.join(sorted(self.per_layer)) or 'nothing'} "
                    f"of {type(self).__name__} for single layers, however: {name!r} holds for all of them."
                )
        return replace(self, **override)
