"""Method: a way of making an ensemble, as a value."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

from torch import Tensor

from pluribus.conversion_record import LayerRecord
from pluribus.deprecation import RenamedAttribute, adopt_renamed, find_renamed
from pluribus.errors import SettingError
from pluribus.mechanisms.members.prior import AnyMembers
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.layers import Site
from pluribus.mechanisms.network.network import Network
from pluribus.recipe import Recipe
from pluribus.settings import Settings

RENAMED = {
    "parts": "assign",
    "total": "combine",
    "streams": "data_orders",
    "trains": "own_weights",
    "picks": "depends_on_example",
    "named": "resolved",
    "left": "why_skipped",
    "changed": "with_settings",
}
"""Hooks of `Method` by their old names, which methods outside this library may still define."""


@dataclass(frozen=True)
class LayerChoice:
    """The decision for one layer.

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
    """The result of `Method.build`.

    Attributes:
        members: All members.
        layers: What became of every layer.
        notes: What else a user should know.
        no_decay: Names of the members' parameters that weight decay must leave alone.
        left: Layers that were chosen and could not be converted, by name, each with the reason.
        on_trained: What becomes of a trained network, where the network decides; empty is the method's.
    """

    members: AnyMembers
    layers: tuple[LayerRecord, ...]
    notes: tuple[str, ...] = ()
    no_decay: frozenset[str] = field(default_factory=frozenset)
    left: Mapping[str, str] = field(default_factory=dict)
    on_trained: str = ""

    rows = RenamedAttribute("layers")


@dataclass(frozen=True)
class Method(Settings, ABC):
    """A frozen dataclass of settings that knows how to turn a network into an ensemble."""

    per_layer: ClassVar[frozenset[str]] = frozenset()
    """Settings that `overrides` may change for single layers."""

    own_weights: ClassVar[bool] = True
    """Whether it gives members weights of their own, so that layers without trained ones are left."""

    depends_on_example: ClassVar[bool] = False
    """Whether it picks layers by what the network does with its example, so that files keep which."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        adopt_renamed(cls, RENAMED)

    @property
    def on_trained(self) -> str:
        """Name what becomes of a trained network, one of `ON_TRAINED`."""
        return "retrain"

    @abstractmethod
    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        """The members' tensors and the record of the conversion; may edit `network`, a copy."""

    def resolved(self, sites: Sequence[Site]) -> Self:
        """The method with the names of layers in place of what selects them, so that it goes to files."""
        return self

    def follow_network(self, network: Network, choices: Sequence[LayerChoice]) -> dict[str, Any]:
        """Return settings that follow from the network; `convert` applies them, so that files hold them.

        Args:
            network: The network, which stays as it is.
            choices: The user's wishes for every layer.
        """
        return {}

    def why_skipped(self, site: Site) -> str:
        """Why a layer has nothing that this method converts; empty where it has."""
        if not self.own_weights:
            return ""
        if not site.parameters and not site.statistics:
            return "no parameters"
        return "frozen" if site.frozen and not site.statistics else ""

    def assign(self, batch: int, rows: Sequence[Any], progress: float) -> list[Tensor] | None:
        """Which samples of a training batch each row sees; None is all of them."""
        return None

    def combine(self, losses: Tensor, shares: Tensor, members: AnyMembers, progress: float) -> Tensor:
        """The training objective from the losses of the rows, before any penalty.

        Args:
            losses: The mean loss of each row on the samples that it saw, `[rows]`.
            shares: How much each row counts, `[rows]`, summing to one: its part of the samples, or its
                weight in eval mode.
            members: All members.
            progress: How much of training is done, in [0, 1].
        """
        return (losses * shares).sum()

    def is_separate(self, members: AnyMembers) -> bool:
        """Return whether the objective trains every member as if it were alone, with its own gradient."""
        return False

    def penalty(self, members: AnyMembers, batch: int, dataset_size: int, progress: float) -> Tensor | float:
        """Return a term added to the losses, such as a prior on the weights.

        Args:
            members: All members.
            batch: How many samples the losses are a mean over.
            dataset_size: The size of the training set.
            progress: How much of training is done, in [0, 1].
        """
        return 0.0

    def after_step(self, members: AnyMembers, progress: float) -> None:
        """Update the members after a step of the optimizer, such as by a snapshot of their weights.

        Args:
            members: All members.
            progress: How much of training is done, in [0, 1].
        """
        return

    def finish(self, members: AnyMembers, batches: Iterable[Inputs]) -> None:
        """Complete the members after training, by passes over the training inputs.

        Args:
            members: All members.
            batches: The inputs of the training set; may be gone through several times.
        """
        return

    def is_ready(self, members: AnyMembers) -> bool:
        """Return whether the members can predict; some methods need a part of training first."""
        return True

    def recipe(self) -> Recipe:
        """Return how its training should differ from that of a single network; `compare` applies it."""
        return Recipe()

    def for_trained(self) -> Self:
        """Return the settings for a network that is trained already; `finetune` applies them.

        Settings that were changed from their defaults stay as they are, unless they discard the network.
        """
        return self

    @property
    def data_orders(self) -> int:
        """How many orders of the samples training goes through at once; a batch is then a batch of the
        first order, followed by one of the second, and so on.
        """
        return 1

    def with_settings(self, override: "Method | Mapping[str, Any]", pattern: str) -> Self:
        """The method with a layer's own settings."""
        if isinstance(override, Method):
            if type(override) is not type(self):
                raise SettingError(
                    f"overrides[{pattern!r}] must be settings of {type(self).__name__}, or Single() to "
                    f"leave the layer as it is, got {override!r}."
                )
            override = {
                name: getattr(override, name)
                for name in (field.name for field in fields(override))
                if getattr(override, name) != getattr(self, name)
            }
        if not isinstance(override, Mapping):
            raise SettingError(
                f"overrides[{pattern!r}] must be a dict of settings or a method, got {override!r}."
            )
        self.check_names(override)
        for name in override:
            if name not in self.per_layer:
                raise SettingError(
                    f"overrides[{pattern!r}] may change {', '.join(sorted(self.per_layer)) or 'nothing'} "
                    f"of {type(self).__name__} for single layers, but {name!r} holds for all of them."
                )
        return replace(self, **override)

    parts = RenamedAttribute("assign")
    total = RenamedAttribute("combine")
    streams = RenamedAttribute("data_orders")
    trains = RenamedAttribute("own_weights")
    picks = RenamedAttribute("depends_on_example")
    named = RenamedAttribute("resolved")
    left = RenamedAttribute("why_skipped")
    changed = RenamedAttribute("with_settings")


def __getattr__(name: str) -> Any:
    return find_renamed(__name__, globals(), {"Choice": "LayerChoice"}, name)
