"""Parameters of a space: their names, their values, and how they are written."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pluribus.axes import Axis, Between, OneOf
from pluribus.method import Method

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


def written(
    methods: Mapping[str, tuple[Method, Mapping[str, Axis]]],
    training: Mapping[str, Axis],
    sizes: Mapping[str, Axis],
    left_out: Mapping[str, str],
) -> str:
    """Return a space for a reader: a line for each method, setting and axis.

    Args:
        methods: By title, each method with its axes.
        training: Axes of settings of training.
        sizes: Axes of the sizes of the network.
        left_out: Methods that are not in the space, each with the reason.
    """
    lines: list[str] = []
    for title, (method, axes) in methods.items():
        lines.append(title)
        lines += [f"    {name} = {value}" for name, value in given_settings(method).items()]
        lines += _lines(axes)
    if training:
        lines += ["training", *_lines(training)]
    lines += [f"{name}: {axis}" for name, axis in sizes.items()]
    for kind, reason in left_out.items():
        lines.append(f"left out: {kind}, {reason}")
    return "\n".join(lines)


def _lines(axes: Mapping[str, Axis]) -> list[str]:
    return [f"    {name}: {axis}" for name, axis in axes.items()]
