"""All combinations of a layer ensemble's options on the testbed's network, with every layer computed once.

Options lie side by side in one matrix for each layer, so that a layer is one product:

    [batch, D] × [D, K·H] → [batch·K, H] × [H, K·H] → [batch·K², H] × [H, K] → [batch, K, K, K]
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from pluribus.testbed.networks import LAYERS


def run_all_options(options: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Return the outputs of all combinations, `[problems, options³, batch]`, the first layer's slowest.

    Args:
        options: By name of the weight or bias, `[problems, options, ...]`.
        x: `[problems, batch, inputs]`.
    """
    problems, batch, _ = x.shape
    count = options[f"{LAYERS[0]}.weight"].shape[1]
    held = x
    for layer in LAYERS:
        # [problems, inputs, options · outputs]
        weight = options[f"{layer}.weight"].flatten(1, 2).mT
        bias = options[f"{layer}.bias"].flatten(1).unsqueeze(1)
        held = held if layer == LAYERS[0] else held.relu()
        product = torch.baddbmm(bias, held, weight)
        held = product.view(problems, held.shape[1] * count, -1)
    return held.view(problems, batch, count ** len(LAYERS)).mT
