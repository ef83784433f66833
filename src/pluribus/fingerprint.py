"""Fingerprint: tell one network from another without its source code and without its weights.

    part       noticed
    network    another class
    layers     another layer, or other settings of a layer
    tensors    other names or shapes of parameters and buffers
    outputs    another forward: the outputs of one member in eval and in train mode on a fixed input, with
               fixed weights

Weights are fixed because a network is built anew for every run, usually with other random weights. Outputs
are compared as numbers and not by a hash, because another processor rounds differently.
"""

import copy
import hashlib
import json
import math
import re
import zlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Generator, Tensor, nn

from pluribus.ensemble import Ensemble
from pluribus.mechanisms.network.batches import accepted_by
from pluribus.mechanisms.network.dry_run import dry_run
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.schema import Fields, Items, Named, Number, Schema, Text, Whole

KEPT = 32
"""Numbers of an output that are stored; more would not tell more networks apart."""
TOLERANCE = 1e-4
"""Greatest difference of outputs, relative to the largest; float32 rounds a hundred times finer."""
COARSE = 3e-2
"""The same for half precision, which rounds to three digits."""

SCHEMA: Schema = Fields(
    {
        "network": Text(),
        "layers": Named(Text()),
        "tensors": Named(Items(Whole())),
        "outputs": Named(Items(Number(), most=KEPT)),
        "tolerance": Number(finite=True),
    }
)


def fingerprint(ensemble: Ensemble, x: Any) -> dict[str, Any]:
    """Return the fingerprint of an ensemble's network as a plain dict.

    Args:
        ensemble: Its tensors and its mode stay as they are.
        x: Inputs that the network takes, as `Inputs.of` takes them; their shapes count, and not their values.
    """
    member = _any_member(ensemble).cpu()
    layers = {name: _described(layer) for name, layer in member.named_modules()}
    tensors = {name: list(tensor.shape) for name, tensor in member.state_dict().items()}
    inputs = _probe_inputs(accepted_by(Inputs.of(x), ensemble.members.code.forward))
    _fill(member)
    # Both modes, because dropout, norms and the user's own `if self.training` differ between them.
    outputs = {
        "eval": _outputs(member, inputs, training=False),
        "train": _outputs(member, inputs, training=True),
    }
    return {
        "network": ensemble.network_name,
        "layers": layers,
        "tensors": tensors,
        "outputs": outputs,
        "tolerance": _tolerance(member),
    }


def _any_member(ensemble: Ensemble) -> nn.Module:
    """Return a member that runs all of the user's code."""
    members = ensemble.members
    # Before there are members, as of SWAG, there is the network that is trained.
    if not ensemble.method.is_ready(members):
        return members.as_module(members.index.rows(training=True)[0])
    # The last member of a network with exits is the deepest.
    return ensemble.member(members.count - 1)


def digest(ensemble: Ensemble, x: Any) -> str:
    """Return a short text that is equal for networks whose fingerprints agree, for use in a key.

    Args:
        ensemble: As for `fingerprint`.
        x: Likewise.
    """
    # In float64 the rounding of another processor lies far below the digits that are kept.
    exact = Inputs.of(x).each(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)
    found = fingerprint(copy.deepcopy(ensemble).double(), exact)
    # A network that insists on another precision returned nothing.
    if not found["outputs"]["eval"]:
        found = fingerprint(ensemble, x)
    structure = {part: found[part] for part in ("network", "layers", "tensors")}
    outputs = {mode: _rounded(values) for mode, values in found["outputs"].items()}
    text = json.dumps([structure, outputs], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _rounded(values: list[float]) -> list[str]:
    """Return numbers with three digits of the largest among them."""
    finite = [abs(value) for value in values if math.isfinite(value)]
    size = max(finite, default=0.0) or 1.0
    # Adding zero turns -0.0 into 0.0.
    return [f"{round(value / size, 3) + 0.0}" for value in values]


def _tolerance(member: nn.Module) -> float:
    types = {parameter.dtype for parameter in member.parameters()}
    if types & {torch.float16, torch.bfloat16}:
        return COARSE
    return TOLERANCE


def difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return in which part two fingerprints differ, in a few words; empty if they agree."""
    if before["network"] != now["network"]:
        return f"its class was {before['network']} and is {now['network']}"
    # Structure first: another layer explains more than the outputs that follow from it.
    changed = _first_change(before["layers"], now["layers"])
    if not changed:
        changed = _first_change(before["tensors"], now["tensors"])
    if changed:
        return changed
    modes = before["outputs"].keys() | now["outputs"].keys()
    for mode in sorted(modes):
        first = before["outputs"].get(mode, [])
        second = now["outputs"].get(mode, [])
        if not _close(first, second, now["tolerance"]):
            return f"its forward computes something else in {mode} mode, with the same layers and tensors"
    return ""


def _first_change(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the first entry, by name, that differs between two parts; empty if none does."""
    names = before.keys() | now.keys()
    for name in sorted(names):
        if before.get(name) != now.get(name):
            return f"{name or 'the network itself'} was {before.get(name)} and is {now.get(name)}"
    return ""


def _described(layer: nn.Module) -> str:
    text = f"{type(layer).__name__}({layer.extra_repr()})"
    # Addresses in memory differ from run to run.
    return re.sub(r"0x[0-9a-f]+", "0x", text)


def _probe_inputs(inputs: Inputs) -> Inputs:
    """Return two samples of the shapes of these, with values that depend on nothing but the shape."""
    return inputs.take(slice(0, 2)).each(_probe_values)


def _probe_values(first: Tensor) -> Tensor:
    # One is a token of any vocabulary, and true in a mask; drawn integers might be out of range. The values
    # of samples would have to be stored with a run, which may not hold any.
    if not first.is_floating_point():
        return torch.ones_like(first, device="cpu")
    generator = Generator().manual_seed(0)
    drawn = torch.rand(first.shape, generator=generator, dtype=torch.float64)
    return drawn.to(first.dtype)


@torch.no_grad()
def _fill(module: nn.Module) -> None:
    """Overwrite all floating tensors by numbers that follow from their names."""
    for name, tensor in module.named_parameters():
        fan_in = max(1, math.prod(tensor.shape[1:]))
        _overwrite(tensor, name, 1 / math.sqrt(fan_in), 0.0)
    for name, buffer in module.named_buffers():
        # Variances are buffers, and must be above zero. A scalar, such as a scale, gets one fixed value.
        scale = 0.5 if buffer.ndim else 0.0
        _overwrite(buffer, name, scale, 0.5)


def _overwrite(tensor: Tensor, name: str, scale: float, offset: float) -> None:
    if not tensor.is_floating_point() and not tensor.is_complex():
        return
    generator = Generator().manual_seed(zlib.crc32(name.encode()))
    drawn = torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
    # Weights are centred around zero; statistics, which have an offset, stay positive.
    values = (2 * drawn - 1) * scale
    if offset:
        values = drawn * scale + offset
    tensor.copy_(values)


def _outputs(member: nn.Module, inputs: Inputs, training: bool) -> list[float]:
    """Return the first numbers of the output, or none if the network does not run in this mode."""
    try:
        with dry_run(member, training), torch.no_grad():
            given = inputs.copy()
            returned = member(*given.args, **given.keywords)
    # The user's code may raise anything. Layers and tensors are compared all the same.
    except Exception:
        return []
    if not isinstance(returned, Tensor):
        return []
    if returned.is_complex():
        returned = torch.view_as_real(returned)
    kept: list[float] = returned.flatten()[:KEPT].double().tolist()
    return kept


def _close(first: list[float], second: list[float], tolerance: float) -> bool:
    if len(first) != len(second):
        return False
    if not first:
        return True
    one = torch.tensor(first, dtype=torch.float64)
    other = torch.tensor(second, dtype=torch.float64)
    # NaN and infinity say nothing about the size of the other numbers.
    size = float(torch.cat((one, other)).nan_to_num(0, 0, 0).abs().max())
    return torch.allclose(one, other, rtol=0, atol=tolerance * max(size, 1e-6), equal_nan=True)
