"""load, from_checkpoints and from_models: ensembles from files and from trained networks."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pluribus.adapters import from_adapters, is_adapter
from pluribus.calibration_record import Calibration
from pluribus.conversion import assemble, convert
from pluribus.document import check_counts, check_document, check_score, methods_of, read_method
from pluribus.ensemble import Ensemble
from pluribus.errors import CheckpointError, ConversionError, InputError, PluribusError
from pluribus.likelihood import Likelihood
from pluribus.mechanisms.members.names import renamed
from pluribus.mechanisms.network.layers import find_sites
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.outputs import Output
from pluribus.mechanisms.ranking.rank import Ranking
from pluribus.method import LayerChoice, Method
from pluribus.methods.deep_ensembles import DeepEnsembles
from pluribus.saving import (
    REMEDY,
    WEIGHTS,
    read_calibration,
    read_folder,
    read_settings,
    read_tensors,
    split_calibration,
)
from pluribus.schema import shown
from pluribus.untrusted import read_header
from pluribus.weights import check_exact_types, check_saved_types, check_shapes, check_values

Model = nn.Module | Callable[..., nn.Module]
PREFIXES = ("module.", "_orig_mod.")
"""Prefixes that data parallelism and `torch.compile` add to the names of a state dict."""
COUNTS = "num_batches_tracked"
"""End of the names of counts of batches. Files of before torch 0.4.1, and many that were converted, lack
them, and torch fills them too."""


def load(path: str | Path, model: Model, *, example: Any = None, output: Output = None) -> Ensemble:
    """Return a saved ensemble in eval mode. Its predictions equal those before saving, bit for bit.

    Args:
        path: The folder.
        model: The network it was made from, or its factory. Its weights do not matter.
        example: As for `convert`.
        output: As for `convert`. Required if the ensemble was made with a function.

    Raises:
        CheckpointError: the folder is missing, damaged, or of another network.
    """
    settings = read_settings(path)
    check_document(settings, path)
    method, likelihood = methods_of(settings, path)
    check_counts(method, read_header(Path(path) / WEIGHTS, REMEDY), settings, path)
    _, tensors = read_folder(path)
    stored, fitted = split_calibration(tensors)
    calibration = read_calibration(settings, fitted)
    if settings["output_is_function"] and output is None:
        raise CheckpointError(
            f"{path} must be loaded with output=, a function, as it was converted, got none. "
            "Pass the function."
        )
    if output is None:
        output = settings.get("output")
    document = Document(method, likelihood, settings, stored, path)
    ensemble = _rebuild_from(model, example, output, document)
    # Tensors of files of version 0.1 have other names.
    saved = renamed(stored, ensemble.state_dict())
    check_saved_types(ensemble.state_dict(), saved, path)
    check_values(saved, dict(ensemble.named_parameters()), path)
    _assign(ensemble, saved)
    _check_weights(ensemble, path)
    ranking = settings.get("ranking")
    if ranking:
        ensemble.ranking = Ranking(tuple(ranking["order"]), tuple(ranking["scores"]), ranking["metric"])
    check_score(calibration, likelihood, path)
    _check_fitted_weights(calibration, ensemble, path)
    ensemble.calibration = calibration
    return ensemble.eval()


def _check_fitted_weights(calibration: Calibration | None, ensemble: Ensemble, path: str | Path) -> None:
    """Raise unless a calibration that has weights has one for each member."""
    if calibration is None or calibration.weights is None:
        return
    if len(calibration.weights) != ensemble.members.count:
        raise CheckpointError(
            f"{path} must have {ensemble.members.count} weights of members in its calibration, "
            f"got {len(calibration.weights)}. {REMEDY}"
        )


@dataclass(frozen=True)
class Document:
    """Content of a saved folder, checked.

    Attributes:
        method: The method of the ensemble.
        likelihood: Its likelihood.
        settings: All of `ensemble.json`.
        tensors: Its state dict.
        path: The folder, for messages.
    """

    method: Method
    likelihood: Likelihood
    settings: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    path: str | Path


def _rebuild_from(model: Model, example: Any, output: Output, document: Document) -> Ensemble:
    """Return an ensemble into which the saved tensors fit; its tensors are not yet the saved ones."""
    try:
        return _rebuild(Network(model, example, output), document)
    except (CheckpointError, ConversionError) as error:
        # Weights may decide which layers run (mixtures of experts), and so which layers a method converts.
        # A second try uses the saved weights. If it fails too, the first error explains more.
        network = Network(model, example, output)
        _fill_first_row(network, document.tensors)
        try:
            return _rebuild(network, document)
        except PluribusError:
            raise error from None


def _assign(ensemble: Ensemble, saved: Mapping[str, Tensor]) -> None:
    """Replace the tensors of an ensemble by saved ones, with the saved types on the ensemble's device."""
    held = ensemble.state_dict()
    floats = {tensor.dtype for tensor in saved.values() if tensor.is_floating_point()}
    changed = any(held[name].dtype != saved[name].dtype for name in saved)
    # Buffers that are not saved must follow an ensemble that was saved after `half()` or `double()`.
    if changed and len(floats) == 1:
        ensemble.to(floats.pop())
        held = ensemble.state_dict()
    loaded = {}
    for name, tensor in saved.items():
        # An empty copy keeps the device and the memory format of the network.
        loaded[name] = torch.empty_like(held[name], dtype=tensor.dtype).copy_(tensor)
    # Assigned and not copied, because a copy would keep the types of the network.
    ensemble.load_state_dict(loaded, assign=True)


def _rebuild(network: Network, document: Document) -> Ensemble:
    """Return the ensemble of a document with the tensors of `network`."""
    settings, path = document.settings, document.path
    with _rebuilding(path):
        choices = _choices(network, settings, path)
        ensemble = assemble(network, document.method, document.likelihood, choices, settings["seed"])
        _check_left(ensemble, document)
        rows = settings.get("shrunk_to")
        if rows is not None:
            ensemble.members.index.restore(rows, _of_index(document.tensors))
            ensemble = ensemble.shrink(rows)
    check_shapes(ensemble.state_dict(), renamed(document.tensors, ensemble.state_dict()), path)
    return ensemble


def _check_weights(ensemble: Ensemble, path: str | Path) -> None:
    """Raise `CheckpointError` if the saved tensors leave no member, or give members no proper weights."""
    # Weights are computed from logits and a temperature, which a damaged file may have set to zero or NaN.
    with _rebuilding(path):
        weights = ensemble.weights
    if len(weights) and bool(weights.isfinite().all()) and bool((weights >= 0).all()):
        return
    raise CheckpointError(
        f"{path} must hold members whose weights are finite and at least 0, got {shown(weights.tolist())}. "
        f"{REMEDY}"
    )


def _check_left(ensemble: Ensemble, document: Document) -> None:
    """Raise `CheckpointError` if a layer was left that was converted in the saved ensemble.

    Which layers run may depend on the weights, and the network of `load` has others.
    """
    saved = {row["name"] for row in document.settings["selection"] if row["settings"] is None}
    for row in ensemble.selection:
        if row["settings"] is None and row["name"] not in saved:
            raise CheckpointError(
                f"{document.path} must be loaded with a network that runs the layers of the saved one, got "
                f"one in which {row['name']} is left: {row['reason']}. Pass the example of the conversion."
            )


def _fill_first_row(network: Network, saved: Mapping[str, Tensor]) -> None:
    """Copy the saved weights of the first member into a network, where names and shapes match."""
    with torch.no_grad():
        for name, tensor in network.tensors().items():
            suffix = f".{name}"
            found = [value for key, value in saved.items() if key.endswith(suffix)]
            for value in found:
                _copy_first(value, tensor)


def _copy_first(value: Tensor, target: Tensor) -> None:
    """Copy a shared tensor, or the first of stacked ones `[members, ...]`; ignore other shapes."""
    if value.shape == target.shape:
        target.copy_(value)
    elif value.shape[1:] == target.shape and len(value):
        target.copy_(value[0])


@contextmanager
def _rebuilding(path: str | Path) -> Iterator[None]:
    """Turn any error of a conversion into a `CheckpointError` that names the file."""
    try:
        yield
    except PluribusError:
        raise
    # A damaged document can make any line of a conversion fail, with any error.
    except Exception as error:
        raise CheckpointError(
            f"{path} cannot be rebuilt with this network: {type(error).__name__}: {error}. {REMEDY}"
        ) from error


def from_checkpoints(
    model: Model,
    paths: Iterable[str | Path],
    likelihood: str | Likelihood = "categorical",
    *,
    example: Any = None,
    output: Output = None,
) -> Ensemble:
    """Return an ensemble of trained networks, each read from a file, or of adapters of one network.

    Args:
        model: The architecture, or its factory. For adapters, the network with its weights.
        paths: One file of weights for each member: `.safetensors`, or a `state_dict` by `torch.save`; or one
            folder for each member in which peft saved a LoRA adapter, for `LoRAEnsembles`.
        likelihood: As for `convert`.
        example: As for `convert`.
        output: As for `convert`.

    Raises:
        CheckpointError: a file is missing, damaged, or does not fit the architecture.
    """
    files = _as_list(paths)
    if not files:
        raise CheckpointError(f"paths must be a list of at least one file, got {paths!r}.")
    adapters = [is_adapter(path) for path in files]
    if all(adapters):
        return from_adapters(model, files, likelihood, example=example, output=output)
    if any(adapters):
        raise CheckpointError("paths must be all files of weights or all folders of adapters, got both.")
    network = Network(model)
    states = [_read_state(path, network) for path in files]
    method = DeepEnsembles(members=len(files), start="copy", shuffle_members=False)
    ensemble = convert(network.module, method, likelihood, example=example, output=output)
    return _fill_members(ensemble, states)


def load_weights(model: Model, path: str | Path) -> nn.Module:
    """Return a network with the weights of a file; the model itself is not changed.

    Args:
        model: The architecture, or its factory.
        path: `.safetensors`, or a `state_dict` by `torch.save`.

    Raises:
        CheckpointError: the file is missing, damaged, or does not fit the architecture.
    """
    network = Network(model)
    state = _read_state(path, network)
    with torch.no_grad():
        for name, tensor in network.tensors().items():
            if name in state:
                tensor.copy_(state[name])
    return network.module


def _as_list(paths: object) -> list[str | Path]:
    # A single string is iterable too, and its letters are no files.
    if isinstance(paths, str) or not isinstance(paths, Iterable):
        return []
    return list(paths)


def _read_state(path: str | Path, network: Network) -> dict[str, Tensor]:
    """Return the tensors of one file by first name, checked against the network."""
    state = _without_owner(_without_prefixes(read_tensors(path), network), network, path)
    state = _first_names(state, network, path)
    expected = _saved(network)
    for name, tensor in expected.items():
        if name.endswith(COUNTS):
            state.setdefault(name, tensor)
    check_shapes(expected, state, path)
    check_exact_types(expected, state, path)
    check_values(state, dict(network.module.named_parameters()), path)
    return state


def from_models(
    models: Sequence[nn.Module],
    likelihood: str | Likelihood = "categorical",
    *,
    example: Any = None,
    output: Output = None,
) -> Ensemble:
    """Return a deep ensemble of trained networks. They are copied and not changed.

    Args:
        models: At least one, of one architecture. They become members in this order.
        likelihood: As for `convert`.
        example: As for `convert`.
        output: As for `convert`.

    Example:
        >>> models = [torch.nn.Linear(3, 2) for _ in range(4)]
        >>> ensemble = pluribus.from_models(models)
        >>> torch.equal(ensemble(torch.ones(5, 3))[2], models[2](torch.ones(5, 3)))
        True
    """
    if isinstance(models, nn.Module) or not isinstance(models, Iterable):
        raise InputError(f"models must be a list of modules, got {type(models).__name__}.")
    networks = [Network(model) for model in models]
    if not networks:
        raise InputError("models must be at least one module, got none.")
    for position, network in enumerate(networks[1:], 1):
        _check_alike(networks[0], network, position)
    method = DeepEnsembles(members=len(networks), start="copy", shuffle_members=False)
    ensemble = convert(networks[0].module, method, likelihood, example=example, output=output)
    return _fill_members(ensemble, [_saved(network) for network in networks])


def _check_alike(first: Network, other: Network, position: int) -> None:
    """Raise `InputError` unless two networks have one architecture and equal unsaved buffers."""
    expected, came = _layers(first.module), _layers(other.module)
    for name in sorted(expected.keys() | came.keys()):
        if expected.get(name) == came.get(name):
            continue
        raise InputError(
            f"models must be of one architecture, got {name or 'the network itself'}: "
            f"{expected.get(name)} in the first and {came.get(name)} in number {position}."
        )
    check_shapes(_saved(first), _saved(other), f"model {position}")
    # No file holds these buffers, so all members share those of the first network.
    shared, own = first.tensors(), other.tensors()
    for name in sorted(shared.keys() - first.persistent()):
        if name in own and torch.equal(shared[name], own[name]):
            continue
        raise InputError(
            f"buffers that are not saved are shared and must be equal in all models, got another {name} "
            f"in number {position}. Register it with persistent=True."
        )


def _saved(network: Network) -> dict[str, Tensor]:
    """Return the tensors of a network that a file of weights holds, by first name."""
    persistent = network.persistent()
    return {name: tensor for name, tensor in network.tensors().items() if name in persistent}


def _layers(module: nn.Module) -> dict[str, str]:
    """Return the class and the settings of each layer, by name."""
    return {name: f"{type(layer).__name__}({layer.extra_repr()})" for name, layer in module.named_modules()}


def _without_prefixes(state: dict[str, Tensor], network: Network) -> dict[str, Tensor]:
    """Return a state dict without the prefixes of other tools, unless the network has names with them."""
    # Twice, because a compiled network may be wrapped for data parallelism, or the other way round.
    for prefix in PREFIXES * 2:
        if state.keys() & network.persistent():
            return state
        if all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    return state


def _without_owner(state: dict[str, Tensor], network: Network, path: str | Path) -> dict[str, Tensor]:
    """Return the tensors of a network that another module held, under the names that the network has.

    A Lightning checkpoint names a weight `model.head.weight`, after the attribute that held the network.
    What else that module had, such as weights of classes in its loss, is left out.

    Raises:
        CheckpointError: several such networks are in the file, such as one and its moving average.
    """
    wanted = {name for name in network.persistent() if not name.endswith(COUNTS)}
    if not wanted or state.keys() & wanted:
        return state
    some = min(wanted)
    owners = [name.removesuffix(some) for name in state if name.endswith(f".{some}")]
    fitting = dict[str, dict[str, Tensor]]()
    for owner in owners:
        inner = {name.removeprefix(owner): value for name, value in state.items() if name.startswith(owner)}
        if wanted <= inner.keys():
            fitting[owner] = inner
    if len(fitting) > 1:
        raise CheckpointError(
            f"{path} must hold the weights of one network, got several by the names of this one, under "
            f"{', '.join(map(shown, fitting))}. Save the state_dict of the one you mean."
        )
    return next(iter(fitting.values()), state)


def _first_names(state: Mapping[str, Tensor], network: Network, path: str | Path) -> dict[str, Tensor]:
    """Return a state dict in which each tied tensor occurs once, under its first name."""
    first = {id(tensor): name for name, tensor in network.tensors().items()}
    held = network.module.state_dict(keep_vars=True)
    found: dict[str, Tensor] = {}
    for name, tensor in state.items():
        own = first.get(id(held.get(name)), name)
        if own in found and not torch.equal(found[own], tensor):
            raise CheckpointError(
                f"{path} must hold equal values for {own} and {name}, which are tied in the network, got "
                "different ones. Save the network again."
            )
        found[own] = tensor
    return found


def _of_index(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a file that define the rows, by their names in the index."""
    found = {}
    for name, tensor in stored.items():
        # Tensors of the network have longer names, with the tree that holds them.
        if name.count(".") == 1:
            found[name.removeprefix("binding.")] = tensor
    return found


def _fill_members(ensemble: Ensemble, states: Sequence[Mapping[str, Tensor]]) -> Ensemble:
    """Copy one state dict into each member, and return the ensemble."""
    with torch.no_grad():
        for name, target in ensemble.state_dict().items():
            tree, own = name.removeprefix("members.tensors.").split(".", 1)
            values = [state[own].to(target) for state in states]
            if tree == "own":
                target.copy_(torch.stack(values))
                continue
            if tree == "shared":
                _check_equal(own, values)
            target.copy_(values[0])
    return ensemble


def _check_equal(name: str, values: Sequence[Tensor]) -> None:
    for value in values:
        if not torch.equal(value, values[0]):
            raise CheckpointError(
                f"frozen tensors are shared and must be equal in all members, got different values of "
                f"{name}. Unfreeze it with model.requires_grad_(True)."
            )


def _choices(network: Network, settings: Mapping[str, Any], path: str | Path) -> list[LayerChoice]:
    """Return the recorded choice for each layer of the network."""
    sites = {site.name: site for site in find_sites(network.module)}
    recorded = [row["name"] for row in settings["selection"]]
    if recorded != list(sites):
        odd = sorted(set(recorded) ^ set(sites)) or ["the order of layers"]
        raise CheckpointError(
            f"{path} must be loaded with the network it was made from ({settings['network']}), got "
            f"{network.kind}, which differs in {', '.join(odd[:5])}."
        )
    choices = []
    for row in settings["selection"]:
        method = None
        if row["settings"] is not None:
            method = read_method(row["settings"], path)
        site = sites[row["name"]]
        choices.append(LayerChoice(site, method, row["reason"], row["picked"], row["overridden"]))
    return choices
