"""Reads: which tensors the layers of a network read, seen by running it."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pluribus.errors import InputError
from pluribus.mechanisms.network.dry_run import accepting, dry_run
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.insert import Inserted
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.sites import Site


@dataclass(frozen=True, eq=False)
class Read:
    """One of the distinct inputs of a layer, in all of the layer's calls.

    Attributes:
        site: The layer.
        position: Which of its distinct inputs, in the order of its arguments.
        tensors: The numbers of the tensors it was; two layers that read one tensor have its number.
        shape: Of the first.
        samples: The axis that grows with one sample more; None where there is none, or none of its size.
        learnt: Whether parameters had a part in it, as they have none in a network's input.
        operator: The name of torch's gradient of what computed it.
    """

    site: Site
    position: int
    tensors: tuple[int, ...]
    shape: tuple[int, ...]
    samples: int | None
    learnt: bool
    operator: str


def find_reads(network: Network, sites: Sequence[Site]) -> list[Read]:
    """What some layers read when the network runs in eval mode, in the order in which they run."""
    example = network.example
    seen = _watch(network.module, sites, example)
    more = example.map(lambda tensor: torch.cat([tensor, tensor[:1]]))
    try:
        larger = _watch(network.module, sites, more)
    except InputError:  # a batch size that the user's code does not take
        larger = {}
    moved = _moved(network.module, sites, example, seen)
    numbers: dict[int, int] = {}
    for tensors in seen.values():
        for tensor in tensors:
            numbers.setdefault(id(tensor), len(numbers))
    return [
        Read(
            site,
            position,
            tuple(dict.fromkeys(numbers[id(tensor)] for tensor in tensors)),
            tuple(tensors[0].shape),
            _samples(tensors, larger.get((site, position), []), example.batch),
            any(tensor.requires_grad for tensor in tensors) or (site, position) in moved,
            tensors[0].grad_fn.name() if tensors[0].grad_fn else "",
        )
        for (site, position), tensors in seen.items()
    ]


def _watch(module: nn.Module, sites: Sequence[Site], inputs: Inputs) -> dict[tuple[Site, int], list[Tensor]]:
    """The tensors that each layer reads; they require gradients where parameters had a part in them."""
    seen: dict[tuple[Site, int], list[Tensor]] = {}

    def watcher(site: Site) -> Inserted:
        def watch(layer: nn.Module, position: int, values: Tensor) -> Tensor:
            seen.setdefault((site, position), []).append(values)
            return values

        return Inserted(watch)

    frozen = [p for p in module.parameters() if p.is_floating_point() and not p.requires_grad]
    inputs = inputs.copy()
    with ExitStack() as stack:
        stack.enter_context(dry_run(module, training=False))
        stack.callback(lambda: [parameter.requires_grad_(False) for parameter in frozen])
        for parameter in frozen:
            parameter.requires_grad_(True)
        for site in sites:
            handle = site.module.register_forward_pre_hook(watcher(site), with_kwargs=True)
            stack.callback(handle.remove)
        with accepting(inputs), torch.enable_grad():
            module(*inputs.args, **inputs.keywords)
    return seen


def _moved(
    module: nn.Module, sites: Sequence[Site], example: Inputs, seen: dict[tuple[Site, int], list[Tensor]]
) -> set[tuple[Site, int]]:
    """The reads that are others with other parameters, which tells where no gradient does (`no_grad`)."""
    parameters = [parameter for parameter in module.parameters() if parameter.is_floating_point()]
    before = [parameter.detach().clone() for parameter in parameters]
    with torch.no_grad(), ExitStack() as stack:
        stack.callback(lambda: [p.copy_(old) for p, old in zip(parameters, before, strict=True)])
        for parameter in parameters:
            parameter.mul_(1.5).add_(0.01)
        try:
            again = _watch(module, sites, example)
        except InputError:  # the user's code takes offence at such parameters
            return set()
    return {
        key
        for key, tensors in seen.items()
        if key in again
        and not all(
            one.shape == other.shape and torch.equal(one, other)
            for one, other in zip(tensors, again[key], strict=False)
        )
    }


def _samples(tensors: Sequence[Tensor], larger: Sequence[Tensor], batch: int) -> int | None:
    if len(tensors) != len(larger):
        return None
    found = {
        next(
            (
                axis
                for axis, sizes in enumerate(zip(one.shape, other.shape, strict=False))
                if sizes == (batch, batch + 1)
            ),
            None,
        )
        for one, other in zip(tensors, larger, strict=True)
    }
    return found.pop() if len(found) == 1 else None
