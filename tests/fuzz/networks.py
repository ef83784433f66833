"""Random networks through every method and every verb; all forms of an ensemble must agree."""

import copy
import random
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.methods import (
    MIMMO,
    MIMO,
    SAE,
    SWAG,
    VNN,
    BayesByBackprop,
    DropConnect,
    EarlyExit,
    Hypermodel,
    LoRAEnsembles,
)
from tests.cases import CASES, logits
from tests.cases import run as call
from tests.contracts.test_random_architectures import METHODS, networks
from tests.fuzz.outcome import Case

EVERY = st.one_of(
    *METHODS.values(),
    st.builds(MIMO, inputs=st.integers(1, 3)),
    st.builds(MIMMO, inputs=st.integers(1, 3)),
    st.builds(SAE),
    st.builds(EarlyExit),
    st.builds(DropConnect, draws=st.just(3)),
    st.builds(LoRAEnsembles, members=st.just(2), rank=st.integers(1, 3)),
    st.builds(BayesByBackprop, draws=st.just(3), local=st.booleans()),
    st.builds(VNN, draws=st.just(3)),
    st.builds(Hypermodel, draws=st.just(3), dimension=st.integers(1, 3)),
    st.builds(SWAG, members=st.just(2)),
)
ZOO = st.sampled_from([case for case in CASES if not case.name.startswith(("hf_", "monai_"))])
EXAMPLES = 4
"""The first example of a series is always the simplest one; further ones are random."""


@st.composite
def zoo(draw: st.DrawFn) -> tuple[nn.Module, Any]:
    """Return a network of the zoo with its inputs."""
    case = draw(ZOO)
    return case.model(), case.inputs()


def run(case: Case, rng: random.Random) -> None:
    """Check some networks."""
    names = []

    @seed(rng.randrange(2**32))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.one_of(networks(), networks(), zoo()), EVERY, st.integers(0, 999))
    def each(network: tuple[nn.Module, Any], method: pl.Method, number: int) -> None:
        names.append(f"{method} on {type(network[0]).__name__}")
        check(case, network[0], network[1], method, random.Random(number))

    each()
    case.describe("network", "; ".join(names))


def check(case: Case, model: nn.Module, x: Any, method: pl.Method, rng: random.Random) -> None:
    """Convert, train one step, and compare frozen, shrunk, saved and single members with the rows."""
    what = f"{method}\n{model}"
    ensemble = case.attempt(pl.convert, model, method, example=x)
    if ensemble is None:
        _explain(case, what)
        return
    if rng.random() < 0.5:
        case.attempt(step, ensemble, x)
    ensemble.eval()
    rows = case.attempt(call, ensemble, x)
    if rows is None:
        _explain(case, what)
        return
    rows = rows.detach()
    for name, form in FORMS.items():
        found = case.attempt(form, case, ensemble, model, x, rng)
        if found is None:
            continue
        positions, outputs = found
        compare(case, name, outputs, rows[positions], what)
    _explain(case, what)


def _explain(case: Case, what: str) -> None:
    """Add the network to findings that do not have it yet."""
    for finding in case.findings:
        if "\n---\n" not in finding["text"]:
            finding["text"] += f"\n---\n{what}"


def compare(case: Case, name: str, found: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    """Note a finding unless two tensors agree."""
    try:
        if name == "saved":
            assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
        else:
            assert_close(found, expected, rtol=1e-6, atol=1e-8, equal_nan=True)
    except AssertionError as error:
        case.find(f"wrong result: {name}", f"{error}\n---\n{what}")


def step(ensemble: pl.Ensemble, x: Any) -> None:
    """Train one step, so that statistics and members differ from those of the conversion."""
    optimizer = torch.optim.SGD(ensemble.parameter_groups(1e-2))
    with torch.no_grad():
        shape = call(ensemble, x).shape
    y = torch.zeros((shape[1], *shape[3:]), dtype=torch.long)
    ensemble.train().loss(x, y).backward()
    optimizer.step()
    ensemble.after_step(1.0)


Found = tuple[list[int], torch.Tensor]


def member(case: Case, ensemble: pl.Ensemble, model: nn.Module, x: Any, rng: random.Random) -> Found:
    row = rng.randrange(len(ensemble.weights))
    return [row], logits(call(ensemble.member(row), x)).detach()[None]


def frozen(case: Case, ensemble: pl.Ensemble, model: nn.Module, x: Any, rng: random.Random) -> Found:
    return list(range(len(ensemble.weights))), call(ensemble.freeze(), x).detach()


def shrunk(case: Case, ensemble: pl.Ensemble, model: nn.Module, x: Any, rng: random.Random) -> Found:
    count = len(ensemble.weights)
    rows = rng.sample(range(count), rng.randint(1, count))
    return rows, call(ensemble.shrink(rows), x).detach()


def saved(case: Case, ensemble: pl.Ensemble, model: nn.Module, x: Any, rng: random.Random) -> Found:
    ensemble.save(case.folder / "saved")
    loaded = pl.load(case.folder / "saved", copy.deepcopy(model), example=x)
    return list(range(len(ensemble.weights))), call(loaded, x).detach()


def predicted(case: Case, ensemble: pl.Ensemble, model: nn.Module, x: Any, rng: random.Random) -> Found:
    chunk = rng.choice((1, 3, 8, None))
    return list(range(len(ensemble.weights))), ensemble.predict(x, chunk=chunk).members


FORMS = {"member": member, "frozen": frozen, "shrunk": shrunk, "saved": saved, "predicted": predicted}
