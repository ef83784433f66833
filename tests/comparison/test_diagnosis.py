"""doctor: every planted defect is found, and sound ensembles of every method have none."""

import copy
import math

import pytest
import torch
from torch import nn

import pluribus as pl
from pluribus import methods
from pluribus.backbones import cnn
from pluribus.comparison.diagnosis import doctor
from pluribus.data import Split, Task, digits, two_moons
from pluribus.training import Training, train

SOUND = [
    methods.Single(),
    methods.DeepEnsembles(members=3),
    methods.DeepEnsembles(members=2, prior_scale=0.5),
    methods.DeepSubEnsembles(members=3),
    methods.LayerEnsembles(options=2, draws=4, train_draws=2, prior_scale=0.5),
    methods.EMP(options=3, draws=4),
    methods.ECMP(options=3, draws=4),
    methods.SAE(inputs=1, exits=2),
    methods.EarlyExit(),
    methods.MIMO(inputs=2, input_repetition=0.5),
    methods.MIMMO(inputs=2),
    methods.PackedEnsembles(members=2, alpha=2.0, min_channels=8),
    methods.Masksembles(members=3, scale=1.5),
    methods.BatchEnsemble(members=3),
    methods.MCDropout(rate=0.1, draws=4),
    methods.DropConnect(rate=0.1, draws=4),
    methods.SWAG(members=4, start=0.1),
    methods.LoRAEnsembles(members=3, rank=4, freeze_shared=False, shuffle_members=True),
    methods.Laplace(draws=8),
    methods.BayesByBackprop(draws=8),
    methods.VNN(draws=8),
    methods.Hypermodel(draws=8),
]
# Draws of a hypermodel share their running statistics, which fit none of them, as is found.
NORMS = {"hypermodel": nn.LayerNorm}
# After 150 steps the last output of EarlyExit is worse than its first exit, and is found to hurt.
STEPS = {"early_exit": 400}


@pytest.fixture(scope="module")
def task():
    return two_moons(train=200)


@pytest.fixture(scope="module")
def numbers():
    """A function of three inputs with noise: a task of numbers with a model of noise."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(600, 3, generator=generator)
    y = torch.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:] + 0.2 * torch.randn(600, 1, generator=generator)
    parts = [Split(x[i : i + 200], y[i : i + 200]) for i in (0, 200, 400)]
    return Task("numbers", *parts, pl.likelihood.likelihood("gaussian"))


def ensemble(method, task, seed=0, norm=None) -> pl.Ensemble:
    torch.manual_seed(seed)
    x = task.train.x[:2]
    norm = norm or NORMS.get(method.kind(), nn.BatchNorm1d)
    layers = [nn.Linear(x.shape[1], 24), norm(24), nn.ReLU()]
    layers += [nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 2)]
    return pl.convert(nn.Sequential(*layers), method, task.likelihood, example=x, seed=seed)


def trained(method, task, seed=0, norm=None) -> pl.Ensemble:
    found = ensemble(method, task, seed, norm)
    steps = STEPS.get(method.kind(), 150)
    training = Training(steps=steps, batch=64, lr=1e-2, keep="last", check_every=1000, seed=seed)
    train(found, task, training, show=False)
    return found


def codes(ensemble, data, **options) -> list[str]:
    return [one.code for one in doctor(ensemble, data, **options)]


@pytest.fixture(scope="module")
def deep(task):
    return trained(methods.DeepEnsembles(members=3), task)


def planted(ensemble, change) -> pl.Ensemble:
    """A copy with changed tensors."""
    found = copy.deepcopy(ensemble)
    with torch.no_grad():
        change(found)
    return found


def every_method() -> set[str]:
    return {method.kind() for method in SOUND}


def test_every_method_has_a_sound_ensemble_here():
    assert every_method() == {
        name for name, one in pl.Method.known().items() if one.__module__.startswith("pluribus.")
    }


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("method", SOUND, ids=str)
@pytest.mark.sampled(6)
def test_doctor_is_silent_on_sound_ensembles(method, seed, task):
    assert doctor(trained(method, task, seed), task) == []


@pytest.mark.parametrize("method", SOUND, ids=str)
@pytest.mark.sampled(4)
def test_doctor_is_silent_on_sound_ensembles_that_predict_numbers(method, numbers):
    assert doctor(trained(method, numbers), numbers) == []


def test_members_that_are_one_are_found(deep, task):
    def collapse(found):
        for parameter in found.members.tensors.own.parameters():
            parameter[:] = parameter[:1].clone()
        for buffer in found.members.tensors.own.buffers():
            buffer[:] = buffer[:1].clone()

    assert codes(planted(deep, collapse), task) == ["collapsed"]


def test_draws_that_hardly_differ_are_found_with_a_remedy_for_their_method(task):
    # They are 0.4 % of what samples differ by; more scale is one of the remedies.
    found = doctor(trained(methods.SWAG(members=4), task), task)
    assert [one.code for one in found] == ["collapsed"]
    assert "a larger scale" in found[0].remedy
    assert doctor(trained(methods.SWAG(members=4, scale=1000.0), task), task) == []


@pytest.mark.parametrize(
    ("method", "remedy"),
    [
        (methods.DeepEnsembles(members=2, start="copy"), "Tune for more epochs or with a larger lr."),
        (methods.LoRAEnsembles(members=2, shuffle_members=True), "or with a larger lr."),
        (methods.LoRAEnsembles(members=2), "with shuffle_members=True, so that"),
        (methods.DeepEnsembles(members=2, start="copy", shuffle_members=False), "shuffle_members=True"),
        (methods.EMP(options=2, perturbation=0.0), "a larger perturbation"),
    ],
    ids=str,
)
def test_the_remedy_for_copies_does_not_discard_the_network(method, remedy, task):
    network = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    found = doctor(pl.convert(network, method, example=task.train.x[:2]), task)
    remedies = [one.remedy for one in found if one.code == "collapsed"]
    assert len(remedies) == 1
    assert remedy in remedies[0]
    assert ("fresh" in remedies[0]) == isinstance(method, methods.EMP)


@pytest.mark.parametrize(("noise", "expected"), [(1e-4, []), (1.0, ["collapsed"])])
def test_a_small_spread_counts_where_noise_is_small_too(noise, expected):
    # Members differ by half a percent of what samples differ by.
    torch.manual_seed(0)
    line = nn.Linear(1, 2)
    found = pl.convert(line, methods.DeepEnsembles(members=2, start="copy"), "gaussian")
    x = torch.randn(200, 1)
    with torch.no_grad():
        tensors = found.members.tensors.own
        tensors.weight[:] = torch.tensor([[[1.0], [0.0]], [[1.007], [0.0]]])
        tensors.bias[:] = torch.tensor([0.0, math.log(math.expm1(noise))])
    assert codes(found, (x, x + noise**0.5 * torch.randn(200, 1))) == expected


def test_a_broken_member_is_found(deep, task):
    def spoil(found):
        for parameter in found.members.tensors.own.parameters():
            parameter[1] = -3 * parameter[1]

    found = doctor(planted(deep, spoil), task)
    assert [one.code for one in found] == ["broken_member"]
    assert "member 1 has a loss" in found[0].message


def test_statistics_that_do_not_fit_are_found(deep, task):
    def reset(found):
        for name, buffer in found.named_buffers():
            if "running_mean" in name:
                buffer.add_(50.0)

    assert "statistics" in codes(planted(deep, reset), task)


SHARED_STATISTICS = [
    methods.LayerEnsembles(options=3, draws=8, train_draws=3, statistics="shared"),
    methods.Hypermodel(draws=8),
]


@pytest.mark.parametrize("method", SHARED_STATISTICS, ids=lambda method: method.kind())
def test_statistics_that_members_share_and_that_fit_none_are_found(method, task):
    assert codes(trained(method, task, norm=nn.BatchNorm1d), task) == ["statistics"]


def test_an_exit_that_hurts_is_found(task):
    early = trained(methods.EarlyExit(), task)

    def spoil(found):
        names = [name for name, _ in found.named_parameters() if "head" in name]
        for name, parameter in found.named_parameters():
            if name in names[:2]:
                parameter.mul_(-20)

    assert "hurting_exit" in codes(planted(early, spoil), task)


def test_an_exit_that_nobody_uses_is_found(task):
    sae = trained(methods.SAE(inputs=1, exits=2), task)

    def ignore(found):
        found.members.index.logits[0] = torch.tensor([9.0, *[0.0] * (found.members.index.depths - 1)])

    assert "unused_exit" in codes(planted(sae, ignore), task)


def test_an_exit_of_little_weight_is_found(task):
    sae = trained(methods.SAE(inputs=1, exits=2), task)

    def neglect(found):
        found.members.index.logits[0] = torch.tensor([3.0, *[0.0] * (found.members.index.depths - 1)])

    found = doctor(planted(sae, neglect), task)
    assert [one.code for one in found] == ["unused_exit"]
    assert "has a weight of" in found[0].message


def test_dropout_that_is_off_is_found(task):
    assert codes(trained(methods.MCDropout(rate=0.0, draws=3), task), task) == ["dropout_off"]


def test_inert_priors_are_found(task):
    prior = methods.DeepEnsembles(members=2, prior_scale=0.5, settle_prior=False)
    assert codes(trained(prior, task), task) == ["inert_prior"]


def test_members_that_trained_with_a_part_of_their_gradients_are_found(task):
    found = doctor(trained(methods.DeepEnsembles(members=4, reduction="mean"), task), task)
    assert [one.code for one in found] == ["divided_gradient"]
    assert "1/4 of its gradient" in found[0].message


def test_weights_that_are_not_finite_are_found(deep, task):
    def spoil(found):
        next(found.parameters()).view(-1)[0] = float("nan")

    found = doctor(planted(deep, spoil), task)
    assert [one.code for one in found] == ["not_finite"]
    assert "NaN" in found[0].message


def test_confidence_far_from_accuracy_is_found(deep, task):
    y = task.validation.y.clone()
    wrong = torch.rand(len(y), generator=torch.Generator().manual_seed(0)) < 0.4
    y[wrong] = 1 - y[wrong]
    assert "confidence" in codes(deep, (task.validation.x, y))


def test_training_that_is_still_improving_is_found(deep, task):
    falling = [{"epoch": epoch, "validation_nll": 1 / epoch} for epoch in range(1, 41)]
    assert codes(deep, task, history=falling) == ["still_improving"]
    early = [*falling, *({"epoch": epoch, "validation_nll": 0.5} for epoch in range(41, 51))]
    assert codes(deep, task, history=early) == []


@pytest.mark.parametrize("check_every", [1, 1000])
def test_scores_of_the_end_of_training_alone_are_no_improvement(check_every, task):
    """SWAG has members in the last quarter of training only, and they improve with every snapshot."""
    found = ensemble(methods.SWAG(members=4), task)
    settings = Training(steps=150, batch=64, lr=1e-2, keep="last", check_every=check_every)
    history = train(found, task, settings, show=False)
    assert "still_improving" not in codes(found, task, history=history)


MISTAKES = {
    "too few steps": (methods.Single(), 150, "still_improving"),
    "too few steps for narrow members": (methods.PackedEnsembles(), 150, "still_improving"),
    "statistics that fit no member": (
        methods.LayerEnsembles(options=3, draws=8, train_draws=3, statistics="shared"),
        350,
        "statistics",
    ),
    "priors that are inert": (
        methods.DeepEnsembles(members=2, prior_scale=1.0, settle_prior=False),
        150,
        "inert_prior",
    ),
    "a mean in place of a sum": (methods.DeepEnsembles(members=2, reduction="mean"), 150, "divided_gradient"),
    "a temperature at which exits vanish": (
        methods.SAE(inputs=2, exits=2, temperature=(1.0, 0.01), draw_from="logits"),
        350,
        "unused_exit",
    ),
    "options that start 1 % apart": (methods.EMP(draws=8, perturbation=0.01), 350, "collapsed"),
    "weak exits that count like strong ones": (methods.EarlyExit(fit_weights=False), 350, "hurting_exit"),
}
"""Settings that made ensembles of the demo worse than one network, with the steps and the finding."""


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_that_made_the_demo_worse_than_one_network_are_found(name):
    method, steps, code = MISTAKES[name]
    images = digits(train=300, validation=400)
    torch.manual_seed(0)
    found = pl.convert(cnn(), method, example=images.train.x[:2])
    history = train(found, images, Training(steps=steps, check_every=1), show=False)
    assert code in codes(found, images, history=history)


def test_doctor_changes_nothing(deep, task):
    before = {name: value.clone() for name, value in deep.state_dict().items()}
    deep.train()
    doctor(deep, task)
    assert deep.training
    deep.eval()
    torch.testing.assert_close(dict(deep.state_dict()), before, rtol=0, atol=0)


def test_data_may_be_a_loader_of_pairs(deep, task):
    loader = torch.utils.data.DataLoader(task.validation, batch_size=50)
    assert codes(deep, loader) == codes(deep, task.validation) == []


@pytest.mark.parametrize(
    "data", [(torch.zeros(3, 2),), [torch.zeros(3, 2)] * 3, (torch.zeros(1, 2), torch.zeros(1))]
)
def test_data_without_targets_are_refused(deep, data):
    with pytest.raises(pl.InputError, match="data must"):
        doctor(deep, data)


@pytest.mark.parametrize("likelihood", ["point", "gaussian"])
def test_numbers_are_examined_too(likelihood):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 3, generator=generator)
    y = x.sum(1, keepdim=True) + 0.1 * torch.randn(300, 1, generator=generator)
    parts = [Split(x[i : i + 100], y[i : i + 100]) for i in (0, 100, 200)]
    task = Task("sums", *parts, pl.likelihood.likelihood(likelihood))
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, task.outputs))
    found = pl.convert(network, methods.DeepEnsembles(members=3), likelihood)
    train(found, task, Training(steps=200, batch=50, lr=1e-2), show=False)
    assert codes(found, task) == []

    def spoil(one):
        for parameter in one.members.tensors.own.parameters():
            parameter[2] = 5 * parameter[2]

    assert "broken_member" in codes(planted(found, spoil), task)
