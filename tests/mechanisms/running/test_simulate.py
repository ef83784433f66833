"""Weighing: what steps and plans take, without running them."""

import torch
from torch import nn

import pluribus as pl
from pluribus.mechanisms.graph.program import read_program
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.running.plan import ExecutionPlan
from pluribus.mechanisms.running.simulate import estimate, simulate_plan, simulate_steps


def chain():
    network = Network(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)), torch.zeros(5, 3))
    return network, read_program(network)


def test_steps_weigh_their_products_and_what_they_hold():
    network, program = chain()
    weights = simulate_steps(program, network.tensors(), network.example)
    assert [weights[node].multiply_adds for node in program.steps] == [5 * 3 * 8, 0, 5 * 8 * 2]
    assert [weights[node].bytes for node in program.steps] == [4 * 5 * 8, 4 * 5 * 8, 4 * 5 * 2]


def test_a_view_takes_no_memory_and_keeps_that_of_another():
    network = Network(nn.Sequential(nn.Linear(3, 8), nn.Unflatten(1, (2, 4))), torch.zeros(5, 3))
    program = read_program(network)
    weights = simulate_steps(program, network.tensors(), network.example)
    layer, view = program.steps[0], program.steps[-1]
    assert weights[view].bytes == 0
    assert weights[view].holds == {layer}


def test_the_weight_of_a_plan_is_what_a_run_takes():
    network, program = chain()
    plan = ExecutionPlan(program, [{}])
    peak, prediction = simulate_plan(plan, 1, network.tensors(), network.example)
    measured = pl.cost(network.module, *network.example.args)
    assert peak == measured.peak_activation_bytes
    assert prediction == 4 * 5 * 2
    weights = simulate_steps(program, network.tensors(), network.example)
    assert estimate(plan, weights, [0]) == peak


def test_nothing_is_computed():
    network, program = chain()
    broken = {name: torch.full_like(tensor, torch.nan) for name, tensor in network.tensors().items()}
    assert simulate_steps(program, broken, network.example) == simulate_steps(
        program, network.tensors(), network.example
    )
