"""Reads: the tensors that the layers of a network read, seen by running it."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pluribus.errors import InputError
from pluribus.mechanisms.network.dry_run import accepting, dry_run
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.insert import Inserted
from pluribus.mechanisms.network.layers import Site
from pluribus.mechanisms.network.network import Network

# A layer, and the position of one of its distinct inputs.
Place = tuple[Site, int]
Seen = dict[Place, list[Tensor]]

# Parameters are changed by a factor and a shift, so that those that are zero change too. The change is small
# enough for most code to run with it.
CHANGE_FACTOR, CHANGE_SHIFT = 1.5, 0.01


@dataclass(frozen=True, eq=False)
class Read:
    """One of the distinct inputs of a layer, in all of the layer's calls.

    Attributes:
        site: The layer.
        position: Which of its distinct inputs, in the order of its arguments.
        tensors: Numbers of the tensors that it was; layers that read one tensor have the same number.
        shape: Shape of the first of them.
        samples: The axis that grows with the batch; None where no axis does, or not all calls agree.
        learnt: Whether it depends on parameters, as a network's input does not.
        operator: Name of torch's gradient of what computed it; empty where there is none.
    """

    site: Site
    position: int
    tensors: tuple[int, ...]
    shape: tuple[int, ...]
    samples: int | None
    learnt: bool
    operator: str


def find_reads(network: Network, sites: Sequence[Site]) -> list[Read]:
    """Return what some layers read when the network runs in eval mode, in the order in which they run."""
    example = network.example
    seen = _watch(network.module, sites, example)
    larger = _watch_larger_batch(network.module, sites, example)
    moved = _moved(network.module, sites, example, seen)
    numbers = _numbers(seen)
    reads = []
    for (site, position), tensors in seen.items():
        first = tensors[0]
        # Gradients do not reach what is computed under `no_grad`; changed parameters do.
        learnt = any(tensor.requires_grad for tensor in tensors) or (site, position) in moved
        reads.append(
            Read(
                site,
                position,
                tensors=tuple(dict.fromkeys(numbers[id(tensor)] for tensor in tensors)),
                shape=tuple(first.shape),
                samples=_sample_axis(tensors, larger.get((site, position), []), example.batch),
                learnt=learnt,
                operator=_gradient_of(first),
            )
        )
    return reads


def _gradient_of(tensor: Tensor) -> str:
    """Return the name of torch's gradient of what computed a tensor; empty where there is none."""
    if tensor.grad_fn is None:
        return ""
    return tensor.grad_fn.name()


def _numbers(seen: Seen) -> dict[int, int]:
    """Number the distinct tensors in the order in which they are read."""
    numbers: dict[int, int] = {}
    for tensors in seen.values():
        for tensor in tensors:
            numbers.setdefault(id(tensor), len(numbers))
    return numbers


def _watch(module: nn.Module, sites: Sequence[Site], inputs: Inputs) -> Seen:
    """Return the tensors that each layer reads; those that depend on parameters require gradients."""
    seen: Seen = {}

    def watcher(site: Site) -> Inserted:
        def watch(layer: nn.Module, position: int, values: Tensor) -> Tensor:
            seen.setdefault((site, position), []).append(values)
            return values

        return Inserted(watch)

    inputs = inputs.copy()
    with ExitStack() as stack:
        stack.enter_context(dry_run(module, training=False))
        stack.enter_context(_all_require_gradients(module))
        for site in sites:
            handle = site.module.register_forward_pre_hook(watcher(site), with_kwargs=True)
            stack.callback(handle.remove)
        with accepting(inputs), torch.enable_grad():
            module(*inputs.args, **inputs.keywords)
    return seen


@contextmanager
def _all_require_gradients(module: nn.Module) -> Iterator[None]:
    """Let frozen parameters require gradients for a while: what they compute is learnt all the same."""
    frozen = []
    for parameter in module.parameters():
        if parameter.is_floating_point() and not parameter.requires_grad:
            frozen.append(parameter)
    try:
        for parameter in frozen:
            parameter.requires_grad_(True)
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)


def _watch_larger_batch(module: nn.Module, sites: Sequence[Site], example: Inputs) -> Seen:
    """Return the tensors that each layer reads with one sample more."""
    larger = example.map(lambda tensor: torch.cat([tensor, tensor[:1]]))
    try:
        return _watch(module, sites, larger)
    except InputError:
        # Some code is written for one batch size.
        return {}


def _moved(module: nn.Module, sites: Sequence[Site], example: Inputs, seen: Seen) -> set[Place]:
    """Return the reads that change with the parameters."""
    with _changed_parameters(module):
        try:
            again = _watch(module, sites, example)
        except InputError:
            # The user's code refuses such parameters, so that gradients must do.
            return set()
    moved = set()
    for place, tensors in seen.items():
        if place in again and not _all_equal(tensors, again[place]):
            moved.add(place)
    return moved


@contextmanager
def _changed_parameters(module: nn.Module) -> Iterator[None]:
    """Change all parameters for a while."""
    parameters = [parameter for parameter in module.parameters() if parameter.is_floating_point()]
    before = [parameter.detach().clone() for parameter in parameters]
    with torch.no_grad():
        try:
            for parameter in parameters:
                parameter.mul_(CHANGE_FACTOR).add_(CHANGE_SHIFT)
            yield
        finally:
            for parameter, old in zip(parameters, before, strict=True):
                parameter.copy_(old)


def _all_equal(tensors: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Return whether two runs read the same numbers, as far as both went."""
    for one, other in zip(tensors, others, strict=False):
        if one.shape != other.shape or not torch.equal(one, other):
            return False
    return True


def _sample_axis(tensors: Sequence[Tensor], larger: Sequence[Tensor], batch: int) -> int | None:
    """Return the axis that grows with the batch in all calls; None where there is no such axis."""
    if len(tensors) != len(larger):
        return None
    found = {_grown_axis(one, other, batch) for one, other in zip(tensors, larger, strict=True)}
    return found.pop() if len(found) == 1 else None


def _grown_axis(one: Tensor, other: Tensor, batch: int) -> int | None:
    """Return the first axis of the size of the batch that has one entry more in another tensor."""
    for axis, sizes in enumerate(zip(one.shape, other.shape, strict=False)):
        if sizes == (batch, batch + 1):
            return axis
    return None
