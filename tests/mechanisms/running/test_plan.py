"""Plans: rows run together are rows alone, with as few layer calls and as much memory as said."""

import itertools
import re

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from pluribus.backbones import resnet18
from pluribus.errors import InputError
from pluribus.mechanisms.graph.cost import Meter
from pluribus.mechanisms.graph.program import read_program
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.running.plan import ExecutionPlan
from pluribus.mechanisms.running.planner import Planner
from pluribus.mechanisms.running.simulate import simulate_steps
from tests import zoo
from tests.cases import case_named, normal
from tests.mechanisms.running.options import alone, chain, mixed, options, some

EXACT = {"rtol": 1e-10, "atol": 1e-10}
CNN = [nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)]


def small_resnet():
    return resnet18(width=2, classes=3)


class Awkward(nn.Module):
    """Values of all ranks meet: a number, a vector, a map, each with options; views, norms, a branch."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.head = nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Linear(4, 3)
        self.scale, self.gain = nn.Parameter(torch.randn(4, 1, 1)), nn.Parameter(torch.tensor(0.5))
        self.layers = nn.LayerNorm(4), nn.BatchNorm1d(4)
        self.inner, self.statistics = self.layers

    def forward(self, x):
        trunk = x.mean(1, keepdim=True)[:, :, 1:-1, 1:-1]
        x = trunk + self.norm(self.first(x)) * self.scale
        x = 2 - (x + trunk).relu() * self.gain
        x = x.view(x.shape[0], 4, -1).flatten(2, -1).amax(-1).reshape(-1, 2, 2).flatten(1)
        return self.head(torch.cat([self.inner(x)[:, :2], self.statistics(x)[:, 2:]], 1))


class Gram(nn.Module):
    """A product of a value with itself."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 5), nn.Linear(1, 3)

    def forward(self, x):
        x = self.first(x)
        return self.last(nn.functional.linear(x, x).mean(1, keepdim=True))


NETWORKS = {
    "gram": (Gram, normal(6)),
    "chain": (lambda: chain(6, 7, 5, 3), normal(6)),
    "cnn": (lambda: nn.Sequential(*CNN), normal(2, 7, 7)),
    "resnet": (small_resnet, normal(3, 8, 8)),
    "awkward": (Awkward, normal(2, 8, 8)),
    "branches": (zoo.Branched, normal(6)),
    "shared": (zoo.SharedModule, normal(6)),
    **{
        name: (case_named(name).build, case_named(name).inputs)
        for name in ("residual_cnn", "grouped_cnn", "monai_unet", "monai_densenet", "hf_vit", "mini_vit")
    },
}


def network_named(name):
    build, inputs = NETWORKS[name]
    torch.manual_seed(0)
    return Network(build().double(), inputs())


def planned(name, rows=6):
    network = network_named(name)
    network.module.eval()
    members = options(network, (2, 1, 3))
    program, rows = read_program(network), some(members, rows)
    plan = ExecutionPlan(program, [members.tensors.keys(row) for row in rows])
    return network, members, plan, rows


def run_plan(plan, members, rows, inputs, size):
    with torch.no_grad():
        return plan.run(lambda chosen: members.tensors.of([rows[row] for row in chosen]), inputs, size)


def upstream(program, node):
    """The names of all tensors that reach a step, by following every path back."""
    waiting, seen = [node], set()
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            waiting += one.all_input_nodes
    return sorted(program.held[one] for one in seen if one in program.held)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.sampled(3)
def test_rows_run_together_are_rows_alone(name):
    network, members, plan, rows = planned(name)
    expected = torch.stack([run_alone(network, held) for held in members.tensors.of(rows)])
    weights = simulate_steps(plan.program, next(members.tensors.of(rows)), network.example)
    for node in plan.program.calls:
        taken = [[members.tensors.keys(row).get(one) for one in upstream(plan.program, node)] for row in rows]
        assert plan.count(node) == len({tuple(one) for one in taken})
    for size in (1, 4):
        with Meter() as meter:
            outputs = run_plan(plan, members, rows, network.example, size)
        assert_close(outputs, expected, **EXACT)
        assert meter.multiply_adds == sum(
            plan.count(node) * weights[node].multiply_adds for node in plan.program.steps
        )


def run_alone(network, held):
    module, inputs = network.module, network.example.copy()
    with torch.no_grad():
        returned = torch.func.functional_call(module, held, inputs.args, inputs.keywords)
    return returned if isinstance(returned, torch.Tensor) else returned["logits"]


def least_memory(refused):
    with pytest.raises(InputError) as error:
        refused()
    return int(re.search(r"at least (\d+) bytes", str(error.value))[1])


@pytest.mark.parametrize("name", ["cnn", "residual_cnn", "awkward"])
def test_peaks_are_those_planned(name):
    network = network_named(name)
    members = options(network, (2, 1, 3))
    rows, planner = some(members, 7), Planner(members)
    least = least_memory(lambda: planner(tuple(rows), network.example, 1))
    for memory in (None, 2 * least, least):
        ready, example = planner(tuple(rows), network.example, memory), network.example
        with torch.no_grad(), Meter() as meter:
            ready(example)
        assert meter.peak == ready.peak(example)
        assert memory is None or meter.peak <= memory


def test_a_chain_runs_as_often_as_the_paper_says():
    x = normal(6)()
    for count, depth in ((2, 4), (3, 3), (5, 2)):
        ensemble = mixed(chain(6, *[4] * (depth - 1), 3), x, [count])
        found = ensemble.explain(x)
        assert found.rows == count**depth
        assert found.layer_calls.planned == (count ** (depth + 1) - count) // (count - 1)
        assert found.layer_calls.alone == depth * count**depth


def test_depth_first_keeps_one_value_per_layer_alive():
    x, widths = normal(6)(), (6, 40, 30, 20, 3)
    ensemble = mixed(chain(*widths), x, [3])
    outputs = 2 * 81 * 10 * 3 * 8  # while they are joined
    layers = 10 * 8 * (2 * sum(widths[1:-1]))  # and what the activation makes of each
    least = ensemble.explain(x, memory=layers + outputs).peak_bytes.planned
    assert least <= layers + outputs
    with pytest.raises(
        InputError, match=r"memory must be at least \d+ bytes for 81 distinct rows.*memory=99"
    ):
        ensemble.predict(x, memory=99)


def test_the_least_memory_that_is_named_is_enough():
    x = normal(2, 7, 7)()
    ensemble = mixed(nn.Sequential(*CNN).double(), x, [3])
    least = least_memory(lambda: ensemble.predict(x, memory=1))
    assert_close(ensemble.predict(x, memory=least).members, ensemble.predict(x).members, **EXACT)
    with pytest.raises(InputError):
        ensemble.predict(x, memory=least - 1)


def test_rows_keep_their_order_and_duplicates_run_once():
    x, model = normal(6)(), chain(6, 5, 3)
    ensemble = mixed(model, x, [3])
    rows = [(2, 1), (0, 0), (2, 1), (1, 2), (0, 0), (2, 0)]
    assert_close(ensemble(x, members=rows), alone(ensemble, model, rows, x), **EXACT)
    assert ensemble.explain(x, members=rows).layer_calls.planned == 3 + 4


class Noisy(zoo.ThreeLayers):
    """Adds random numbers between its layers, in eval mode too."""

    def forward(self, x):
        x = self.first(x)
        return self.head(self.middle(x + torch.randn_like(x)))


def test_what_follows_random_numbers_is_not_shared():
    x = normal(6)()
    ensemble = mixed(Noisy().double(), x, [2, 1, 1])
    rows = [(0, 0, 0), (1, 0, 0), (0, 0, 0), (0, 0, 0)]
    outputs = ensemble(x, members=rows)
    assert all(not torch.equal(a, b) for a, b in itertools.combinations(outputs, 2))
    assert ensemble.explain(x, members=rows).layer_calls.planned == 2 + 4 + 4


def test_dropout_that_is_off_is_shared():
    x = normal(6)()
    model = nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5), nn.Linear(5, 3)).double()
    ensemble = mixed(model, x, [1, 3])
    assert ensemble.explain(x).layer_calls.planned == 1 + 3
    assert_close(ensemble(x), alone(ensemble, model, ensemble.members.index.rows(training=False), x), **EXACT)


def test_gradients_are_those_of_rows_alone():
    x, model = normal(2, 7, 7)(), nn.Sequential(*CNN).double()
    found = []
    for is_planned in (True, False):
        ensemble = mixed(model, x, [2])
        ensemble.members.lowers = is_planned
        given = x.clone().requires_grad_()
        ensemble(given).square().sum().backward()
        found.append([given.grad, *(parameter.grad for parameter in ensemble.parameters())])
    assert_close(*found, **EXACT)


def test_inputs_stay_as_they_are():
    x = normal(6)()
    model = nn.Sequential(nn.Hardswish(inplace=True), *chain(6, 5, 3)).double()
    ensemble, before = mixed(model, x.clone(), [2]), x.clone()
    outputs = ensemble(x)
    assert_close(x, before, rtol=0, atol=0)
    expected = [
        alone(ensemble, model, [row], x.clone())[0] for row in ensemble.members.index.rows(training=False)
    ]
    assert_close(outputs, torch.stack(expected), **EXACT)
