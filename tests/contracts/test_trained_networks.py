"""Trained networks: converted, they predict as each method promises."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import pluribus as pl
from pluribus import methods
from pluribus.comparison.diagnosis import doctor
from pluribus.conversion_record import ON_TRAINED
from pluribus.data.split import Split
from pluribus.data.task import Task

METHODS = [getattr(methods, name)() for name in methods.__all__]
CLASSES = 4


def blobs(count, seed):
    """Return points around one centre for each class, which overlap a little."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(count) % CLASSES
    centres = 1.5 * torch.randn(CLASSES, 6, generator=torch.Generator().manual_seed(9))
    return centres[y] + torch.randn(count, 6, generator=generator), y


def network():
    def block(width):
        return nn.Sequential(nn.Linear(width, 24), nn.BatchNorm1d(24), nn.ReLU())

    return nn.Sequential(block(6), block(24), nn.Dropout(0.1), nn.Linear(24, CLASSES))


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    model, (x, y) = network(), blobs(600, 0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    return model.eval()


def made(method, trained):
    x, _ = blobs(64, 1)
    ensemble = pl.convert(copy.deepcopy(trained), method, example=x, seed=3)
    ensemble.after_step(1.0)  # SWAG looks at the weights as they are
    ensemble.finish([blobs(600, 0)[0]])
    return ensemble.eval()


WARM = [method.for_trained() for method in METHODS if method.for_trained() != method]


@pytest.mark.parametrize("method", [*METHODS, *WARM], ids=lambda method: method.kind())
@pytest.mark.sampled(2)
def test_a_trained_network_becomes_what_the_method_promises(method, trained):
    x, y = blobs(400, 2)
    ensemble = made(method, trained)
    promise = ensemble.conversion.on_trained
    assert ON_TRAINED[promise] in str(ensemble.conversion)
    # On a network without dropout MCDropout keeps less than it can.
    assert promise in (method.on_trained, "retrain")
    with torch.no_grad():
        alone = trained(x).softmax(1)
    members = ensemble.predict(x).member_probabilities
    if promise == "kept":
        assert (members - alone).abs().max() < 1e-4
    if promise == "approximate":
        pooled = ensemble.predict(x)
        agree = (pooled.labels == alone.argmax(1)).float().mean()
        assert agree > 0.95
        nll = -pooled.probabilities[torch.arange(len(y)), y].log().mean()
        assert nll < cross_entropy(alone.log(), y) + 0.05
    found = [one.code for one in doctor(ensemble, (x, y))]
    assert ("untrained" in found) == (promise == "retrain")


def test_dropout_that_a_network_never_learnt_to_bear_is_no_promise():
    plain = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, CLASSES))
    own = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.Linear(8, CLASSES))
    x = blobs(8, 0)[0]
    assert pl.convert(plain, methods.MCDropout(), example=x).conversion.on_trained == "retrain"
    assert pl.convert(plain, methods.MCDropout(rate=0.0), example=x).conversion.on_trained == "kept"
    assert pl.convert(own, methods.MCDropout(), example=x).conversion.on_trained == "approximate"
    assert methods.DropConnect().on_trained == "retrain"


ALIKE = [
    methods.DeepEnsembles(members=3, start="copy"),
    methods.DeepSubEnsembles(members=3, start="copy"),
    methods.LayerEnsembles(options=2, draws=4, start="copy", prior_scale=0.0),
    methods.EMP(options=3, draws=9, perturbation=0.0),
    methods.ECMP(options=3, draws=9, perturbation=0.0),
    methods.BatchEnsemble(members=3, std=0.0),
    methods.LoRAEnsembles(members=3),
    methods.LoRAEnsembles(members=3, repeat=False),
    methods.Hypermodel(draws=3, deviation=0.0),
]


@pytest.mark.parametrize("method", ALIKE, ids=str)
def test_members_that_start_alike_are_told_apart_by_training(method, trained):
    assert method.on_trained == "kept"
    x, y = blobs(300, 0)
    task = Task("blobs", Split(x, y), Split(x[:0], y[:0]), Split(*blobs(100, 2)), classes=CLASSES)
    ensemble = pl.convert(copy.deepcopy(trained), method, example=x[:4], seed=3)
    with torch.no_grad():
        before = ensemble.eval()(task.test.x)
    assert before.std(0).max() < 1e-5
    pl.train(ensemble, task, pl.Training(epochs=1, lr=3e-3), show=False)
    with torch.no_grad():
        after = ensemble.eval()(task.test.x)
    assert after.std(0).mean() > 1e-2


@pytest.mark.parametrize(
    "method",
    [
        methods.DeepEnsembles(members=2, start="copy", shuffle_members=False),
        methods.BatchEnsemble(members=2, std=0.0, repeat=True),
    ],
    ids=str,
)
def test_members_that_would_stay_alike_are_noted(method, trained):
    ensemble = pl.convert(copy.deepcopy(trained), method, example=blobs(4, 0)[0])
    assert any(note.startswith("members start alike") for note in ensemble.conversion.notes)


def test_a_rate_that_own_dropout_leaves_unused_is_noted(trained):
    note = "rate=0.5 is not used: the network's own dropout keeps its rate, 0.1"
    x = blobs(4, 0)[0]
    found = pl.convert(copy.deepcopy(trained), methods.MCDropout(rate=0.5), example=x).conversion.notes
    assert any(one.startswith(note) for one in found)
    for used in (methods.MCDropout(), methods.MCDropout(rate=0.5, insert=True)):
        notes = pl.convert(copy.deepcopy(trained), used, example=x).conversion.notes
        assert not any("is not used" in one for one in notes)


def test_patches_of_trained_norms_start_further_apart(trained):
    def spread(model):
        ensemble = pl.convert(model, methods.EMP(), example=blobs(4, 0)[0])
        weights = ensemble.members.tensors.own.get_parameter("3.weight")
        return (weights.std(0).mean() / weights[0].std()).item(), str(ensemble.conversion)

    torch.manual_seed(0)
    far, told = spread(copy.deepcopy(trained))
    near, untold = spread(network())
    assert far > 10 * near
    assert "options start 0.3 deviations apart" in told
    assert "apart" not in untold


def test_patches_of_many_trained_norms_share_the_distance():
    layers = []
    for _ in range(11):
        norm = nn.BatchNorm1d(6)
        nn.init.normal_(norm.weight)
        layers += [nn.Linear(6, 6), norm]
    ensemble = pl.convert(nn.Sequential(*layers, nn.Linear(6, 2)), methods.EMP(), example=torch.zeros(2, 6))
    assert "options start 0.1 deviations apart" in str(ensemble.conversion)


def test_a_patch_of_the_output_alone_tells_members_apart():
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))
    ensemble = pl.convert(model, methods.EMP(), example=torch.zeros(2, 6))
    assert "options start 0.3 deviations apart" in str(ensemble.conversion)


def test_an_untrained_network_is_not_held_against_a_method_that_keeps_it():
    ensemble = pl.convert(network(), methods.LoRAEnsembles(), example=torch.zeros(2, 6))
    assert "untrained" not in [one.code for one in doctor(ensemble, blobs(200, 2))]


class Energy(nn.Module):
    """A network of torchani, which takes species and coordinates as one tuple, as a plain regressor."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, species, coordinates):
        return self.network((species, coordinates)).energies.float().unsqueeze(1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_eight_published_networks_are_ranked_and_shrunk():
    """ANI-1x: Smith et al., "Less is more", 2018, in torchani 1.2 (with setuptools < 81 and lark-parser)."""
    torchani = pytest.importorskip("torchani")
    published = torchani.models.ANI1x(periodic_table_index=True).eval()
    networks = [Energy(published[place]) for place in range(8)]
    methane = torch.tensor(
        [[0.0, 0, 0], [0.6, 0.6, 0.6], [-0.6, -0.6, 0.6], [0.6, -0.6, -0.6], [-0.6, 0.6, -0.6]]
    )
    torch.manual_seed(0)
    coordinates = methane + 0.1 * torch.randn(12, 5, 3)
    x = (torch.tensor([[6, 1, 1, 1, 1]] * 12), coordinates)
    ensemble = pl.from_models(networks, "point", example=x).eval()
    with torch.no_grad():
        outputs = ensemble(*x)
        for place, network in enumerate(networks):
            assert torch.allclose(outputs[place], network(*x), atol=1e-5)
    assert ensemble.predict(x).epistemic.min() > 0

    # Their mean stands for the truth: what is nearest to it comes first.
    ranking = ensemble.rank((x, outputs.mean(0)), "rmse")
    small = ensemble.shrink(ranking.order[:3])
    error = (small.predict(x).mean - outputs.mean(0)).square().mean()
    worst = ensemble.shrink(ranking.order[-3:])
    assert error < (worst.predict(x).mean - outputs.mean(0)).square().mean()
