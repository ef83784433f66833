"""Clipping: each member by its own norm where members share nothing, and all together else."""

import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.methods import BatchEnsemble, DeepEnsembles
from pluribus.training.clipping import clip_gradients, clip_members, member_norms
from pluribus.training.loop import make_fabric


def with_gradients(method):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2), nn.PReLU()).double()
    ensemble = pl.convert(model, method).train()
    ensemble.loss(100 * torch.randn(6, 3).double(), torch.tensor([0, 1, 1, 0, 1, 0])).backward()
    return ensemble


def test_members_are_clipped_as_torch_clips_each_alone():
    ensemble = with_gradients(DeepEnsembles(members=3))
    parameters = list(ensemble.members.tensors.own.parameters())
    before = [[one.grad[row].clone() for one in parameters] for row in range(3)]
    norms = member_norms(parameters)
    limit = float(norms.median())
    clip_members(ensemble, limit)
    for row, gradients in enumerate(before):
        alone = [nn.Parameter(torch.zeros_like(one)) for one in gradients]
        for parameter, gradient in zip(alone, gradients, strict=True):
            parameter.grad = gradient
        assert_close(nn.utils.clip_grad_norm_(alone, limit), norms[row])
        for parameter, came in zip(alone, parameters, strict=True):
            assert_close(came.grad[row], parameter.grad)


def test_members_that_share_weights_are_clipped_together():
    for method, separate in ((DeepEnsembles(members=3), True), (BatchEnsemble(members=3), False)):
        ensemble = with_gradients(method)
        fabric = make_fabric("cpu")
        optimizer = torch.optim.SGD(ensemble.parameter_groups(0.1))
        clip_gradients(ensemble, 1e-3, *fabric.setup(ensemble, optimizer), fabric)
        total = torch.stack([one.grad.norm() for one in ensemble.parameters() if one.grad is not None]).norm()
        assert_close(float(total), 1e-3 * (3**0.5 if separate else 1), rtol=1e-2, atol=0)


def test_nothing_to_clip_is_no_error():
    clip_members(pl.convert(nn.Linear(2, 2), DeepEnsembles(members=2)), 1.0)
