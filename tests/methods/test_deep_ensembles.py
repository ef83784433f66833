"""Deep Ensembles: independent members, initialised as the network would be, and fixed priors."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.errors import ConversionError
from pluribus.methods import DeepEnsembles
from tests import zoo
from tests.cases import CASES, case_named, each, logits, run


def own(ensemble):
    return dict(ensemble.members.tensors.own.named_parameters())


@each(CASES, few=True)
def test_fresh_members_differ_from_the_model_and_from_one_another(case):
    model, x = case.model().eval(), case.inputs()
    ensemble = pl.convert(model, DeepEnsembles(members=3)).eval()
    outputs = [*run(ensemble, x), logits(run(model, x))]
    for i, one in enumerate(outputs):
        for other in outputs[:i]:
            assert (one - other).abs().max() > 1e-6
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.ndim > 1:
            rows = [*own(ensemble)[name], parameter]
            assert not any(torch.equal(a, b) for i, a in enumerate(rows) for b in rows[:i]), name


@pytest.mark.parametrize("layer", [nn.Linear(50, 80), nn.Conv2d(5, 40, 3), nn.Embedding(40, 80)], ids=str)
def test_fresh_weights_are_distributed_like_those_of_reset_parameters(layer):
    ensemble = pl.convert(nn.Sequential(layer), DeepEnsembles(members=40), example=torch.zeros(1))
    drawn = own(ensemble)["0.weight"].detach().flatten()[:100_000]
    expected = []
    for _ in range(40):
        layer.reset_parameters()
        expected.append(layer.weight.detach().flatten().clone())
    expected = torch.cat(expected)[:100_000]
    points = torch.linspace(0.02, 0.98, 25)
    assert_close(drawn.quantile(points), expected.quantile(points), atol=0.06 * float(expected.std()), rtol=0)


def test_members_are_independent_draws():
    weights = own(pl.convert(nn.Linear(100, 100), DeepEnsembles(members=4)))["weight"].detach().flatten(1)
    assert_close(torch.corrcoef(weights), torch.eye(4), atol=0.04, rtol=0)


@each(CASES, few=True)
def test_copies_start_as_the_model(case):
    model, x = case.model().eval(), case.inputs()
    ensemble = pl.convert(model, DeepEnsembles(members=2, start="copy"))
    for row in run(ensemble, x):
        assert_close(row, logits(run(model, x)), rtol=0, atol=0)


def test_a_layer_may_start_as_a_copy_while_others_start_afresh():
    model = zoo.SharedModule()
    ensemble = pl.convert(model, DeepEnsembles(members=2), overrides={"first": {"start": "copy"}})
    assert_close(own(ensemble)["first.weight"][1], model.first.weight)
    assert not torch.equal(own(ensemble)["head.weight"][1], model.head.weight)
    assert ensemble.conversion["first"].became == "2 copies, start copy"


def test_frozen_parameters_are_shared_and_stay():
    model, x = zoo.frozen_trunk(), case_named("frozen_trunk").inputs().float()
    ensemble = pl.convert(model, DeepEnsembles(members=3)).train()
    frozen = {name: p for name, p in model.named_parameters() if not p.requires_grad}
    shared = dict(ensemble.members.tensors.shared.named_parameters())
    assert shared.keys() == frozen.keys()
    optimizer = torch.optim.AdamW(ensemble.parameters(), lr=0.1, weight_decay=0.1)
    ensemble.loss(x, torch.zeros(10, dtype=torch.long)).backward()
    optimizer.step()
    for name, parameter in frozen.items():
        assert not shared[name].requires_grad
        assert_close(shared[name], parameter, rtol=0, atol=0)


def test_what_is_not_included_is_shared():
    model, x = zoo.residual_cnn(), torch.randn(4, 2, 8, 8)
    ensemble = pl.convert(model, DeepEnsembles(members=3), include="7").eval()
    assert set(own(ensemble)) == {"7.weight", "7.bias"}
    trunk = [ensemble.member(i)[:7](x) for i in range(3)]
    assert_close(trunk, [model.eval()[:7](x)] * 3)
    expected = sum(p.numel() for p in model.parameters()) + 2 * sum(p.numel() for p in model[7].parameters())
    assert sum(p.numel() for p in ensemble.parameters()) == expected


@pytest.mark.parametrize("members", [1, 2, 5])
def test_parameters_are_members_times_those_of_the_network(members):
    model = zoo.residual_cnn()
    ensemble = pl.convert(model, DeepEnsembles(members=members))
    assert sum(p.numel() for p in ensemble.parameters()) == members * sum(
        p.numel() for p in model.parameters()
    )


def test_bare_parameters_are_noted_and_constants_stay():
    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.scale = nn.Linear(6, 3), nn.Parameter(torch.full((3,), 0.1))
            self.token = nn.Parameter(2 + 0.5 * torch.randn(60, 60))

        def forward(self, x):
            return self.layer(x) * self.scale + self.token.mean()

    model = Bare()
    ensemble = pl.convert(model, DeepEnsembles(members=20))
    token = own(ensemble)["token"].detach()
    assert_close(token.mean(), model.token.mean().detach(), atol=0.01, rtol=0)
    assert_close(token.std(), model.token.std().detach(), atol=0.01, rtol=0)
    assert_close(own(ensemble)["scale"], model.scale.expand(20, 3), rtol=0, atol=0)
    assert "bare parameters redrawn with their mean and deviation: " in ensemble.conversion.notes[0]
    assert "token" in ensemble.conversion.notes[0]


@pytest.mark.parametrize("build", [zoo.hf_vit, zoo.hf_bert])
def test_hugging_face_models_are_drawn_by_their_own_initialiser(build):
    ensemble = pl.convert(build(), DeepEnsembles(members=3), example={"input_ids": torch.zeros(1)})
    matrices = [p[:, :].flatten() for n, p in own(ensemble).items() if n.endswith("weight") and p.ndim == 3]
    values = torch.cat(matrices).detach()
    assert_close(values.std(), torch.tensor(0.2), atol=0.01, rtol=0)
    assert values.abs().max() > 0.5  # nn.Linear alone would draw from a uniform that ends at 0.354
    for name, parameter in own(ensemble).items():
        if name.endswith("bias"):
            assert_close(parameter, torch.zeros_like(parameter), rtol=0, atol=0)
    assert ensemble.conversion.notes == ()


@pytest.mark.parametrize(("scale", "calls"), [(0.0, 1 + 3), (0.5, 1 + 3 + 3)])
def test_a_factory_is_called_once_for_the_network_and_once_for_every_member(scale, calls):
    made = []

    def factory():
        made.append(zoo.mlp())
        return made[-1]

    ensemble = pl.convert(factory, DeepEnsembles(members=3, prior_scale=scale))
    assert len(made) == calls
    for row, model in enumerate(made[1:4]):
        assert_close(
            ensemble.members.tensors.own.get_parameter("0.weight")[row], model[0].weight, rtol=0, atol=0
        )


def test_factories_may_draw_what_no_initialiser_knows():
    def factory():
        model = nn.Linear(3, 2)
        nn.init.orthogonal_(model.weight)
        return model

    for weight in own(pl.convert(factory, DeepEnsembles(members=3)))["weight"]:
        assert_close(weight @ weight.T, torch.eye(2))


def test_a_factory_of_several_architectures_is_refused():
    widths = iter([4, 4, 5])
    with pytest.raises(ConversionError, match=r"one architecture, expected shape \(4,\) of bias, got \(5,\)"):
        pl.convert(lambda: nn.Linear(3, next(widths)), DeepEnsembles(members=2))
    biases = iter([True, True, False])
    with pytest.raises(ConversionError, match=r"expected shape \(2,\) of bias, got None"):
        pl.convert(lambda: nn.Linear(3, 2, bias=next(biases)), DeepEnsembles(members=2))


def test_the_loss_is_the_sum_of_the_members_losses():
    model, x, y = zoo.mlp(), torch.randn(8, 6), torch.arange(8) % 3
    ensemble = pl.convert(model, DeepEnsembles(members=3))
    losses = [nn.functional.cross_entropy(ensemble.member(i)(x), y) for i in range(3)]
    assert_close(ensemble.loss(x, y), torch.stack(losses).sum())


def test_the_prior_of_a_row_is_its_own_and_scaled():
    case = case_named("residual_cnn")
    x = case.inputs()
    plain = pl.convert(case.model(), DeepEnsembles(members=3), seed=4).eval()
    with_prior = pl.convert(case.model(), DeepEnsembles(members=3, prior_scale=0.7), seed=4).eval()
    priors = torch.stack([with_prior.member(i).prior(x) for i in range(3)])
    assert_close(with_prior(x), plain(x) + 0.7 * priors)
    assert (priors[0] - priors[1]).abs().max() > 1e-3
    assert (priors[0] - plain(x)[0]).abs().max() > 1e-3
    assert_close(with_prior(x, members=[2, 0]), with_prior(x)[[2, 0]])


def test_priors_are_never_trained():
    case = case_named("batch_norm_mlp")
    ensemble = pl.convert(case.model(), DeepEnsembles(members=2, prior_scale=1.0)).train()
    # The first batch settles the statistics of prior networks; from then on they are fixed.
    ensemble.loss(case.inputs(), case.target())
    before = {name: tensor.clone() for name, tensor in ensemble.members.prior.state_dict().items()}
    optimizer = torch.optim.SGD(ensemble.parameters(), lr=0.1)
    for _ in range(3):
        ensemble.loss(case.inputs(), case.target()).backward()
        optimizer.step()
    assert_close(dict(ensemble.members.prior.state_dict()), before, rtol=0, atol=0)
    assert all(p.grad is None for p in ensemble.members.prior.parameters())
    groups = ensemble.parameter_groups(lr=0.1)
    trained = {id(p) for group in groups for p in group["params"]}
    assert not trained & {id(p) for p in ensemble.members.prior.parameters()}


def test_a_shared_trunk_counts_one_batch_for_one_step():
    ensemble = pl.convert(zoo.batch_norm_mlp(), DeepEnsembles(members=4), include="3").train()
    ensemble(torch.randn(10, 6))
    assert ensemble.members.tensors.shared.get_buffer("1.num_batches_tracked") == 1


def test_equal_starts_and_batches_without_other_randomness_leave_members_equal():
    """Packed-Ensembles, Table 7, row 1: no source of stochasticity, no diversity."""
    x, y = torch.randn(32, 6, dtype=torch.float64), torch.arange(32) % 3
    ensemble = pl.convert(zoo.mlp().double(), DeepEnsembles(members=3, start="copy", shuffle_members=False))
    optimizer = torch.optim.SGD(ensemble.parameters(), lr=0.5)
    for _ in range(20):
        optimizer.zero_grad()
        ensemble.loss(x, y).backward()
        optimizer.step()
    prediction = ensemble.predict(x)
    assert_close(prediction.mutual_information, torch.zeros(32, dtype=torch.float64), rtol=0, atol=1e-12)
    assert prediction.entropy.min() > 0


def test_members_that_start_alike_see_batches_of_their_own():
    x, y = torch.randn(32, 6, dtype=torch.float64), torch.arange(32) % 3
    ensemble = pl.convert(zoo.mlp().double(), DeepEnsembles(members=2, start="copy")).train()
    assert ensemble.method.data_orders == 2
    assert not any("alike" in note for note in ensemble.conversion.notes)
    ensemble.loss(x, y).backward()
    for parameter in ensemble.parameters():
        assert not torch.equal(parameter.grad[0], parameter.grad[1])


def test_members_that_start_anew_see_the_same_batches():
    assert DeepEnsembles().data_orders == 1
    assert DeepEnsembles(shuffle_members=True).data_orders == 4
