"""load and from_checkpoints: ensembles from files."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pluribus.checkpoint import REMEDY, WEIGHTS, read_folder, read_settings, read_tensors
from pluribus.conversion import assemble, convert
from pluribus.document import check_counts, check_document, methods_of, read_method
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
from pluribus.untrusted import read_header
from pluribus.weights import check_exact_types, check_saved_types, check_shapes, check_values

Model = nn.Module | Callable[..., nn.Module]
PREFIXES = ("module.", "_orig_mod.")
"""What data parallelism and compilation put before the names in a state_dict."""


def load(path: str | Path, model: Model, *, example: Any = None, output: Output = None) -> Ensemble:
    """An ensemble that `ensemble.save` wrote, in eval mode; it predicts bit for bit what it did.

    Args:
        path: The folder.
        model: The network it was made from, or its factory; its weights do not matter.
        example: As for `convert`.
        output: As for `convert`; needed again where it was a function.
    """
    settings = read_settings(path)
    check_document(settings, path)
    method, likelihood = methods_of(settings, path)
    check_counts(method, read_header(Path(path) / WEIGHTS, REMEDY), settings, path)
    _, stored = read_folder(path)
    if settings["output_is_function"] and output is None:
        raise CheckpointError(
            f"{path} was saved with a function as output=, however: none was given. Pass it."
        )
    shown = settings.get("output") if output is None else output
    document = Document(method, likelihood, settings, stored, path)
    try:
        ensemble = _rebuild(Network(model, example, shown), document)
    except (CheckpointError, ConversionError) as error:
        # Weights may decide which layers run (mixtures of experts), and so what a method converts.
        network = Network(model, example, shown)
        _fill_first_row(network, stored)
        try:
            ensemble = _rebuild(network, document)
        except PluribusError:
            raise error from None
    held, saved = ensemble.state_dict(), renamed(stored, ensemble.state_dict())
    check_saved_types(held, saved, path)
    check_values(saved, dict(ensemble.named_parameters()), path)
    floats = {tensor.dtype for tensor in saved.values() if tensor.is_floating_point()}
    if len(floats) == 1 and any(held[name].dtype != saved[name].dtype for name in saved):
        ensemble.to(floats.pop())  # buffers that are not saved follow
    # Assigned, not copied: the dtypes are those that were saved; device and order in memory the network's.
    held = ensemble.state_dict()
    loaded = {name: torch.empty_like(held[name], dtype=t.dtype).copy_(t) for name, t in saved.items()}
    ensemble.load_state_dict(loaded, assign=True)
    if ranking := settings.get("ranking"):
        ensemble.ranking = Ranking(tuple(ranking["order"]), tuple(ranking["scores"]), ranking["metric"])
    return ensemble.eval()


@dataclass(frozen=True)
class Document:
    """What a saved ensemble is rebuilt from."""

    method: Method
    likelihood: Likelihood
    settings: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    path: str | Path


def _rebuild(network: Network, document: Document) -> Ensemble:
    """Return an ensemble into which the saved tensors fit; its own are those of the network."""
    settings, path = document.settings, document.path
    with _rebuilding(path):
        choices = _choices(network, settings, path)
        ensemble = assemble(network, document.method, document.likelihood, choices, settings["seed"])
        if (rows := settings.get("shrunk_to")) is not None:
            ensemble.members.index.restore(rows, _of_index(document.tensors))
            ensemble = ensemble.shrink(rows)
    check_shapes(ensemble.state_dict(), renamed(document.tensors, ensemble.state_dict()), path)
    return ensemble


def _fill_first_row(network: Network, saved: Mapping[str, Tensor]) -> None:
    """Give a network the saved weights of the first member, as far as they are found by name and shape."""
    with torch.no_grad():
        for name, tensor in network.tensors().items():
            for key, value in saved.items():
                if not key.endswith(f".{name}"):
                    continue
                if value.shape == tensor.shape:
                    tensor.copy_(value)
                elif value.shape[1:] == tensor.shape and len(value):
                    tensor.copy_(value[0])


@contextmanager
def _rebuilding(path: str | Path) -> Iterator[None]:
    """Turn what a damaged document makes of a conversion into an error that names the file."""
    try:
        yield
    except PluribusError:
        raise
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
    """A deep ensemble of networks that are already trained.

    Args:
        model: The architecture, or its factory.
        paths: One file of weights for each member: `.safetensors`, or a `state_dict` by `torch.save`.
        likelihood: As for `convert`.
        example: As for `convert`.
        output: As for `convert`.
    """
    files = list(paths) if isinstance(paths, Iterable) and not isinstance(paths, str) else []
    if not files:
        raise CheckpointError(f"paths must be a list of at least one file, however: {paths!r}.")
    network = Network(model)
    states = [_first_names(_plain(read_tensors(path), network), network, path) for path in files]
    for state, path in zip(states, files, strict=True):
        check_shapes(_saved(network), state, path)
        check_exact_types(_saved(network), state, path)
        check_values(state, dict(network.module.named_parameters()), path)
    method = DeepEnsembles(members=len(files), start="copy")
    return _filled(convert(network.module, method, likelihood, example=example, output=output), states)


def from_models(
    models: Sequence[nn.Module],
    likelihood: str | Likelihood = "categorical",
    *,
    example: Any = None,
    output: Output = None,
) -> Ensemble:
    """One ensemble of networks that are already trained; they are copied and not touched.

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
        raise InputError(f"models must be a list of modules, however: {type(models).__name__}.")
    networks = [Network(model) for model in models]
    if not networks:
        raise InputError("models must be at least one module, however: there is none.")
    for position, network in enumerate(networks[1:], 1):
        _check_alike(networks[0], network, position)
    method = DeepEnsembles(members=len(networks), start="copy")
    ensemble = convert(networks[0].module, method, likelihood, example=example, output=output)
    return _filled(ensemble, [_saved(network) for network in networks])


def _check_alike(first: Network, other: Network, position: int) -> None:
    """Refuses another architecture, and another value of what members share because no file holds it."""
    expected, came = _layers(first.module), _layers(other.module)
    odd = sorted(name for name in expected.keys() | came.keys() if expected.get(name) != came.get(name))
    if odd:
        raise InputError(
            f"models must be of one architecture, however: {odd[0] or 'the network itself'} is "
            f"{expected.get(odd[0])} in the first and {came.get(odd[0])} in number {position}."
        )
    check_shapes(_saved(first), _saved(other), f"model {position}")
    own = other.tensors()
    for name in sorted(first.tensors().keys() - first.persistent()):
        if name not in own or not torch.equal(first.tensors()[name], own[name]):
            raise InputError(
                f"buffers that are not saved are shared and must be equal in all models, however: {name} "
                f"differs in number {position}. Register it with persistent=True."
            )


def _saved(network: Network) -> dict[str, Tensor]:
    """The tensors that a file of weights holds, by first name."""
    return {name: tensor for name, tensor in network.tensors().items() if name in network.persistent()}


def _layers(module: nn.Module) -> dict[str, str]:
    """What is where, with the settings that layers tell of themselves."""
    return {name: f"{type(layer).__name__}({layer.extra_repr()})" for name, layer in module.named_modules()}


def _plain(state: dict[str, Tensor], network: Network) -> dict[str, Tensor]:
    """A state_dict without what other tools put before its names, unless the network calls itself so."""
    for prefix in PREFIXES * 2:
        if not state.keys() & network.persistent() and all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    return state


def _first_names(state: Mapping[str, Tensor], network: Network, path: str | Path) -> dict[str, Tensor]:
    """A state_dict with tied tensors once, under their first names."""
    first = {id(tensor): name for name, tensor in network.tensors().items()}
    held = network.module.state_dict(keep_vars=True)
    found: dict[str, Tensor] = {}
    for name, tensor in state.items():
        own = first.get(id(held.get(name)), name)
        if own in found and not torch.equal(found[own], tensor):
            raise CheckpointError(
                f"{own} and {name} are tied in the network, however: they differ in {path}."
            )
        found[own] = tensor
    return found


def _of_index(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of a file that tell which rows there are, by their names in the index."""
    return {name.removeprefix("binding."): tensor for name, tensor in stored.items() if name.count(".") == 1}


def _filled(ensemble: Ensemble, states: Sequence[Mapping[str, Tensor]]) -> Ensemble:
    """The ensemble with one state for each member."""
    with torch.no_grad():
        for name, target in ensemble.state_dict().items():
            tree, own = name.removeprefix("members.tensors.").split(".", 1)
            values = [state[own].to(target) for state in states]
            if tree == "shared" and not all(torch.equal(value, values[0]) for value in values):
                raise CheckpointError(
                    f"frozen tensors are shared and must be equal in all members, however: {own} differs. "
                    "Unfreeze it with model.requires_grad_(True)."
                )
            target.copy_(torch.stack(values) if tree == "own" else values[0])
    return ensemble


def _choices(network: Network, settings: Mapping[str, Any], path: str | Path) -> list[LayerChoice]:
    sites = {site.name: site for site in find_sites(network.module)}
    recorded = [row["name"] for row in settings["selection"]]
    if recorded != list(sites):
        odd = sorted(set(recorded) ^ set(sites)) or ["the order of layers"]
        raise CheckpointError(
            f"{path} must be loaded with the network it was made from ({settings['network']}), however: "
            f"{network.kind} differs in {', '.join(odd[:5])}."
        )
    return [
        LayerChoice(
            sites[row["name"]],
            None if row["settings"] is None else read_method(row["settings"], path),
            row["reason"],
            row["picked"],
            row["overridden"],
        )
        for row in settings["selection"]
    ]
