"""An example input made from the network itself, for users who did not pass one."""

from collections.abc import Iterator

import torch
from torch import nn

from pluribus.errors import ConversionError
from pluribus.mechanisms.network.dry_run import dry_run
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.torch_private import Convolution, NormBase

# Batch norm in train mode needs two samples.
BATCH = 2
# Sizes of images, the likeliest first: CIFAR, MNIST, Tiny ImageNet, digits, STL-10, and larger ones.
IMAGE_SIZES = (32, 28, 64, 8, 96, 128, 224)
TOKENS = 8


def make_example(module: nn.Module) -> Inputs:
    """Return two samples that the network accepts, guessed from its config or its first layer.

    Raises:
        ConversionError: No guess was accepted.
    """
    tried = []
    for candidate in _candidates(module):
        try:
            with dry_run(module, training=False), torch.no_grad():
                module(*candidate.args, **candidate.keywords)
            return candidate
        # The user's code may raise anything for a wrong guess.
        except Exception:
            tried.append(str(candidate))
    raise ConversionError(
        f"an example input of {type(module).__name__} is needed and could not be made "
        f"(tried {', '.join(tried) or 'nothing: no layer with a known input'}). "
        "Pass convert(..., example=x): one input as the network takes it, a tensor, a tuple or a dict."
    )


def takes_other_sizes(module: nn.Module, example: Inputs) -> bool:
    """Return whether a network takes inputs that are longer than an example along other axes than the batch.

    Then a made-up example says nothing about the inputs of the user: a convolutional network that ends in a
    mean over positions takes images of all sizes. A linear layer fixes the size of its input.
    """
    most = max((tensor.ndim for tensor in example.tensors()), default=0)
    longer = [(axis,) for axis in range(1, most)]
    # Some networks want square images: all axes behind the channels at once.
    if most > 3:
        longer.append(tuple(range(2, most)))
    return any(_accepts(module, _doubled_along(example, axes)) for axes in longer)


def _accepts(module: nn.Module, inputs: Inputs) -> bool:
    """Return whether a network runs on inputs."""
    try:
        with dry_run(module, training=False), torch.no_grad():
            module(*inputs.args, **inputs.keywords)
    # The user's code may raise anything for inputs of another size.
    except Exception:
        return False
    return True


def _doubled_along(inputs: Inputs, axes: tuple[int, ...]) -> Inputs:
    """Return inputs whose tensors are repeated once along some axes, where they have them."""

    def doubled(tensor: torch.Tensor) -> torch.Tensor:
        for axis in axes:
            tensor = torch.cat([tensor, tensor], axis) if axis < tensor.ndim else tensor
        return tensor

    return inputs.each(doubled)


def _candidates(module: nn.Module) -> Iterator[Inputs]:
    """Yield inputs that the network may take, likeliest first."""
    weight = next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))
    config = getattr(module, "config", None)
    if config is not None:
        yield from _from_config(module, config, weight)
    for layer in module.modules():
        shapes = list(_shapes(layer))
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
            tokens = torch.arange(BATCH * TOKENS, device=weight.device) % layer.num_embeddings
            yield Inputs((tokens.view(BATCH, TOKENS),), {})
        for shape in shapes:
            yield Inputs((_normal(shape, weight),), {})
        if shapes:
            return


def _from_config(module: nn.Module, config: object, weight: torch.Tensor) -> Iterator[Inputs]:
    """Yield inputs of a Hugging Face model: `main_input_name` is what it takes, the config has its size."""
    name = getattr(module, "main_input_name", "input_ids")
    if name == "pixel_values":
        size = getattr(config, "image_size", None)
        for side in (size,) if isinstance(size, int) else IMAGE_SIZES:
            shape = (BATCH, getattr(config, "num_channels", 3), side, side)
            yield Inputs((), {name: _normal(shape, weight)})
    elif name == "input_ids":
        tokens = torch.arange(BATCH * TOKENS, device=weight.device) % getattr(config, "vocab_size", TOKENS)
        yield Inputs((), {name: tokens.view(BATCH, TOKENS)})


def _normal(shape: tuple[int, ...], weight: torch.Tensor) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(weight)


def _shapes(layer: nn.Module) -> Iterator[tuple[int, ...]]:
    """Yield input shapes that a network beginning with `layer` may take, likeliest first."""
    if isinstance(layer, nn.Linear):
        yield (BATCH, layer.in_features)
        yield (BATCH, TOKENS, layer.in_features)
        side = round(layer.in_features**0.5)
        yield (BATCH, 1, side, side)
    elif isinstance(layer, Convolution):
        for side in IMAGE_SIZES:
            yield (BATCH, layer.in_channels, *[side] * len(layer.kernel_size))
    elif isinstance(layer, nn.RNNBase):
        yield (BATCH, TOKENS, layer.input_size)
    elif isinstance(layer, nn.MultiheadAttention):
        yield (BATCH, TOKENS, layer.embed_dim)
    elif isinstance(layer, NormBase):
        yield (BATCH, layer.num_features)
        for side in IMAGE_SIZES:
            yield (BATCH, layer.num_features, side, side)
