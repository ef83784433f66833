"""Fresh inputs: random inputs of the kind that a network takes, made from an example."""

import math
from collections.abc import Mapping

import torch
from torch import Generator, Tensor

from pluribus.mechanisms.network.inputs import Inputs


def fresh_inputs(example: Inputs, batch: int) -> Inputs:
    """Return random inputs of the shapes, types and ranges of an example, the same ones at every call.

    Args:
        example: Inputs that the network takes.
        batch: How many samples.
    """
    generator = Generator().manual_seed(batch)
    return example.map(lambda tensor: _fresh(tensor, batch, generator))


def _fresh(tensor: Tensor, batch: int, generator: Generator) -> Tensor:
    shape = (batch, *tensor.shape[1:])
    if tensor.is_floating_point():
        values = tensor.double()
        mean, std = values.mean().item(), values.std(correction=0).item()
        # An example of zeros, or one with missing values, tells nothing about the spread.
        if not math.isfinite(mean) or not std > 0:
            mean, std = 0.0, 1.0
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64) * std + mean
        return drawn.to(tensor)
    # Tokens and masks must stay in range: every position takes the value of a random sample of the example.
    samples = torch.randint(len(tensor), shape, generator=generator).to(tensor.device)
    return tensor.gather(0, samples)


def resized(example: Inputs, tensors: Mapping[str, Tensor], sizes: Mapping[str, Mapping[int, int]]) -> Inputs:
    """Return an example with other sizes of some axes: cut, or repeated from the start.

    Args:
        example: Inputs that the network takes.
        tensors: The tensors among them, by name.
        sizes: By name and axis, the new size.
    """
    wanted = {id(tensors[name]): axes for name, axes in sizes.items()}

    def change(tensor: Tensor) -> Tensor:
        for axis, size in wanted.get(id(tensor), {}).items():
            places = torch.arange(size, device=tensor.device) % tensor.shape[axis]
            tensor = tensor.index_select(axis, places)
        return tensor

    return example.each(change)
