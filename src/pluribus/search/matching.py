"""Match a run that was made elsewhere with the parameters of a space."""

from collections.abc import Mapping
from typing import Any

from pluribus.axes import Axis, Ends, OneOf
from pluribus.search.parameters import Part, parts_of
from pluribus.search.space import METHOD, TRAINING, Choice, Space


def find_parameters(
    space: Space, method: Mapping[str, Any], training: Mapping[str, Any], flat: bool
) -> dict[str, Any]:
    """Return the parameters of a run; empty if the space does not hold it.

    Args:
        space: The space.
        method: Settings of its method, as in a record.
        training: Settings of its training.
        flat: Name parameters as in a flat space.
    """
    kind = method.get("kind")
    if kind not in space.kinds or space.sizes:
        return {}
    choice = space.choice(kind)
    if not _fits(choice, method):
        return {}
    found = {METHOD: kind} if len(space.choices) > 1 else {}
    for name, axis in choice.axes.items():
        drawn = _on_axis(space.name(choice, name, flat), axis, method.get(name))
        if not drawn:
            return {}
        found |= drawn
    for name, axis in space.training.items():
        drawn = _on_axis(f"{TRAINING}.{name}", axis, training.get(name))
        if not drawn:
            return {}
        found |= drawn
    return found


def _fits(choice: Choice, method: Mapping[str, Any]) -> bool:
    """Return whether all settings that do not vary are those of the space."""
    own = choice.method.to_dict()
    others = (name for name in method if name not in choice.axes)
    return all(_as_json(own.get(name)) == _as_json(method[name]) for name in others)


def _on_axis(name: str, axis: Axis, value: Any) -> dict[str, Any]:
    """Return the parameters of a value; empty if it is not on the axis."""
    values = [value]
    if isinstance(axis, Ends):
        values = list(value)
    found: dict[str, Any] = {}
    for (part, one), number in zip(parts_of(name, axis).items(), values, strict=True):
        if not _holds(one, number):
            return {}
        found[part] = number
    return found


def _holds(axis: Part, value: Any) -> bool:
    """Return whether a value is on an axis."""
    if isinstance(axis, OneOf):
        return value in axis.choices
    if type(value) not in (int, float):
        return False
    assert not isinstance(axis.high, str)
    fits = type(value) is int or not axis.is_whole
    return fits and axis.low <= value <= axis.high


def _as_json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
