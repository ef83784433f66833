"""Reads: which tensors layers read, whose axis of samples, and whether parameters had a part in them."""

import torch
from torch import nn

from pluribus.mechanisms.masks.reads import find_reads
from pluribus.mechanisms.network.layers import find_sites
from pluribus.mechanisms.network.network import Network
from tests import zoo
from tests.cases import case_named


def reads_of(model, example):
    network = Network(model, example)
    sites = [site for site in find_sites(network.module) if site.parameters]
    return {(read.site.name, read.position): read for read in find_reads(network, sites)}


def test_layers_that_read_one_tensor_have_its_number():
    reads = reads_of(zoo.Residual(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6)), torch.zeros(4, 6))
    first, last = reads.values()
    assert not set(first.tensors) & set(last.tensors)
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    query, key = reads_of(Cross(attention), (torch.zeros(3, 5, 8), torch.zeros(3, 7, 8))).values()
    assert (query.position, key.position) == (0, 1)
    assert (query.shape, key.shape) == ((3, 5, 8), (3, 7, 8))


class Cross(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.attention = attention

    def forward(self, x, memory):
        return self.attention(x, memory, memory)[0]


def test_only_what_parameters_had_a_part_in_is_learnt():
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))
    reads = reads_of(model.requires_grad_(False), torch.zeros(2, 2, 3))
    assert [read.learnt for read in reads.values()] == [False, True]
    assert reads["3", 0].operator.startswith("Tanh")


def test_the_axis_of_samples_is_the_one_that_grows():
    case = case_named("sequence_first")
    reads = reads_of(case.model(), case.inputs())
    assert {read.samples for read in reads.values()} >= {1}
    windows = nn.Sequential(
        zoo.Apply(lambda x: x.view(-1, 3)), nn.Linear(3, 2), zoo.Apply(lambda x: x.view(-1, 4))
    )
    (read,) = reads_of(windows, torch.zeros(5, 6)).values()
    assert read.samples is None  # two rows for each sample


def test_watching_leaves_no_trace():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).requires_grad_(False)
    network = Network(model, torch.randn(5, 3))
    before = {name: tensor.clone() for name, tensor in network.tensors().items()}
    find_reads(network, find_sites(network.module))
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.tensors().items())
    assert not any(parameter.requires_grad for parameter in network.module.parameters())
    assert not any(layer._forward_pre_hooks for layer in network.module.modules())


def test_what_is_computed_without_gradients_is_learnt_too():
    class Backbone(nn.Module):
        def __init__(self):
            super().__init__()
            self.back, self.one, self.two = nn.Linear(4, 5), nn.Linear(5, 6), nn.Linear(6, 3)

        def forward(self, x):
            with torch.no_grad():
                hidden = self.back(x).relu()
            return self.two(self.one(hidden).relu())

    reads = reads_of(Backbone(), torch.randn(4, 4))
    assert [read.learnt for read in reads.values()] == [False, True, True]
