"""Space: the configurations that a search may try.

Every method declares which of its settings may vary, next to the setting (`Settings.axes`). A space joins
those of several methods; settings of training, and width and depth of the network, are further axes, if
wanted.

    conditional   method, then the settings of that method alone: sae.inputs, sae.exits
    flat          all settings of all methods in every trial; those of other methods are ignored

In a flat space settings of several methods with one name and one axis, such as `members`, are one parameter.
Gaussian processes need a flat space, because they can only model parameters that all trials have.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pluribus.axes import Axis, OneOf
from pluribus.method import Method
from pluribus.search.parameters import Part, axes_to_json, given_settings, parts_of, value_of, written

METHOD, TRAINING = "method", "training"
FIXED, ENUMERATED = "fixed", "enumerated"

Draw = Callable[[str, Part], Any]
"""Callback that returns a value for the parameter of a name, on an axis."""


@dataclass(frozen=True)
class Configuration:
    """A point of the space.

    Attributes:
        method: The method with its settings.
        training: Settings of training that differ from the search's.
        sizes: Width and depth of the network, where they differ from its own.
    """

    method: Method
    training: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """A method of the space: settings that stay as they are, and axes of those that vary."""

    method: Method
    axes: Mapping[str, Axis]

    @property
    def kind(self) -> str:
        """Return the name of the method."""
        return self.method.kind()


@dataclass(frozen=True)
class Space:
    """All configurations that a search may try.

    Attributes:
        choices: The methods, each with its axes.
        training: Axes of training settings, by name.
        sizes: Axes of `width` and `depth` of the network; those that are missing stay as they are.
        enumerated: Kinds of methods whose configurations are all tried, before any is drawn.
        left_out: Methods that this network cannot have, by kind, each with the reason.
    """

    choices: tuple[Choice, ...]
    training: Mapping[str, Axis] = field(default_factory=dict)
    sizes: Mapping[str, Axis] = field(default_factory=dict)
    enumerated: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the names of the methods."""
        return tuple(choice.kind for choice in self.choices)

    def parameters(self, flat: bool) -> dict[str, Part]:
        """Return all parameters that trials may have, with their axes."""
        found = self.method_parameter()
        for choice in self.choices:
            found |= self.own_parameters(choice, flat)
        return found | self.shared_parameters()

    def method_parameter(self) -> dict[str, Part]:
        """Return the parameter that chooses the method; none in a space of one method."""
        if len(self.choices) < 2:
            return {}
        return {METHOD: OneOf(self.kinds)}

    def own_parameters(self, choice: Choice, flat: bool) -> dict[str, Part]:
        """Return the parameters of one method."""
        found: dict[str, Part] = {}
        for name, axis in choice.axes.items():
            found |= parts_of(self.name(choice, name, flat), axis)
        return found

    def shared_parameters(self) -> dict[str, Part]:
        """Return the parameters that trials of all methods have."""
        found: dict[str, Part] = {}
        for name, axis in self.training.items():
            found |= parts_of(f"{TRAINING}.{name}", axis)
        for name, axis in self.sizes.items():
            found |= parts_of(name, axis)
        return found

    def name(self, choice: Choice, setting: str, flat: bool) -> str:
        """Return the name of a parameter: shared between methods only in a flat space, on equal axes."""
        own = choice.axes[setting]
        alike = all(other.axes.get(setting, own) == own for other in self.choices)
        if flat and alike:
            return setting
        return f"{choice.kind}.{setting}"

    def suggest(self, draw: Draw, flat: bool = False) -> Configuration:
        """Draw a configuration.

        Args:
            draw: Called with the name and the axis of each parameter.
            flat: Draw the settings of all methods.

        Raises:
            SettingError: settings that exclude one another were drawn.
        """
        drawn = {name: draw(name, axis) for name, axis in self.method_parameter().items()}
        kind = drawn.get(METHOD, self.kinds[0])
        wanted: dict[str, Part] = {}
        for choice in self.choices:
            if flat or choice.kind == kind:
                wanted |= self.own_parameters(choice, flat)
        wanted |= self.shared_parameters()
        for name, axis in wanted.items():
            drawn[name] = draw(name, axis)
        return self.configuration(drawn, flat)

    def configuration(self, drawn: Mapping[str, Any], flat: bool = False) -> Configuration:
        """Return the configuration of drawn parameters."""
        choice = self.choice(drawn.get(METHOD, self.kinds[0]))
        settings: dict[str, Any] = {}
        for name, axis in choice.axes.items():
            settings[name] = value_of(drawn, self.name(choice, name, flat), axis)
        trained: dict[str, Any] = {}
        for name, axis in self.training.items():
            trained[name] = value_of(drawn, f"{TRAINING}.{name}", axis)
        sizes = {name: value_of(drawn, name, axis) for name, axis in self.sizes.items()}
        return Configuration(replace(choice.method, **settings), trained, sizes)

    def choice(self, kind: str) -> Choice:
        """Return the method of a kind with its axes."""
        return next(one for one in self.choices if one.kind == kind)

    def to_dict(self) -> dict[str, Any]:
        """Return the space as `read_space` takes it."""
        found: dict[str, Any] = {}
        for choice in self.choices:
            found[choice.kind] = axes_to_json(choice.axes)
            fixed = given_settings(choice.method)
            if fixed:
                found[choice.kind][FIXED] = fixed
        if self.training:
            found[TRAINING] = axes_to_json(self.training)
        found |= axes_to_json(self.sizes)
        if self.enumerated:
            found[ENUMERATED] = list(self.enumerated)
        return found

    def __str__(self) -> str:
        methods = {}
        for choice in self.choices:
            title = f"{choice.kind} (all of them)" if choice.kind in self.enumerated else choice.kind
            methods[title] = (choice.method, choice.axes)
        return written(methods, self.training, self.sizes, self.left_out)
