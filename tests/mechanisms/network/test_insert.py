"""Inserting: a function before a layer, proved to run."""

import gc
import weakref

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from pluribus.errors import ConversionError
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.insert import insert, prove
from pluribus.mechanisms.network.layers import find_sites
from tests import zoo


def inserted(model, *names, function=lambda x: 2 * x):
    sites = {site.name: site for site in find_sites(model)}
    return insert({sites[name]: lambda layer, position, x: function(x) for name in names})


def test_the_function_changes_the_input_of_its_layer_alone():
    model, x = zoo.mlp(), torch.randn(4, 6)
    expected = model[4](model[2:4](2 * model[:2](x)))
    inserted(model, "2")
    assert_close(model(x), expected)


def test_the_layer_keeps_its_place_and_its_tensors():
    model = zoo.mlp()
    layer, names = model[2], list(model.state_dict())
    inserted(model, "2")
    assert model[2] is layer
    assert list(model.state_dict()) == names


def test_the_root_may_have_something_before_it():
    model, x = nn.Linear(6, 3), torch.randn(4, 6)
    expected = model(2 * x)
    inserted(model, "")
    assert_close(model(x), expected)


def test_a_shared_layer_has_it_at_every_call():
    model, x = zoo.SharedModule(), torch.randn(4, 6)
    (hook,) = inserted(model, "middle").values()
    model(x)
    assert hook.calls == 2


def test_self_attention_gets_one_tensor_for_query_key_and_value():
    seen = []

    class Looking(nn.MultiheadAttention):
        def forward(self, query, key, value, **kwargs):
            seen.append((query, key, value))
            return super().forward(query, key, value, **kwargs)

    layer, x = Looking(8, 2, batch_first=True), torch.randn(4, 5, 8)
    inserted(layer, "", function=lambda x: x + torch.rand_like(x))
    layer(x, x, x)
    layer(x, x.clone(), x.clone(), attn_mask=torch.zeros(5, 5))
    assert seen[0][0] is seen[0][1] is seen[0][2]
    assert not torch.equal(seen[1][0], seen[1][1])


def test_masks_and_states_are_not_inputs():
    attention, x, mask = (
        nn.MultiheadAttention(8, 2, batch_first=True),
        torch.randn(4, 5, 8),
        torch.randn(5, 5),
    )
    expected = attention(2 * x, 2 * x, 2 * x, attn_mask=mask)
    inserted(attention, "")
    assert_close(attention(x, x, x, attn_mask=mask), expected)
    assert_close(attention(query=x, key=x, value=x, attn_mask=mask), expected)
    recurrent, state = nn.GRU(8, 3, batch_first=True), torch.randn(1, 4, 3)
    expected = recurrent(2 * x, state)
    inserted(recurrent, "")
    assert_close(recurrent(x, state), expected)


def test_keyword_inputs_and_inputs_that_are_no_tensor_pass():
    class Scaled(nn.Module):
        def forward(self, *, x, power, label=None):
            return x**power

    layer = Scaled()
    inserted(layer, "")
    assert_close(layer(power=2, x=torch.ones(3)), torch.full((3,), 4.0))


@pytest.mark.parametrize("gradients", [True, False])
def test_what_stands_in_a_fused_layer_is_not_skipped(gradients):
    model, x = zoo.transformer(depth=2).eval(), torch.randn(4, 5, 4)
    names = [f"1.layers.{i}.{layer}" for i in (0, 1) for layer in ("self_attn", "linear1", "linear2")]
    hooks = inserted(model, *names, function=lambda x: x)
    with torch.set_grad_enabled(gradients):
        model(x)
    assert [hook.calls for hook in hooks.values()] == [1] * 6
    prove(model, hooks, Inputs.of(x))


def test_a_layer_that_does_not_run_is_refused_by_name():
    model = zoo.UnusedLayer()
    hooks = inserted(model, "first", "middle")
    with pytest.raises(
        ConversionError, match=r"middle \(Linear\) is not called in train mode.*exclude='middle'"
    ):
        prove(model, hooks, Inputs.of(torch.zeros(4, 6)))


class OnlyTrained(nn.Module):
    def __init__(self):
        super().__init__()
        self.extra, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.extra(x) if self.training else x)


def test_a_layer_that_runs_in_one_mode_only_is_refused_with_the_mode():
    model = OnlyTrained()
    with pytest.raises(ConversionError, match=r"extra \(Linear\) is not called in eval mode"):
        prove(model, inserted(model, "extra"), Inputs.of(torch.zeros(4, 6)))


def test_a_function_that_meets_no_floating_point_input_did_not_run():
    model = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(8, 3))
    with pytest.raises(ConversionError, match="Embedding"):
        prove(model, inserted(model, "0"), Inputs.of(torch.zeros(4, 2, dtype=torch.long)))


def test_a_function_reaches_packed_sequences_or_is_refused():
    layer = nn.GRU(3, 2, batch_first=True)
    called: list[Tensor] = []
    inserted(layer, "", function=lambda x: called.append(x) or x)
    state = torch.zeros(1, 4, 2)
    packed = nn.utils.rnn.pack_padded_sequence(torch.ones(4, 5, 3), torch.full((4,), 5), batch_first=True)
    layer(packed, state)
    assert called
    assert called[0] is not state


def test_proving_leaves_no_trace():
    model, x = zoo.batch_norm_mlp().eval(), torch.randn(4, 6)
    hooks = inserted(model, "0", "3")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    prove(model, hooks, Inputs.of(x))
    assert not model.training
    assert_close(dict(model.state_dict()), before, rtol=0, atol=0)


def test_one_sample_is_enough_to_prove_a_network_with_batch_norm():
    model = zoo.batch_norm_mlp()
    prove(model, inserted(model, "0"), Inputs.of(torch.randn(1, 6)))


def test_a_function_that_was_taken_away_does_not_run():
    model, x = zoo.mlp(), torch.randn(4, 6)
    hooks = inserted(model, "0", function=lambda x: x + 1)
    assert not torch.equal(model(x), plain(model, x))
    for hook in hooks.values():
        hook.detach()
        hook.detach()
    assert torch.equal(model(x), plain(model, x))


def plain(model, x):
    """Return what an MLP computes without its hooks on the first layer."""
    first = nn.functional.linear(x, model[0].weight, model[0].bias)
    return model[1:](first)


def test_activations_are_freed_at_once():
    model = zoo.mlp()
    seen = []
    inserted(model, "0", function=lambda x: seen.append(weakref.ref(made := x + 1)) or made)
    gc.disable()
    try:
        with torch.no_grad():
            model(torch.randn(4, 6))
        assert seen[0]() is None
    finally:
        gc.enable()
