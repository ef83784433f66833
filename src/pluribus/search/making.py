"""Make a space: from what methods declare, or from a dict that was written by hand."""

from collections.abc import Mapping, Sequence
from typing import Any

from pluribus.axes import Axis, read_axis
from pluribus.errors import SettingError
from pluribus.method import Method
from pluribus.method_text import read_method
from pluribus.ranges import invalid, nearest, show
from pluribus.search.depths import why_not, with_depths
from pluribus.search.parameters import given_settings
from pluribus.search.sizes import SIZES
from pluribus.search.space import ENUMERATED, FIXED, TRAINING, Choice, Space
from pluribus.training.settings import Training


def make_space(
    methods: Sequence[Method],
    *,
    training: Sequence[str] = (),
    sizes: Mapping[str, Axis] | None = None,
    depths: int | None = None,
    enumerated: Sequence[str] = (),
) -> Space:
    """Return the space that methods declare; settings given another value than their default stay fixed.

    Args:
        methods: One of each kind.
        training: Names of the settings of training that vary too.
        sizes: How width and depth of the network vary, by name.
        depths: How many exits the network can have; None if it can have none.
        enumerated: Kinds of methods whose configurations are all tried; their other settings stay fixed.

    Raises:
        SettingError: a setting of training has no axis, or two methods are of one kind.
    """
    declared = Training.axes()
    for name in training:
        if name not in declared:
            known = [*declared, *SIZES]
            raise invalid("settings that vary besides", f"among {', '.join(known)}", name, known)
    choices = []
    for method in methods:
        given = given_settings(method)
        axes = {name: axis for name, axis in method.axes().items() if name not in given}
        if method.kind() in enumerated:
            # Settings that cannot be listed keep their defaults, as those of baselines in papers do.
            axes = {name: axis for name, axis in axes.items() if axis.is_finite}
        choices.append(Choice(method, axes))
    varied = {name: declared[name] for name in training}
    return _finished(choices, varied, sizes or {}, enumerated, depths)


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
    enumerated = rest.pop(ENUMERATED, ())
    _check_kind(ENUMERATED, "a list of methods", enumerated, list, tuple)
    training = _read_axes(Training, TRAINING, rest.pop(TRAINING, {}))
    sizes = {name: read_axis(name, rest.pop(name)) for name in SIZES if name in rest}
    choices = [_read_choice(kind, axes) for kind, axes in rest.items()]
    return _finished(choices, training, sizes, enumerated, depths)


def _read_choice(kind: Any, axes: Any) -> Choice:
    _check_kind("a method of the space", "a name such as 'deep_ensembles'", kind, str)
    _check_kind(f"the space of {kind}", "a dict of settings and axes", axes, Mapping)
    made = type(read_method(kind))
    fixed = axes.get(FIXED, {})
    _check_kind(f"{FIXED} of {kind}", "a dict of settings", fixed, Mapping)
    made.check_names(fixed)
    # Files hold lists; settings compare and hash as tuples.
    settings = {name: tuple(one) if isinstance(one, list) else one for name, one in fixed.items()}
    varied = {name: value for name, value in axes.items() if name != FIXED}
    return Choice(made(**settings), _read_axes(made, kind, varied))


def _check_kind(name: str, expected: str, value: Any, *kinds: type) -> None:
    """Raise for a value of none of these types."""
    if not isinstance(value, kinds):
        raise invalid(name, expected, value)


def _read_axes(settings: type[Method] | type[Training], place: str, values: Any) -> dict[str, Axis]:
    _check_kind(f"the space of {place}", "a dict of settings and axes", values, Mapping)
    settings.check_names(values)
    return {name: read_axis(f"{place}.{name}", value) for name, value in values.items()}


def _finished(
    choices: Sequence[Choice],
    training: Mapping[str, Axis],
    sizes: Mapping[str, Axis],
    enumerated: Sequence[str],
    depths: int | None,
) -> Space:
    """Return the space for a network with so many depths, checked."""
    kept: list[Choice] = []
    left_out: dict[str, str] = {}
    for choice in choices:
        reason = why_not(choice, depths)
        if reason:
            left_out[choice.kind] = reason
        else:
            kept.append(with_depths(choice, depths))
    space = Space(tuple(kept), training, sizes, tuple(enumerated), left_out)
    _check(space)
    return space


def _check(space: Space) -> None:
    if not space.choices:
        reasons = "; ".join(f"{kind}: {reason}" for kind, reason in space.left_out.items())
        raise SettingError(f"a space must hold at least one method, got none. {reasons or 'Name one'}.")
    if len(set(space.kinds)) != len(space.kinds):
        raise SettingError(f"a space must hold each method once, got {', '.join(space.kinds)}.")
    for kind in space.enumerated:
        if kind not in space.kinds:
            known = ", ".join(space.kinds)
            hint = nearest(kind, space.kinds)
            raise SettingError(f"enumerated methods must be among {known}, got {show(kind)}.{hint}")
