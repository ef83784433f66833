"""Parameters of a space: their names, their values, and how they are written."""

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from pluribus.axes import Axis, Between, OneOf
from pluribus.method import Method

if TYPE_CHECKING:
    from pluribus.search.space import Space

Part = Between | OneOf
"""An axis of one number or word."""


def parts_of(name: str, axis: Axis) -> dict[str, Part]:
    """Return the parameters of a setting: one, or one for each end of a pair."""
    return {f"{name}{suffix}": part for suffix, part in axis.parts.items()}


def value_of(drawn: Mapping[str, Any], name: str, axis: Axis) -> Any:
    """Return the value of a setting from the parameters that were drawn."""
    return axis.value([drawn[part] for part in parts_of(name, axis)])


def given_settings(method: Method) -> dict[str, Any]:
    """Return the settings that are not their defaults."""
    found: dict[str, Any] = {}
    for one in fields(method):
        value = getattr(method, one.name)
        if value != one.default:
            found[one.name] = value
    return found


def axes_to_json(axes: Mapping[str, Axis]) -> dict[str, Any]:
    """Return axes as `read_axis` takes them."""
    return {name: axis.to_json() for name, axis in axes.items()}


def written(space: "Space") -> str:
    """Return a space for a reader: a line for each method, setting and axis."""
    lines: list[str] = []
    for choice in space.choices:
        suffix = " (all of them)" if choice.kind in space.enumerated else ""
        lines.append(f"{choice.kind}{suffix}")
        lines += [f"    {name} = {value}" for name, value in given_settings(choice.method).items()]
        lines += _lines(choice.axes)
    if space.training:
        lines += ["training", *_lines(space.training)]
    if space.width is not None:
        lines.append(f"width: {space.width}")
    for kind, reason in space.left_out.items():
        lines.append(f"left out: {kind}, {reason}")
    return "\n".join(lines)


def _lines(axes: Mapping[str, Axis]) -> list[str]:
    return [f"    {name}: {axis}" for name, axis in axes.items()]
