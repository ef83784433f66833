"""Tapping: several inputs, exits at every depth, and nothing run that was not asked for."""

import copy
from functools import cache

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from pluribus.backbones import residual_mlp
from pluribus.errors import ConversionError, InputError
from pluribus.mechanisms.exits.exit_points import find_exit_points
from pluribus.mechanisms.exits.tapped import tap
from pluribus.mechanisms.members.skeleton import Skeleton, blank
from pluribus.mechanisms.members.tree import named_tensors
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.network import Network
from tests import zoo
from tests.cases import case_named, logits, run


@cache
def network(name):
    case = case_named(name)
    return Network(case.model().eval(), case.inputs())


def cnn():
    torch.manual_seed(0)
    body = [nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)]
    more = [nn.Conv2d(4, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 6, 1), nn.ReLU()]
    return nn.Sequential(*body, *more, *zoo.pooled(6, nn.AdaptiveAvgPool2d(1))).double().eval()


@cache
def cnn_network():
    return Network(cnn(), torch.zeros(2, 2, 8, 8, dtype=torch.float64))


def made(network, inputs, where=None, **settings):
    return tap(network, find_exit_points(network, where), inputs, **settings)


def tapped(inputs, **settings):
    return made(cnn_network(), inputs, **settings)


def images(parts=1, batch=5):
    generator = torch.Generator().manual_seed(1)
    shape = (batch, 2, 8, 8)
    return [Inputs((torch.randn(shape, dtype=torch.float64, generator=generator),)) for _ in range(parts)]


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    "name",
    [
        "two_inputs",
        "keywords",
        "transposed_conv",
        "hf_bert",
        "hf_vit",
        pytest.param("lstm", marks=pytest.mark.slow),
    ],
)
def test_one_sample_in_every_slot_gives_what_the_network_gave(name):
    case = case_named(name)
    model = made(network(name), 2)
    given = Inputs.of(case.inputs())
    outputs = model(*given.args, **given.keywords)
    expected = logits(run(case.model().eval(), case.inputs()))
    assert model.pairs == tuple((i, j) for i in range(2) for j in range(model.points.depths))
    for slot in range(2):
        assert_close(outputs[:, model.pairs.index((slot, model.points.depths - 1))], expected)


def test_parts_are_read_side_by_side():
    model, (left, right) = tapped(2, start="fresh"), images(2)
    layers = model.network
    joined = torch.cat([left.args[0], right.args[0]], dim=1)
    x = nn.functional.conv2d(joined, layers[0].weight, layers[0].bias, padding=1)
    shallow = layers[1:4](x)
    middle = layers[4:7](shallow)
    deep = layers[7:](middle).view(5, 2, 3)
    expected = [model.heads[0](shallow), model.heads[1](middle), deep]
    assert_close(model.run([left, right]), torch.cat([torch.stack(expected, 2)[:, i] for i in (0, 1)], 1))


def test_every_slot_is_read():
    model, parts = tapped(3, start="fresh"), images(3)
    before = model.run(parts)
    for slot in range(3):
        changed = [*parts[:slot], images(4)[3], *parts[slot + 1 :]]
        assert not torch.allclose(model.run(changed), before)
    assert_close(model.run(parts), before)


def test_some_pairs_are_those_of_all():
    model, parts = tapped(2), images(2)
    full, pairs = model.run(parts), [(1, 1), (0, 0), (1, 0)]
    assert_close(model.run(parts, pairs), full[:, [model.pairs.index(pair) for pair in pairs]])


def test_nothing_runs_that_was_not_asked_for():
    model, calls = tapped(2), []
    for name, layer in model.named_modules():
        layer.register_forward_pre_hook(lambda *_, name=name: calls.append(name))
    model.run(images(2), [(0, 1)])
    assert {"network.6", "heads.1"} <= set(calls)
    assert not {"network.7", "network.11", "heads.0"} & set(calls)
    calls.clear()
    model.run(images(2), [(0, 2)])
    assert not {"heads.0", "heads.1"} & set(calls)
    assert calls.count("network.1") == 1  # the second slot's run ends at the first layer


@pytest.mark.parametrize("pairs", [[(1, 1), (0, 0), (2, 1)], [(2, 2), (0, 0)], [(1, 0)]])
def test_kept_pairs_compute_the_same_with_the_parameters_they_need(pairs):
    model, parts = tapped(3), images(3)
    expected = model.run(parts, pairs)
    model.keep(pairs)
    assert model.pairs == tuple(pairs)
    assert_close(model.run(parts), expected)
    assert_close(copy.deepcopy(model).run(parts, pairs[:1]), expected[:, :1])
    layers = [3 * 2 * 4 * 9 + 4 + 8, 4 * 6 * 9 + 6, 6 * 6 + 6]  # up to each depth: BatchNorm, convolutions
    bodies = [4 * 6 + 6 + 12, 6 * 6 + 6 + 12, 0]
    depths = {depth for _, depth in pairs}
    outputs = len(pairs) * (6 * 3 + 3)
    assert count(model) == sum(layers[: max(depths) + 1]) + sum(bodies[j] for j in depths) + outputs
    with pytest.raises(InputError, match=r"pairs must be some of .*\(0, 2\)"):
        model.run(parts, [(0, 2)])


def test_samples_that_leave_are_not_run_and_others_see_no_difference():
    model, (part,) = tapped(2), images()
    full = model.run([part])
    going, seen = (
        {0: torch.tensor([True, False, True, True, False]), 1: torch.tensor([False, True, False])},
        {},
    )

    def watch(depth, outputs):
        seen[depth] = outputs
        return going.get(depth)

    last = model.run([part], watch=watch)
    left = {0: [0, 1, 2, 3, 4], 1: [0, 2, 3], 2: [2]}
    for depth, samples in left.items():
        pairs = [model.pairs.index((slot, depth)) for slot in range(2)]
        assert_close(seen[depth], full[samples][:, pairs])
    assert_close(last, seen[2])


def test_the_run_ends_when_nobody_goes_on():
    model, depths = tapped(1), []
    model.run(images(), watch=lambda depth, out: depths.append(depth) or torch.zeros(len(out)).bool())
    assert depths == [0]


def test_all_parameters_learn_in_train_mode():
    model = tapped(2, start="fresh").train()
    model.run(images(2)).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_code_that_runs_again_during_backward_finds_what_it_saw():
    class Again(nn.Module):
        def __init__(self, again):
            super().__init__()
            self.layers, self.again = cnn(), again

        def forward(self, x):
            parts = [self.layers[:4], self.layers[4:7], self.layers[7:]]
            for part in parts:
                x = torch.utils.checkpoint.checkpoint(part, x, use_reentrant=False) if self.again else part(x)
            return x

    model = made(Network(Again(False), images()[0].args[0]), 2)
    gradients = []
    for again in (False, True):
        model.network.again = again
        model.zero_grad()
        model.run(images(2), [(0, 0), (1, 1)]).square().sum().backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert len(gradients[0]) > 8
    assert_close(gradients[1], gradients[0])


class Nested(nn.Module):
    """Three blocks that run again during backward two at a time, or are left out in training."""

    def __init__(self, form):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(4))
        self.last, self.form = nn.Linear(4, 2), form

    def forward(self, x):
        if self.form == "skips" and self.training:
            return self.last(self.blocks[0](x))
        if self.form == "plain" or not self.training:
            return self.last(nn.Sequential(*self.blocks)(x))
        again = self.form == "reentrant"
        return self.last(torch.utils.checkpoint.checkpoint_sequential(self.blocks, 2, x, use_reentrant=again))


def nested(form):
    return made(Network(Nested(form), torch.zeros(2, 4)), 1).train()


def test_an_exit_inside_of_what_runs_again_learns_or_is_refused():
    x, gradients = torch.randn(5, 4).requires_grad_(), []
    for form in ("plain", "other"):
        model = nested(form)
        model(x).square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert_close(gradients[1], gradients[0])
    for pairs in (None, [(0, 0)]):
        with pytest.raises(InputError, match=r"end of checkpointed code, got blocks\.0, which"):
            nested("reentrant").run([Inputs((x,))], pairs)
        with torch.no_grad():
            nested("reentrant").run([Inputs((x,))], pairs)


def test_the_deepest_exit_learns_where_it_ends_what_runs_again():
    x, found = torch.randn(5, 4).requires_grad_(), []
    for form in ("plain", "reentrant"):
        model = nested(form)
        model.run([Inputs((x,))], [(0, 1)]).square().sum().backward()
        found.append(model.network.blocks[0][0].weight.grad)
    assert_close(found[1], found[0])


class Written(nn.Module):
    """Every layer's output is written into by what follows."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x):
        return self.last(self.second(self.first(x).neg_()).neg_())


def test_layers_that_write_into_the_value_of_an_exit_do_not_change_what_it_says():
    model = made(Network(Written(), torch.zeros(2, 4)), 1, where=("first", "second")).eval()
    x, layers = torch.randn(5, 4), model.network
    first = layers.first(x)
    expected = torch.cat([model.heads[0](first), model.heads[1](layers.second(-first))], 1)
    for learns in (False, True):
        with torch.set_grad_enabled(learns):
            assert_close(model(x)[:, :2], expected)


def test_an_exit_that_is_not_reached_is_named():
    with pytest.raises(InputError, match=r"got a run without blocks\.1"):
        nested("skips")(torch.randn(5, 4))


def test_a_copy_is_independent():
    model, parts = tapped(2), images(2)
    expected = model.run(parts)
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert_close(copied.run(parts), expected)
    assert copied._entry is not model._entry


def test_it_can_be_exported():
    model, (part,) = tapped(2), images()
    shapes = {"args": ({0: torch.export.Dim.AUTO},)}
    program = torch.export.export(model, part.args, dynamic_shapes=shapes, strict=False)
    (other,) = images(batch=7)
    assert_close(program.module()(*other.args), model(*other.args))


def test_a_skeleton_filled_with_its_tensors_computes_the_same():
    model, parts = tapped(2), images(2)
    filled = Skeleton(blank(model)).fill(named_tensors(model))
    assert_close(filled.run(parts), model.run(parts))


def test_modes_of_layers_stay_as_they_were():
    network = cnn().train()
    network[1].eval()
    model = made(Network(network, images()[0].args[0]), 1)
    assert [model.training, model.heads[0].training, model.network[1].training] == [True, True, False]


def test_heads_and_fresh_layers_follow_from_the_seed():
    one, same, other = (tapped(2, start="fresh", seed=seed).state_dict() for seed in (1, 1, 2))
    assert_close(one, same)
    for name in ("network.0.weight", "network.11.weight", "heads.0.last.weight"):
        assert not torch.equal(one[name], other[name])
    assert_close(one["network.4.weight"], other["network.4.weight"])


def test_a_network_of_residual_blocks_has_an_exit_after_each():
    model = made(Network(residual_mlp(4, 2, 6, 3).eval(), torch.zeros(2, 4)), 2, where=("blocks.*",))
    assert [exit.name for exit in model.points.exits] == ["blocks.0", "blocks.1", "blocks.2"]
    assert model(torch.randn(5, 4)).shape == (5, 8, 2)


@pytest.mark.parametrize(
    ("model", "shape", "reason"),
    [
        (lambda: nn.Linear(6, 3), (6,), "the network itself is the first layer too"),
        (zoo.grouped_cnn, (4, 8, 8), r"0 \(Conv2d\) has groups=2"),
        (
            lambda: nn.Sequential(*zoo.mlp(), nn.LogSoftmax(1)),
            (6,),
            "from 4, got a failed run: the outputs are others",
        ),
        (lambda: nn.Sequential(*zoo.mlp(), nn.BatchNorm1d(3)), (6,), "there is none, or more than one"),
        (
            lambda: nn.Sequential(*zoo.mlp(), zoo.Apply(lambda x: x.view(-1, 3))),
            (6,),
            "side by side from 4, got",
        ),
    ],
    ids=["root", "groups", "softmax", "norm", "view"],
)
def test_networks_that_cannot_take_several_inputs_are_refused_by_layer(model, shape, reason):
    with pytest.raises(ConversionError, match=reason):
        made(Network(model().eval(), torch.randn(2, *shape)), 2)


def test_a_wrong_number_of_parts_is_refused():
    with pytest.raises(InputError, match="one for each of 3 inputs, got 2"):
        tapped(3).run(images(2))
