"""Selecting layers by type, by name pattern or by predicate."""

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from pluribus.errors import ConversionError
from pluribus.mechanisms.network.sites import Site

Selector = type[nn.Module] | str | Callable[[str, nn.Module], bool] | Sequence["Selector"]


def select(sites: Sequence[Site], selector: Selector, option: str) -> list[Site]:
    """The sites that a selector picks, in their order.

    Args:
        sites: All layers of the network.
        selector: A layer type; an `fnmatch` pattern on the qualified name, where `*` crosses dots; a
            predicate of name and layer; or several of these.
        option: What the user calls this selection, for errors: a selector that picks nothing is one.
    """
    if not isinstance(selector, str | type | nn.Module) and isinstance(selector, Iterable):
        chosen = {site for one in selector for site in select(sites, one, option)}
        return [site for site in sites if site in chosen]
    chosen = {site for site in sites if _matches(site, selector, option)}
    if not chosen:
        raise ConversionError(
            f"{option} must pick at least one layer, however: {_show(selector)} picks none. "
            + there_are(sites)
        )
    return [site for site in sites if site in chosen]


def is_selector(value: object) -> bool:
    """Whether this selects layers: a pattern, a layer type or a predicate, and not several of these."""
    if isinstance(value, type):
        return issubclass(value, nn.Module)
    return isinstance(value, str) or (callable(value) and not isinstance(value, nn.Module))


def there_are(sites: Sequence[Site]) -> str:
    """A sentence that names the layers there are, for errors."""
    kinds = sorted({site.kind for site in sites})
    names = [site.name or "''" for site in sites]
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return f"The network has layers of type {', '.join(kinds) or 'none'}, named {shown or 'nothing'}."


def _matches(site: Site, selector: Any, option: str) -> bool:
    if not is_selector(selector):
        raise ConversionError(
            f"{option} must be layer types, name patterns or predicates, however: {_show(selector)}."
        )
    if isinstance(selector, type):
        return isinstance(site.module, selector)
    if isinstance(selector, str):
        return any(fnmatchcase(name, selector) for name in site.names)
    return any(selector(name, site.module) for name in site.names)


def _show(selector: object) -> str:
    return selector.__name__ if isinstance(selector, type) else repr(selector)
