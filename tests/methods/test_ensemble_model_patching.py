"""EMP and ECMP: counts, one option at a time, unbiased gradients, the prior and training."""

import itertools
import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.backbones import pyramidnet, resnet18
from pluribus.errors import ConversionError, InputError, SettingError
from pluribus.mechanisms.members import mixed
from pluribus.mechanisms.members.tree import named_tensors
from pluribus.methods import ECMP, EMP, DeepEnsembles
from pluribus.methods.ensemble_model_patching import divergence, patch_overhead, perturb, squared_norm
from tests import zoo
from tests.cases import case_named, seeded

X = torch.randn(10, 6, dtype=torch.float64, generator=seeded(0))
Y = torch.arange(10) % 3
BOTH = pytest.mark.parametrize("method", [EMP, ECMP])


def network():
    torch.manual_seed(0)
    return zoo.batch_norm_mlp().double()


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


RESNET, PYRAMIDNET = (
    partial(resnet18, classes=1000, stem="imagenet"),
    partial(pyramidnet, 110, 270, classes=100),
)


def empty(build):
    """A network whose weights nobody looks at."""
    with torch.device("meta"):
        model = build()
    return model.to_empty(device="cpu").eval()


@BOTH
@pytest.mark.parametrize(
    ("build", "where", "single", "patched", "overhead"),
    [
        (RESNET, ("norm", "output"), 11_689_512, 13_779_912, 0.179),
        (RESNET, "norm", 11_689_512, 11_727_912, 0.00328),
        # 272 layers take a quarter of a minute.
        pytest.param(
            *(PYRAMIDNET, ("norm", "output"), 28_511_307, 28_825_299, 0.0110), marks=pytest.mark.slow
        ),
        pytest.param(*(PYRAMIDNET, "norm", 28_511_307, 28_710_499, 0.0070), marks=pytest.mark.slow),
    ],
)
@pytest.mark.sampled(2)
def test_patched_networks_have_the_parameters_of_tables_1_and_3(
    method, build, where, single, patched, overhead
):
    model, x = empty(build), torch.zeros(2, 3, 8, 8)
    ensemble = pl.convert(model, method(5, where, perturbation=0.0, draws=1), example=x)
    alone, all_options = pl.cost(model, x), pl.cost(ensemble, x)
    assert (alone.parameters, all_options.parameters) == (single, patched)
    assert all_options.ratio_to(alone)["parameters"] - 1 == pytest.approx(overhead, rel=0.005)
    norms = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    output = count(model.fc) * ("output" in where)
    formula = patch_overhead(5, channels=sum(layer.num_features for layer in norms), weights=output)
    assert patched - single == formula


@pytest.mark.parametrize(("build", "parameters"), [(RESNET, 58_447_560), (PYRAMIDNET, 142_556_535)])
def test_explicit_ensembles_have_five_times_the_parameters(build, parameters):
    ensemble = pl.convert(empty(build), DeepEnsembles(5, start="copy"), example=torch.zeros(2, 3, 8, 8))
    assert count(ensemble) == parameters


def test_the_mlp_of_table_3_is_a_closed_form():
    """100 layers of 100: biases but for the last layer and no norms, and the overhead of norms and output."""
    depth, width = 100, 100
    single = depth * width**2 + (depth - 1) * width
    assert single == 1_009_900
    assert single + patch_overhead(5, channels=(depth - 1) * width, weights=width**2) == 1_129_100
    assert single + patch_overhead(5, channels=(depth - 1) * width) == 1_089_100
    assert 5 * single == 5_049_500


@BOTH
def test_patched_ends_have_the_overhead_of_section_3_3(method):
    """(K − 1) ((I_1 + 1) O_1 + (I_L + 1) O_L) of linear layers, (K − 1) k² I O of each convolution."""
    linear = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.Linear(4, 3))
    ensemble = pl.convert(linear, method(5, ("input", "output")))
    assert count(ensemble) - count(linear) == 4 * ((6 + 1) * 5 + (4 + 1) * 3)
    sizes = [(1, 4, 5), (4, 4, 3), (4, 2, 3)]  # channels in and out, side of the kernel
    layers = nn.Sequential(*(nn.Conv2d(i, o, k, padding=k // 2, bias=False) for i, o, k in sizes))
    ensemble = pl.convert(layers, method(5, ("input", "output")), example=torch.zeros(2, 1, 8, 8))
    assert count(ensemble) - count(layers) == 4 * (25 * 1 * 4 + 9 * 4 * 2)


def test_emp_takes_one_option_for_weight_and_bias_together():
    ensemble = pl.convert(network(), EMP(3, perturbation=0.5)).eval()
    own = named_tensors(ensemble.members.tensors.own)
    assert ensemble.sites == ("1", "3")
    x = nn.functional.linear(
        X, *(named_tensors(ensemble.members.tensors.shared)[f"0.{n}"] for n in ("weight", "bias"))
    )
    for first, second in itertools.product(range(3), repeat=2):
        h = x / math.sqrt(1 + 1e-5) * own["1.weight"][first] + own["1.bias"][first]
        y = nn.functional.linear(h.relu(), own["3.weight"][second], own["3.bias"][second])
        assert_close(ensemble(X, members=[(first, second)])[0], y)


def test_ecmp_takes_one_option_for_every_number():
    ensemble = pl.convert(network(), ECMP(4, draws=500, perturbation=0.5)).eval()
    own = named_tensors(ensemble.members.tensors.own)["3.weight"]
    taken = torch.stack(
        [row["3.weight"] for row in ensemble.members.tensors.of(ensemble.members.index.rows(training=False))]
    )
    options = (taken.unsqueeze(1) == own).double()
    assert_close(options.sum(1), torch.ones_like(taken))  # each is one of the four
    spread = (options.mean(0) - 0.25).abs() / math.sqrt(0.25 * 0.75 / 500)
    assert spread.max() < 4.5
    same = (options[:, :, 0, 0] * options[:, :, 0, 1]).sum(1).mean()
    assert same == pytest.approx(0.25, abs=0.08)  # neighbours choose independently


@BOTH
def test_equal_options_compute_the_network(method):
    model = network().eval()
    ensemble = pl.convert(model, method(5, perturbation=0.0, draws=4)).eval()
    for row in ensemble(X):
        assert_close(row, model(X))
    assert any("start alike" in note for note in ensemble.conversion.notes)


@BOTH
def test_one_option_is_the_network(method):
    model = network()
    ensemble = pl.convert(model, method(1, perturbation=0.0, draws=3))
    assert count(ensemble) == count(model)
    for row in ensemble.eval()(X):
        assert_close(row, model.eval()(X))


def gradients(loss, parameters):
    return [
        g.clone() for g in torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    ]


def expected_gradients(ensemble, x, chances, draw):
    """The average of the gradients of one draw; `draw` makes the next training step draw a given one."""
    average = [torch.zeros_like(p) for p in ensemble.parameters()]
    for chosen, chance in chances.items():
        draw(chosen)
        for total, g in zip(
            average, gradients(ensemble.loss(x, Y), list(ensemble.parameters())), strict=True
        ):
            total += chance * g
    return average


def test_gradients_of_one_draw_of_emp_are_unbiased(monkeypatch):
    """Theorem 2: their average over all assignments is the gradient of the expected loss, by hand."""
    p = (0.5, 0.3, 0.2)
    method = EMP(3, probabilities=p, perturbation=0.5, decay=0.0, per_sample=False)
    ensemble = pl.convert(network(), method).train()
    chances = {row: math.prod(p[k] for k in row) for row in itertools.product(range(3), repeat=2)}
    drawn = ensemble.members.index.draw(20_000, training=False)
    for row, chance in chances.items():
        assert drawn.count(row) / 20_000 == pytest.approx(chance, abs=0.02)
    own, shared = named_tensors(ensemble.members.tensors.own), named_tensors(ensemble.members.tensors.shared)
    h = nn.functional.linear(X, shared["0.weight"], shared["0.bias"])
    h = (h - h.mean(0)) / (h.var(0, correction=0) + 1e-5).sqrt()
    losses = [
        chance
        * nn.functional.cross_entropy(
            (h * own["1.weight"][i] + own["1.bias"][i]).relu() @ own["3.weight"][k].T + own["3.bias"][k], Y
        )
        for (i, k), chance in chances.items()
    ]
    exact = gradients(sum(losses), list(ensemble.parameters()))

    def draw(row):
        monkeypatch.setattr(ensemble.members.index, "draw", lambda count, training: [row] * count)

    assert_close(expected_gradients(ensemble, X, chances, draw), exact)


def test_gradients_of_one_draw_of_ecmp_are_unbiased(monkeypatch):
    """The same, all assignments of the elements of a tiny layer enumerated."""
    p, x = (0.7, 0.3), X[:, :1]
    method = ECMP(2, probabilities=p, perturbation=0.5, decay=0.0, per_sample=False)
    ensemble = pl.convert(nn.Linear(1, 3).double(), method, example=x).train()
    chances = {z: math.prod(p[k] for k in z) for z in itertools.product(range(2), repeat=6)}
    own, found = named_tensors(ensemble.members.tensors.own), []
    for z, chance in chances.items():
        weight = torch.stack([own["weight"][k, i] for i, k in enumerate(z[:3])])
        bias = torch.stack([own["bias"][k, i] for i, k in enumerate(z[3:])])
        found.append(chance * nn.functional.cross_entropy(x @ weight.T + bias, Y))
    exact = gradients(sum(found), list(ensemble.parameters()))

    def draw(z):
        values = iter([torch.tensor(z[:3]).view(3, 1), torch.tensor(z[3:])])
        monkeypatch.setattr(mixed, "draw_assignment", lambda *given: next(values))

    assert_close(expected_gradients(ensemble, x, chances, draw), exact)


def test_the_divergence_is_equation_6():
    ensemble = pl.convert(network(), EMP(2, probabilities=(0.25, 0.75), objective="kl", perturbation=0.3))
    method = EMP(2, probabilities=(0.25, 0.75), objective="kl", weight_precision=3.0, bias_precision=5.0)
    own, shared = (
        dict(tree.named_parameters())
        for tree in (ensemble.members.tensors.own, ensemble.members.tensors.shared)
    )
    p = torch.tensor([0.25, 0.75]).double()
    expected = 3 / 2 * shared["0.weight"].square().sum() + 5 / 2 * shared["0.bias"].square().sum()
    for name, precision in (("1.weight", 3), ("1.bias", 5), ("3.weight", 3), ("3.bias", 5)):
        expected = expected + precision / 2 * (p * own[name].square().flatten(1).sum(1)).sum()
    assert_close(method.penalty(ensemble.members, 10, 200, 0.5), expected / 200)
    mixing = dict.fromkeys(own, (0.25, 0.75))
    assert_close(divergence(own | shared, mixing, 3.0, 5.0), expected)


@pytest.mark.parametrize("apart", [0.0, 1.0, 3.0, 30.0])
def test_the_entropy_of_a_mixture_is_between_that_of_its_options_and_as_much_more_as_the_choice_has(apart):
    """Eq. (7) prints it the other way round; with options far apart, as (6) takes it, it is the upper end."""
    p, scales = torch.tensor([0.3, 0.7]).double(), torch.tensor([1.0, 0.5]).double()
    options = torch.distributions.Normal(torch.tensor([0.0, apart]).double(), scales)
    x = torch.linspace(-10, 10 + apart, 200_001, dtype=torch.float64)
    density = (p * options.log_prob(x.unsqueeze(1)).exp()).sum(1)
    entropy = -torch.trapezoid(torch.xlogy(density, density), x)
    least, choice = (p * options.entropy()).sum(), -(p * p.log()).sum()
    assert_close(
        (p / 2 * scales.square().log()).sum() + (1 + math.log(2 * math.pi)) / 2, least
    )  # D/2, not KD/2
    assert least < entropy + 1e-9
    assert entropy < least + choice + 1e-9
    if apart == 30:
        assert_close(entropy, least + choice)


def test_the_prior_is_on_what_is_learnt_and_tied_weights_count_once():
    model = zoo.tied_embedding().double()
    model[1].requires_grad_(False)
    squares = model[0].weight.square().sum() + model[4].bias.square().sum()
    for objective, expected in (("kl", squares / 2 / 50), ("decay", 2 * squares / 10)):
        method = EMP(2, "4", objective=objective, decay=1.0, perturbation=0.0)
        assert_close(method.penalty(pl.convert(model, method).members, 10, 50, 0.0), expected)


def test_biases_of_every_layer_have_the_precision_of_biases():
    attention = nn.MultiheadAttention(4, 1, add_bias_kv=True)
    biased = nn.utils.parametrize.register_parametrization(nn.Linear(3, 2), "bias", nn.Tanh())
    for layer in (attention, biased, nn.GRU(3, 2)):
        learnt = dict(layer.named_parameters())
        expected = sum(p.square().sum() for name, p in learnt.items() if "bias" in name) / 2
        assert_close(divergence(learnt, {}, tau=0.0, rho=1.0), expected)


class Scaled(nn.Module):
    """A network with a parameter that is a single number without an axis."""

    def __init__(self):
        super().__init__()
        self.layer, self.scale = nn.Linear(6, 3), nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return self.layer(x) * self.scale


@BOTH
def test_a_single_number_may_be_patched_or_shared(method):
    settings = {"probabilities": (0.25, 0.75), "objective": "kl", "weight_precision": 3.0}
    both = pl.convert(Scaled().double(), method(2, "*", **settings, perturbation=0.5))
    own = both.members.tensors.own.get_parameter("scale")
    assert len(both.loss(X, Y).shape) == 0
    assert len(own.unique()) == 2
    assert_close(
        divergence({"scale": own}, {"scale": (0.25, 0.75)}, 3.0, 1.0),
        1.5 * (0.25 * own[0] ** 2 + 0.75 * own[1] ** 2),
    )
    shared = pl.convert(Scaled().double(), method(2, "layer", **settings))
    assert_close(
        divergence({"scale": shared.members.tensors.shared.get_parameter("scale")}, {}, 3.0, 1.0),
        torch.tensor(6.0).double(),
    )


@BOTH
@pytest.mark.parametrize("objective", ["decay", "kl"])
def test_the_loss_is_the_mean_of_the_draws_and_the_prior(method, objective):
    settings = {"train_draws": 2, "perturbation": 0.3, "objective": objective, "decay": 0.5}
    ensemble = pl.convert(network(), method(3, **settings)).train()
    torch.manual_seed(3)
    losses = pl.Categorical().losses(ensemble(X), Y)
    torch.manual_seed(3)
    added = ensemble.loss(X, Y, dataset_size=70) - losses.mean()
    learnt = dict(ensemble.named_parameters())
    if objective == "decay":
        expected = 0.5 / 10 * sum(p.square().sum() for p in learnt.values())
        assert_close(squared_norm(learnt) * 0.05, expected)
    else:
        shares = {n: 1 / 3 if ".own." in n else 1.0 for n in learnt}
        expected = sum(shares[n] * p.square().sum() for n, p in learnt.items()) / 2 / 70
    assert_close(added, expected)


def test_equation_9_holds_for_several_targets_if_samples_counts_them_all():
    method = EMP(2, probabilities=(0.25, 0.75), objective="kl", perturbation=0.3)
    ensemble = pl.convert(network(), method, pl.Gaussian(precision=0.1)).eval()
    y = torch.randn(10, 3, generator=seeded(1)).double()
    errors = [(y - ensemble(X, members=[row])[0]).square().sum() for row in itertools.product((0, 1), (0, 1))]
    shares = torch.tensor([p * q for p in (0.25, 0.75) for q in (0.25, 0.75)]).double()
    likelihood = 0.1 / 2 * (shares * torch.stack(errors)).sum() - 30 / 2 * math.log(0.1 / (2 * math.pi))
    nats = 300 * method.penalty(ensemble.members, 10, 300, 0.0)
    assert_close(30 * ensemble.loss(X, y, dataset_size=30), likelihood + nats)


def test_draws_of_a_step_may_divide_the_batch():
    model = nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 3)).double()
    ensemble = pl.convert(model, EMP(3, train_draws=5, divide=True, decay=0.0, perturbation=0.5)).train()
    torch.manual_seed(0)
    loss = ensemble.loss(X, Y)
    torch.manual_seed(0)
    rows, parts = ensemble.members.index.rows(training=True), ensemble.method.assign(10, range(5), 0.0)
    each = [
        nn.functional.cross_entropy(ensemble(X[p], members=[r])[0], Y[p])
        for r, p in zip(rows, parts, strict=True)
    ]
    assert sorted(torch.cat(parts).tolist()) == list(range(10))
    assert_close(loss, torch.stack(each).mean())


@BOTH
def test_each_sample_of_a_step_may_have_a_draw_of_its_own(method):
    settings = {"perturbation": 0.5, "per_sample": True, "decay": 0.0, "train_draws": 2}
    ensemble = pl.convert(network(), method(3, **settings)).train()
    torch.manual_seed(3)
    drawn = ensemble.members.tensors.mixed([None, None], [10, 10])
    own = {name: tensor.as_subclass(torch.Tensor) for name, tensor in drawn.items()}
    assert len(own["1.weight"].unique(dim=0)) > 1
    h = nn.functional.linear(torch.cat([X, X]), own["0.weight"], own["0.bias"])
    h = (h - h.mean(0)) / (h.var(0, correction=0) + 1e-5).sqrt() * own["1.weight"] + own["1.bias"]
    y = torch.einsum("ni,noi->no", h.relu(), own["3.weight"]) + own["3.bias"]
    torch.manual_seed(3)
    assert_close(ensemble(X), y.view(2, 10, 3))
    torch.manual_seed(3)
    loss = ensemble.loss(X, Y)
    assert_close(loss, nn.functional.cross_entropy(y, Y.repeat(2)))
    loss.backward()
    assert all(p.grad.abs().sum() > 0 for p in ensemble.parameters())
    assert_close(ensemble(X, members=[0]), ensemble(X, members=[0]), rtol=0, atol=0)  # one draw for all
    assert len(ensemble.eval()(X)) == len(ensemble.weights)


def test_patches_that_cannot_differ_within_a_batch_are_refused_by_name():
    with pytest.raises(
        ConversionError, match="those of 0, which cannot: embedding takes one parameter for all samples"
    ):
        pl.convert(zoo.tied_embedding(), EMP(where=("*",), per_sample=True))


def test_each_sample_has_a_draw_of_its_own_where_the_network_allows_it():
    assert pl.convert(network(), EMP(3)).members.index.anonymous
    assert not pl.convert(network(), EMP(3, per_sample=False)).members.index.anonymous
    apart = pl.convert(zoo.tied_embedding(), EMP(where=("*",)))
    assert not apart.members.index.anonymous
    assert any("draws of training are for whole batches" in note for note in apart.conversion.notes)


def test_settings_of_the_first_version_draw_for_whole_batches():
    assert EMP.from_dict({"kind": "emp", "version": 1}) == EMP(per_sample=False)


def test_what_fails_with_a_draw_for_each_sample_is_told_as_ever():
    model = nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 3)).double()
    ensemble = pl.convert(model, EMP(2, per_sample=True), example=X).train()
    with pytest.raises(InputError, match=r"layer 0 \(LayerNorm\) failed.*check shapes"):
        ensemble.loss(X[:, :5], Y)


def test_another_seed_perturbs_and_draws_otherwise():
    one, other = (pl.convert(network(), EMP(5, draws=20), seed=seed).members for seed in (0, 1))
    assert not torch.equal(
        one.tensors.own.get_parameter("3.weight"), other.tensors.own.get_parameter("3.weight")
    )
    assert not torch.equal(one.index.kept, other.index.kept)


@BOTH
def test_only_the_patches_are_trained_if_asked(method):
    ensemble = pl.convert(network(), method(3, freeze_shared=True)).train()
    trained = {name for name, p in ensemble.named_parameters() if p.requires_grad}
    assert trained == {
        f"members.tensors.own.{layer}.{kind}" for layer in (1, 3) for kind in ("weight", "bias")
    }
    before = {name: p.detach().clone() for name, p in ensemble.named_parameters()}
    optimizer = torch.optim.SGD(ensemble.parameter_groups(lr=0.1))
    for _ in range(12):
        optimizer.zero_grad()
        ensemble.loss(X, Y).backward()
        optimizer.step()
    moved = {name for name, p in ensemble.named_parameters() if not torch.equal(p, before[name])}
    assert moved == trained


def test_statistics_are_shared_by_all_options():
    case = case_named("residual_cnn")
    ensemble = pl.convert(case.model(), EMP(3, train_draws=4)).train()
    assert not [name for name, _ in ensemble.members.tensors.own.named_buffers()]
    ensemble(case.inputs())
    assert ensemble.members.tensors.shared.get_buffer("1.num_batches_tracked") == 1


def test_options_start_a_share_of_the_deviation_apart():
    values = torch.randn(1, 400, 50, generator=seeded(0), dtype=torch.float64) * 7
    moved = perturb(values, 0.01, seeded(1)) - values
    assert moved.std().item() == pytest.approx(0.07, rel=0.03)
    ones = torch.ones(2, 20_000)
    assert (perturb(ones, 0.01, seeded(1)) - 1).std(1).tolist() == pytest.approx([0.01] * 2, rel=0.03)
    assert_close(perturb(values, 0.0, seeded(1)), values, rtol=0, atol=0)
    apart = perturb(torch.cat([values, 9 * values]), 0.01, seeded(1)) - torch.cat([values, 9 * values])
    assert apart.std((1, 2)).tolist() == pytest.approx([0.07, 0.63], rel=0.03)  # each option by its own


def test_fresh_options_are_initialised_anew():
    ensemble = pl.convert(network(), EMP(3, start="fresh", perturbation=0.0))
    weight = named_tensors(ensemble.members.tensors.own)["3.weight"]
    assert len({tuple(w.flatten().tolist()) for w in [*weight, network()[3].weight]}) == 4
    assert_close(
        named_tensors(ensemble.members.tensors.shared)["0.weight"], network()[0].weight, rtol=0, atol=0
    )


class Spectral(nn.Module):
    """Weights that are complex numbers, as networks of Fourier modes have."""

    def __init__(self):
        super().__init__()
        self.modes = nn.Parameter(torch.randn(4, dtype=torch.complex128, generator=seeded(0)))
        self.norm, self.head = nn.LayerNorm(6), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.norm(torch.fft.irfft(torch.fft.rfft(x) * self.modes, n=6)))


@BOTH
@pytest.mark.parametrize("where", ["norm", "*"])
@pytest.mark.parametrize("objective", ["decay", "kl"])
def test_complex_weights_are_perturbed_and_have_a_prior(method, where, objective):
    settings = {"objective": objective, "decay": 1.0, "perturbation": 0.5}
    ensemble = pl.convert(Spectral().double(), method(2, where, **settings), example=X).train()
    learnt = dict(ensemble.named_parameters())
    shares = {n: 0.5 if ".own." in n and objective == "kl" else 1.0 for n in learnt}
    squares = sum(shares[n] * (p * p.conj()).real.sum() for n, p in learnt.items())
    expected = squares / 10 if objective == "decay" else squares / 2 / 10
    assert_close(ensemble.method.penalty(ensemble.members, 10, 10, 0.0), expected)
    ensemble.loss(X, Y).backward()
    assert (
        learnt["members.tensors.own.modes" if where == "*" else "members.tensors.shared.modes"]
        .grad.abs()
        .sum()
        > 0
    )
    if where == "*":
        moved = named_tensors(ensemble.members.tensors.own)["modes"] - Spectral().modes
        assert (moved.real.abs() > 0).all()
        assert (moved.imag.abs() > 0).all()


def test_options_may_differ_from_layer_to_layer():
    ensemble = pl.convert(network(), EMP(4), overrides={"3": {"options": 2}})
    assert tuple(ensemble.members.tensors.sizes.values()) == (4, 2)
    assert ensemble.conversion["3"].became == "2 options"
    own = {"perturbation": 0.0, "probabilities": (0.9, 0.1)}
    tensors = pl.convert(network(), EMP(2), overrides={"3": own}).members.tensors
    assert_close(tensors.own.get_parameter("3.weight")[1], network()[3].weight, rtol=0, atol=0)
    assert not torch.equal(tensors.own.get_parameter("1.weight")[1], network()[1].weight)
    assert tensors.probabilities()["3.bias"] == (0.9, 0.1) != tensors.probabilities()["1.bias"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"options": 0}, "options must be at least 1"),
        (
            {"where": ()},
            "where must be of norm, input, output, name patterns, layer types and predicates, at",
        ),
        ({"where": (int,)}, "where must be of norm"),
        ({"where": nn.Linear(2, 2)}, "where must be of norm"),
        ({"where": ("norm", ("output",))}, "where must be of norm"),
        ({"perturbation": -0.1}, "perturbation must be at least 0"),
        ({"start": "cold"}, "start must be one of 'copy', 'fresh'"),
        ({"objective": "l2"}, "objective must be one of 'decay', 'kl'"),
        (
            {"options": 2, "probabilities": (0.5, 0.6)},
            "probabilities must be 2 numbers above 0 that sum to one",
        ),
        ({"options": 3, "probabilities": (0.5, 0.5)}, "probabilities must be 3 numbers"),
        ({"options": 2, "probabilities": (0.5, math.nan)}, "probabilities must be 2 numbers"),
        ({"options": 2, "probabilities": ()}, "probabilities must be 2 numbers"),
        ({"options": 2, "probabilities": ("1", "0")}, "probabilities must be 2 numbers"),
        ({"probabilities": 0.2}, "probabilities must be 5 numbers"),
        ({"where": 5}, "where must be of norm"),
        ({"divide": 1}, "divide must be True or False"),
        ({"divide": True, "per_sample": True}, "divide must be False where every sample has a draw"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, message):
    for method in (EMP, ECMP):
        with pytest.raises(SettingError, match=message):
            method(**settings)


def test_tied_layers_with_different_settings_are_refused():
    with pytest.raises(ConversionError, match=r"layers that hold 0\.weight must have the same settings"):
        pl.convert(zoo.tied_embedding(), EMP(where=("0", "4")), overrides={"0": {"options": 2}})


def test_settings_survive_a_file(tmp_path):
    method = EMP(2, probabilities=(0.25, 0.75), where=("norm", "output"), draws=3)
    ensemble = pl.convert(network(), method, seed=4).eval()
    ensemble.save(tmp_path / "run")
    loaded = pl.load(tmp_path / "run", network()).eval()
    assert loaded.method == method
    assert_close(loaded.weights, ensemble.weights, rtol=0, atol=0)
    assert_close(loaded(X), ensemble(X), rtol=0, atol=0)
