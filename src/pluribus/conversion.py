"""convert: make an Ensemble of a network by a method."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from pluribus.conversion_record import Conversion
from pluribus.ensemble import Ensemble
from pluribus.errors import ConversionError, SettingError
from pluribus.likelihood import Bernoulli, Categorical, Likelihood
from pluribus.likelihood import likelihood as likelihood_named
from pluribus.mechanisms.network.layers import Selector, Site, find_sites, select, there_are
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.outputs import Output
from pluribus.method import LayerChoice, Method
from pluribus.method_text import read_method
from pluribus.methods import Single  # and with it all others, which text may name
from pluribus.ranges import check

Overrides = Mapping[str, Method | Mapping[str, Any]]


def convert(
    model: nn.Module | Callable[..., nn.Module],
    method: Method | str,
    likelihood: str | Likelihood = "categorical",
    *,
    example: Any = None,
    include: Selector | None = None,
    exclude: Selector | None = None,
    overrides: Overrides | None = None,
    output: Output = None,
    seed: int = 0,
) -> Ensemble:
    """Turn a network into an ensemble. The network is copied and not changed.

    Args:
        model: A module, or a factory of one, which some methods call once for each member. A factory
            with one required argument gets a width, 1.0 for the network itself.
        method: The kind of ensemble, such as `DeepEnsembles(members=4)`, or the same as text,
            `"deep_ensembles(members=4)"`.
        likelihood: The meaning of the outputs: `categorical`, `bernoulli`, `gaussian`, `point`, or a
            `Likelihood`.
        example: One input as the network takes it: a tensor, a tuple, or a dict of keyword inputs.
            Made from the network if a method needs one and none is given.
        include: The layers to convert, by type, name pattern (`fnmatch`, `*` crosses dots) or
            predicate of name and layer, or several of these. By default all that the method can convert.
        exclude: The layers to leave as they are, in the same forms.
        overrides: Maps a name pattern to other settings for the layers it matches: a dict of settings, a
            method with them, or `Single()` to leave the layer. The last match wins.
        output: Selects the prediction among the returned values: a key, a position or a function. Not
            needed if the network returns one tensor, or one called `logits`.
        seed: Seed of everything random in the conversion; the same seed gives the same ensemble.

    Example:
        >>> ensemble = pluribus.convert(torch.nn.Linear(3, 2), BatchEnsemble(members=4))
        >>> ensemble(torch.zeros(7, 3)).shape
        torch.Size([4, 7, 2])
    """
    method = _as_method(method)
    check("seed", seed, int, at_least=0, at_most=math.inf)
    family = likelihood_named(likelihood)
    if isinstance(model, Ensemble):
        raise ConversionError("model must be a network, got an Ensemble. Convert its network.")
    if not isinstance(overrides, Mapping | None):
        raise SettingError(f"overrides must be a dict by name pattern, got {overrides!r}.")
    network = Network(model, example, output, seed)
    warn_of_probabilities(network.module, family)
    method = method.resolved(find_sites(network.module))
    choices = choose(network, method, include, exclude, overrides or {})
    found = method.follow_network(network, choices)
    if found:
        method = replace(method, **found)
        choices = [_with_found(choice, found) for choice in choices]
    return assemble(network, method, family, choices, seed)


def _with_found(choice: LayerChoice, found: Mapping[str, Any]) -> LayerChoice:
    """Return a choice with the settings that follow from the network."""
    return choice if choice.method is None else replace(choice, method=replace(choice.method, **found))


def warn_of_probabilities(module: nn.Module, likelihood: Likelihood) -> None:
    """Warn where a network ends in the function that the likelihood applies to its outputs again."""
    applied = {Categorical: nn.Softmax, Bernoulli: nn.Sigmoid}.get(type(likelihood))
    # Layers are registered in the order in which they run in all but a few networks. Softmax inside of
    # attention is not the last one.
    last = list(module.modules())[-1]
    if applied is not None and isinstance(last, applied):
        warnings.warn(
            f"{type(likelihood).__name__} takes logits and applies {applied.__name__} itself, but the "
            f"network ends in {applied.__name__}: predictions would be far too unsure. Remove the layer, or "
            "replace it by torch.nn.Identity().",
            UserWarning,
            stacklevel=3,
        )


def _as_method(method: object) -> Method:
    """Return a method from itself or from text; raise `SettingError` for anything else."""
    if isinstance(method, str):
        return read_method(method)
    if isinstance(method, Method):
        return method
    came = repr(method)
    if isinstance(method, type):
        came = f"the class {method.__name__}. Call it"
    raise SettingError(f"method must be a Method such as DeepEnsembles(members=4), got {came}.")


def choose(
    network: Network,
    method: Method,
    include: Selector | None,
    exclude: Selector | None,
    overrides: Overrides,
) -> list[LayerChoice]:
    """Return for every layer whether it is converted, and by which settings.

    Raises:
        ConversionError: no layer is left to convert, or one of two tied layers is. Nothing was changed yet.
        SettingError: a selector matches no layer.
    """
    sites = find_sites(network.module)
    included = set(sites)
    if include is not None:
        included = set(select(sites, include, "include"))
    excluded: set[Site] = set()
    if exclude is not None:
        excluded = set(select(sites, exclude, "exclude"))
    overridden = _overridden(sites, method, overrides)

    choices = []
    for site in sites:
        chosen = overridden.get(site, method)
        reason = method.why_skipped(site)
        # The user's own wish is the better explanation where the method would skip the layer too.
        if site not in included:
            reason = "not included"
        elif site in excluded:
            reason = "excluded"
        elif chosen is None:
            reason = "left by overrides"
        if reason:
            chosen = None
        picked = include is not None and not reason
        choices.append(LayerChoice(site, chosen, reason, picked, site in overridden))
    _check_tied(choices)
    _check_some(choices, method)
    return choices


def _overridden(sites: Sequence[Site], method: Method, overrides: Overrides) -> dict[Site, Method | None]:
    """Return the method of each layer that an override matches; None leaves the layer as it is."""
    found: dict[Site, Method | None] = {}
    for pattern, override in overrides.items():
        given = override
        if isinstance(override, Method):
            given = override.resolved(sites)
        changed = None
        if not isinstance(given, Single):
            changed = method.with_settings(given, pattern)
        # Later patterns overwrite earlier ones: the last match wins.
        for site in select(sites, pattern, f"overrides[{pattern!r}]"):
            found[site] = changed
    return found


def _check_some(choices: Sequence[LayerChoice], method: Method) -> None:
    """Raise `ConversionError` if no layer is converted, unless the method is `Single`."""
    if isinstance(method, Single):
        return
    for choice in choices:
        # A method that gives members weights of their own leaves frozen layers shared.
        left_frozen = method.own_weights and choice.site.frozen
        if choice.method is not None and not left_frozen:
            return
    reasons = sorted({choice.reason or "frozen" for choice in choices})
    sites = [choice.site for choice in choices]
    message = (
        f"{type(method).__name__} must have a layer to convert, but all are left "
        f"({', '.join(reasons) or 'there is none'}). {there_are(sites)}"
    )
    if "frozen" in reasons:
        message += " Set requires_grad of what is to be converted."
    raise ConversionError(message)


def _check_tied(choices: Sequence[LayerChoice]) -> None:
    """Raise `ConversionError` if only one of two layers with a common parameter is converted."""
    converted: dict[str, Site] = {}
    for choice in choices:
        if choice.method is not None:
            converted.update(dict.fromkeys(choice.site.tied, choice.site))
    for choice in choices:
        # A layer that never runs cannot disagree with the layer it is tied to.
        if choice.method is not None or choice.reason == "never runs":
            continue
        shared = [name for name in choice.site.tied if name in converted]
        if shared:
            raise ConversionError(
                f"tied layers must be converted together, but {choice.site} is left ({choice.reason}), "
                f"{converted[shared[0]]} is not, and both hold {shared[0]}. Pick both or none."
            )


def assemble(
    network: Network, method: Method, likelihood: Likelihood, choices: Sequence[LayerChoice], seed: int
) -> Ensemble:
    """Build the ensemble of a network whose layers all have their choices."""
    built = method.build(network, choices, seed)
    on_trained = built.on_trained or method.on_trained
    conversion = Conversion(f"{method} on {network.kind}", built.layers, built.notes, on_trained)
    # Loading must convert the same layers, even if another example would lead the method to others.
    depending: set[tuple[str, ...]] = set()
    if method.depends_on_example:
        depending = {row.names for row in conversion.converted}
    selection = []
    for choice in choices:
        picked = choice.picked or choice.site.names in depending
        if choice.site.name in built.left:
            choice = replace(choice, method=None, reason=built.left[choice.site.name])
        selection.append(_recorded(choice, picked))
    return Ensemble(network, method, likelihood, built, conversion, selection, seed)


def _recorded(choice: LayerChoice, picked: bool) -> dict[str, Any]:
    """Return a choice as a saved ensemble records it."""
    settings = None
    if choice.method is not None:
        settings = choice.method.to_dict()
    return {
        "name": choice.site.name,
        "settings": settings,
        "reason": choice.reason,
        "picked": picked,
        "overridden": choice.overridden,
    }
