"""Blocks: the outermost modules of a network that repeat."""

from collections.abc import Mapping, Sequence

from torch import nn

from pluribus.mechanisms.exits.cut_points import CutPoint

# Modules whose children run one after the other.
CONTAINERS = (nn.Sequential, nn.ModuleList)
# Two modules of one class repeat.
FEWEST_BLOCKS = 2
# Two plain sequences in a row are features and a classifier; three are stages.
FEWEST_SEQUENCES = 3


def find_blocks(module: nn.Module, points: Sequence[CutPoint]) -> list[CutPoint]:
    """Return the outermost repeated blocks, in the order in which they run.

    Blocks are children of a container that are of one class and hold layers with parameters.

    Args:
        module: The network.
        points: Its cut points. A container of which no block is one is searched for smaller blocks.
    """
    found = _search("", module, {one.name: one for one in points})
    return sorted(found, key=lambda one: one.position)


def _search(name: str, module: nn.Module, points: Mapping[str, CutPoint]) -> list[CutPoint]:
    repeated = [paths for paths in _repeated(name, module) if not points.keys().isdisjoint(paths)]
    if repeated:
        # Of several classes that repeat side by side, the most frequent is the block.
        most = max(repeated, key=len)
        return [points[path] for path in most if path in points]
    found = []
    for key, child in module.named_children():
        found += _search(_path(name, key), child, points)
    return found


def _repeated(name: str, module: nn.Module) -> list[list[str]]:
    """Return the names of a container's children of one class, for each class that repeats."""
    if not isinstance(module, CONTAINERS):
        return []
    by_class: dict[type[nn.Module], list[str]] = {}
    for key, child in module.named_children():
        if _holds_layers(child):
            by_class.setdefault(type(child), []).append(_path(name, key))
    repeated = []
    for kind, paths in by_class.items():
        fewest = FEWEST_SEQUENCES if kind is nn.Sequential else FEWEST_BLOCKS
        if len(paths) >= fewest:
            repeated.append(paths)
    return repeated


def _holds_layers(module: nn.Module) -> bool:
    """Return whether a module has children and parameters; a single layer is no block."""
    has_children = next(module.children(), None) is not None
    return has_children and next(module.parameters(), None) is not None


def _path(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key
