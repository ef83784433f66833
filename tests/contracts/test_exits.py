"""Networks with exits on every case of the zoo, in float64: rows are members, frozen or not; the rest is
refused by name.
"""

import copy
import functools

import pytest
import torch
from torch.testing import assert_close

import pluribus as pl
from pluribus.methods import SAE, EarlyExit
from tests.cases import CASES, case_named, each, run

METHODS = [SAE(inputs=2, exits=1, batch_repetition=1), EarlyExit()]
NOWHERE = "a place to exit before the output must be found"
ENTERS = "every input must enter through layers that can be widened, got "
UNBLOCKED = ["batch_norm_mlp", "root_layer", "module_dict", "parameter_list", "two_inputs", "keywords"]
UNBLOCKED += ["lstm", "gru", "custom_matmul", "unused_layer"]
REFUSED = {
    **dict.fromkeys(UNBLOCKED, (NOWHERE, NOWHERE)),
    "data_dependent": ("cannot be read by torch.export",) * 2,
    "grouped_cnn": (ENTERS + r"0 \(Conv2d\) has groups=2", ""),
    "tied_embedding": (ENTERS + r"0 \(Embedding\) shares its weight with 4", ""),
    "weight_norm": (ENTERS + "the weight of 0 .* is computed", ""),
    "spectral_norm": (ENTERS + "the weight of 0 .* is computed", ""),
    "embedding_bag": (ENTERS + r"0 \(EmbeddingBag\) computes embedding_bag", ""),
}
"""By case, why several inputs and why exits are refused; empty where they are not."""

each_method = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.kind())


@functools.cache
def _converted(name, method):
    case = case_named(name)
    return pl.convert(case.model(), method, example=case.inputs())


def converted(case, method):
    refusal = REFUSED.get(case.name, ("", ""))[METHODS.index(method)]
    if refusal:
        with pytest.raises(pl.PluribusError, match=refusal):
            pl.convert(case.model(), method, example=case.inputs())
        pytest.skip(f"refused: {refusal}")
    return copy.deepcopy(_converted(case.name, method))


@each_method
@each(CASES)
@pytest.mark.sampled(8)
def test_a_row_is_its_member_and_frozen_ones_are_the_same(case, method):
    ensemble, x = converted(case, method).eval(), case.inputs()
    rows = run(ensemble, x)
    assert rows.shape == (len(ensemble.weights), *case.shape)
    for i, row in enumerate(rows):
        assert_close(run(ensemble.member(i), x), row)
    assert_close(run(ensemble.freeze(), x), rows)


@each(CASES, few=True)
@pytest.mark.sampled(3)
def test_every_trained_parameter_gets_a_gradient_and_the_same_seed_the_same_ensemble(case):
    method = METHODS[0]
    ensemble, x = converted(case, method).train(), case.inputs()
    torch.manual_seed(0)
    target = torch.zeros(len(run(ensemble, x)[0]))
    ensemble.loss(x, target, criterion=lambda output, y: output.square().mean()).backward()
    for name, parameter in ensemble.named_parameters():
        assert not parameter.requires_grad or parameter.grad is not None, name
    again = pl.convert(case.model(), method, example=x)
    assert_close(dict(again.state_dict()), dict(_converted(case.name, method).state_dict()))


@each(CASES, few=True)
def test_the_last_exit_is_the_network_and_the_original_is_not_touched(case):
    model, x = case.model().eval(), case.inputs()
    before = copy.deepcopy(model.state_dict())
    ensemble = converted(case, METHODS[1]).eval()
    single = run(pl.convert(model, pl.methods.Single(), example=x).eval(), x)
    assert_close(run(ensemble, x)[-1:], single)
    assert_close(dict(model.state_dict()), dict(before))
