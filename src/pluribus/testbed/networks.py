"""The testbed's network: two hidden layers with ReLU, initialised as in the authors' code."""

import itertools

import torch.nn.functional as F
from torch import Tensor, nn

WIDTH = 50
LAYERS = ("0", "2", "4")
"""Names of the linear layers, in their order."""


class ScaledLinear(nn.Linear):
    """A linear layer that divides its result by the root of its inputs, so that weights are of size 1.

    A prior of one width for all weights, as Bayes by Backprop has it, is then the testbed's own prior.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Return (x Wᵀ + b) / √inputs."""
        scale: float = self.in_features**-0.5
        return F.linear(input, self.weight, self.bias) * scale


class ScaledWeights(nn.Linear):
    """A linear layer that divides by the root of its inputs before it adds its bias, as the authors do."""

    def forward(self, input: Tensor) -> Tensor:
        """Return x Wᵀ / √inputs + b."""
        scale: float = self.in_features**-0.5
        return F.linear(input, self.weight * scale, self.bias)


KINDS = {"none": nn.Linear, "all": ScaledLinear, "weights": ScaledWeights}
"""By name of what they divide by the root of their inputs, kinds of layers."""


def make_mlp(inputs: int, width: int = WIDTH, *, scaled: str = "none", zeroed: str = "none") -> nn.Sequential:
    """Return the network: weights of variance 1 / inputs, biases in the first layer alone.

    Args:
        inputs: How many the function has.
        width: Of both hidden layers.
        scaled: What layers divide by the root of their inputs, in place of their initial weights: `all`,
            `weights` or `none`.
        zeroed: What starts at zero: `all`, `biases` or `none`.
    """
    kind = KINDS[scaled]
    layers = [kind(one, other) for one, other in itertools.pairwise((inputs, width, width, 1))]
    for place, layer in enumerate(layers):
        std = layer.in_features**-0.5 if scaled == "none" else 1.0
        nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
        # Scaled layers divide biases too.
        size = layer.in_features**0.5 if scaled == "all" else 1.0
        if place == 0:
            nn.init.trunc_normal_(layer.bias, std=size, a=-2 * size, b=2 * size)
        else:
            nn.init.zeros_(layer.bias)
        if zeroed != "none":
            nn.init.zeros_(layer.bias)
        if zeroed == "all":
            nn.init.zeros_(layer.weight)
    return nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
