"""Fresh networks: the same architecture several times, each with random weights of its own."""

from collections.abc import Mapping

from torch import Tensor, nn

from pluribus.errors import ConversionError
from pluribus.mechanisms.network.dry_run import derived_seed, seeded
from pluribus.mechanisms.network.initialise import reinitialise
from pluribus.mechanisms.network.network import Network, built, copy_module

# Offset that keeps the seeds of prior networks apart from those of members.
PRIOR_SEED = 1 << 20


def fresh_modules(
    network: Network, count: int, seed: int, stacks: Mapping[str, Tensor] | None = None
) -> tuple[list[nn.Module], list[str]]:
    """Return modules of one architecture, initialised anew or built by the network's factory.

    Args:
        network: The architecture.
        count: How many modules.
        seed: From which the seeds of all modules follow.
        stacks: By name of a tensor, `[count, ...]`: memory for those of all modules. A factory, and an
            initialiser that makes a new parameter, may leave it unused.

    Returns:
        The modules, and the names of the parameters that no initialiser touched and that were
        redrawn with their mean and deviation.
    """
    modules, redrawn = [], []
    for position in range(count):
        own_seed = derived_seed(seed, position)
        if network.factory is None:
            module = copy_module(
                network.module, {name: stack[position] for name, stack in (stacks or {}).items()}
            )
            redrawn = reinitialise(module, own_seed, network.module)
        else:
            with seeded(own_seed, network.module.parameters()):
                module = built(network.factory)
            _check_same(network.module, module)
        modules.append(module)
    return modules, redrawn


def _check_same(first: nn.Module, other: nn.Module) -> None:
    def described(module: nn.Module) -> dict[str, object]:
        layers: dict[str, object] = {name: type(layer).__name__ for name, layer in module.named_modules()}
        tensors = (*module.named_parameters(), *module.named_buffers())
        return layers | {name: tuple(tensor.shape) for name, tensor in tensors}

    expected, came = described(first), described(other)
    for name in sorted(expected.keys() | came.keys()):
        if expected.get(name) != came.get(name):
            what = "class" if isinstance(expected.get(name), str) else "shape"
            raise ConversionError(
                f"the factory must build one architecture, expected {what} {expected.get(name)} of "
                f"{name or 'the network itself'}, got {came.get(name)}. Build the same layers in every call."
            )
