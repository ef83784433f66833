"""Layers: every layer of a network once, how users select some of them, and what kind they are."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from torch import nn
from torch.nn.utils.parametrize import is_parametrized
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from pluribus.errors import ConversionError
from pluribus.mechanisms.network.torch_private import NormBase, child_table, forward_pre_hooks, own_tensors

NORMS = (NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)

# Norms of other libraries are known by the name of their class alone.
NAMED_NORM = re.compile(r"Norm(?:[123]d|Act|Act2d)?$")

# As in `RMSNormGated`. `NormConv2d` and `GRN` (global response normalisation, but also gated residual
# network) need a further look: a norm has a number for each channel and no matrix.
MAYBE_NORM = re.compile(r"Norm(?![a-z])|GRN$")

# Names in an error message: more of them would hide the remedy.
SHOWN_NAMES = 8

Selector = type[nn.Module] | str | Callable[[str, nn.Module], bool] | Sequence["Selector"]


@dataclass(frozen=True, eq=False)
class Site:
    """One layer.

    Attributes:
        names: All qualified names under which the layer is reached; the root is ''.
        module: The layer.
        parents: The modules that hold it, each with the key there; none for the root.
        parameters: Names of its parameters, each the first name in the network.
        trained: Those of its parameters that are not frozen.
        tied: Those of its parameters that another layer holds too.
        statistics: Names of its buffers that training changes, such as running means.
    """

    names: tuple[str, ...]
    module: nn.Module
    parents: tuple[tuple[nn.Module, str], ...]
    parameters: tuple[str, ...]
    trained: tuple[str, ...]
    tied: tuple[str, ...]
    statistics: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return the first name."""
        return self.names[0]

    @property
    def kind(self) -> str:
        """Return the name of the layer's class."""
        return type(self.module).__name__

    @property
    def frozen(self) -> bool:
        """Return whether it has parameters, and none is trained."""
        return bool(self.parameters) and not self.trained

    def __str__(self) -> str:
        return f"{self.name or 'the network itself'} ({self.kind})"


def find_sites(module: nn.Module) -> list[Site]:
    """Return all layers in the order of their first names.

    A layer is a module without children, or one with tensors of its own. Attention and parametrised
    layers are one site with all that is inside, because their code reads their children's tensors
    and does not call the children.

    Args:
        module: The network, which may itself be a layer.

    Example:
        >>> [str(site) for site in find_sites(nn.Sequential(nn.Linear(3, 2), nn.ReLU()))]
        ['0 (Linear)', '1 (ReLU)']
    """
    names: dict[nn.Module, list[str]] = {}
    inside: set[nn.Module] = set()
    for name, child in module.named_modules(remove_duplicate=False):
        names.setdefault(child, []).append(name)
        if _is_whole(child):
            inside.update(part for part in child.modules() if part is not child)
    layers = [child for child in names if child not in inside and _is_layer(child)]
    parents = _find_parents(module)
    tensors = _Tensors(module, layers)
    sites = []
    for layer in layers:
        site = Site(
            names=tuple(names[layer]),
            module=layer,
            parents=tuple(parents.get(layer, ())),
            parameters=tensors.parameters(layer),
            trained=tensors.trained(layer),
            tied=tensors.tied(layer),
            statistics=tensors.statistics(layer),
        )
        sites.append(site)
    return sites


class _Tensors:
    """The first names of the tensors that layers hold.

    Args:
        module: The network.
        layers: All of its layers.
    """

    def __init__(self, module: nn.Module, layers: Sequence[nn.Module]) -> None:
        self._first_names = {id(parameter): name for name, parameter in module.named_parameters()}
        self._buffer_names = {id(buffer): name for name, buffer in module.named_buffers()}
        self._held = {layer: list(layer.parameters(recurse=_is_whole(layer))) for layer in layers}
        self._holders = Counter(id(one) for held in self._held.values() for one in held)

    def parameters(self, layer: nn.Module) -> tuple[str, ...]:
        """Return the names of all parameters of a layer."""
        return self._names(self._held[layer])

    def trained(self, layer: nn.Module) -> tuple[str, ...]:
        """Return the names of its parameters that are not frozen."""
        return self._names(filter(_is_trained, self._held[layer]))

    def tied(self, layer: nn.Module) -> tuple[str, ...]:
        """Return the names of its parameters that another layer holds too."""
        return self._names(one for one in self._held[layer] if self._holders[id(one)] > 1)

    def statistics(self, layer: nn.Module) -> tuple[str, ...]:
        """Return the names of its buffers that training changes.

        Running means are floating-point numbers, and so is all that a layer may average; of the integers,
        training changes the count of batches alone.
        """
        found = []
        for name, buffer in layer.named_buffers(recurse=_is_whole(layer)):
            # Other integers are indices and masks, which stay as they were built.
            if buffer.is_floating_point() or name.endswith("num_batches_tracked"):
                found.append(self._buffer_names[id(buffer)])
        return tuple(found)

    def _names(self, parameters: Iterable[nn.Parameter]) -> tuple[str, ...]:
        return tuple(self._first_names[id(one)] for one in parameters)


def _is_trained(parameter: nn.Parameter) -> bool:
    return parameter.requires_grad


def _find_parents(module: nn.Module) -> dict[nn.Module, list[tuple[nn.Module, str]]]:
    """Map each child to the modules that hold it, each with the key there.

    A parent that holds it twice is there twice.
    """
    parents: dict[nn.Module, list[tuple[nn.Module, str]]] = {}
    for parent in module.modules():
        # `named_children` would leave out the second key of a child that is held twice.
        for key, child in child_table(parent).items():
            if child is not None:
                parents.setdefault(child, []).append((parent, key))
    return parents


def _is_whole(module: nn.Module) -> bool:
    """Return whether a module's code reads its children's tensors instead of calling the children.

    Attention reads the weights of its output projection; a parametrised layer reads its originals.
    """
    return isinstance(module, nn.MultiheadAttention) or is_parametrized(module)


def _is_layer(module: nn.Module) -> bool:
    """Return whether a module is more than a container of others."""
    if _is_whole(module) or own_tensors(module):
        return True
    return next(module.children(), None) is None


def is_norm(site: Site) -> bool:
    """Return whether a layer normalises its input.

    Batch, layer, group, instance and RMS norms do, of torch or of any other library.

    Example:
        >>> [is_norm(site) for site in find_sites(nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2)))]
        [False, True]
    """
    if isinstance(site.module, NORMS) or NAMED_NORM.search(site.kind):
        return True
    if not MAYBE_NORM.search(site.kind):
        return False
    # A norm may keep its numbers as `[1, channels, 1, 1]`, which is still a vector.
    return all(one.numel() == max(one.shape, default=1) for one in site.module.parameters())


def names_by_layer(sites: Iterable[Site]) -> list[tuple[str, ...]]:
    """Return the names of each site's trained tensors; a tied one belongs to the first site that holds it."""
    found, seen = list[tuple[str, ...]](), set[str]()
    for site in sites:
        own = tuple(name for name in site.trained if name not in seen)
        seen.update(own)
        found.append(own)
    return list(filter(None, found))


def is_bias(name: str) -> bool:
    """Return whether a parameter is a bias, by any layer's name for it.

    Args:
        name: The qualified name, such as `encoder.in_proj_bias` or `lstm.bias_ih_l0`.

    Example:
        >>> is_bias("lstm.bias_ih_l0"), is_bias("lstm.weight_ih_l0")
        (True, False)
    """
    *_, holder, last = ("", *name.split("."))
    # A parametrised bias is `parametrizations.bias.original`.
    return "bias" in (holder if last.startswith("original") else last)


def has_computed_weights(module: nn.Module) -> bool:
    """Return whether a layer computes its weights whenever it runs, as weight norms do."""
    if is_parametrized(module):
        return True
    # The older forms of weight norm and spectral norm compute them in a hook.
    hooks = forward_pre_hooks(module)
    return any(isinstance(hook, WeightNorm | SpectralNorm) for hook in hooks)


def select(sites: Sequence[Site], selector: Selector, option: str) -> list[Site]:
    """Return the sites that a selector picks, in their order.

    Args:
        sites: All layers of the network.
        selector: A layer type; an `fnmatch` pattern on the qualified name, where `*` crosses dots; a
            predicate of name and layer; or several of these.
        option: What the user calls this selection, for errors.

    Raises:
        ConversionError: A selector picks nothing, or is none.

    Example:
        >>> sites = find_sites(nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2)))
        >>> [site.name for site in select(sites, nn.Linear, "include")]
        ['0', '2']
        >>> [site.name for site in select(sites, ["0", nn.ReLU], "include")]
        ['0', '1']
    """
    if not isinstance(selector, str | type | nn.Module) and isinstance(selector, Iterable):
        chosen = {site for one in selector for site in select(sites, one, option)}
        return [site for site in sites if site in chosen]
    picked = [site for site in sites if _matches(site, selector, option)]
    if not picked:
        raise ConversionError(
            f"{option} must pick at least one layer, got none: {_show(selector)} picks none. "
            + there_are(sites)
        )
    return picked


def is_selector(value: object) -> bool:
    """Return whether this is one selector: a pattern, a layer type or a predicate.

    Args:
        value: What a user passed. Several selectors in a list are not one.
    """
    if isinstance(value, type):
        return issubclass(value, nn.Module)
    # A module is callable, and still no predicate.
    if isinstance(value, nn.Module):
        return False
    return isinstance(value, str) or callable(value)


def there_are(sites: Sequence[Site]) -> str:
    """Return a sentence that names the layers there are, for errors.

    Args:
        sites: All layers of the network.
    """
    if not sites:
        return "The network has layers of type none, named nothing."
    kinds = sorted({site.kind for site in sites})
    names = [site.name or "''" for site in sites]
    shown = ", ".join(names[:SHOWN_NAMES])
    if len(names) > SHOWN_NAMES:
        shown += f" and {len(names) - SHOWN_NAMES} more"
    return f"The network has layers of type {', '.join(kinds)}, named {shown}."


def _matches(site: Site, selector: Any, option: str) -> bool:
    """Return whether one selector picks a layer, by any of its names.

    Raises:
        ConversionError: It is no selector.
    """
    if not is_selector(selector):
        raise ConversionError(
            f"{option} must be layer types, name patterns or predicates, got {_show(selector)}. "
            "Pass for example nn.Linear or 'encoder.*'."
        )
    if isinstance(selector, type):
        return isinstance(site.module, selector)
    if isinstance(selector, str):
        return any(fnmatchcase(name, selector) for name in site.names)
    return any(selector(name, site.module) for name in site.names)


def _show(selector: object) -> str:
    """Return a selector as a user wrote it."""
    return selector.__name__ if isinstance(selector, type) else repr(selector)
