"""Random inputs and targets for every method: odd types, shapes, values, strides, and no samples."""

import functools
import random
from typing import Any

import torch
from torch import Tensor
from torch.testing import assert_close

import pluribus as pl
from tests.cases import case_named
from tests.fuzz.outcome import Case
from tests.small_methods import SMALL

NETWORKS = ("mlp", "residual_cnn", "tied_embedding")
SPECIAL = (float("nan"), float("inf"), -float("inf"), 1e308, 0.0)


@functools.lru_cache(maxsize=64)
def ensemble(method: str, network: str) -> "tuple[pl.Ensemble, Any] | None":
    """Return an ensemble with its frozen form; None if the method refuses the network."""
    case = case_named(network)
    try:
        made = pl.convert(case.model(), SMALL[method], example=case.inputs()).eval()
        return made, made.freeze()
    # SWAG has no members before it was trained.
    except pl.PluribusError:
        return None


def run(case: Case, rng: random.Random) -> None:
    """Give odd inputs to one ensemble."""
    method, network = rng.choice(list(SMALL)), rng.choice(NETWORKS)
    case.describe("tensor", f"{method} on {network}")
    made = ensemble(method, network)
    if made is None:
        return
    live, frozen = made
    x = case_named(network).inputs()
    assert isinstance(x, Tensor)
    for _ in range(5):
        strange = odd(rng, x)
        case.describe("tensor", f"{method} on {network}: {shown(strange)}")
        verb = rng.choice(("forward", "predict", "loss", "frozen", "frozen predict", "train loss"))
        call(case, verb, live, frozen, strange, rng)
    plain, strided = same_values(rng, x)
    one = case.attempt(live.predict, plain)
    other = case.attempt(live.predict, strided, chunk=rng.choice((None, 3)))
    if one is not None and other is not None:
        try:
            assert_close(one.members, other.members, rtol=1e-6, atol=1e-8)
        except AssertionError as error:
            case.find("wrong result: strides", f"{method} on {network}, {strided.stride()}: {error}")


def call(case: Case, verb: str, live: pl.Ensemble, frozen: Any, x: Any, rng: random.Random) -> None:
    """Call one verb with odd inputs."""
    live.eval()
    if verb == "forward":
        case.attempt(lambda: live(x))
    elif verb == "predict":
        case.attempt(live.predict, x, chunk=rng.choice((None, 1, 3)))
    elif verb == "frozen":
        case.attempt(lambda: frozen(x))
    elif verb == "frozen predict":
        case.attempt(frozen.predict, x)
    else:
        live.train(verb == "train loss")
        case.attempt(live.loss, x, targets(rng, x), progress=rng.choice((0.0, 1.0)))
        live.eval()


def targets(rng: random.Random, x: Any) -> Any:
    """Return targets that are right, or wrong in type, shape or values."""
    batch = x.shape[0] if isinstance(x, Tensor) and x.ndim else 4
    right = torch.zeros(batch, dtype=torch.long)
    kind = rng.randrange(7)
    if kind == 0:
        return right - 1
    if kind == 1:
        return right + 10**9
    if kind == 2:
        return right.float()
    if kind == 3:
        return right[None]
    if kind == 4:
        return torch.zeros(batch, 3)
    if kind == 5:
        return rng.choice((None, [0] * batch, "0", 3, right[:0], torch.full((batch,), float("nan"))))
    return right


def odd(rng: random.Random, x: Tensor) -> Any:
    """Return inputs that are wrong, or right in an unusual way."""
    kind = rng.randrange(13)
    if kind == 0:
        types = (torch.float16, torch.bfloat16, torch.float32, torch.int8, torch.bool, torch.complex64)
        return x.to(rng.choice(types))
    if kind == 1:
        return x[:0]
    if kind == 2 and x.is_floating_point():
        changed = x.clone()
        changed.view(-1)[rng.randrange(x.numel())] = rng.choice(SPECIAL)
        return changed
    if kind == 3:
        return torch.zeros([rng.choice((0, 1, 2, 3, 6, 7)) for _ in range(rng.randrange(6))], dtype=x.dtype)
    if kind == 4:
        return x[0]
    if kind == 5:
        return x.transpose(0, -1)
    if kind == 6:
        return x.to_sparse()
    if kind == 7:
        return x.to("meta")
    if kind == 8:
        return rng.choice(
            (None, 3, "x", [], (), {}, [x], (x, x), {"x": x}, {"input": x}, x.numpy(), object())
        )
    if kind == 9:
        return x[..., : rng.randrange(x.shape[-1] + 1)]
    if kind == 10:
        return x - 10**6 if not x.is_floating_point() else x * 1e200
    if kind == 11:
        return x.clone().requires_grad_() if x.is_floating_point() else x[:1].expand(5, *x.shape[1:])
    return torch.cat([x, x], dim=rng.randrange(x.ndim))


def same_values(rng: random.Random, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return a contiguous tensor, and one with the same values in another order in memory."""
    kind = rng.randrange(4)
    if kind == 0:
        return x, x.transpose(0, -1).contiguous().transpose(0, -1)
    if kind == 1:
        first = x[:1].expand(5, *x.shape[1:])
        return first.clone(), first
    if kind == 2:
        return x[::2].clone(), x[::2]
    wide = torch.stack([x, x + 1], dim=-1)
    return x, wide[..., 0]


def shown(value: Any) -> str:
    """Return a value in a few words."""
    if isinstance(value, Tensor):
        return f"{value.dtype}{list(value.shape)} {value.layout} {value.device}"
    return type(value).__name__
