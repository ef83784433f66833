"""Fingerprint: what tells one network from another, without its source and whatever its weights are.

    part       noticed
    network    another class
    layers     another layer, or other settings of a layer
    tensors    other names or shapes of parameters and buffers
    outputs    another forward: the outputs of one member in eval and in train mode on a fixed input, with
               fixed weights

Fixed weights, because a network is built anew for every run, most often with other random weights. Outputs
are compared as numbers and not by a hash, because another processor rounds differently.
"""

import math
import re
import zlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Generator, Tensor, nn

from pluribus.ensemble import Ensemble
from pluribus.mechanisms.network.dry_run import dry_run
from pluribus.schema import Fields, Items, Named, Number, Schema, Text, Whole

KEPT = 32
"""Numbers of an output that are kept; more tell no more."""
TOLERANCE = 1e-4
"""Greatest difference of outputs, relative to the largest; float32 rounds a hundred times finer."""
COARSE = 3e-2
"""The same of half precision, which rounds to three digits."""

SCHEMA: Schema = Fields(
    {
        "network": Text(),
        "layers": Named(Text()),
        "tensors": Named(Items(Whole())),
        "outputs": Named(Items(Number(), most=KEPT)),
        "tolerance": Number(finite=True),
    }
)


def fingerprint(ensemble: Ensemble, x: Tensor) -> dict[str, Any]:
    """Return the fingerprint of an ensemble's network as a plain dict.

    Args:
        ensemble: Its tensors and its mode stay as they are.
        x: Inputs that the network takes, `[samples, ...]`; their shape counts, and not their values.
    """
    # The last member of a network with exits is the deepest, which runs all of the user's code.
    member = ensemble.member(ensemble.members.count - 1).cpu()
    layers = {name: _described(layer) for name, layer in member.named_modules()}
    tensors = {name: list(tensor.shape) for name, tensor in member.state_dict().items()}
    inputs = _probe_input(x)
    _fill(member)
    outputs = {mode: _outputs(member, inputs, mode == "train") for mode in ("eval", "train")}
    half = any(t.dtype in (torch.float16, torch.bfloat16) for t in member.parameters())
    return {
        "network": ensemble.network_name,
        "layers": layers,
        "tensors": tensors,
        "outputs": outputs,
        "tolerance": COARSE if half else TOLERANCE,
    }


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return in which part two fingerprints differ, in a few words; empty where they do not."""
    if before["network"] != now["network"]:
        return f"its class was {before['network']} and is {now['network']}"
    for part in ("layers", "tensors"):
        for name in sorted(before[part].keys() | now[part].keys()):
            first, second = before[part].get(name), now[part].get(name)
            if first != second:
                return f"{name or 'the network itself'} was {first} and is {second}"
    for mode in sorted(before["outputs"].keys() | now["outputs"].keys()):
        first, second = before["outputs"].get(mode, []), now["outputs"].get(mode, [])
        if not _close(first, second, now["tolerance"]):
            return f"its forward computes something else in {mode} mode, with the same layers and tensors"
    return ""


def _described(layer: nn.Module) -> str:
    text = f"{type(layer).__name__}({layer.extra_repr()})"
    return re.sub(r"0x[0-9a-f]+", "0x", text)  # addresses in memory differ from run to run


def _probe_input(x: Tensor) -> Tensor:
    """Return two samples of the shape of `x`; integers stay, since others may be no tokens."""
    first = x[:2].detach().cpu()
    if not first.is_floating_point():
        return first.clone()
    return torch.rand(first.shape, generator=Generator().manual_seed(0), dtype=torch.float64).to(first.dtype)


@torch.no_grad()
def _fill(module: nn.Module) -> None:
    """Overwrite all floating tensors by numbers that follow from their names."""
    for name, tensor in module.named_parameters():
        fan_in = max(1, math.prod(tensor.shape[1:]))
        _overwrite(tensor, name, 1 / math.sqrt(fan_in), 0.0)
    for name, buffer in module.named_buffers():
        # Variances are buffers, and must be above zero.
        _overwrite(buffer, name, 0.0 if buffer.ndim == 0 else 0.5, 0.5)


def _overwrite(tensor: Tensor, name: str, scale: float, offset: float) -> None:
    if not tensor.is_floating_point() and not tensor.is_complex():
        return
    generator = Generator().manual_seed(zlib.crc32(name.encode()))
    drawn = torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
    # Centred where it stands for a weight, positive where it stands for a statistic.
    tensor.copy_(drawn * scale + offset if offset else (2 * drawn - 1) * scale)


def _outputs(member: nn.Module, inputs: Tensor, training: bool) -> list[float]:
    """Return the first numbers of the output; none where the network does not run in this mode."""
    try:
        with dry_run(member, training), torch.no_grad():
            returned = member(inputs.clone())
    except Exception:  # whatever the user's code raises; layers and tensors are compared all the same
        return []
    values = returned if isinstance(returned, Tensor) else torch.empty(0)
    values = torch.view_as_real(values) if values.is_complex() else values
    return [float(value) for value in values.flatten()[:KEPT].double()]


def _close(first: list[float], second: list[float], tolerance: float) -> bool:
    if len(first) != len(second):
        return False
    if not first:
        return True
    one, other = (torch.tensor(values, dtype=torch.float64) for values in (first, second))
    size = float(torch.cat((one, other)).nan_to_num(0, 0, 0).abs().max())
    return torch.allclose(one, other, rtol=0, atol=tolerance * max(size, 1e-6), equal_nan=True)
