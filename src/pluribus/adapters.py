"""Adapters: folders in which peft saved LoRA matrices, as members of a LoRA ensemble.

A folder holds `adapter_config.json` and `adapter_model.safetensors`. Tensors are named after their layers:
`base_model.model.<layer>.lora_A.weight` is A `[r, in]`, `…lora_B.weight` B `[out, r]`, and any other name a
weight that was trained whole. peft adds s B A to a weight, with s = α/r, or α/√r for rsLoRA. Here all members
have one α and one rank: B is multiplied by the ratio of the scales, and smaller ranks are filled with zeros.

Nothing of peft is imported, and nothing that a file names.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pluribus.conversion import convert
from pluribus.ensemble import Ensemble
from pluribus.errors import CheckpointError
from pluribus.likelihood import Likelihood
from pluribus.mechanisms.members.products import Products
from pluribus.mechanisms.members.tree import named_tensors
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.outputs import Output
from pluribus.methods.lora_ensembles import LoRAEnsembles
from pluribus.saving import read_tensors
from pluribus.schema import Anything, Fields, Flag, Named, Number, Optional, Schema, Text, Whole, shown
from pluribus.untrusted import read_json
from pluribus.weights import check_values

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
REMEDY = "Save the adapter again with peft's save_pretrained."
PREFIX = "base_model.model."
DOWN, UP = ".lora_A.weight", ".lora_B.weight"
LITERAL = re.compile(r"[\w.]+")
"""Keys of `alpha_pattern` that are names; others are expressions, which no file may make us run."""
PLAIN_STARTS = (None, True, False, "gaussian", "eva", "orthogonal")
"""Values of `init_lora_weights` that leave the network's weights as they are. Others (`pissa`, `olora`,
`corda`, `loftq`, `lora_ga`) subtract the first product from them when peft loads the folder, so that adding
the stored product to the weights of the network would give another function."""
VARIANTS = {
    "use_dora": "DoRA",
    "alora_invocation_tokens": "activated LoRA",
    "use_qalora": "QA-LoRA",
    "use_bdlora": "block-diagonal LoRA",
    "arrow_config": "a router of several adapters",
    "kasa_config": "KaSA",
    "monteclora_config": "MonteCLoRA",
    "layer_replication": "replicated layers",
    "lora_bias": "matrices with biases",
    "target_parameters": "adapted parameters without a layer",
    "trainable_token_indices": "trained tokens",
}
"""Fields that peft sets for adapters that are more than a product of two matrices, and what these are."""
MERGE = "Merge it with peft's merge_and_unload, and give the whole weights."
SCHEMA: Schema = Fields(
    {"peft_type": Text(100), "r": Whole(1, 1 << 20), "lora_alpha": Number(finite=True)},
    {
        "use_rslora": Optional(Flag()),
        "bias": Optional(Text(100)),
        "fan_in_fan_out": Optional(Flag()),
        "alpha_pattern": Optional(Named(Number(finite=True))),
        "rank_pattern": Optional(Anything()),
    },
    others=True,
)


@dataclass(frozen=True)
class Adapter:
    """The content of one folder.

    Attributes:
        path: The folder.
        matrices: By name of the weight, A `[r, in]` and B `[out, r]`, with peft's scale multiplied into B.
        whole: By name, the tensors that were trained whole.
    """

    path: Path
    matrices: Mapping[str, tuple[Tensor, Tensor]]
    whole: Mapping[str, Tensor]


def is_adapter(path: str | Path) -> bool:
    """Return whether a path is a folder with an adapter of peft."""
    return (Path(path) / CONFIG).is_file()


def from_adapters(
    model: nn.Module | Callable[..., nn.Module],
    paths: Sequence[str | Path],
    likelihood: str | Likelihood = "categorical",
    *,
    example: Any = None,
    output: Output = None,
) -> Ensemble:
    """Return a LoRA ensemble, each member with the matrices of one folder.

    Args:
        model: The network that all adapters change, with its weights.
        paths: One folder for each member, at least one.
        likelihood: As for `convert`.
        example: As for `convert`.
        output: As for `convert`.

    Raises:
        CheckpointError: a folder is damaged, is of another kind than LoRA, or does not fit the network.
    """
    network = Network(model)
    adapters = [read_adapter(Path(path), network) for path in paths]
    ranks: dict[str, int] = {}
    for adapter in adapters:
        for name, (down, _) in adapter.matrices.items():
            ranks[name] = max(len(down), ranks.get(name, 1))
    layers = {name: escape(name.rpartition(".")[0]) for name in ranks}
    # One α of one for all: the scales of the files are part of their matrices.
    method = LoRAEnsembles(
        members=len(adapters),
        rank=max(ranks.values()),
        alpha=1.0,
        where=tuple(dict.fromkeys(layers.values())),
        own_output=any(adapter.whole for adapter in adapters),
    )
    ensemble = convert(
        network.module,
        method,
        likelihood,
        example=example,
        output=output,
        overrides={layers[name]: {"rank": rank} for name, rank in ranks.items()},
    )
    tensors = ensemble.members.tensors
    assert isinstance(tensors, Products)
    for place, adapter in enumerate(adapters):
        _fill(tensors, place, adapter)
    return ensemble.eval()


def read_adapter(path: Path, network: Network) -> Adapter:
    """Return the adapter of a folder, checked against the network.

    Args:
        path: The folder.
        network: The network that it changes.
    """
    config = read_json(path / CONFIG, SCHEMA, REMEDY)
    _check_kind(config, path)
    stored = read_tensors(path / TENSORS)
    check_values(stored, stored, path)
    held = network.tensors()
    downs, ups, whole = dict[str, Tensor](), dict[str, Tensor](), dict[str, Tensor]()
    for key, tensor in stored.items():
        name = key.removeprefix(PREFIX)
        if name.endswith(DOWN):
            downs[f"{name.removesuffix(DOWN)}.weight"] = _matrix(name, tensor, path)
        elif name.endswith(UP):
            ups[f"{name.removesuffix(UP)}.weight"] = _matrix(name, tensor, path)
        else:
            whole[_known(name, held, path)] = tensor
    if not downs or downs.keys() != ups.keys():
        odd = ", ".join(sorted(downs.keys() ^ ups.keys())[:3]) or "none at all"
        raise CheckpointError(f"{path} must hold A and B of every adapted weight, got {odd} alone. {REMEDY}")
    matrices = {}
    for name, down in downs.items():
        weight = held[_known(name, held, path)]
        up = ups[name] * _scale(config, name, len(down), path)
        matrices[name] = _fitting(name, weight, down, up, bool(config.get("fan_in_fan_out")), path)
    return Adapter(path, matrices, whole)


def _check_kind(config: Mapping[str, Any], path: Path) -> None:
    """Raise an error unless peft adds the product of two matrices to weights, and does nothing else."""
    start = config.get("init_lora_weights")
    found = "" if config["peft_type"] == "LORA" else shown(config["peft_type"])
    for field, kind in VARIANTS.items():
        if config.get(field):
            found = found or f"{kind} ({field})"
    if config.get("bias") not in (None, "none"):
        found = found or f"trained biases (bias={shown(config['bias'])})"
    if found:
        raise CheckpointError(f"{path} must hold a plain LoRA adapter, got {found}. {MERGE}")
    if start not in PLAIN_STARTS:
        raise CheckpointError(
            f"{path} must hold an adapter that leaves the network's weights as they are, got one that began "
            f"with init_lora_weights={shown(start)}, which may change them. Save it with peft's "
            "save_pretrained(..., path_initial_model_for_weight_conversion=...), or merge it."
        )


def _matrix(name: str, tensor: Tensor, path: Path) -> Tensor:
    """Return a stored tensor as a matrix; kernels of convolutions have more than two axes."""
    # A rank of 0 would be divided by.
    if tensor.ndim < 2 or not tensor.numel() or not tensor.is_floating_point():
        raise CheckpointError(
            f"{path} must have a matrix of floats for {shown(name)}, got {tensor.dtype} of shape "
            f"{tuple(tensor.shape)}. {REMEDY}"
        )
    return tensor.flatten(1)


def _known(name: str, held: Mapping[str, Tensor], path: Path) -> str:
    """Return a name that the network has."""
    if name in held:
        return name
    if ".lora_embedding_" in name:
        raise CheckpointError(
            f"{path} must adapt linear layers and convolutions alone, got the embedding {shown(name)}. "
            f"{MERGE}"
        )
    raise CheckpointError(
        f"{path} must be an adapter of this network, got {shown(name)}, which the network has not. "
        "Give the network that was adapted, without peft around it."
    )


def _scale(config: Mapping[str, Any], name: str, rank: int, path: Path) -> float:
    """Return peft's scale of the product of a weight's matrices."""
    alpha, layer = config["lora_alpha"], name.rpartition(".")[0]
    patterns = config.get("alpha_pattern") or {}
    for key in patterns:
        if not LITERAL.fullmatch(key):
            raise CheckpointError(
                f"{path}: alpha_pattern must have names of layers as keys, got {shown(key)}. {MERGE}"
            )
    fitting = [other for key, other in patterns.items() if layer == key or layer.endswith(f".{key}")]
    # Where several keys fit, peft takes the first.
    alpha = fitting[0] if fitting else alpha
    return float(alpha) / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _fitting(
    name: str, weight: Tensor, down: Tensor, up: Tensor, transposed: bool, path: Path
) -> tuple[Tensor, Tensor]:
    """Return A and B in the order of the weight's axes.

    Args:
        name: Of the weight.
        weight: `[out, ...]`, or `[in, out]` where it is transposed.
        down: A of the file.
        up: B of the file.
        transposed: Whether the file says that weights are.
        path: The folder, for messages.
    """
    if transposed:
        down, up = up.T, down.T
    sides = (weight.shape[0], weight[0].numel())
    if (up.shape[0], down.shape[1]) != sides or down.shape[0] != up.shape[1]:
        raise CheckpointError(
            f"{path} must have matrices of {sides[0]} x r and r x {sides[1]} for {name}, got "
            f"{tuple(up.shape)} and {tuple(down.shape)}. Give the network that was adapted."
        )
    if len(down) > min(sides):
        raise CheckpointError(
            f"{path} must have matrices of a rank of at most {min(sides)} for {name}, got {len(down)}. "
            "Merge the adapter, and give whole weights."
        )
    return down, up


@torch.no_grad()
def _fill(tensors: Products, place: int, adapter: Adapter) -> None:
    """Copy an adapter into one member; matrices that it lacks are zero."""
    factors, own = tensors.factors(), named_tensors(tensors.own)
    for name in tensors.changed():
        down, up = factors["down"][name][place], factors["up"][name][place]
        up.zero_()
        if name not in adapter.matrices:
            continue
        found = adapter.matrices[name]
        rank = len(found[0])
        down[:rank] = found[0].to(down)
        # The method divides by its own rank.
        up[:, :rank] = len(down) * found[1].to(up)
    for name, tensor in adapter.whole.items():
        if name not in own or own[name][place].shape != tensor.shape:
            raise CheckpointError(
                f"{adapter.path} must hold whole weights of the last layer alone, got {shown(name)} of shape "
                f"{tuple(tensor.shape)}. Merge the adapter, and give whole weights."
            )
        own[name][place] = tensor.to(own[name])
