"""MC Dropout: which dropout is on, where it is put, and that a kept draw is a function of its input."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.errors import ConversionError, InputError
from pluribus.mechanisms.dropout.kept import Draw
from pluribus.methods import MCDropout, Single
from tests import zoo
from tests.cases import case_named, each, run, seeded


def converted(model, method=None, **settings):
    return pl.convert(model, method or MCDropout(rate=0.5, draws=4), **settings).eval()


def became(ensemble):
    """Return the changes by name, without the source line."""
    rows = ensemble.conversion.converted
    return {row.names[0]: row.became.partition(" (")[0] for row in rows}


def spread(rows):
    """How far they are apart."""
    return float(rows.detach().std(0).max())


def chain(*layers):
    return nn.Sequential(nn.Linear(6, 40), *layers, nn.Linear(40, 3))


def test_dropout_that_is_there_stays_with_its_own_rates():
    assert became(converted(zoo.dropout_layers())) == {"2": "dropout 0.2 kept on", "7": "dropout 0.3 kept on"}
    assert became(converted(zoo.alpha_dropout())) == {"2": "dropout 0.1 kept on"}
    assert became(converted(zoo.recurrent(nn.LSTM, 2, 0.2))) == {"0": "dropout 0.2 kept on"}
    assert became(converted(zoo.FunctionalDropout())) == {"": "dropout 0.2 kept on"}
    assert became(converted(zoo.MiniViT())) == {"": "dropout 0.1 kept on"}
    kept = became(converted(zoo.transformer()))
    assert kept == dict.fromkeys(
        ["1.self_attn", "1.dropout", "1.dropout1", "1.dropout2"], "dropout 0.1 kept on"
    )


def test_dropout_is_put_in_where_there_is_none():
    assert became(converted(zoo.mlp())) == dict.fromkeys("024", "dropout 0.5 before it")
    assert set(became(converted(zoo.residual_cnn()))) == {"0", "3.0", "3.3", "7"}
    assert became(converted(zoo.recurrent(nn.GRU, 1, 0.0))) == dict.fromkeys("02", "dropout 0.5 before it")
    assert became(converted(nn.Linear(6, 3))) == {"": "dropout 0.5 before it"}


@pytest.mark.parametrize(
    ("insert", "expected"),
    [(None, {"2": "kept"}), (False, {"2": "kept"}), (True, {"0": "before", "2": "kept", "3": "before"})],
)
def test_insert_says_whether_to_put_more_in(insert, expected):
    ensemble = converted(chain(nn.ReLU(), nn.Dropout(0.2)), MCDropout(rate=0.5, insert=insert))
    assert {name: text.split()[2] for name, text in became(ensemble).items()} == expected
    with pytest.raises(ConversionError, match="must have dropout, or a layer to put it before"):
        converted(zoo.mlp(), MCDropout(insert=False))


def test_included_layers_get_dropout_before_them_whatever_they_are():
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3))
    before = dict.fromkeys("12", "dropout 0.5 before it")
    assert became(converted(model, include=["1", nn.ReLU, "3"])) == before | {"3": "dropout 0.2 kept on"}
    assert became(converted(model, include="4")) == {"4": "dropout 0.5 before it"}


def test_dropout_before_a_layer_drops_its_inputs():
    layer, x = nn.Linear(2000, 2, bias=False), torch.ones(3, 2000)
    nn.init.ones_(layer.weight)
    rows = converted(layer, MCDropout(rate=0.2, draws=50))(x)
    assert_close(rows.mean(), torch.tensor(2000.0), rtol=0.01, atol=0)
    assert_close(rows.std(0), torch.full((3, 2), (2000 * 0.2 / 0.8) ** 0.5), rtol=0.4, atol=0)
    assert_close(rows, rows[:, :1].expand_as(rows))


def test_excluded_layers_are_left_alone():
    model = chain(nn.Dropout(0.2), nn.Linear(40, 40), nn.Dropout(0.3))
    assert became(converted(model, exclude="1")) == {"3": "dropout 0.3 kept on"}
    assert became(converted(model, exclude=nn.Dropout)) == dict.fromkeys("024", "dropout 0.5 before it")
    assert became(converted(model, overrides={"1": Single()})) == {"3": "dropout 0.3 kept on"}


def test_functional_dropout_can_be_excluded_or_not_included():
    assert became(converted(zoo.FunctionalDropout(), include="head")) == {"head": "dropout 0.5 before it"}


def test_layers_may_have_rates_of_their_own():
    ensemble = converted(zoo.mlp(), overrides={"2": {"rate": 0.05}, "4": {"rate": 0.0}})
    assert became(ensemble) == {"0": "dropout 0.5 before it", "2": "dropout 0.05 before it"}


def test_a_rate_for_a_layer_with_dropout_of_its_own_is_used_or_refused():
    overrides = {"1": {"rate": 0.4}}
    assert became(converted(chain(nn.Dropout(0.2)), overrides=overrides)) == {"1": "dropout 0.4 kept on"}
    with pytest.raises(ConversionError, match=r"calls dropout in its own code \(.*zoo\.py:\d+\)"):
        converted(zoo.MiniViT(), overrides={"": {"rate": 0.4}})


def test_a_rate_for_a_layer_is_used_even_if_it_is_that_of_the_method():
    overrides = {"1": {"rate": 0.5}}
    assert became(converted(chain(nn.Dropout(0.2)), overrides=overrides)) == {"1": "dropout 0.5 kept on"}


@pytest.mark.parametrize("name", ["one", "two"])
def test_a_rate_reaches_a_dropout_layer_by_any_of_its_names(name):
    class Aliased(zoo.ThreeLayers):
        def forward(self, x):
            return self.head(self.two(self.first(x)))

    model = Aliased()
    model.one = model.two = nn.Dropout(0.2)
    assert became(converted(model, overrides={name: {"rate": 0.4}})) == {"one": "dropout 0.4 kept on"}


@each([case_named(name) for name in ("mlp", "attention", "lstm", "functional_dropout", "data_dependent")])
def test_rate_zero_is_the_network(case):
    model, x = case.model().eval(), case.inputs()
    ensemble = pl.convert(model, MCDropout(rate=0, draws=2), example=x)
    assert_close(run(ensemble, x), run(pl.convert(model, Single()), x).expand_as(run(ensemble, x)))


def test_a_repeated_layer_runs_and_one_that_never_runs_is_left():
    assert set(became(converted(zoo.repeated_child()))) == {"0", "1.0", "4"}
    assert set(became(converted(zoo.UnusedLayer()))) == {"first", "head"}
    assert converted(zoo.UnusedLayer()).conversion["middle"].reason == "never runs"


def test_the_projection_inside_attention_is_no_site():
    class Bare(zoo.Attention):
        def __init__(self):
            super().__init__()
            self.attention.dropout = 0.0

    assert set(became(converted(Bare()))) == {"embed", "attention", "head"}
    assert converted(Bare(), include="attention")(torch.randn(5, 3, 4)).shape == (4, 5, 3)


def test_unread_data_flow_falls_back_to_layers_and_says_so():
    class Unread(zoo.DataDependent):
        def __init__(self):
            super().__init__()
            self.drop, self.attention = nn.Dropout(0.2), nn.MultiheadAttention(8, 2, dropout=0.3)

        def forward(self, x):
            x = self.drop(super().forward(x))
            return F.dropout(x, 0.4, self.training) + self.attention(*[x.new_ones(3, 8)] * 3)[0].mean()

    ensemble = converted(Unread(), example=torch.zeros(4, 6))
    assert became(ensemble) == {"drop": "dropout 0.2 kept on", "attention": "dropout 0.3 kept on"}
    assert "only layers were searched for dropout, not functions: " in ensemble.conversion.notes[0]


def test_training_draws_for_each_sample_with_torchs_random_numbers():
    model, x = chain(nn.Dropout(0.5)), torch.ones(5, 6)
    ensemble = converted(model, MCDropout(draws=2, train_draws=3)).train()
    torch.manual_seed(4)
    rows = ensemble(x)
    torch.manual_seed(4)
    assert_close(rows, torch.stack([model.train()(x) for _ in range(3)]))
    assert not torch.equal(rows[0, 0], rows[0, 1])
    inserted = converted(zoo.mlp(), MCDropout(rate=0.5)).train()(x)
    assert not torch.equal(inserted[0, 0], inserted[0, 1])


class Guarded(zoo.ThreeLayers):
    def forward(self, x):
        x = self.first(x).relu()
        if self.training:
            x = F.dropout(x, 0.5)
        return self.head(self.middle(x))


FUSED = [
    (Guarded(), torch.randn(5, 6)),
    (zoo.MiniViT(), torch.randn(5, 2, 8, 8)),
    (zoo.Attention(), torch.randn(5, 3, 4)),
    (zoo.transformer(depth=2), torch.randn(5, 3, 4)),
    (zoo.transformer(batch_first=False), torch.randn(5, 3, 4)),
    (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 12, 0.3, batch_first=True), 2),
        torch.randn(5, 3, 8),
    ),
]


@pytest.mark.parametrize(("model", "x"), FUSED, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.sampled(3)
def test_dropout_is_on_in_eval_mode_on_every_path(model, x, gradients):
    ensemble = converted(model, example=x)
    with torch.set_grad_enabled(gradients):
        rows = ensemble(x)
        assert spread(rows) > 1e-3
        assert_close(rows, torch.stack([ensemble.member(i)(x) for i in range(4)]))
        assert_close(ensemble(x[2:4]), rows[:, 2:4])


def test_padded_sequences_take_no_fused_path_either():
    class Padded(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(8, 2, 12, 0.3, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2)

        def forward(self, x, mask):
            return self.encoder(x, src_key_padding_mask=mask)[:, 0]

    x, mask = torch.randn(5, 4, 8), torch.arange(4) >= torch.tensor([4, 3, 2, 4, 1])[:, None]
    ensemble = converted(Padded(), example=(x, mask))
    with torch.no_grad():
        assert spread(ensemble(x, mask)) > 0.01


def test_a_draw_switches_on_its_owners_alone_and_back_again():
    model = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(5), nn.Dropout(0.5)).eval()
    with Draw(0, ("0",))(model, 4):
        assert [layer.training for layer in model.modules()] == [False, True, False, False]
    assert not any(layer.training for layer in model.modules())


def test_batch_norm_stays_in_eval_mode():
    model, x = chain(nn.BatchNorm1d(40), nn.Dropout(0.5)), torch.randn(7, 6)
    ensemble = converted(model)
    before = {name: tensor.clone() for name, tensor in ensemble.state_dict().items()}
    assert_close(ensemble(x[:1]), ensemble(x)[:, :1])
    assert_close(dict(ensemble.state_dict()), before, rtol=0, atol=0)


def test_dropout_and_batch_norm_in_one_forward_are_refused_by_line():
    class Both(zoo.ThreeLayers):
        def forward(self, x):
            x = F.batch_norm(self.first(x), None, None, training=self.training or True)
            return self.head(F.dropout(x, 0.5, self.training))

    with pytest.raises(ConversionError, match=r"got batch_norm in the network itself \(.*\.py:\d+\)"):
        converted(Both(), example=torch.zeros(4, 6))


def test_draws_differ_and_are_kept_on_reload(tmp_path):
    model, x = zoo.dropout_layers(), torch.randn(5, 2, 8, 8)
    ensemble = converted(model, MCDropout(draws=6))
    rows = ensemble(x)
    assert all(not torch.equal(rows[i], rows[j]) for i in range(6) for j in range(i))
    ensemble.save(tmp_path / "saved")
    assert_close(pl.load(tmp_path / "saved", zoo.dropout_layers()).eval()(x), rows, rtol=0, atol=0)
    assert not torch.equal(ensemble(x, draws=6), rows)


class Flattened(nn.Module):
    """Puts samples and positions on one axis, as windowed attention does."""

    def __init__(self):
        super().__init__()
        self.layer, self.drop, self.head = nn.Linear(3, 20), nn.Dropout(0.5), nn.Linear(20, 2)

    def forward(self, x):
        hidden = self.drop(self.layer(x.flatten(0, 1)))
        return self.head(hidden.unflatten(0, x.shape[:2]).mean(1))


@pytest.mark.parametrize("build", [Flattened, lambda: zoo.recurrent(nn.LSTM, 3, 0.5)])
def test_one_draw_serves_every_sample(build):
    x = torch.randn(1, 5, 3 if build is Flattened else 4, generator=seeded(0)).expand(4, -1, -1).clone()
    rows = converted(build(), example=x)(x)
    assert_close(rows, rows[:, :1].expand_as(rows))


def test_positions_that_share_an_axis_with_samples_may_be_more_or_fewer():
    ensemble = converted(Flattened(), example=torch.randn(4, 5, 3))
    for length in (3, 5, 7):
        x = torch.randn(4, length, 3)
        assert_close(ensemble(x[:2]), ensemble(x)[:, :2])


def test_an_example_that_does_not_fit_is_an_input_error():
    with pytest.raises(InputError, match="example must be an input of the network"):
        converted(chain(nn.Dropout(0.5)), example=torch.zeros(4, 99))


def test_other_randomness_of_training_stays_off():
    class Noisy(zoo.ThreeLayers):
        def forward(self, x):
            x = x + torch.randn_like(x) if self.training else x
            return self.head(F.dropout(self.first(x), 0.5, self.training))

    with pytest.raises(ConversionError, match="got randn_like in the network itself"):
        converted(Noisy())


@pytest.mark.parametrize("name", ["batch_norm_mlp", "residual_cnn"])
def test_one_sample_is_enough_of_an_example(name):
    x = case_named(name).inputs().float()
    assert spread(converted(case_named(name).model().float(), example=x[:1])(x)) > 0


class Functional(nn.Module):
    """Reads the weight of a layer that it never calls, as Mamba does."""

    def __init__(self):
        super().__init__()
        self.first, self.scan, self.last = nn.Linear(6, 40), nn.Linear(40, 40), nn.Linear(40, 3)

    def forward(self, x):
        return self.last(F.linear(self.first(x), self.scan.weight).tanh())


class Experts(nn.Module):
    """Routes each sample to the expert that its weights choose."""

    def __init__(self, bias=100.0):
        super().__init__()
        self.router, self.last = nn.Linear(6, 3), nn.Linear(40, 3)
        self.experts = nn.ModuleList([nn.Linear(6, 40) for _ in range(3)])
        nn.init.constant_(self.router.bias, 0.0)
        with torch.no_grad():
            self.router.bias[1] = bias

    def forward(self, x):
        chosen = self.router(x).argmax(1)
        hidden = x.new_zeros(len(x), 40)
        for number, expert in enumerate(self.experts):
            if (chosen == number).any():
                hidden = torch.where((chosen == number)[:, None], expert(x), hidden)
        return self.last(hidden.tanh())


def left(ensemble):
    return {row.names[0]: row.reason for row in ensemble.conversion if row.reason == "not called"}


def test_a_layer_that_is_read_and_never_called_is_left_with_a_note():
    ensemble = converted(Functional(), example=torch.randn(5, 6))
    assert left(ensemble) == {"scan": "not called"}
    assert set(became(ensemble)) == {"first", "last"}
    assert "no dropout before scan (Linear): the network does not call it" in ensemble.conversion.notes[0]
    assert spread(ensemble(torch.randn(5, 6))) > 0


def test_a_layer_that_is_picked_and_never_called_is_refused():
    with pytest.raises(ConversionError, match=r"scan \(Linear\) is not called"):
        converted(Functional(), example=torch.randn(5, 6), include="scan")


def test_experts_without_samples_are_left_and_saved_as_they_are(tmp_path):
    x = torch.randn(5, 6)
    ensemble = converted(Experts(), example=x)
    assert left(ensemble) == {"experts.0": "not called", "experts.2": "not called"}
    ensemble.save(tmp_path / "saved")
    # The network of `load` routes to another expert until it has the saved weights.
    loaded = pl.load(tmp_path / "saved", Experts(bias=-100.0), example=x)
    assert left(loaded) == left(ensemble)
    assert_close(loaded(x), ensemble(x), rtol=0, atol=0)
