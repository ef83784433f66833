"""load and from_checkpoints: ensembles from files are those that were written."""

import functools
import json

import pytest
import torch
from safetensors.torch import load_file, save_file, save_model
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus import CheckpointError, ConversionError
from pluribus.loading import load_weights
from pluribus.methods import MIMO, BatchEnsemble, DeepEnsembles, MCDropout, Single
from tests.cases import case_named, normal
from tests.zoo import (
    CustomMatmul,
    Keywords,
    Listed,
    TupleOutput,
    batch_norm_mlp,
    frozen_trunk,
    mlp,
    tied_linears,
)

METHODS = [
    Single(),
    DeepEnsembles(members=2, prior_scale=0.5),
    BatchEnsemble(members=2),
    MCDropout(rate=0.3, draws=2),
]
LIKELIHOODS = [pl.Categorical(), pl.Bernoulli(), pl.Gaussian(precision=2.0), pl.Point()]
X, Y = normal(6)(), case_named("mlp").target()

each_method = pytest.mark.parametrize("method", METHODS, ids=str)


def double(build) -> nn.Module:
    return build().double()


def logits(output):
    return output["logits"]


@each_method
def test_a_trained_ensemble_is_loaded_bit_for_bit(method, tmp_path):
    one = pl.convert(double(batch_norm_mlp), method)
    for _ in range(3):
        one.train().loss(X, Y).backward()
        torch.optim.SGD(one.parameter_groups(0.1)).step()
    one.save(tmp_path / "run")
    loaded = pl.load(tmp_path / "run", batch_norm_mlp())
    assert_close(loaded.eval()(X), one.eval()(X), rtol=0, atol=0)
    assert_close(loaded.predict(X).members, one.predict(X).members, rtol=0, atol=0)
    assert_close(loaded.member(0)(X), one.member(0)(X), rtol=0, atol=0)


@each_method
def test_a_loaded_ensemble_trains_and_is_saved_on(method, tmp_path):
    pl.convert(double(mlp), method).save(tmp_path / "run")
    loaded = pl.load(str(tmp_path / "run"), mlp)
    trainable = [name for name, parameter in loaded.named_parameters() if parameter.requires_grad]
    loaded.train().loss(X, Y).backward()
    assert [name for name, p in loaded.named_parameters() if p.grad is not None] == trainable
    torch.optim.SGD(loaded.parameter_groups(0.1)).step()
    loaded.save(tmp_path / "run")
    assert_close(pl.load(tmp_path / "run", mlp()).eval()(X), loaded.eval()(X), rtol=0, atol=0)


@each_method
def test_a_selection_and_its_overrides_are_loaded(method, tmp_path):
    override = {name: getattr(method, name) for name in type(method).per_layer}
    options = {} if method == Single() else {"exclude": "0", "overrides": {"2": override}}
    one = pl.convert(double(mlp), method, **options)
    one.save(tmp_path / "run")
    loaded = pl.load(tmp_path / "run", mlp())
    assert str(loaded.conversion) == str(one.conversion)
    assert loaded.state_dict().keys() == one.state_dict().keys()
    assert (loaded.method, repr(loaded)) == (one.method, repr(one))


@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=str)
def test_the_likelihood_is_loaded(likelihood, tmp_path):
    pl.convert(mlp(), Single(), likelihood).save(tmp_path / "run")
    assert pl.load(tmp_path / "run", mlp()).likelihood == likelihood


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("build", [mlp, CustomMatmul])
def test_the_dtype_is_that_of_the_file(build, dtype, tmp_path):
    one = pl.convert(build().to(dtype), DeepEnsembles(members=2)).eval()
    one.save(tmp_path / "run")
    loaded = pl.load(tmp_path / "run", build()).eval()
    assert_close(loaded(X.to(dtype)), one(X.to(dtype)), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("build", "output"), [(TupleOutput, 0), (Keywords, "logits"), (Keywords, "features")]
)
def test_an_output_that_has_a_name_is_loaded(build, output, tmp_path):
    case = case_named({TupleOutput: "tuple_output", Keywords: "keywords"}[build])
    inputs = case.inputs() if isinstance(case.inputs(), dict) else {"x": case.inputs()}
    one = pl.convert(case.model(), BatchEnsemble(members=2), output=output).eval()
    one.save(tmp_path / "run")
    assert_close(pl.load(tmp_path / "run", build()).eval()(**inputs), one(**inputs), rtol=0, atol=0)


def test_an_output_that_is_a_function_is_asked_for_again(tmp_path):
    case = case_named("keywords")
    one = pl.convert(case.model(), BatchEnsemble(members=2), output=logits).eval()
    one.save(tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"with output=, a function.*, got none\. Pass the function"):
        pl.load(tmp_path / "run", Keywords())
    loaded = pl.load(tmp_path / "run", Keywords(), output=logits).eval()
    assert_close(loaded(**case.inputs()), one(**case.inputs()), rtol=0, atol=0)


@pytest.mark.parametrize("mode", [True, False])
def test_a_loaded_ensemble_is_ready_to_predict_whatever_the_mode_of_the_model(mode, tmp_path):
    one = pl.convert(mlp(), MCDropout(draws=3), seed=5)
    one.save(tmp_path / "run")
    loaded = pl.load(tmp_path / "run", mlp().train(mode))
    assert not loaded.training
    assert_close(loaded(X.float()), one.eval()(X.float()), rtol=0, atol=0)


def wider() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 8), nn.ReLU(), nn.Linear(8, 3))


OTHERS = {
    "of other layers": (Listed, "got Listed, which differs in "),
    "of other sizes": (wider, r"must fit the network, got .*\(2, 9, 6\) and \(2, 8, 6\)"),
    "with frozen layers": (lambda: mlp().requires_grad_(False), "must fit the network"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_network_is_refused(name, tmp_path):
    build, says = OTHERS[name]
    pl.convert(mlp(), DeepEnsembles(members=2)).save(tmp_path / "run")
    with pytest.raises(CheckpointError, match=says):
        pl.load(tmp_path / "run", build())


def test_a_model_that_is_none_is_refused(tmp_path):
    pl.convert(mlp(), Single()).save(tmp_path / "run")
    with pytest.raises(ConversionError, match=r"torch\.nn\.Module or a factory"):
        pl.load(tmp_path / "run", "resnet50")


def torch_file(model: nn.Module, path, prefix: str = "") -> None:
    torch.save({prefix + name: tensor for name, tensor in model.state_dict().items()}, path)


def safetensors_file(model: nn.Module, path) -> None:
    save_file({name: tensor.clone() for name, tensor in model.state_dict().items()}, path)


def lightning_file(model: nn.Module, path) -> None:
    """Save as Lightning does: the network is an attribute of a module that has other tensors too."""
    state = {f"net.inner.{name}": tensor for name, tensor in model.state_dict().items()}
    torch.save({"epoch": 3, "state_dict": {**state, "loss.weight": torch.ones(3)}}, path)


def file_without_counts(model: nn.Module, path, prefix: str = "") -> None:
    state = model.state_dict()
    kept = [name for name in state if not name.endswith("num_batches_tracked")]
    torch.save({prefix + name: state[name] for name in kept}, path)


def batch_norm_first() -> nn.Module:
    """A norm whose count of batches is the first of all names."""
    return nn.Sequential(nn.BatchNorm1d(6, affine=False), nn.Linear(6, 2))


class Wrapped(nn.Module):
    """Calls its child as data parallelism does."""

    def __init__(self) -> None:
        super().__init__()
        self.module = mlp()

    def forward(self, x):
        return self.module(x)


class TiedBackwards(nn.Module):
    """The second name of its tied weight comes first in the alphabet, so that `save_model` keeps that one."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.again, self.head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.again.weight = self.first.weight

    def forward(self, x):
        return self.head(self.again(self.first(x).tanh()))


FILES = {
    "a state_dict": (mlp, torch_file, "pt"),
    "statistics": (batch_norm_mlp, torch_file, "pt"),
    "safetensors": (mlp, safetensors_file, "safetensors"),
    "data parallelism": (mlp, functools.partial(torch_file, prefix="module."), "pt"),
    "compilation": (mlp, functools.partial(torch_file, prefix="_orig_mod."), "pt"),
    "compilation in data parallelism": (mlp, functools.partial(torch_file, prefix="module._orig_mod."), "pt"),
    "data parallelism, compiled": (mlp, functools.partial(torch_file, prefix="_orig_mod.module."), "pt"),
    "an attribute of another module": (mlp, functools.partial(torch_file, prefix="model."), "pt"),
    "a checkpoint of Lightning": (batch_norm_mlp, lightning_file, "ckpt"),
    "no counts of batches": (batch_norm_mlp, file_without_counts, "pt"),
    "an attribute without counts": (
        batch_norm_first,
        functools.partial(file_without_counts, prefix="model."),
        "pt",
    ),
    "a child called module": (Wrapped, torch_file, "pt"),
    "tied weights": (tied_linears, torch_file, "pt"),
    "tied weights in safetensors": (tied_linears, safetensors_file, "safetensors"),
    "tied weights once": (tied_linears, save_model, "safetensors"),
    "tied weights once, by the other name": (TiedBackwards, save_model, "safetensors"),
}


@pytest.mark.parametrize("name", FILES)
def test_trained_networks_become_an_ensemble(name, tmp_path):
    build, save, suffix = FILES[name]
    models = [double(build).eval() for _ in range(3)]
    paths = [tmp_path / f"{i}.{suffix}" for i in range(3)]
    for model, path in zip(models, paths, strict=True):
        model(X)
        save(model, path)
    one = pl.from_checkpoints(double(build), paths).eval()
    assert_close(one(X), torch.stack([model(X) for model in models]))
    assert one.method == DeepEnsembles(members=3, start="copy", shuffle_members=False)


def test_a_file_of_two_such_networks_is_refused(tmp_path):
    state, average = mlp().state_dict(), mlp().state_dict()
    both = {f"model.{name}": tensor for name, tensor in state.items()}
    both |= {f"ema.{name}": tensor for name, tensor in average.items()}
    torch.save(both, tmp_path / "both.pt")
    with pytest.raises(CheckpointError, match=r"several by the names of this one, under .*model.*ema"):
        load_weights(mlp(), tmp_path / "both.pt")


def test_an_attribute_that_lacks_a_tensor_is_refused(tmp_path):
    state = {f"model.{name}": tensor for name, tensor in mlp().state_dict().items()}
    state.pop("model.0.bias")
    torch.save(state, tmp_path / "part.pt")
    with pytest.raises(CheckpointError, match="must fit the network"):
        load_weights(mlp(), tmp_path / "part.pt")


def written(models, tmp_path) -> list:
    paths = [tmp_path / f"{i}.pt" for i in range(len(models))]
    for model, path in zip(models, paths, strict=True):
        torch_file(model, path)
    return paths


def test_the_files_of_a_glob_become_an_ensemble(tmp_path):
    written([mlp(), mlp()], tmp_path)
    assert len(pl.from_checkpoints(mlp(), tmp_path.glob("*.pt")).weights) == 2


def test_checkpoints_are_saved_and_loaded_as_ensembles(tmp_path):
    one = pl.from_checkpoints(mlp, written([mlp(), mlp()], tmp_path), "point").eval()
    one.save(tmp_path / "run")
    loaded = pl.load(tmp_path / "run", mlp()).eval()
    assert_close(loaded(X.float()), one(X.float()), rtol=0, atol=0)
    assert loaded.likelihood == pl.Point()


def test_frozen_tensors_must_be_the_same_in_all_files(tmp_path):
    first, second = frozen_trunk(), frozen_trunk()
    second[:4].load_state_dict(first[:4].state_dict())
    x = normal(2, 8, 8)().float()
    one = pl.from_checkpoints(frozen_trunk(), written([first, second], tmp_path)).eval()
    assert_close(one(x), torch.stack([first.eval()(x), second.eval()(x)]))
    with pytest.raises(
        CheckpointError, match=r"must be equal in all members, got different values of 0.weight\. Unfreeze"
    ):
        pl.from_checkpoints(frozen_trunk(), written([first, frozen_trunk()], tmp_path))


def test_a_tied_model_refuses_weights_that_differ(tmp_path):
    model = tied_linears()
    state = model.state_dict()
    torch.save({**state, "3.weight": torch.zeros_like(state["3.weight"])}, tmp_path / "untied.pt")
    with pytest.raises(CheckpointError, match=r"3\.weight"):
        pl.from_checkpoints(model, [tmp_path / "untied.pt"])


MISFITS = {
    "another network": (lambda path: torch_file(Listed(), path), "12 tensors that differ"),
    "other sizes": (lambda path: torch_file(wider(), path), r"0.bias \(8,\) and \(9,\)"),
    "a layer too many": (
        lambda path: torch_file(nn.Sequential(*mlp(), nn.Linear(3, 3)), path),
        "2 tensors that differ",
    ),
    "a layer too few": (lambda path: torch_file(mlp()[:3], path), "2 tensors that differ"),
    "no weights": (lambda path: torch.save({}, path), "6 tensors that differ"),
    "no file": (lambda path: None, "got no such file"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_files_that_do_not_fit_are_refused_by_name(name, tmp_path):
    write, says = MISFITS[name]
    write(tmp_path / "odd.pt")
    paths = [*written([mlp()], tmp_path), tmp_path / "odd.pt"]
    with pytest.raises(CheckpointError, match=f"odd.pt must .*{says}"):
        pl.from_checkpoints(mlp(), paths)


@pytest.mark.parametrize("paths", ["weights.pt", [], None, 3])
def test_paths_must_be_a_list(paths):
    with pytest.raises(CheckpointError, match="a list of at least one file, got "):
        pl.from_checkpoints(mlp(), paths)


@pytest.mark.parametrize("build", [mlp, batch_norm_mlp, tied_linears, CustomMatmul])
def test_packed_models_are_members_in_their_order(build):
    models = []
    for seed in range(3):
        torch.manual_seed(seed)
        models.append(double(build).eval())
        for name in models[-1].state_dict().keys() & dict(models[-1].named_buffers()).keys():
            models[-1].state_dict()[name].add_(seed)
    ensemble = pl.from_models(models, example=X).eval()
    for row, member in enumerate(models):
        assert_close(ensemble(X)[row], member(X))
        assert_close(ensemble.member(row)(X), member(X))


def test_packed_models_are_copied():
    models = [double(mlp) for _ in range(2)]
    before = [parameter.clone() for model in models for parameter in model.parameters()]
    ensemble = pl.from_models(models)
    ensemble.loss(X, Y).backward()
    torch.optim.SGD(ensemble.parameters(), lr=1.0).step()
    after = [parameter for model in models for parameter in model.parameters()]
    assert_close(after, [*map(nn.Parameter, before)], rtol=0, atol=0)
    assert all(parameter.grad is None for parameter in after)


def test_only_models_of_one_architecture_are_packed():
    with pytest.raises(pl.InputError, match=r"got 1: ReLU\(\) in the first and Tanh\(\) in number 1"):
        pl.from_models([nn.Sequential(nn.Linear(3, 2), nn.ReLU()), nn.Sequential(nn.Linear(3, 2), nn.Tanh())])
    with pytest.raises(pl.InputError, match=r"out_features=2.*out_features=4"):
        pl.from_models([nn.Linear(3, 2), nn.Linear(3, 4)])
    with pytest.raises(pl.InputError, match="at least one module"):
        pl.from_models([])
    with pytest.raises(pl.InputError, match="a list of modules, got Linear"):
        pl.from_models(nn.Linear(3, 2))
    models = [CustomMatmul(), CustomMatmul()]
    models[1].shift.add_(1)
    with pytest.raises(pl.InputError, match=r"not saved are shared.*got another shift in number 1"):
        pl.from_models(models)
    with pytest.raises(CheckpointError, match="frozen tensors are shared"):
        pl.from_models([frozen_trunk(), frozen_trunk().requires_grad_(False).apply(_shift)])


@torch.no_grad()
def _shift(layer):
    for parameter in layer.parameters(recurse=False):
        parameter.add_(1)


def test_a_saved_temperature_of_zero_is_refused(tmp_path):
    ensemble = pl.convert(mlp(), MIMO(inputs=2))
    ensemble.members.index.temperature.zero_()
    ensemble.save(tmp_path / "run")
    with pytest.raises(pl.CheckpointError, match="run"):
        pl.load(tmp_path / "run", mlp())


def test_a_file_of_the_first_version_is_not_calibrated(tmp_path):
    pl.convert(mlp(), Single()).save(tmp_path / "run")
    settings = json.loads((tmp_path / "run" / "ensemble.json").read_text())
    del settings["calibration"]
    (tmp_path / "run" / "ensemble.json").write_text(json.dumps({**settings, "version": 1}))
    assert pl.load(tmp_path / "run", mlp()).calibration is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"score": "variance"}, "calibration.score must suit Categorical"),
        ({"temperature": -1}, "calibration.temperature must be above 0"),
        (None, "must have a calibration for its tensors"),
    ],
)
def test_a_damaged_calibration_is_refused(change, message, tmp_path):
    one = pl.convert(mlp().double(), Single())
    one.calibrate((torch.randn(40, 6).double(), torch.arange(40) % 3))
    one.save(tmp_path / "run")
    file = tmp_path / "run" / "ensemble.json"
    settings = json.loads(file.read_text())
    kept = settings["calibration"] | {"score": "entropy"}
    settings["calibration"] = None if change is None else kept | change
    file.write_text(json.dumps(settings))
    weights = load_file(tmp_path / "run" / "weights.safetensors")
    for name in ("calibration.means", "calibration.whitening"):
        weights.pop(name, None)
    save_file(weights, tmp_path / "run" / "weights.safetensors")
    # The hash belongs to the weights before.
    file.write_text(json.dumps({name: value for name, value in settings.items() if name != "sha256"}))
    with pytest.raises(CheckpointError, match=message):
        pl.load(tmp_path / "run", mlp())


def test_load_weights_fills_a_copy(tmp_path):
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    torch.save({f"module.{name}": value for name, value in other.state_dict().items()}, tmp_path / "w.pt")
    before = model.weight.clone()
    found = load_weights(model, tmp_path / "w.pt")
    assert torch.equal(found.weight, other.weight)
    assert torch.equal(model.weight, before)
    with pytest.raises(pl.CheckpointError, match="must fit the network"):
        load_weights(nn.Linear(4, 2), tmp_path / "w.pt")
