"""convert: which layers become what, from what, and how that is told."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.methods import (
    ECMP,
    EMP,
    BatchEnsemble,
    DeepEnsembles,
    DropConnect,
    Masksembles,
    MCDropout,
    Single,
)
from tests.cases import CASES, case_named, each, normal, tokens
from tests.zoo import (
    Apply,
    FunctionalDropout,
    Listed,
    ThreeLayers,
    batch_norm_mlp,
    dropout_layers,
    embedding_bag,
    mlp,
    recurrent,
    repeated_child,
    tied_embedding,
)

X = normal(6)()
METHODS = [Single(), DeepEnsembles(members=2), BatchEnsemble(members=2), MCDropout(rate=0.5, draws=2)]
SHARING = [DeepEnsembles(members=2), BatchEnsemble(members=2)]

each_method = pytest.mark.parametrize("method", METHODS, ids=str)
each_sharing = pytest.mark.parametrize("method", SHARING, ids=str)


def convert(model: nn.Module, method: pl.Method = SHARING[0], **options) -> pl.Ensemble:
    return pl.convert(model.double(), method, **options)


def alike(rows: torch.Tensor) -> bool:
    return all(torch.equal(row, rows[0]) for row in rows)


def converted(one: pl.Ensemble) -> list[str]:
    return [name for row in one.conversion.converted for name in row.names]


PICKS = {
    "a type": nn.Linear,
    "a pattern": "[024]",
    "a predicate of the name": lambda name, layer: name in ("0", "2", "4"),
    "a predicate of the layer": lambda name, layer: hasattr(layer, "weight"),
    "several of these": ["0", nn.ReLU, nn.Linear],
    "a tuple": ("0", lambda name, layer: name in "24"),
    "a parent type": nn.Module,
    "everything": "*",
}


@pytest.mark.parametrize("picks", PICKS.values(), ids=PICKS)
def test_layers_are_included_by_type_pattern_and_predicate(picks):
    assert converted(convert(mlp(), include=picks)) == ["0", "2", "4"]


@pytest.mark.parametrize("picks", ["0", ["0"], lambda name, layer: name == "0"])
def test_layers_are_excluded_likewise(picks):
    one = convert(mlp(), exclude=picks)
    assert converted(one) == ["2", "4"]
    assert one.conversion["0"].reason == "excluded"


def test_exclusion_wins_over_inclusion():
    assert converted(convert(mlp(), include=["0", "2"], exclude="2")) == ["0"]


def test_a_star_crosses_dots():
    model = nn.Sequential(mlp(), nn.Linear(3, 3))
    assert converted(convert(model, include="0.*")) == ["0.0", "0.2", "0.4"]
    assert converted(convert(model, include="*")) == ["0.0", "0.2", "0.4", "1"]


@each_sharing
def test_left_layers_are_one_and_the_same_for_all_members(method):
    one = convert(mlp(), method, include="4")
    first, second = one.member(0), one.member(1)
    for name in ("0", "2"):
        assert_close(first.get_submodule(name).state_dict(), second.get_submodule(name).state_dict())
    assert not torch.equal(first[4].weight, second[4].weight)


def test_the_last_override_wins():
    overrides = {
        "*": {"std": 0.0},
        "2": {"std": 0.5},
        "4": BatchEnsemble(members=2, std=0.5),
        "[4]": Single(),
    }
    one = convert(mlp(), BatchEnsemble(members=2), overrides=overrides)
    deviations = {name: factor.std() for name, factor in one.members.tensors.first.named_parameters()}
    assert deviations.keys() == {"0.weight", "2.weight"}
    assert_close(deviations["0.weight"], torch.zeros((), dtype=torch.float64))
    assert deviations["2.weight"] > 0.1
    assert one.conversion["4"].reason == "left by overrides"


def test_an_override_starts_some_layers_from_the_trained_weights():
    model = mlp().double()
    one = pl.convert(model, DeepEnsembles(members=2), overrides={"[02]": {"start": "copy"}})
    for i in range(2):
        assert_close(one.member(i)[0].weight, model[0].weight)
    assert not torch.equal(one.member(0)[4].weight, one.member(1)[4].weight)


def test_an_override_sets_the_rate_of_one_layer():
    one = convert(mlp(), MCDropout(rate=0.5, draws=8), overrides={"[02]": {"rate": 0.0}}).eval()
    assert converted(one) == ["4"]
    hidden = one.member(0).network[:4](X)
    assert_close(one.member(1).network[:4](X), hidden)


@each(CASES, few=True)
def test_a_printed_conversion_names_every_layer(case):
    text = str(pl.convert(case.model(), BatchEnsemble(members=2)).conversion)
    assert text.startswith(f"{BatchEnsemble(members=2)} on {type(case.model()).__name__}\n")
    for name, layer in case.model().named_modules(remove_duplicate=False):
        alone = not any(True for _ in layer.children())
        inside = any(isinstance(above, nn.MultiheadAttention) for above in parents(case.model(), name))
        parametrised = "parametrizations" in name
        if alone and not inside and not parametrised:
            assert (name or "(root)") in text, name


def parents(model: nn.Module, name: str) -> list[nn.Module]:
    parts = name.split(".")
    return [model.get_submodule(".".join(parts[:i])) for i in range(len(parts))]


@each_sharing
def test_a_child_in_two_places_is_one_layer(method):
    one = convert(repeated_child(), method)
    (row,) = [row for row in one.conversion.rows if len(row.names) > 1]
    assert row.names == ("1.0", "1.2", "3.1")
    assert "1.0 = 1.2 = 3.1" in str(one.conversion)
    member = one.member(1)
    assert member[1][0] is member[1][2] is member[3][1]
    assert converted(convert(repeated_child(), method, include="3.1")) == ["1.0", "1.2", "3.1"]


@each_method
def test_the_root_may_be_the_layer(method):
    one = convert(nn.Linear(6, 3), method).eval()
    assert one.conversion[""].kind == "Linear"
    assert_close(one.member(0)(X), one(X)[0])


@each_sharing
@pytest.mark.parametrize("options", [{"exclude": nn.Embedding}, {"include": nn.Linear}], ids=str)
def test_a_tied_weight_is_never_converted_for_one_of_its_layers_alone(options, method):
    with pytest.raises(pl.ConversionError, match=r"tied layers .* both hold 0\.weight\. Pick both or none"):
        convert(tied_embedding(), method, **options)


@each_method
def test_the_same_seed_makes_the_same_ensemble_of_a_factory(method):
    first, again = (pl.convert(Listed, method, seed=3).state_dict() for _ in range(2))
    assert_close(first, again, rtol=0, atol=0)


@each_method
def test_a_conversion_takes_none_of_torchs_random_numbers(method):
    model, before = mlp(), torch.get_rng_state()
    pl.convert(model, method)
    assert torch.equal(torch.get_rng_state(), before)


def self_seeding() -> nn.Module:
    torch.manual_seed(0)
    return mlp()


@pytest.mark.parametrize("alone", [False, True])
def test_members_that_start_alike_are_told_of(alone):
    """A factory that seeds itself makes equal members, and so do layers that start from constants."""
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3))
    options = {"include": nn.LayerNorm} if alone else {}
    one = pl.convert(model if alone else self_seeding, DeepEnsembles(members=3), **options).eval()
    assert alike(one(X.float()))
    assert "members start alike" in str(one.conversion)
    assert "alike" not in str(pl.convert(model, DeepEnsembles(members=3)).conversion)


class Unread(ThreeLayers):
    """Looks at its values, so that it has no graph, and has a dropout that is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        if not x.isfinite().all():
            raise ValueError("x must be finite")
        return self.head(self.first(x).tanh())


def short_lstm() -> nn.Module:
    model = recurrent(nn.LSTM, layers=1, dropout=0.0)
    model[0].dropout = 0.5  # torch drops between layers, and there is one; its constructor only warns
    return model


HALF, OFF = MCDropout(rate=0.5, draws=8), MCDropout(rate=0.0, draws=8)
DROPPED = {
    "before an LSTM of one layer": (short_lstm, normal(5, 4), HALF, {}),
    "before one layer": (mlp, normal(6), OFF, {"overrides": {"2": {"rate": 0.5}}}),
    "in a dropout layer": (dropout_layers, normal(2, 8, 8), OFF, {"overrides": {"7": {"rate": 0.5}}}),
}
NOTHING_DROPPED = {
    "before indices": (embedding_bag, tokens(7, 12), HALF, {"include": nn.EmbeddingBag}),
    "in a layer that never runs": (Unread, normal(6), HALF, {}),
}


@pytest.mark.parametrize("name", DROPPED)
def test_dropout_that_is_asked_for_drops(name):
    build, inputs, method, options = DROPPED[name]
    assert not alike(convert(build(), method, example=inputs(), **options).eval()(inputs()))


@pytest.mark.parametrize("name", NOTHING_DROPPED)
def test_dropout_that_drops_nothing_is_refused(name):
    build, inputs, method, options = NOTHING_DROPPED[name]
    with pytest.raises(pl.ConversionError, match=r"must run on numbers|must have dropout"):
        convert(build(), method, example=inputs(), **options)


def test_an_override_sets_the_rate_of_a_dropout_layer():
    model, x = dropout_layers(), normal(2, 8, 8)()
    one = convert(model, MCDropout(draws=8), example=x, overrides={"2": {"rate": 0.0}, "7": {"rate": 0.9}})
    assert converted(one) == ["7"]
    assert "dropout 0.9 kept on" in one.conversion["7"].became
    assert one.member(0).network[7].p == 0.9


class Renamed(ThreeLayers):
    """A dropout layer that is called by its second name."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.again = self.drop

    def forward(self, x):
        return self.head(self.again(self.first(x).tanh()))


@pytest.mark.parametrize("name", ["drop", "again"])
def test_an_override_finds_a_dropout_layer_by_each_of_its_names(name):
    one = convert(Renamed(), MCDropout(draws=2), example=X, overrides={name: {"rate": 0.9}})
    assert "dropout 0.9 kept on" in one.conversion["drop"].became


def test_a_row_of_dropout_tells_the_users_line():
    text = str(convert(FunctionalDropout(), MCDropout(), example=X).conversion)
    assert "zoo.py" in text
    text = str(convert(dropout_layers(), MCDropout(), example=normal(2, 8, 8)()).conversion)
    assert "pluribus" not in text


@each_method
def test_one_sample_is_example_enough_for_batch_norm(method):
    one = convert(batch_norm_mlp(), method, example=X[:1])
    assert one.eval()(X).shape[1:] == (10, 3)


class Grouped(nn.Module):
    """Calls its layers `groups`, as convolutions call a number, and has a matrix of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.positions, self.groups = nn.Parameter(torch.randn(5, 6)), nn.ModuleList([nn.Linear(6, 3)])

    def forward(self, x):
        return self.groups[0]((x.unsqueeze(1) * self.positions).mean(1))


class Static(Listed):
    """Its initialiser is static, as `self.apply(self.init_weights)` takes it."""

    def __init__(self) -> None:
        super().__init__()
        self.apply(self.init_weights)

    @staticmethod
    def init_weights(layer: nn.Module) -> None:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)


@each_method
@pytest.mark.parametrize("build", [Grouped, Static])
def test_attributes_that_only_sound_familiar_do_no_harm(build, method):
    one = convert(build(), method).eval()
    for i, row in enumerate(one(X)):
        assert_close(one.member(i)(X), row)


class Identity(nn.Module):
    """Starts from the identity, written through `.data` as old code does."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.head = nn.Parameter(torch.empty(6, 6)), nn.Linear(6, 3)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.weight.data.copy_(torch.eye(6))

    def forward(self, x):
        return self.head(F.linear(x, self.weight))


def test_an_initialiser_that_writes_through_data_is_heard():
    one = convert(Identity())
    for i in range(2):
        assert_close(one.member(i).weight, torch.eye(6, dtype=torch.float64))


@each_method
def test_a_copy_of_the_model_makes_the_same_ensemble(method):
    case = case_named("residual_cnn")
    model = case.model()
    first, second = (pl.convert(one, method, example=case.inputs()) for one in (model, copy.deepcopy(model)))
    assert_close(first.state_dict(), second.state_dict(), rtol=0, atol=0)


@each_method
def test_functions_in_front_of_layers_do_not_matter(method):
    one = convert(nn.Sequential(Apply(torch.tanh), mlp()), method, example=X).eval()
    assert_close(one.member(0)(X), one(X)[0])


DRAWN = [BatchEnsemble(2), Masksembles(2), EMP(2), ECMP(2, draws=3), DropConnect(draws=3), MCDropout(draws=3)]


@pytest.mark.parametrize("method", DRAWN, ids=str)
def test_the_same_seed_is_the_same_ensemble_whatever_torch_s_default_precision_is(method):
    model, x = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)), torch.ones(2, 3)
    expected = pl.convert(model, method, example=x).eval()(x)
    torch.set_default_dtype(torch.float64)
    try:
        found = pl.convert(model, method, example=x).eval()(x)
    finally:
        torch.set_default_dtype(torch.float32)
    assert_close(found, expected, rtol=0, atol=0)


class Writing(nn.Module):
    """A network that writes into its input."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(F.dropout(torch.relu(self.first(x.add_(1))), 0.1, self.training))


@pytest.mark.parametrize("kind", ["single", "deep_ensembles", "mc_dropout", "masksembles", "emp"])
def test_convert_leaves_the_example_as_it_was(kind):
    x = torch.zeros(4, 6)
    pl.convert(Writing(), pl.Method.known()[kind](), example=x)
    assert torch.equal(x, torch.zeros(4, 6))


@pytest.mark.parametrize(
    ("layer", "likelihood"), [(nn.Softmax(-1), "categorical"), (nn.Sigmoid(), "bernoulli")]
)
def test_a_network_that_ends_in_probabilities_is_warned_of(layer, likelihood):
    with pytest.warns(UserWarning, match=f"but the network ends in {type(layer).__name__}"):
        pl.convert(nn.Sequential(nn.Linear(3, 2), layer), Single(), likelihood)


@pytest.mark.parametrize("last", [nn.LogSoftmax(-1), nn.Identity()])
def test_logits_and_their_logarithms_are_not_warned_of(last):
    pl.convert(nn.Sequential(nn.Linear(3, 2), nn.Softmax(-1), nn.Linear(2, 2), last), Single())
    pl.convert(nn.Sequential(nn.Linear(3, 2), nn.Sigmoid()), Single(), "point")
