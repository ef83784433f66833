"""Parameters of samples: every layer that takes them computes what it would for each sample alone."""

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.testing import assert_close

from pluribus.errors import InputError
from pluribus.mechanisms.members.per_sample import PerSample, why_apart
from pluribus.mechanisms.network.network import Network
from tests.cases import case_named, seeded

BATCH = 4


class Scale(nn.Module):
    """As norms of other libraries end."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(6)), nn.Parameter(torch.zeros(6))

    def forward(self, x):
        return x * (1 + self.weight) + self.bias * 2.0


class Cast(Scale):
    """Computes in the precision of its input, as norms of language models do."""

    def forward(self, x):
        return x * (1 + self.weight.to(x.dtype)).double() + self.bias.type_as(x)


class ChannelsFirst(Scale):
    """A norm of images that broadcasts its parameters itself."""

    def forward(self, x):
        return self.weight[:, None, None] * x + self.bias.view(-1, 1, 1)


class Response(nn.Module):
    """Parameters with an axis for the samples, as response norms have them."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = (nn.Parameter(torch.ones(1, 1, 1, 6)) for _ in range(2))

    def forward(self, x):
        assert self.weight.ndim == len(self.weight.shape) == 4
        return x.type_as(self.weight) * self.weight + self.bias + x


class Asking(Scale):
    """A norm that asks its weight for a shape."""

    def forward(self, x):
        shaped = self.bias.reshape(self.weight.shape)
        return nn.functional.layer_norm(x, self.weight.shape, self.weight, shaped, 1e-5)


def normal(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=seeded(seed))


LAYERS = [
    (nn.BatchNorm1d(6), (6,)),
    (nn.BatchNorm2d(6), (6, 3, 3)),
    (nn.GroupNorm(2, 6), (6, 3, 3)),
    (nn.InstanceNorm1d(6, affine=True), (6, 5)),
    (nn.LayerNorm(6), (6,)),
    (nn.LayerNorm((3, 6)), (2, 3, 6)),
    (nn.RMSNorm(6), (3, 6)),
    (nn.Linear(6, 5), (6,)),
    (nn.Linear(6, 5, bias=False), (2, 3, 6)),
    (nn.Conv1d(6, 4, 3, stride=2), (6, 7)),
    (nn.Conv2d(6, 4, 3, padding="same", groups=2), (6, 5, 5)),
    (nn.Conv3d(6, 4, 2, dilation=2), (6, 3, 3, 3)),
    (nn.ConvTranspose1d(6, 4, 3, padding=1), (6, 7)),
    (nn.ConvTranspose2d(6, 4, 3, stride=2, output_padding=1, groups=2), (6, 5, 5)),
    (nn.ConvTranspose3d(6, 4, 2, dilation=2), (6, 3, 3, 3)),
    (Scale(), (6,)),
    (Scale(), (3, 6)),
    (Cast(), (3, 6)),
    (ChannelsFirst(), (6, 3, 3)),
    (Asking(), (3, 6)),
    (Response(), (2, 3, 6)),
]


@pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("names", [("weight", "bias"), ("bias",)], ids=["all", "bias"])
def test_a_layer_computes_what_it_would_for_each_sample_alone(layer, shape, names):
    layer, x = layer.double().eval(), normal(BATCH, *shape)
    own = {n: normal(BATCH, *p.shape, seed=1) for n, p in layer.named_parameters() if n in names}
    alone = [
        functional_call(layer, {n: value[i] for n, value in own.items()}, (x[i : i + 1],))
        for i in range(BATCH)
    ]
    together = functional_call(layer, {n: value.as_subclass(PerSample) for n, value in own.items()}, (x,))
    assert type(together) is torch.Tensor
    assert_close(together, torch.cat(alone))


def test_a_norm_in_training_has_the_statistics_of_the_batch():
    norm, x = nn.BatchNorm1d(6).double().train(), normal(BATCH, 6)
    weight = normal(BATCH, 6, seed=1).requires_grad_()
    plain = norm(x)
    before = norm.running_mean.clone()
    assert_close(functional_call(norm, {"weight": weight.as_subclass(PerSample)}, (x,)), weight * plain)
    assert not torch.equal(norm.running_mean, before)
    functional_call(norm, {"weight": weight.as_subclass(PerSample)}, (x,)).sum().backward()
    assert_close(weight.grad, plain.detach())


def test_what_takes_one_parameter_for_all_samples_is_refused_by_name():
    with pytest.raises(InputError, match="embedding takes one parameter for all samples"):
        nn.functional.embedding(torch.zeros(2).long(), normal(2, 3, 4).as_subclass(PerSample))


def halves(network, names):
    """Two rows that differ in some tensors, and the tensors of a batch that is half of each."""
    held, batch = network.tensors(), network.example.batch
    rows = [{n: normal(*held[n].shape, seed=seed) for n in names} for seed in (1, 2)]
    mixed = {n: torch.stack([rows[i >= batch // 2][n] for i in range(batch)]) for n in names}
    mixed = {n: value.as_subclass(PerSample) for n, value in mixed.items()}
    return [{**held, **row} for row in (*rows, mixed)]


@pytest.mark.parametrize(
    ("case", "layer", "why"),
    [
        ("transformer_layer", "1.norm1", ""),
        ("sequence_first", "1.1.norm1", "size of tensor"),
        ("gru", "0.", "gru takes one parameter for all samples"),
    ],
)
def test_samples_stay_together_where_each_has_an_axis(case, layer, why):
    case = case_named(case)
    network = Network(case.model(), case.inputs())
    names = [name for name in network.tensors() if name.startswith(layer)]
    found = why_apart(network, *halves(network, names))
    assert why in found if why else not found


def test_samples_that_meet_may_not_share_a_batch():
    network = Network(nn.Sequential(nn.Linear(6, 3), nn.Softmax(0)).double(), normal(BATCH, 6))
    assert why_apart(network, *halves(network, ["0.weight"])) == "samples have no axis of their own"
