"""Fresh weights for a copy of the user's network, by its own initialisers."""

import inspect

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from pluribus.errors import ConversionError
from pluribus.mechanisms.network.dry_run import seeded

POWER_ITERATIONS = 15  # as many as torch runs when spectral_norm is put on a layer
INITIALISERS = (
    "reset_parameters",
    "_reset_parameters",
    "init_weights",
    "_initialize_weights",
    "_init_weights",
)


def reinitialise(module: nn.Module, seed: int) -> list[str]:
    """Draws all trainable weights of `module` afresh, in place; frozen ones stay.

    Layers are drawn by `reset_parameters`, then by the network's own initialiser where it has one
    (`init_weights()`, or `_init_weights(layer)` as in Hugging Face models). A bare parameter that
    no initialiser touched is redrawn from a normal distribution of its mean and standard deviation.

    Returns:
        The names of the parameters that were redrawn in that last way.
    """
    parameters = dict(module.named_parameters())
    before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    drawn = {
        name for name, p in parameters.items() if p.requires_grad and p.is_floating_point() and p.numel()
    }
    redrawn = []
    with seeded(seed, parameters.values()), torch.no_grad():
        for name in drawn:
            parameters[name].fill_(torch.nan)  # what is still NaN afterwards, no initialiser touched
        for layer in reversed(list(module.modules())):  # children before the parent that may overrule them
            _initialise(layer)
        for name, parameter in parameters.items():
            if name not in drawn:
                parameter.copy_(before[name])
            elif parameter.isnan().any():
                parameter.copy_(before[name])
                redrawn += [name] * _redraw(parameter)
        for layer in module.modules():
            if is_parametrized(layer):
                _settle(layer)
    return redrawn


def _initialise(layer: nn.Module) -> None:
    own = list(layer.parameters(recurse=False))
    if is_parametrized(layer):
        return  # its weights are computed, and writing into them is lost
    if own and not any(parameter.requires_grad for parameter in own):
        return
    for name in INITIALISERS:
        method = getattr(layer, name, None)
        if not callable(method) or isinstance(method, nn.Module):
            continue
        required = [
            parameter
            for parameter in inspect.signature(method).parameters.values()
            if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ]
        for_layers = len(required) == 1 and name.endswith("init_weights")
        try:
            if not required:
                method()
            elif for_layers:
                layer.apply(method)
        except Exception as error:  # whatever the user's code raises
            raise ConversionError(
                f"{type(layer).__name__}.{name} must draw fresh weights, however: {type(error).__name__}: "
                f"{error}. Pass a factory, which builds every member afresh, or start='copy'."
            ) from error
        if for_layers:
            return  # the no-argument initialisers of such a model call this one


def _redraw(parameter: nn.Parameter) -> bool:
    deviation, mean = torch.std_mean(parameter, correction=0)
    if deviation > 0:  # a constant has no randomness to redraw
        parameter.normal_(mean.item(), deviation.item())
    return bool(deviation > 0)


def _settle(layer: nn.Module) -> None:
    """Lets a parametrisation that estimates something of its weight (`spectral_norm`) see the new one."""
    modes = {part: part.training for part in layer.modules()}
    layer.train()
    for _ in range(POWER_ITERATIONS):
        for name in layer.parametrizations:  # type: ignore[union-attr]
            getattr(layer, name)
    for part, mode in modes.items():
        part.training = mode
