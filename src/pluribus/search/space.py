"""Space: the configurations that a search may try.

Every method declares which of its settings may vary, next to the setting (`Settings.axes`). A space joins
those of several methods; settings of training and the width of the network are further axes, if wanted.

    conditional   method, then the settings of that method alone: sae.inputs, sae.exits
    flat          all settings of all methods in every trial; those of other methods are ignored

In a flat space settings of several methods with one name and one axis, such as `members`, are one parameter.
Gaussian processes need a flat space, because they can only model parameters that all trials have.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from pluribus.axes import DEPTHS, Axis, Between, Ends, OneOf, listed, read_axis
from pluribus.errors import SettingError
from pluribus.method import Method
from pluribus.method_text import read_method
from pluribus.ranges import invalid, nearest, show
from pluribus.training.settings import Training

METHOD, WIDTH, TRAINING = "method", "width", "training"
MOST_LISTED = 1000
"""Most configurations that are enumerated."""

Part = Between | OneOf
Draw = Callable[[str, Part], Any]
"""Callback that returns a value for the parameter of a name, on an axis."""


@dataclass(frozen=True)
class Configuration:
    """A point of the space.

    Attributes:
        method: The method with its settings.
        training: Settings of training that differ from the search's.
        width: Width of the network; None is its own.
    """

    method: Method
    training: Mapping[str, Any] = field(default_factory=dict)
    width: Any = None


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
        width: Axis of the width of the network; None keeps it.
        enumerated: Kinds of methods whose configurations are all tried, before any is drawn.
        left_out: Methods that this network cannot have, by kind, each with the reason.
    """

    choices: tuple[Choice, ...]
    training: Mapping[str, Axis] = field(default_factory=dict)
    width: Axis | None = None
    enumerated: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the names of the methods."""
        return tuple(choice.kind for choice in self.choices)

    def parameters(self, flat: bool) -> dict[str, Part]:
        """Return all parameters that trials may have, with their axes."""
        found: dict[str, Part] = {}
        if len(self.choices) > 1:
            found[METHOD] = OneOf(self.kinds)
        for choice in self.choices:
            for name, axis in choice.axes.items():
                found |= self._parts(self._name(choice, name, flat), axis)
        return found | self._shared_parameters()

    def _shared_parameters(self) -> dict[str, Part]:
        """Return the parameters that trials of all methods have."""
        found: dict[str, Part] = {}
        for name, axis in self.training.items():
            found |= self._parts(f"{TRAINING}.{name}", axis)
        if self.width is not None:
            found |= self._parts(WIDTH, self.width)
        return found

    @staticmethod
    def _parts(name: str, axis: Axis) -> dict[str, Part]:
        return {f"{name}{suffix}": part for suffix, part in axis.parts.items()}

    def _name(self, choice: Choice, name: str, flat: bool) -> str:
        """Return the name of a parameter: shared between methods only in a flat space, on equal axes."""
        axes = [other.axes[name] for other in self.choices if name in other.axes]
        alike = all(axis == choice.axes[name] for axis in axes)
        return name if flat and alike else f"{choice.kind}.{name}"

    def suggest(self, draw: Draw, flat: bool = False) -> Configuration:
        """Draw a configuration.

        Args:
            draw: Called with the name and the axis of each parameter.
            flat: Draw the settings of all methods.

        Raises:
            SettingError: settings that exclude one another were drawn.
        """
        kind = draw(METHOD, OneOf(self.kinds)) if len(self.choices) > 1 else self.kinds[0]
        found: dict[str, Any] = {}
        for choice in self.choices:
            if flat or choice.kind == kind:
                for name, axis in choice.axes.items():
                    parts = self._parts(self._name(choice, name, flat), axis)
                    found |= {part: draw(part, one) for part, one in parts.items() if part not in found}
        for part, one in self._shared_parameters().items():
            found[part] = draw(part, one)
        return self.configuration({METHOD: kind, **found}, flat)

    def configuration(self, drawn: Mapping[str, Any], flat: bool = False) -> Configuration:
        """Return the configuration of drawn parameters."""
        kind = drawn.get(METHOD, self.kinds[0])
        choice = next(one for one in self.choices if one.kind == kind)
        settings = {}
        for name, axis in choice.axes.items():
            settings[name] = self._value(drawn, self._name(choice, name, flat), axis)
        trained = {name: self._value(drawn, f"{TRAINING}.{name}", one) for name, one in self.training.items()}
        width = None if self.width is None else self._value(drawn, WIDTH, self.width)
        return Configuration(replace(choice.method, **settings), trained, width)

    def _value(self, drawn: Mapping[str, Any], name: str, axis: Axis) -> Any:
        return axis.value([drawn[part] for part in self._parts(name, axis)])

    def find(self, method: Mapping[str, Any], training: Mapping[str, Any], flat: bool) -> dict[str, Any]:
        """Return the parameters of a run that was made elsewhere; empty if the space does not hold it.

        Args:
            method: Settings of its method, as in a record.
            training: Settings of its training.
            flat: Name them as in a flat space.
        """
        choice = next((one for one in self.choices if one.kind == method.get("kind")), None)
        if choice is None or self.width is not None:
            return {}
        base = choice.method.to_dict()
        for name, value in method.items():
            if name not in choice.axes and _as_json(base.get(name)) != _as_json(value):
                return {}
        axes = {
            self._name(choice, name, flat): (axis, method.get(name)) for name, axis in choice.axes.items()
        }
        axes |= {f"{TRAINING}.{name}": (one, training.get(name)) for name, one in self.training.items()}
        found = {METHOD: choice.kind} if len(self.choices) > 1 else {}
        for name, (axis, value) in axes.items():
            values: Any = value if isinstance(axis, Ends) else [value]
            for (part, one), number in zip(self._parts(name, axis).items(), values, strict=True):
                if not _holds(one, number):
                    return {}
                found[part] = number
        return found

    def first(self, flat: bool = False) -> list[dict[str, Any]]:
        """Return the parameters of all configurations of methods that are enumerated, or have no axes."""
        found: list[dict[str, Any]] = []
        for choice in self.choices:
            if choice.axes and choice.kind not in self.enumerated:
                continue
            found += self._grid(choice, flat)
        if len(found) > MOST_LISTED:
            raise SettingError(
                f"at most {MOST_LISTED} configurations can be enumerated, got {len(found)}. "
                "Give fewer values, or enumerate fewer methods."
            )
        return found

    def _grid(self, choice: Choice, flat: bool) -> list[dict[str, Any]]:
        parts: dict[str, Part] = {}
        if len(self.choices) > 1:
            parts[METHOD] = OneOf((choice.kind,))
        for name, axis in choice.axes.items():
            parts |= self._parts(self._name(choice, name, flat), axis)
        shared = self._shared_parameters()
        # Axes that all methods share are enumerated where they can be, and left to the sampler otherwise.
        parts |= {name: one for name, one in shared.items() if one.is_finite}
        endless = [name for name, one in parts.items() if not one.is_finite]
        if endless:
            raise SettingError(
                f"enumerated methods must have lists of values, got {endless[0]} from {parts[endless[0]]}. "
                "Write them as a list, or let the sampler draw them."
            )
        values = itertools.product(*(listed(one) for one in parts.values()))
        return [dict(zip(parts, one, strict=True)) for one in values]

    def to_dict(self) -> dict[str, Any]:
        """Return the space as `read_space` takes it."""
        found: dict[str, Any] = {choice.kind: _axes_to_json(choice.axes) for choice in self.choices}
        for choice in self.choices:
            fixed = _given(choice.method)
            if fixed:
                found[choice.kind] |= {"fixed": fixed}
        if self.training:
            found[TRAINING] = _axes_to_json(self.training)
        if self.width is not None:
            found[WIDTH] = self.width.to_json()
        if self.enumerated:
            found["enumerated"] = list(self.enumerated)
        return found

    def __str__(self) -> str:
        lines = []
        for choice in self.choices:
            suffix = " (all of them)" if choice.kind in self.enumerated and choice.axes else ""
            lines.append(f"{choice.kind}{suffix}")
            lines += [f"    {name} = {value}" for name, value in _given(choice.method).items()]
            lines += [f"    {name}: {axis}" for name, axis in choice.axes.items()]
        lines += [f"{TRAINING}"] * bool(self.training)
        lines += [f"    {name}: {axis}" for name, axis in self.training.items()]
        if self.width is not None:
            lines.append(f"width: {self.width}")
        lines += [f"left out: {kind}, {reason}" for kind, reason in self.left_out.items()]
        return "\n".join(lines)


def make_space(
    methods: Sequence[Method],
    *,
    training: Sequence[str] = (),
    width: Axis | None = None,
    depths: int | None = None,
    enumerated: Sequence[str] = (),
) -> Space:
    """Return the space that methods declare; settings given another value than their default stay fixed.

    Args:
        methods: One of each kind.
        training: Names of the settings of training that vary too.
        width: How the width of the network varies.
        depths: How many exits the network can have; None if it can have none.
        enumerated: Kinds of methods whose configurations are all tried.

    Raises:
        SettingError: a setting of training has no axis, or two methods are of one kind.
    """
    choices, left_out = [], {}
    for method in methods:
        given = _given(method)
        axes = {name: axis for name, axis in method.axes().items() if name not in given}
        reason = _lacks_depths(axes, depths)
        if reason:
            left_out[method.kind()] = reason
            continue
        choices.append(Choice(method, {name: _resolved(axis, depths) for name, axis in axes.items()}))
    declared = Training.axes()
    for name in training:
        if name not in declared:
            raise invalid("settings of training that vary", f"one of {', '.join(declared)}", name, declared)
    varied = {name: declared[name] for name in training}
    return _checked(Space(tuple(choices), varied, width, tuple(enumerated), left_out))


def read_space(values: Mapping[str, Any], depths: int | None = None) -> Space:
    """Return the space that a dict describes: by method, the axes of its settings.

    >>> print(read_space({"single": {}, "deep_ensembles": {"members": [2, 4]}}))
    single
    deep_ensembles
        members: one of 2, 4

    Raises:
        SettingError: a method, a setting or an axis is unknown.
    """
    if not isinstance(values, Mapping) or not values:
        raise invalid("space", 'a dict such as {"deep_ensembles": {"members": [2, 4]}}', values)
    rest = dict(values)
    enumerated = tuple(rest.pop("enumerated", ()))
    training = _read_axes(Training, TRAINING, rest.pop(TRAINING, {}))
    width = rest.pop(WIDTH, None)
    choices, left_out = [], {}
    for kind, axes in rest.items():
        method = read_method(kind)
        if not isinstance(axes, Mapping):
            raise invalid(f"the space of {kind}", "a dict of settings and axes", axes)
        fixed = axes.get("fixed", {})
        method.check_names(fixed)
        method = type(method)(**{name: _as_setting(value) for name, value in fixed.items()})
        varied = {name: value for name, value in axes.items() if name != "fixed"}
        read = _read_axes(type(method), kind, varied)
        reason = _lacks_depths(read, depths)
        if reason:
            left_out[kind] = reason
            continue
        choices.append(Choice(method, {name: _resolved(axis, depths) for name, axis in read.items()}))
    axis = None if width is None else read_axis(WIDTH, width)
    return _checked(Space(tuple(choices), training, axis, enumerated, left_out))


def _checked(space: Space) -> Space:
    if not space.choices:
        reasons = "; ".join(f"{kind}: {reason}" for kind, reason in space.left_out.items())
        raise SettingError(
            f"a space must hold at least one method, got none{': ' * bool(reasons)}{reasons}. Name others."
        )
    if len(set(space.kinds)) != len(space.kinds):
        raise SettingError(f"a space holds each method once, got {', '.join(space.kinds)}.")
    for kind in space.enumerated:
        if kind not in space.kinds:
            known = ", ".join(space.kinds)
            raise SettingError(
                f"enumerated methods must be among {known}, got {show(kind)}." + nearest(kind, space.kinds)
            )
    return space


def _read_axes(settings: type[Method] | type[Training], place: str, values: Any) -> dict[str, Axis]:
    if not isinstance(values, Mapping):
        raise invalid(f"the space of {place}", "a dict of settings and axes", values)
    settings.check_names(values)
    return {name: read_axis(f"{place}.{name}", value) for name, value in values.items()}


def _lacks_depths(axes: Mapping[str, Axis], depths: int | None) -> str:
    """Return why a network cannot have a method that needs several exits; empty if it can."""
    needs = any(getattr(axis, "high", None) == DEPTHS for axis in axes.values())
    if not needs or (depths or 0) > 1:
        return ""
    return "the network has no stages to exit after"


def _resolved(axis: Axis, depths: int | None) -> Axis:
    """Return an axis with the number of exits in place of the word."""
    if not isinstance(axis, Between) or axis.high != DEPTHS or depths is None:
        return axis
    return replace(axis, high=depths, low=min(axis.low, depths))


def _given(method: Method) -> dict[str, Any]:
    """Return the settings that are not their defaults."""
    return {
        one.name: getattr(method, one.name)
        for one in fields(method)
        if getattr(method, one.name) != one.default
    }


def _axes_to_json(axes: Mapping[str, Axis]) -> dict[str, Any]:
    return {name: axis.to_json() for name, axis in axes.items()}


def _as_json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _as_setting(value: Any) -> Any:
    # Files hold lists; settings compare and hash as tuples.
    return tuple(value) if isinstance(value, list) else value


def _holds(axis: Part, value: Any) -> bool:
    """Return whether a value is on an axis."""
    if isinstance(axis, OneOf):
        return value in axis.choices
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    assert not isinstance(axis.high, str)
    return axis.low <= value <= axis.high and (isinstance(value, int) or not axis.is_whole)
