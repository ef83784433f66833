"""Row calls: worth it where rows share little but what all of them share."""

import torch
from torch import nn

from pluribus.mechanisms.graph.program import read_program
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.running.plan import ExecutionPlan
from pluribus.mechanisms.running.row_calls import rows_share_little
from pluribus.mechanisms.running.simulate import simulate_steps


def test_rows_that_share_in_pairs_are_unrolled():
    network = Network(nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)), torch.zeros(2, 6))
    program = read_program(network)
    costs = simulate_steps(program, network.tensors(), network.example)
    own = [{"0.weight": row, "1.weight": row, "2.weight": row} for row in range(4)]
    pairs = [{"0.weight": row // 2, "2.weight": row} for row in range(4)]
    trunk = [{"2.weight": row} for row in range(4)]
    found = [rows_share_little(ExecutionPlan(program, keys), costs) for keys in (own, pairs, trunk)]
    assert found == [True, False, True]
