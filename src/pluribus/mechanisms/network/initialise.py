"""Fresh weights for a copy of the user's network, by its own initialisers."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from pluribus.errors import ConversionError
from pluribus.mechanisms.network.dry_run import seeded
from pluribus.mechanisms.network.settle import settle_parametrizations

# By convention of torch, its examples, torchvision, timm and Hugging Face.
INITIALISERS = (
    "reset_parameters",
    "_reset_parameters",
    "init_weights",
    "_initialize_weights",
    "_init_weights",
)


def reinitialise(module: nn.Module, seed: int, like: nn.Module | None = None) -> list[str]:
    """Draw all trainable weights of `module` afresh, in place; frozen ones stay.

    Layers are drawn by `reset_parameters`, then by the network's own initialiser where it has one
    (`init_weights()`, or `_init_weights(layer)` as in Hugging Face models). A bare parameter that
    no initialiser touched is redrawn from a normal distribution of its mean and standard deviation.

    Args:
        module: The network.
        seed: Of the draws.
        like: A module of which it is a copy; without one, the weights before are copied.

    Returns:
        The names of the parameters that were redrawn in that last way.
    """
    parameters = dict(module.named_parameters())
    if like is None:
        before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    else:
        before = dict(like.named_parameters())
    drawn = {name for name, parameter in parameters.items() if _is_drawn(parameter)}
    redrawn = []
    with seeded(seed, parameters.values()), torch.no_grad():
        # What is still NaN afterwards, no initialiser touched.
        for name in drawn:
            parameters[name].fill_(torch.nan)
        # Children come before the parent, whose initialiser may overrule theirs.
        for layer in reversed(list(module.modules())):
            _initialise(layer)
        for name, parameter in parameters.items():
            if name in drawn and not _has_nan(parameter):
                continue
            parameter.copy_(before[name])
            if name in drawn and _redraw(parameter):
                redrawn.append(name)
        settle_parametrizations(module)
    return redrawn


def _is_drawn(parameter: nn.Parameter) -> bool:
    return parameter.requires_grad and parameter.is_floating_point() and parameter.numel() > 0


def _has_nan(parameter: nn.Parameter) -> bool:
    """Return whether a number is NaN: the smallest is then, and finding it makes no tensor of truths."""
    return bool(parameter.amin().isnan())


def _initialise(layer: nn.Module) -> None:
    """Call the initialisers that a layer has.

    Raises:
        ConversionError: One of them raised.
    """
    for name, method, for_layers in _initialisers(layer):
        try:
            if for_layers:
                layer.apply(method)
            else:
                method()
        # The user's code may raise anything.
        except Exception as error:
            raise ConversionError(
                f"{type(layer).__name__}.{name} must draw fresh weights, got {type(error).__name__}: "
                f"{error}. Pass a factory, which builds every member afresh, or start='copy'."
            ) from error


def _initialisers(layer: nn.Module) -> Iterator[tuple[str, Callable[..., Any], bool]]:
    """Yield the initialisers of a layer by name, and whether each is to be called for every layer inside."""
    # The weights of a parametrised layer are computed, and writing into them is lost.
    if is_parametrized(layer):
        return
    own = list(layer.parameters(recurse=False))
    if own and not any(parameter.requires_grad for parameter in own):
        return
    for name in INITIALISERS:
        method = getattr(layer, name, None)
        if not callable(method) or isinstance(method, nn.Module):
            continue
        required = _required(method)
        if not required:
            yield name, method, False
        # As Hugging Face does it; the initialisers without arguments of such a model call this one.
        elif len(required) == 1 and name.endswith("init_weights"):
            yield name, method, True
            return


def _required(method: Callable[..., Any]) -> list[str]:
    """Return the names of the arguments that a call cannot be without."""
    required = []
    for name, parameter in inspect.signature(method).parameters.items():
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and parameter.default is parameter.empty:
            required.append(name)
    return required


def _redraw(parameter: nn.Parameter) -> bool:
    """Draw a parameter from a normal distribution of its moments; return whether that changed it."""
    deviation, mean = torch.std_mean(parameter, correction=0)
    # A constant has no randomness to redraw.
    if deviation > 0:
        parameter.normal_(mean.item(), deviation.item())
    return bool(deviation > 0)
