"""Run methods on a pretended device; print what did not keep the device or the precision.

    python -m tests.contracts.on_device mlp,residual_cnn [deep_ensembles,sae]

A process of its own, because torch takes the pretended device for an accelerator from then on.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

import pluribus as pl
from pluribus.mechanisms.running import planner
from pluribus.methods import ECMP, EMP, MIMMO, BatchEnsemble, BayesByBackprop, DeepEnsembles, Single
from tests.cases import Case, Inputs, case_named, run
from tests.pretended import DEVICE, Pretend, Pretended
from tests.small_methods import SMALL

METHODS: list[pl.Method] = [
    *(method for method in SMALL.values() if not isinstance(method, (EMP, ECMP, BayesByBackprop))),
    # Parameters of each sample, and those whose noise is drawn in the outputs, are tensors of a class of
    # their own, which cannot be a pretended tensor too.
    BayesByBackprop(draws=3, local=False),
    EMP(options=2, draws=3, per_sample=False),
    EMP(options=2, draws=3, per_sample=False, divide=True, objective="kl"),
    ECMP(options=2, draws=3, per_sample=False),
    Single(),
    MIMMO(inputs=2),
    BatchEnsemble(members=3, repeat=True),
    # Nine members are stacked, two are not.
    DeepEnsembles(members=9),
]
UNTRAINED = ("laplace",)
"""Methods that have no members before they saw data; their own tests train them."""


def moved(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """Return inputs on the pretended device, floating ones in a precision."""

    def each(tensor: Tensor) -> Tensor:
        return tensor.to(DEVICE, dtype) if tensor.is_floating_point() else tensor.to(DEVICE)

    if isinstance(inputs, Tensor):
        return each(inputs)
    if isinstance(inputs, dict):
        return {name: each(tensor) for name, tensor in inputs.items()}
    return tuple(each(tensor) for tensor in inputs)


def verbs(case: Case, method: pl.Method, dtype: torch.dtype) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield what users do with an ensemble: by name, functions that return tensors."""
    example = case.inputs()
    ensemble = pl.convert(case.model(), method, example=example).to(DEVICE, dtype)
    x, y = moved(example, dtype), case.target().to(DEVICE)

    def train() -> Tensor:
        optimizer = torch.optim.SGD(ensemble.parameter_groups(1e-3), momentum=0.9)
        loss = ensemble.train().loss(x, y)
        loss.backward()
        optimizer.step()
        ensemble.after_step(1.0)
        return loss.to(dtype)

    yield "train", train
    ensemble.eval()
    yield "forward", lambda: run(ensemble, x)
    yield "loss in eval mode", lambda: ensemble.eval().loss(x, y).to(dtype)
    yield "predict", lambda: ensemble.predict(x, chunk=4).members
    yield "predict without chunk", lambda: ensemble.predict(x, most_bytes=100).members
    yield (
        "summaries",
        lambda: [
            one.to(dtype)
            for one in ensemble.predict(x, keep="summary").values.values()  # type: ignore[union-attr]
        ],
    )
    yield "weights", lambda: ensemble.weights.to(dtype)
    yield "member", lambda: run(ensemble.member(0), x)
    yield "shrink", lambda: run(ensemble.shrink([0]), x)
    yield "frozen", lambda: run(ensemble.freeze(), x)
    yield "frozen predict", lambda: ensemble.freeze().predict(x).members
    yield "rank", lambda: ensemble.predict(x, best=len(ensemble.rank((x, y)).order[:1])).members


def odd_tensors(found: Any, dtype: torch.dtype) -> str:
    """Return what is wrong with tensors; empty if they are on the device and in the precision."""
    if isinstance(found, dict):
        found = found["logits"]
    if isinstance(found, tuple):
        found = found[0]
    for one in found if isinstance(found, list) else [found]:
        if not isinstance(one, Pretended):
            return f"a tensor on {one.device}"
        if one.dtype != dtype:
            return f"a tensor of {one.dtype}"
    return ""


def check(case: Case, method: pl.Method, dtype: torch.dtype) -> Iterator[str]:
    """Yield a line for each verb that fails, or that loses the device or the precision."""
    name = f"{case.name} {method} {dtype}"
    try:
        for verb, call in verbs(case, method, dtype):
            try:
                problem = odd_tensors(call(), dtype)
            except Exception as error:
                problem = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            if problem:
                yield f"{name}: {verb}: {problem}"
    # The method does not convert this network, on any device.
    except pl.ConversionError:
        return


def main() -> None:
    """Check some networks with some methods; print all faults, and how many ensembles were checked."""
    problems = []
    known = {kind for kind, method in pl.Method.known().items() if method.__module__.startswith("pluribus.")}
    assert {method.kind() for method in METHODS} | set(UNTRAINED) == known
    networks, *kinds = (text.split(",") for text in sys.argv[1:])
    chosen = [method for method in METHODS if not kinds or method.kind() in kinds[0]]
    # The planner hides the modes of its caller, such as counters, and this one with them.
    planner.without_dispatch_modes = nullcontext  # type: ignore[assignment]
    with Pretend():
        for name in networks:
            for number, method in enumerate(chosen):
                # Precisions take turns, because each takes as long as the other.
                dtype = (torch.float32, torch.float64)[number % 2]
                problems += check(case_named(name), method, dtype)
    print(*problems, f"checked {len(networks) * len(chosen)}", sep="\n")


if __name__ == "__main__":
    main()
