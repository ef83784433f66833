"""Kept dropout: the masks of a draw, and every way in which torch drops units."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from pluribus.errors import InputError
from pluribus.mechanisms.dropout.kept import KeptMasks, batch_axes, keep_mask
from pluribus.mechanisms.network.inputs import Inputs
from tests.cases import seeded
from tests.reference import dropout as reference

TINY = 1e-12  # a rate that is on, and drops nothing
BATCH = 6


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=seeded(seed))


class Recorded(KeptMasks):
    """Remembers the masks it gave."""

    def __init__(self, *args):
        super().__init__(*args)
        self.given = []

    def mask(self, *args, **kwargs):
        self.given.append(super().mask(*args, **kwargs))
        return self.given[-1]


def kept(call, seed=0, batch=BATCH):
    with Recorded(seed, batch) as masks:
        return call(), masks.given


def test_a_mask_is_the_same_whatever_the_default_precision_is():
    expected = keep_mask((50,), 0.5, seed=3)
    torch.set_default_dtype(torch.float64)
    try:
        assert_close(keep_mask((50,), 0.5, seed=3), expected, rtol=0, atol=0)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9])
def test_masks_are_bernoulli(rate):
    mask = keep_mask((400, 500), rate, seed=3)
    assert set(mask.unique().tolist()) <= {0.0, 1.0}
    assert_close(mask.mean(), torch.tensor(1 - rate), atol=0.005, rtol=0)
    assert_close(mask.mean(1), torch.full((400,), 1 - rate), atol=0.12, rtol=0)


def test_masks_follow_from_their_seed_alone():
    state = torch.get_rng_state()
    assert_close(keep_mask((50,), 0.5, seed=3), keep_mask((50,), 0.5, seed=3), rtol=0, atol=0)
    assert not torch.equal(keep_mask((50,), 0.5, seed=3), keep_mask((50,), 0.5, seed=4))
    assert_close(torch.get_rng_state(), state)


def test_kept_units_are_scaled_and_dropped_ones_are_zero():
    x = normal(BATCH, 7, 5)
    output, (mask,) = kept(lambda: F.dropout(x, 0.3))
    assert_close(output, reference.dropped(x, mask, 0.3))
    assert 0 < mask.sum() < mask.numel()


def test_one_mask_serves_all_samples_and_every_call_has_its_own():
    x = torch.ones(BATCH, 40)
    (first, second), _ = kept(lambda: (F.dropout(x), F.dropout(x)))
    assert_close(first, first[:1].expand_as(first))
    assert not torch.equal(first, second)
    (other, _), _ = kept(lambda: (F.dropout(x), F.dropout(x)), seed=1)
    assert not torch.equal(first, other)
    (again, _), _ = kept(lambda: (F.dropout(x), F.dropout(x)))
    assert_close(again, first, rtol=0, atol=0)


@pytest.mark.parametrize("rate", [0.0, 1.0])
@pytest.mark.parametrize("drop", [F.dropout, F.dropout2d, F.alpha_dropout, F.feature_alpha_dropout])
def test_the_extreme_rates_are_torchs_own(drop, rate):
    x = normal(BATCH, 5, 2, 2)
    assert_close(kept(lambda: drop(x, rate, training=True))[0], drop(x, rate, training=True))


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("alpha", [False, True])
def test_feature_dropout_drops_whole_channels(axes, alpha):
    x = normal(BATCH, 30, *[4] * axes)
    drop = F.feature_alpha_dropout if alpha else getattr(F, f"dropout{axes}d")
    output, (mask,) = kept(lambda: drop(x, 0.4, training=True))
    assert mask.shape == (1, 30, *[1] * axes)
    channels = output.flatten(2)
    dropped = mask.flatten() == 0
    assert 0 < dropped.sum() < 30
    assert_close(channels[:, dropped].std(2), torch.zeros(BATCH, int(dropped.sum()), dtype=torch.float64))
    assert (channels[:, ~dropped].std(2) > 0).all()


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.8])
def test_alpha_dropout_keeps_mean_and_variance(rate):
    x = torch.randn(1, 400_000, generator=seeded(1))
    output, _ = kept(lambda: F.alpha_dropout(x, rate, training=True), batch=1)
    assert_close(output.mean(), torch.tensor(0.0), atol=0.01, rtol=0)
    assert_close(output.var(), torch.tensor(1.0), atol=0.02, rtol=0)
    assert_close(output.mode()[0], nn.AlphaDropout(rate)(x).mode()[0])  # the value of dropped units


@pytest.mark.parametrize("layer", [nn.Dropout, nn.Dropout2d])
def test_dropout_in_place_changes_its_input(layer):
    x = normal(BATCH, 7, 4, 4)
    expected, _ = kept(lambda: layer(0.5)(x))
    output, _ = kept(lambda: layer(0.5, inplace=True)(x))
    assert output is x
    assert_close(x, expected, rtol=0, atol=0)


@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.Dropout2d(0.5), nn.AlphaDropout(0.5)], ids=str)
def test_dropout_that_is_off_stays_off(layer):
    x = normal(BATCH, 7, 4, 4)
    output, masks = kept(lambda: layer.eval()(x))
    assert output is x
    assert masks == []


OPERATORS = {
    "dropout": F.dropout,
    "dropout_": F.dropout,
    "alpha_dropout": F.alpha_dropout,
    "feature_dropout": F.dropout2d,
    "feature_alpha_dropout": F.feature_alpha_dropout,
}


@pytest.mark.parametrize("keyword", [False, True])
@pytest.mark.parametrize("name", OPERATORS)
def test_the_operators_themselves_are_kept_too(name, keyword):
    x = normal(BATCH, 7, 4, 4)
    operator = getattr(torch, name)
    settings = ((), {"p": 0.5, "train": True}) if keyword else ((0.5, True), {})
    came, _ = kept(lambda: operator(x.clone(), *settings[0], **settings[1]))
    assert_close(came, kept(lambda: OPERATORS[name](x, 0.5, training=True))[0], rtol=0, atol=0)


def heads(length, size=4, count=2, seed=0):
    return normal(BATCH, count, length, size, seed=seed)


def bool_mask(*shape):
    mask = torch.rand(shape, generator=seeded(5)) > 0.4
    mask[..., 0] = True
    return mask


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"is_causal": True},
        {"scale": 0.3},
        {"enable_gqa": True},
        {"attn_mask": bool_mask(5, 7)},
        {"attn_mask": normal(5, 7)},
        {"attn_mask": bool_mask(BATCH, 1, 1, 7)},
        {"attn_mask": normal(BATCH, 2, 5, 7), "scale": 2.0},
    ],
    ids=lambda settings: "+".join(settings) or "plain",
)
def test_scaled_dot_product_attention_is_torchs_own_at_a_tiny_rate(settings):
    query, groups = heads(5), 1 if "enable_gqa" in settings else 2
    key, value = heads(7, count=groups, seed=1), heads(7, size=3, count=groups, seed=2)
    expected = F.scaled_dot_product_attention(query, key, value, **settings)
    output, masks = kept(
        lambda: F.scaled_dot_product_attention(query, key, value, dropout_p=TINY, **settings)
    )
    assert_close(output, expected)
    assert len(masks) == 1


def test_attention_drops_weights_as_written_out():
    query, key, value = heads(3), heads(4, seed=1), heads(4, seed=2)
    output, (mask,) = kept(lambda: F.scaled_dot_product_attention(query, key, value, dropout_p=0.4))
    assert mask.shape == (1, 2, 3, 4)
    assert_close(output, reference.attention(query, key, value, mask, 0.4))


def test_a_target_that_sees_nothing_attends_to_nothing():
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[1] = False
    x = heads(5)
    output, _ = kept(lambda: F.scaled_dot_product_attention(x, x, x, mask, dropout_p=TINY))
    assert_close(output, F.scaled_dot_product_attention(x, x, x, mask))
    layer = nn.MultiheadAttention(8, 2, dropout=TINY, batch_first=True).double()
    x = normal(BATCH, 5, 8)
    output, _ = kept(lambda: layer(x, x, x, attn_mask=~mask, need_weights=False)[0])
    assert_close(output, layer(x, x, x, attn_mask=~mask, need_weights=False)[0])


CAUSAL = torch.ones(5, 5, dtype=torch.bool).triu(1)
PADDING = torch.arange(5) >= torch.arange(2, 2 + BATCH).clamp(max=5)[:, None]
MASKS = {
    "none": {},
    "bool": {"attn_mask": CAUSAL},
    "float": {"attn_mask": normal(5, 5)},
    "bool 3-D": {"attn_mask": ~bool_mask(BATCH * 2, 5, 5)},
    "float 3-D": {"attn_mask": normal(BATCH * 2, 5, 5)},
    "padding": {"key_padding_mask": PADDING},
    "float padding": {"key_padding_mask": normal(BATCH, 5)},
    "both": {"attn_mask": CAUSAL, "key_padding_mask": PADDING},
    "causal": {"attn_mask": CAUSAL, "is_causal": True},
}


@pytest.mark.parametrize("weights", [{"need_weights": False}, {}, {"average_attn_weights": False}], ids=str)
@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("batch_first", [True, False])
def test_multi_head_attention_is_torchs_own_at_a_tiny_rate(batch_first, masks, weights):
    layer = nn.MultiheadAttention(8, 2, dropout=TINY, batch_first=batch_first).double()
    x = normal(BATCH, 5, 8) if batch_first else normal(5, BATCH, 8)
    call = lambda: layer(x, x.cos(), x.sin(), **MASKS[masks], **weights)
    came, given = kept(call)
    assert len(given) == 1
    assert_close(came, call())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("sizes", [(8, 8), (3, 6)])
def test_cross_attention_is_torchs_own_at_a_tiny_rate(sizes, bias):
    settings = {"kdim": sizes[0], "vdim": sizes[1], "bias": bias, "batch_first": True}
    layer = nn.MultiheadAttention(8, 2, dropout=TINY, **settings).double()
    query, key, value = normal(BATCH, 4, 8), normal(BATCH, 7, sizes[0]), normal(BATCH, 7, sizes[1])
    call = lambda: layer(query, key, value)
    assert_close(kept(call)[0], call())


@pytest.mark.parametrize(
    "masks", [{"attn_mask": CAUSAL}, {"attn_mask": normal(2, 5, 5)}, {"key_padding_mask": PADDING[0]}]
)
def test_attention_without_a_batch_is_torchs_own_at_a_tiny_rate(masks):
    layer = nn.MultiheadAttention(8, 2, dropout=TINY).double()
    x = normal(5, 8)
    call = lambda: layer(x, x, x, **masks)
    assert_close(kept(call)[0], call())


def test_attention_with_added_keys_is_refused():
    layer = nn.MultiheadAttention(8, 2, dropout=0.1, add_bias_kv=True).double()
    x = normal(5, BATCH, 8)
    with pytest.raises(InputError, match="must have no bias_k, .* Exclude the layer"):
        kept(lambda: layer(x, x, x))


RNNS = [
    (nn.LSTM, {}),
    (nn.LSTM, {"num_layers": 3, "bidirectional": True, "proj_size": 2}),
    (nn.LSTM, {"proj_size": 2}),
    (nn.GRU, {"num_layers": 3}),
    (nn.GRU, {"bidirectional": True}),
    (nn.RNN, {"num_layers": 3, "bidirectional": True}),
    (nn.RNN, {"nonlinearity": "relu"}),
    (nn.LSTM, {"bias": False}),
]


@pytest.mark.parametrize(("kind", "settings"), RNNS)
@pytest.mark.parametrize("batch_first", [True, False])
def test_recurrent_layers_are_torchs_own_at_a_tiny_rate(kind, settings, batch_first):
    layer = kind(4, 3, **{"num_layers": 2} | settings, dropout=TINY, batch_first=batch_first).double()
    x = normal(BATCH, 5, 4) if batch_first else normal(5, BATCH, 4)
    state = layer(x)[1]
    assert_close(kept(lambda: layer(x, state))[0], layer(x, state))


@pytest.mark.parametrize(("kind", "settings"), RNNS[:6])
def test_recurrent_layers_drop_between_layers(kind, settings):
    layer = kind(4, 3, **{"num_layers": 2} | settings, dropout=0.4, batch_first=True).double()
    x = normal(BATCH, 5, 4)
    (output, _), masks = kept(lambda: layer(x))
    assert len(masks) == layer.num_layers - 1
    assert_close(output, reference.recurrent(layer, x, masks, 0.4))


def test_packed_sequences_are_refused_where_units_would_be_dropped():
    packed = nn.utils.rnn.pack_padded_sequence(normal(BATCH, 5, 4), torch.full((BATCH,), 5), batch_first=True)
    single, double = nn.GRU(4, 3).double(), nn.GRU(4, 3, num_layers=2, dropout=0.2).double()
    assert_close(kept(lambda: single(packed)[1])[0], single(packed)[1])
    with pytest.raises(InputError, match="must run on padded sequences, got packed ones"):
        kept(lambda: double(packed))


def test_the_axis_of_the_samples_is_the_one_that_grows():
    class SequenceFirst(nn.Sequential):
        def forward(self, x):
            return self[2](self[1](self[0](x).transpose(0, 1)).transpose(0, 1))

    net = SequenceFirst(nn.Dropout(0.5), nn.Dropout(0.5), nn.Dropout2d(0.5)).eval()
    found = batch_axes(net, ("0", "1", "2"), Inputs.of(torch.zeros(4, 4, 4)))
    assert found == (0, 1, 0)
    assert batch_axes(net, ("1",), Inputs.of(torch.zeros(1, 3, 3))) == (1,)


def test_dropout_of_a_single_number_is_dropout():
    x = torch.tensor(1.0)
    assert {float(kept(lambda: F.dropout(x, 0.5), seed)[0]) for seed in range(20)} == {0.0, 2.0}
