"""Fresh weights for a copy of the user's network, by its own initialisers."""

import inspect

import torch
from torch import nn

from pluribus.network.rehearsal import seeded

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
    versions = {name: parameter._version for name, parameter in parameters.items()}
    frozen = {name: p.detach().clone() for name, p in parameters.items() if not p.requires_grad}
    redrawn = []
    with seeded(seed, parameters.values()), torch.no_grad():
        for layer in reversed(list(module.modules())):  # children before the parent that may overrule them
            _initialise(layer)
        for name, parameter in parameters.items():
            if name in frozen:
                parameter.copy_(frozen[name])
            elif parameter._version == versions[name] and parameter.is_floating_point():
                _redraw(parameter)
                redrawn.append(name)
    return redrawn


def _initialise(layer: nn.Module) -> None:
    own = list(layer.parameters(recurse=False))
    if own and not any(parameter.requires_grad for parameter in own):
        return
    for name in INITIALISERS:
        method = getattr(type(layer), name, None)
        if not callable(method):
            continue
        required = [
            parameter
            for parameter in list(inspect.signature(method).parameters.values())[1:]
            if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ]
        if not required:
            getattr(layer, name)()
        elif len(required) == 1 and name == "_init_weights":
            layer.apply(getattr(layer, name))
            return  # the no-argument initialisers of such a model call this one


def _redraw(parameter: nn.Parameter) -> None:
    deviation, mean = torch.std_mean(parameter, correction=0)
    if deviation > 0:  # a constant has no randomness to redraw
        parameter.normal_(mean.item(), deviation.item())
