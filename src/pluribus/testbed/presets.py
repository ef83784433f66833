"""Presets: methods with the settings that the testbed runs them with, those of the paper's Figure 5 first.

Settings of Figure 5 are those that the authors' sweeps selected. Where a step of theirs takes many draws of
the weights (64 to 400), a few give the same gradient on average at a fraction of the cost; `as_in_paper`
takes theirs. It also gives Bayes by Backprop, VNN and the hypermodel what the authors' have and ours leave
out by default.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from pluribus.errors import SettingError
from pluribus.method import Method
from pluribus.method_text import read_method, split_outside_brackets
from pluribus.methods import (
    ECMP,
    EMP,
    MIMMO,
    MIMO,
    SAE,
    SWAG,
    VNN,
    BatchEnsemble,
    BayesByBackprop,
    DeepEnsembles,
    EarlyExit,
    Hypermodel,
    Laplace,
    LayerEnsembles,
    Masksembles,
    MCDropout,
    PackedEnsembles,
)
from pluribus.methods.bayes_by_backprop import LEAST_SCALE
from pluribus.methods.hypermodel import LEAST_SCALE as LEAST_DIRECTION
from pluribus.ranges import nearest
from pluribus.testbed.networks import WIDTH

DRAWS = 100
"""Random members by which a model is scored, as in the authors' code."""
FEW = 8
"""Draws in a training step where the authors take 64 or more."""
MEMBERS = 10
"""Members of methods that the paper does not run; few would be scored by their number alone."""
OPTIONS = (2, 3, 5, 6)
"""K of the Layer Ensembles of Fig. 4."""
SIGMA = 100.0
"""σ₀ of the authors' Bayes by Backprop."""
DIMENSION = 20
"""Numbers of the index of the authors' hypermodel."""
TRUNCATED = 0.88
"""Deviation of normal numbers that are drawn anew beyond 2, with which their weights start."""
TARGET_NOISES = ("none", "member", "option", "index")


@dataclass(frozen=True)
class Preset:
    """A method on the testbed.

    Attributes:
        name: By which results and `--methods` know it.
        method: Its settings.
        width: Of the network's hidden layers.
        scaled: What layers divide by the root of their inputs, so that one prior fits it: `all`, `weights`
            but not biases, or `none`.
        target_noise: Which targets with fixed noise of their own there are: `none`, one set for each
            `member`, for each `option` of the first layer, or a linear function of the `index` of a
            hypermodel.
        cosine: Whether the learning rate falls to a thousandth by a cosine.
        bootstrap: Whether samples have weights that follow from the row's numbers, as VNN's.
        zeroed: What starts at zero: `all` weights, of a method that draws them around their means, `biases`
            or `none`.
        mean_prior: Deviation of the prior of the means alone, where draws around them have another; 0 is the
            same for both.
    """

    name: str
    method: Method
    width: int = WIDTH
    scaled: str = "none"
    target_noise: str = "none"
    cosine: bool = False
    zeroed: str = "none"
    bootstrap: bool = False
    mean_prior: float = 0.0


def parameters_of(inputs: int, width: int = WIDTH) -> int:
    """Return how many weights and biases the network has."""
    return (inputs + 1) * width + (width + 1) * width + width + 1


def _deep(inputs: int, paper: bool) -> Preset:
    return Preset("deep_ensembles", DeepEnsembles(30, prior_scale=1.0), target_noise="member")


def _layers(options: int, prior: float = 1.0) -> Callable[[int, bool], Preset]:
    def make(inputs: int, paper: bool) -> Preset:
        name = f"layer_ensembles_{options}" + ("" if prior else "_no_prior")
        method = LayerEnsembles(options, prior_scale=prior, draws=options**3)
        return Preset(name, method, target_noise="option")

    return make


def _dropout(inputs: int, paper: bool) -> Preset:
    # The authors' weight decay, 1e-12 / (2 T), is below what float32 keeps beside the loss.
    method = MCDropout(rate=0.05, draws=DRAWS, insert=True)
    return Preset("mc_dropout", method, zeroed="biases" if paper else "none")


def _bayes(name: str, selected: bool) -> Callable[[int, bool], Preset]:
    def make(inputs: int, paper: bool) -> Preset:
        # σ₀ = 100 is divided by the root of the number of weights when the authors' code draws an index,
        # which softplus(0) multiplies at first. Means start at zero, where deviations count in units of
        # LEAST_SCALE.
        prior = SIGMA / math.sqrt(parameters_of(inputs))
        start = math.log(2) * prior / LEAST_SCALE
        method = BayesByBackprop(
            draws=DRAWS,
            deviation=start,
            prior_deviation=prior,
            anneal=0.0,
            train_draws=64 if paper else FEW,
            local=False,
        )
        preset = Preset(name, method, scaled="all", zeroed="all")
        # Their divergence does not divide the prior of the means, nor their layers the biases.
        return replace(preset, scaled="weights", mean_prior=SIGMA) if paper or selected else preset

    return make


def _vnn(name: str, selected: bool) -> Callable[[int, bool], Preset]:
    def make(inputs: int, paper: bool) -> Preset:
        draws = 100 if paper else FEW
        # The authors initialise the deviations as they do the means.
        method = VNN(draws=DRAWS, deviation=1.0, global_std="multiply", factor=2.0, train_draws=draws)
        preset = Preset(name, method, width=2 * WIDTH, cosine=True)
        if not (paper or selected):
            return preset
        # Their sweep selected layers without an activation, and samples with exponential weights.
        method = replace(method, activation="none")
        return replace(preset, method=method, bootstrap=True, zeroed="biases")

    return make


def _hypermodel(name: str, random_features: bool) -> Callable[[int, bool], Preset]:
    def make(inputs: int, paper: bool) -> Preset:
        draws = 400 if paper else 2 * FEW
        # A prior of random networks is as large as the one that learns: its natural scale is 1.
        method = Hypermodel(
            draws=DRAWS,
            dimension=DIMENSION,
            deviation=0.5,
            prior="networks",
            prior_scale=1.0,
            train_draws=draws,
        )
        preset = Preset(name, method, target_noise="index")
        if not (paper or random_features):
            return preset
        # Their map from index to weights starts as any linear layer does, and without a constant.
        start = TRUNCATED / math.sqrt(DIMENSION) / LEAST_DIRECTION
        method = replace(method, prior="random_features", prior_scale=5.0, deviation=start)
        return replace(preset, method=method, zeroed="all")

    return make


def _emp(inputs: int, paper: bool) -> Preset:
    method = EMP(5, where=("*",), start="fresh", draws=DRAWS, train_draws=5, per_sample=False, decay=0.0)
    return Preset("emp", method, target_noise="option")


def _ecmp(inputs: int, paper: bool) -> Preset:
    method = ECMP(5, where=("*",), start="fresh", draws=DRAWS, train_draws=5, per_sample=False, decay=0.0)
    return Preset("ecmp", method)


def _masksembles(inputs: int, paper: bool) -> Preset:
    return Preset("masksembles", Masksembles(MEMBERS, scale=2.0), target_noise="member")


def _packed(inputs: int, paper: bool) -> Preset:
    method = PackedEnsembles(MEMBERS, alpha=4.0, min_channels=1)
    return Preset("packed_ensembles", method, target_noise="member")


def _batch(inputs: int, paper: bool) -> Preset:
    return Preset("batch_ensemble", BatchEnsemble(MEMBERS), target_noise="member")


def _swag(inputs: int, paper: bool) -> Preset:
    return Preset("swag", SWAG(members=DRAWS))


PRESETS: dict[str, Callable[[int, bool], Preset]] = {
    "deep_ensembles": _deep,
    **{f"layer_ensembles_{options}": _layers(options) for options in OPTIONS},
    "layer_ensembles_5_no_prior": _layers(5, prior=0.0),
    "mc_dropout": _dropout,
    "bayes_by_backprop": _bayes("bayes_by_backprop", False),
    "bayes_by_backprop_free_means": _bayes("bayes_by_backprop_free_means", True),
    "vnn": _vnn("vnn", False),
    "vnn_without_activation": _vnn("vnn_without_activation", True),
    "hypermodel": _hypermodel("hypermodel", False),
    "hypermodel_random_features": _hypermodel("hypermodel_random_features", True),
    "emp": _emp,
    "ecmp": _ecmp,
    "masksembles": _masksembles,
    "packed_ensembles": _packed,
    "batch_ensemble": _batch,
    "swag": _swag,
}
"""By name, the preset for a number of inputs, and for the authors' draws or a few."""
REFERENCES = ("exact_posterior", "half_as_wide", "prior")
"""Samplers of a known distribution, which calibrate the score itself."""
VARIANTS = (
    "layer_ensembles_5_no_prior",
    "bayes_by_backprop_free_means",
    "hypermodel_random_features",
    "vnn_without_activation",
)
"""Presets that run by name alone."""
ALL = (*(name for name in PRESETS if name not in VARIANTS), *REFERENCES)
"""What `--methods all` runs."""


UNFIT: dict[type[Method], str] = {
    **dict.fromkeys(
        (SAE, MIMO, MIMMO, EarlyExit), "members that read several inputs or exits of one network"
    ),
    Laplace: "members that are drawn after a pass over the data",
}
"""Methods that the testbed cannot train: it takes the gradients of many problems at once, row by row."""


def own_method(text: str) -> Method:
    """Return a method with settings of the user's own, as the testbed can train it.

    Raises:
        SettingError: There is no such method, or the testbed cannot train it.
    """
    method = read_method(text)
    for kind, reason in UNFIT.items():
        if isinstance(method, kind):
            raise SettingError(f"the testbed needs members with weights of their own, got {reason}: {text}.")
    if not isinstance(method, EMP | ECMP):
        return method
    if method.per_sample:
        raise SettingError(f"the testbed needs per_sample=False, got {text}. Leave per_sample out.")
    # By default each sample may draw for itself, and no row of tensors would stand for a member.
    return replace(method, per_sample=False)


def read_names(text: str) -> list[str]:
    """Return the names of presets and texts of methods that a text lists; `all` leaves out `VARIANTS`.

    Raises:
        SettingError: A name is neither a preset nor a method.
    """
    names = list[str]()
    for name in split_outside_brackets(text):
        names += ALL if name == "all" else [name]
    if not names:
        raise SettingError("methods must name at least one, such as deep_ensembles, got none.")
    known = (*PRESETS, *REFERENCES)
    for name in names:
        if name not in known and "(" not in name:
            raise SettingError(
                f"methods are all, {', '.join(known)}, or a method with settings in brackets, got {name!r}."
                + nearest(name, known)
            )
        if "(" in name:
            own_method(name)
    return list(dict.fromkeys(names))


def make_preset(name: str, inputs: int, as_in_paper: bool) -> Preset:
    """Return the preset of a name, or a method of the user's own settings without target noise.

    Args:
        name: One of `PRESETS`, or a text such as `masksembles(members=4)`.
        inputs: How many inputs the problem has.
        as_in_paper: Whether a step takes the authors' number of draws.
    """
    if name in PRESETS:
        return PRESETS[name](inputs, as_in_paper)
    return Preset(name, own_method(name))
