"""Sites: every layer of a network once, with all of its names, parents and tensors."""

from collections import Counter
from dataclasses import dataclass

from torch import nn
from torch.nn.utils.parametrize import is_parametrized
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm


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
        """The first name."""
        return self.names[0]

    @property
    def kind(self) -> str:
        """The layer's class."""
        return type(self.module).__name__

    @property
    def frozen(self) -> bool:
        """Whether it has parameters, and none is trained."""
        return bool(self.parameters) and not self.trained

    def __str__(self) -> str:
        return f"{self.name or 'the network itself'} ({self.kind})"


def find_sites(module: nn.Module) -> list[Site]:
    """All layers in the order of their first names.

    A layer is a module without children, or one with tensors of its own. Attention and parametrised
    layers are one site with all that is inside, because their code reads their children's tensors
    and does not call the children.
    """
    names: dict[nn.Module, list[str]] = {}
    parents: dict[nn.Module, list[tuple[nn.Module, str]]] = {}
    inside: set[nn.Module] = set()
    for name, child in module.named_modules(remove_duplicate=False):
        names.setdefault(child, []).append(name)
        parents.setdefault(child, [])
        if _is_whole(child):
            inside |= set(child.modules()) - {child}
    for parent in module.modules():
        for key, held_child in parent._modules.items():
            if held_child is not None:
                parents[held_child].append((parent, key))
    parameter_names = {parameter: name for name, parameter in module.named_parameters()}
    buffer_names = {id(buffer): name for name, buffer in module.named_buffers()}
    layers = [child for child in names if child not in inside and (_is_whole(child) or _is_layer(child))]
    held = {layer: list(layer.parameters(recurse=_is_whole(layer))) for layer in layers}
    holders = Counter(parameter for parameters in held.values() for parameter in parameters)
    return [
        Site(
            names=tuple(names[layer]),
            module=layer,
            parents=tuple(parents[layer]),
            parameters=tuple(parameter_names[p] for p in held[layer]),
            trained=tuple(parameter_names[p] for p in held[layer] if p.requires_grad),
            tied=tuple(parameter_names[p] for p in held[layer] if holders[p] > 1),
            statistics=tuple(
                buffer_names[id(buffer)]
                for name, buffer in layer.named_buffers(recurse=_is_whole(layer))
                if buffer.is_floating_point() or name.endswith("num_batches_tracked")
            ),
        )
        for layer in layers
    ]


def _is_whole(module: nn.Module) -> bool:
    return isinstance(module, nn.MultiheadAttention) or is_parametrized(module)


def _is_layer(module: nn.Module) -> bool:
    has_children = any(True for _ in module.children())
    has_tensors = any(
        tensor is not None for tensor in (*module._parameters.values(), *module._buffers.values())
    )
    return has_tensors or not has_children


def is_bias(name: str) -> bool:
    """Of the name of a parameter: biases by any layer's name for them, such as `in_proj_bias`; one that is
    computed has originals.
    """
    *_, holder, last = ("", *name.split("."))
    return "bias" in (holder if last.startswith("original") else last)


def has_computed_weights(module: nn.Module) -> bool:
    """Whether a layer computes its weights from other tensors whenever it runs, as weight norms do."""
    hooks = module._forward_pre_hooks.values()
    return is_parametrized(module) or any(isinstance(hook, WeightNorm | SpectralNorm) for hook in hooks)
