"""Bad input is refused with an error of ours that says what was expected, what came and what to do."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.testing import assert_close
from torch.utils.data import TensorDataset

import pluribus as pl
from pluribus import CheckpointError, ConversionError, InputError, Method, SettingError
from pluribus.mechanisms.running.batched import STACKED_ROWS
from pluribus.methods import BatchEnsemble, DeepEnsembles, MCDropout, Single
from pluribus.saving import REMEDY, SETTINGS, WEIGHTS
from tests.cases import case_named
from tests.zoo import Apply, Keywords, Listed, TwoInputs, batch_norm_mlp, dropout_layers, mlp, residual_cnn

TWO = DeepEnsembles(members=2)
METHODS = {
    "single": Single(),
    "looped": TWO,
    "stacked": DeepEnsembles(members=STACKED_ROWS),  # run all at once, by code of its own
    "batch_ensemble": BatchEnsemble(members=2),
    "mc_dropout": MCDropout(draws=2),
}
X, Y = case_named("mlp").inputs().float(), case_named("mlp").target()
IMAGES = torch.linspace(-1, 1, 10 * 2 * 8 * 8).view(10, 2, 8, 8)

each_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


@dataclass(frozen=True)
class Bad:
    """Something a user should not do, the error for it, and what its message must say."""

    name: str
    action: Callable[..., object]
    error: type[pl.PluribusError]
    says: tuple[str, ...]

    def check(self, *args: object) -> None:
        with pytest.raises(self.error) as caught:
            self.action(*args)
        assert type(caught.value) is self.error
        missing = [words for words in self.says if words not in str(caught.value)]
        assert not missing, f"{missing} not said in: {caught.value}"


def each_bad(tables: Mapping[type[pl.PluribusError], list[tuple]]) -> pytest.MarkDecorator:
    """Runs a test on every row: a name, what is done, and words of the message, listed by error."""
    rows = [Bad(name, action, error, says) for error in tables for name, action, *says in tables[error]]
    return pytest.mark.parametrize("bad", rows, ids=[row.name for row in rows])


def ensemble(method: Method = TWO, model: nn.Module | None = None, **options) -> pl.Ensemble:
    return pl.convert(mlp() if model is None else model, method, **options)


def cnn(method: Method) -> pl.Ensemble:
    return pl.convert(residual_cnn(), method, example=IMAGES)


def attention(method: Method) -> pl.Ensemble:
    return pl.convert(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), method)


def ending(function: Callable) -> nn.Module:
    """A network of six inputs that ends with a function of eight features."""
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), Apply(function))


def named() -> nn.Module:
    """A network that returns three things, and none is called logits."""
    return ending(lambda x: {"head": x[:, :3], "features": x, "steps": 3})


INPUTS = {
    InputError: [
        ("integers", lambda m: cnn(m)(IMAGES.long()), "layer 0 (Conv2d)", "int64[10, 2, 8, 8]", "/ 255"),
        ("channels", lambda m: cnn(m)(IMAGES[:, :1]), "layer 0 (Conv2d)", "[10, 1, 8, 8]", "channels"),
        ("float64", lambda m: ensemble(m)(X.double()), "layer 0", "float64[10, 6]", "dtype"),
        ("features", lambda m: ensemble(m)(X[:, :5]), "layer 0", "float32[10, 5]): mat1", "check shapes"),
        ("empty batch", lambda m: ensemble(m)(X[:0]), "at least one sample", "(0, 6)", "Skip empty batches"),
        ("nothing", lambda m: ensemble(m)(), "tensor with a batch axis", "got ()", "Pass tensors"),
        ("array", lambda m: ensemble(m)(X.numpy()), "tensor with a batch axis", "ndarray", "Pass tensors"),
        ("predict array", lambda m: ensemble(m).predict(X.numpy()), "a tensor", "ndarray", "torch.as_tensor"),
        ("loss of array", lambda m: ensemble(m).loss(X.numpy(), Y), "a tensor", "ndarray", "torch.as_tensor"),
        ("dataset", lambda m: ensemble(m).predict(TensorDataset(X)), "a tensor", "TensorDataset"),
        ("empty loader", lambda m: ensemble(m).predict([]), "at least one batch", "none"),
        ("keyword", lambda m: ensemble(m)(picture=X), "unexpected keyword", "picture=float32[10, 6]"),
        ("two inputs", lambda m: ensemble(m)(X, X), "positional", "(float32[10, 6], float32[10, 6])"),
        ("attention", lambda m: attention(m)(torch.ones(2, 5, 3)), "layer self_attn", "[2, 5, 3]"),
        ("NaN", lambda m: ensemble(m).predict(X * torch.nan), "finite", "10 of 10 samples", "Leave"),
    ]
}


@each_method
@each_bad(INPUTS)
@pytest.mark.sampled(2)
def test_inputs_that_do_not_fit_are_refused(bad, method):
    bad.check(method)


OUTPUTS = {
    InputError: [
        ("mean", lambda m: ensemble(m, ending(lambda x: x.mean(0)))(X), "per sample, 10", "(8,)", "output="),
        ("sum", lambda m: ensemble(m, ending(torch.sum))(X), "one row per sample, 10", "()", "output="),
        ("no tensor", lambda m: ensemble(m, ending(str))(X), "must return a tensor", "a str", "output="),
        ("several", lambda m: ensemble(m, named())(X), "must return a tensor", "head, features", "output="),
        ("key", lambda m: ensemble(m, named(), output="tail")(X), "name something", "'tail'", "head, feat"),
        ("position", lambda m: ensemble(m, named(), output=7)(X), "name something", "output=7", "head, feat"),
        (
            "number",
            lambda m: ensemble(m, named(), output="steps")(X),
            "pick a tensor",
            "got int for output='steps'",
        ),
        ("none", lambda m: ensemble(m, output=lambda out: None)(X), "pick a tensor", "NoneType"),
        ("function", lambda m: ensemble(m, named(), output=lambda out: out["tail"])(X), "output", "tail"),
        ("sample", lambda m: ensemble(m, output=0)(X[:3]), "output=0", "a Tensor"),
    ]
}


@each_method
@each_bad(OUTPUTS)
def test_outputs_that_are_no_prediction_are_refused(bad, method):
    bad.check(method)


def point(target: torch.Tensor) -> torch.Tensor:
    return ensemble(likelihood="point").loss(X, target)


TARGETS = {
    InputError: [
        ("too few", lambda: ensemble().loss(X, Y[:9]), "for 10 samples", "(9,)"),
        ("array", lambda: ensemble().loss(X, Y.numpy()), "a tensor for 10", "ndarray"),
        ("scalar", lambda: ensemble().loss(X, Y.sum()), "for 10 samples", "()"),
        ("too wide", lambda: ensemble().loss(X, Y.expand(2, -1).T), "(10,)", "(10, 2)", "one target per"),
        ("too great", lambda: ensemble().loss(X, Y + 3), "0 to 2", "got ", "Number the classes from 0"),
        ("negative", lambda: ensemble().loss(X, Y - 1), "0 to 2", "-1", "Number the classes from 0"),
        ("floats", lambda: ensemble().loss(X, Y.float()), "whole numbers", "float32", "target.long()"),
        (
            "infinite",
            lambda: point(torch.full((10, 3), torch.inf)),
            "finite",
            "30 of 30",
            "Drop these samples",
        ),
        ("broadcast", lambda: point(torch.zeros(10)), "(10, 3)", "(10,)", "per sample and output"),
        ("constant", lambda: ensemble().loss(X, Y, criterion=lambda out, y: 1.0), "scalar or one", "float"),
        (
            "per class",
            lambda: ensemble().loss(X, Y, criterion=lambda out, y: out),
            "scalar or one",
            "(10, 3)",
        ),
        ("word", lambda: ensemble().loss(X, Y, criterion="mse"), "criterion", "'mse'"),
    ],
    SettingError: [
        ("progress", lambda: ensemble().loss(X, Y, progress=1.1), "at most 1", "got 1.1"),
        ("negative progress", lambda: ensemble().loss(X, Y, progress=-0.1), "at least 0", "got -0.1"),
        ("dataset size", lambda: ensemble().loss(X, Y, dataset_size=0), "at least 1", "got 0"),
    ],
}


@each_bad(TARGETS)
def test_targets_and_losses_that_do_not_fit_are_refused(bad):
    bad.check()


class Uncopied(Listed):
    def __init__(self) -> None:
        super().__init__()
        self.generator = (i for i in range(3))  # nobody can copy this


class Unready(Listed):
    def reset_parameters(self) -> None:
        raise RuntimeError("not ready")


def sizes() -> Callable[[], nn.Module]:
    """A factory whose networks become wider and wider."""
    several = iter(range(3, 99))
    return lambda: nn.Linear(6, next(several))


def activations() -> Callable[[], nn.Module]:
    """A factory whose networks have the same tensors and compute something else."""
    several = iter([nn.Tanh, nn.Tanh, nn.ReLU])
    return lambda: nn.Sequential(nn.Linear(6, 3), next(several)())


NETWORKS = {
    ConversionError: [
        ("no module", lambda: pl.convert("resnet", TWO), "torch.nn.Module or a factory", "str"),
        ("number", lambda: pl.convert(lambda: 3, TWO), "build a torch.nn.Module", "int"),
        ("sizes", lambda: pl.convert(sizes(), TWO), "one architecture", "got (4"),
        ("activations", lambda: pl.convert(activations(), TWO), "one architecture", "ReLU"),
        ("no layer", lambda: ensemble(model=nn.Tanh()), "a layer to convert", "no parameters", "Tanh"),
        (
            "frozen",
            lambda: ensemble(model=mlp().requires_grad_(False)),
            "a layer to convert",
            "Set requires_grad",
        ),
        ("frozen norm", lambda: ensemble(model=batch_norm_mlp().requires_grad_(False)), "a layer", "frozen"),
        ("compiled", lambda: ensemble(model=torch.jit.script(mlp())), "Script"),
        ("no weights", lambda: ensemble(model=nn.Linear(6, 3, device="meta")), "meta"),
        ("initialiser", lambda: ensemble(model=Unready()), "Unready", "reset_parameters", "factory"),
        ("copy", lambda: ensemble(model=Uncopied()), "Uncopied must be copied", "generator"),
        ("copy of factory", lambda: pl.convert(Uncopied, TWO), "Uncopied must be copied", "generator"),
        ("lazy", lambda: ensemble(model=nn.LazyLinear(3)), "LazyLinear", "weight"),
        ("ensemble", lambda: ensemble(model=ensemble()), "Ensemble"),
        ("two inputs", lambda: ensemble(MCDropout(), TwoInputs()), "example", "TwoInputs", "example=x"),
        ("keywords", lambda: ensemble(MCDropout(), Keywords()), "example", "Keywords", "example=x"),
        ("no dropout", lambda: ensemble(MCDropout(insert=False)), "must have dropout", "neither", "Linear"),
    ],
    InputError: [
        ("example", lambda: ensemble(MCDropout(), example=X[:, :5]), "float32[10, 5]", "example"),
        ("dropout", lambda: ensemble(MCDropout(), dropout_layers(), example=X), "float32[10, 6]", "example"),
        ("list", lambda: ensemble(MCDropout(), example=[X]), "a tensor, a tuple", "list"),
    ],
    SettingError: [
        ("word", lambda: pl.convert(mlp(), "deep_ensemble"), "methods are", "Did you mean 'deep_ensembles'"),
        ("number", lambda: pl.convert(mlp(), 4), "must be a Method", "got 4"),
        ("class", lambda: pl.convert(mlp(), DeepEnsembles), "got the class DeepEnsembles. Call it"),
        ("likelihood", lambda: ensemble(likelihood="categorial"), "one of", "'categorial'", "Did you mean"),
        ("likelihoods", lambda: ensemble(likelihood=["point"]), "one of", "['point']"),
        ("seed", lambda: ensemble(seed=-1), "seed must be at least 0", "got -1"),
    ],
}


@each_bad(NETWORKS)
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_networks_that_cannot_be_converted_are_refused(bad):
    bad.check()


SELECTIONS = {
    ConversionError: [
        ("include type", lambda: ensemble(include=nn.Conv2d), "include", "Conv2d picks none", "Linear, ReLU"),
        ("include name", lambda: ensemble(include="head"), "include", "'head' picks none", "named 0, 1, 2"),
        ("one of two", lambda: ensemble(include=["0", "head"]), "include", "'head' picks none", "named 0"),
        ("exclude", lambda: ensemble(exclude="head.*"), "exclude", "'head.*' picks none", "named 0"),
        ("exclude all", lambda: ensemble(exclude="*"), "a layer to convert", "excluded", "named 0"),
        ("overrides", lambda: ensemble(overrides={"head": {}}), "overrides['head']", "picks none", "named 0"),
        ("number", lambda: ensemble(include=3), "layer types, name patterns or predicates", "3"),
        ("type", lambda: ensemble(exclude=int), "layer types, name patterns or predicates", "int"),
    ],
    SettingError: [
        ("for all", lambda: ensemble(overrides={"0": {"members": 3}}), "may change start", "'members'"),
        ("unknown", lambda: ensemble(overrides={"0": {"stat": "copy"}}), "start", "'stat'", "mean 'start'?"),
        ("impossible", lambda: ensemble(overrides={"0": {"start": "cold"}}), "'fresh', 'copy'", "'cold'"),
        (
            "method",
            lambda: ensemble(overrides={"0": Single(), "2": MCDropout()}),
            "DeepEnsembles",
            "MCDropout",
        ),
        ("no mapping", lambda: ensemble(overrides=["0"]), "overrides", "['0']"),
        ("no settings", lambda: ensemble(overrides={"0": None}), "overrides['0']", "None"),
    ],
}


@each_bad(SELECTIONS)
def test_selections_that_pick_nothing_are_refused(bad):
    bad.check()


IMPOSSIBLE = {
    SettingError: [
        ("members", lambda: DeepEnsembles(members=0), "at least 1", "members must be", "got 0"),
        ("half a member", lambda: BatchEnsemble(members=2.5), "a whole number", "members must be", "got 2.5"),
        (
            "true members",
            lambda: BatchEnsemble(members=True),
            "a whole number",
            "members must be",
            "got True",
        ),
        ("std", lambda: BatchEnsemble(std=-1.0), "at least 0", "std must be", "got -1.0"),
        ("repeat", lambda: BatchEnsemble(repeat="no"), "repeat", "'no'"),
        ("rate", lambda: MCDropout(rate=1.0), "below 1", "rate must be", "got 1.0"),
        ("NaN", lambda: MCDropout(rate=torch.nan), "a finite number", "rate must be", "got nan"),
        ("draws", lambda: MCDropout(draws=0), "at least 1", "draws must be", "got 0"),
        ("insert", lambda: MCDropout(insert="yes"), "True or False or None", "'yes'"),
        ("prior", lambda: DeepEnsembles(prior_scale="1"), "a number", "prior_scale must be", "got '1'"),
        ("start", lambda: DeepEnsembles(start="warm"), "'fresh', 'copy'", "start must be", "got 'warm'"),
        ("precision", lambda: pl.Gaussian(precision=0.0), "above 0", "precision must be", "got 0.0"),
        ("unknown", lambda: Method.from_dict({**TWO.to_dict(), "member": 2}), "'member'", "Did you mean"),
        (
            "kind",
            lambda: Method.from_dict({"kind": "deep", "version": 1}),
            "one of",
            "kind must be",
            "got 'deep'",
        ),
        ("later", lambda: Method.from_dict({**TWO.to_dict(), "version": 99}), "99", "later"),
    ]
}


@each_bad(IMPOSSIBLE)
def test_impossible_settings_are_refused(bad):
    bad.check()


ROWS = {
    InputError: [
        ("draws", lambda: ensemble()(X, draws=2), "members are random", "2 fixed members", "Leave draws out"),
        ("both", lambda: ensemble(MCDropout())(X, members=[0], draws=1), "exclude each other", "both"),
        ("row", lambda: ensemble()(X, members=[2]), "from 0 to 1", "2"),
        ("last row", lambda: ensemble().member(-1), "from 0 to 1", "-1"),
        ("float", lambda: ensemble().member(1.0), "from 0 to 1", "1.0"),
        ("draw", lambda: ensemble(MCDropout(draws=3)).member(3), "from 0 to 2", "3"),
        ("no rows", lambda: ensemble()(X, members=[]), "members"),
        ("number", lambda: ensemble()(X, members=1), "members", "1"),
        ("layer", lambda: ensemble().conversion["head"], "'head'", "0, 1, 2"),
    ],
    SettingError: [
        ("no draws", lambda: ensemble(MCDropout())(X, draws=0), "at least 1", "got 0"),
        ("chunk", lambda: ensemble().predict(X, chunk=0), "at least 1", "got 0"),
        ("lr", lambda: ensemble().parameter_groups(-1.0), "at least 0", "got -1.0"),
    ],
}


@each_bad(ROWS)
def test_rows_that_do_not_exist_are_refused(bad):
    bad.check()


def cut(path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def edit(**changes):
    """Damage that changes keys of the settings by hand; None takes a key away."""

    def damage(folder) -> None:
        settings = json.loads((folder / SETTINGS).read_text()) | changes
        lost = [key for key, value in changes.items() if value is None]
        (folder / SETTINGS).write_text(json.dumps({k: v for k, v in settings.items() if k not in lost}))

    return damage


FOLDERS = {
    CheckpointError: [
        ("cut weights", lambda at: cut(at / WEIGHTS), WEIGHTS, "truncated or foreign", REMEDY),
        ("cut settings", lambda at: cut(at / SETTINGS), SETTINGS, "expected JSON", REMEDY),
        ("no weights", lambda at: (at / WEIGHTS).unlink(), SETTINGS, WEIGHTS, "ensemble.save(...)"),
        ("no settings", lambda at: (at / SETTINGS).unlink(), SETTINGS, WEIGHTS, "ensemble.save(...)"),
        ("foreign", edit(format="other"), SETTINGS, "must have the format", "got 'other'"),
        ("list", lambda at: (at / SETTINGS).write_text("[]"), SETTINGS, "must be an object", REMEDY),
        ("later", edit(version=3), "version from 1 to 2", "got 3", "Install a later Pluribus"),
        (
            "members",
            edit(method=DeepEnsembles(members=3).to_dict()),
            "6 tensors that differ",
            "(3, 8) and (2, 8)",
        ),
        ("weights", lambda at: save_file({"w": X}, at / WEIGHTS), WEIGHTS, "another hash", REMEDY),
        ("no method", edit(method=None), SETTINGS, "method"),
        ("no selection", edit(selection=None), SETTINGS, "selection"),
        ("no seed", edit(seed=None), SETTINGS, "seed"),
        ("word", edit(method="deep_ensembles"), SETTINGS, "method"),
        ("number", edit(selection=3), SETTINGS, "selection"),
    ],
    SettingError: [
        ("later method", edit(method={**TWO.to_dict(), "version": 99}), "99", "Install a later"),
        ("setting", edit(method={**TWO.to_dict(), "colour": 1}), "members", "'colour'"),
    ],
}


@each_bad(FOLDERS)
def test_damaged_folders_are_refused(bad, tmp_path):
    def damage_and_load() -> None:
        ensemble().save(tmp_path / "run")
        bad.action(tmp_path / "run")
        pl.load(tmp_path / "run", mlp())

    replace(bad, action=damage_and_load).check()


@each_method
def test_bad_input_changes_nothing(method):
    one = ensemble(method).train()
    before = {name: value.clone() for name, value in one.state_dict().items()}
    for inputs in (X.double(), X[:, :5], X[:0]):
        with pytest.raises(InputError):
            one.predict(inputs)
        with pytest.raises(InputError):
            one.loss(inputs, Y)
    assert one.training
    assert_close(one.state_dict(), before, rtol=0, atol=0)
    assert one.loss(X, Y).isfinite()
