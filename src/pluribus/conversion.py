"""convert: a network and a method make an Ensemble."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
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
from pluribus.settings import check

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
    """Turn a network into an ensemble; the network is copied and not changed.

    Args:
        model: A module, or a factory of one, which some methods call once for each member. A factory
            with one required argument gets a width, 1.0 for the network itself.
        method: What the ensemble is, such as `DeepEnsembles(members=4)`, or the same as text,
            `"deep_ensembles(members=4)"`.
        likelihood: What the outputs mean: `categorical`, `bernoulli`, `gaussian`, `point`, or a
            `Likelihood`.
        example: One input as the network takes it: a tensor, a tuple, or a dict of keyword inputs.
            Made from the network where a method needs it.
        include: The layers to convert, by type, name pattern (`fnmatch`, `*` crosses dots) or
            predicate of name and layer, or several of these; all that the method can.
        exclude: The layers to leave as they are, likewise.
        overrides: By name pattern, settings that differ for some layers: a dict of them, the method
            with them, or `Single()` to leave the layer; the last match wins.
        output: What of the returned values is the prediction: a key, a position or a function; found
            by itself where it is the only tensor or called `logits`.
        seed: Of everything random in the conversion; same seed, same ensemble.

    Example:
        >>> ensemble = pluribus.convert(torch.nn.Linear(3, 2), BatchEnsemble(members=4))
        >>> ensemble(torch.zeros(7, 3)).shape
        torch.Size([4, 7, 2])
    """
    if isinstance(method, str):
        method = read_method(method)
    if not isinstance(method, Method):
        came = f"the class {method.__name__}. Call it" if isinstance(method, type) else repr(method)
        raise SettingError(f"method must be a Method such as DeepEnsembles(members=4), got {came}.")
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
    return assemble(network, method, family, choices, seed)


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


def choose(
    network: Network,
    method: Method,
    include: Selector | None,
    exclude: Selector | None,
    overrides: Overrides,
) -> list[LayerChoice]:
    """Return what the user wants of every layer; raise for any problem before anything is changed."""
    sites = find_sites(network.module)
    included = set(sites if include is None else select(sites, include, "include"))
    excluded = set() if exclude is None else set(select(sites, exclude, "exclude"))
    methods: dict[Site, Method | None] = dict.fromkeys(sites, method)
    overridden: set[Site] = set()
    for pattern, override in overrides.items():
        given = override.resolved(sites) if isinstance(override, Method) else override
        changed = None if isinstance(given, Single) else method.with_settings(given, pattern)
        matched = select(sites, pattern, f"overrides[{pattern!r}]")
        methods |= dict.fromkeys(matched, changed)
        overridden.update(matched)

    def choice(site: Site) -> LayerChoice:
        reason = method.why_skipped(site)
        if site not in included:
            reason = "not included"
        elif site in excluded:
            reason = "excluded"
        elif methods[site] is None:
            reason = "left by overrides"
        picked = include is not None and not reason
        return LayerChoice(site, None if reason else methods[site], reason, picked, site in overridden)

    choices = [choice(site) for site in sites]
    _check_tied(choices)
    _check_some(choices, method)
    return choices


def _check_some(choices: Sequence[LayerChoice], method: Method) -> None:
    """Raise if there is no layer to convert."""
    converted = [c for c in choices if c.method and not (method.own_weights and c.site.frozen)]
    if not isinstance(method, Single) and not converted:
        reasons = {c.reason or "frozen" for c in choices}
        thaw = " Set requires_grad of what is to be converted." * ("frozen" in reasons)
        raise ConversionError(
            f"{type(method).__name__} must have a layer to convert, got none: all are left "
            f"({', '.join(sorted(reasons)) or 'there is none'}). {there_are([c.site for c in choices])}{thaw}"
        )


def _check_tied(choices: Sequence[LayerChoice]) -> None:
    """Raise if a parameter that two layers hold is converted for one of them alone."""
    converted = {}
    for choice in choices:
        if choice.method:
            converted |= dict.fromkeys(choice.site.tied, choice.site)
    for choice in choices:
        # A layer that never runs may be left: nothing reads its parameters there.
        if choice.method or choice.reason == "never runs":
            continue
        for name in choice.site.tied:
            if name in converted:
                raise ConversionError(
                    f"tied layers must be converted together, but {choice.site} is left "
                    f"({choice.reason}), {converted[name]} is not, and both hold {name}. Pick both or none."
                )


def assemble(
    network: Network, method: Method, likelihood: Likelihood, choices: Sequence[LayerChoice], seed: int
) -> Ensemble:
    """Build the ensemble that a method makes of a network, with a decision for every layer."""
    built = method.build(network, choices, seed)
    conversion = Conversion(f"{method} on {network.kind}", built.layers, built.notes)
    picked = {row.names for row in conversion.converted} if method.depends_on_example else set()
    selection = [
        {
            "name": choice.site.name,
            "settings": None if choice.method is None else choice.method.to_dict(),
            "reason": choice.reason,
            "picked": choice.picked or choice.site.names in picked,
            "overridden": choice.overridden,
        }
        for choice in choices
    ]
    return Ensemble(network, method, likelihood, built, conversion, selection, seed)
