"""Freezing: the same predictions with fewer operators, and norms folded only where that is proved."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.backbones import resnet18
from pluribus.errors import ConversionError
from pluribus.mechanisms.graph.operators import normalises, operator_name
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.running.engines import run_slowly
from pluribus.mechanisms.running.freeze import FIXED_BATCH, _proofs
from pluribus.methods import BatchEnsemble, DeepEnsembles, EarlyExit, Masksembles, MCDropout, Single
from tests import zoo
from tests.cases import CASES, blocks, each, normal, run

METHODS = [
    Single(),
    DeepEnsembles(members=2, prior_scale=0.5),
    DeepEnsembles(members=9),
    BatchEnsemble(members=2),
    MCDropout(rate=0.2, draws=2),
]
DEEP = DeepEnsembles(members=2)
EXACT = {"rtol": 1e-10, "atol": 1e-10}
images = normal(2, 8, 8)()


def settled(ensemble):
    """In eval mode, with norms that are far from the identity, as after training."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, tensor in ensemble.members.state_dict().items():
            if "running" in name:
                tensor.copy_(torch.rand(tensor.shape, generator=generator).to(tensor) + 0.5)
            elif tensor.is_floating_point():
                tensor.add_(0.1 * torch.randn(tensor.shape, generator=generator).to(tensor))
    return ensemble.eval()


@each(CASES, few=True)
@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.sampled(8)
def test_a_frozen_ensemble_predicts_what_the_ensemble_does(method, case):
    try:
        ensemble = settled(pl.convert(case.model(), method, example=case.inputs()))
    except ConversionError:  # a case that the method refuses
        return
    expected = run(ensemble, case.inputs())
    assert_close(run(ensemble.freeze(), case.inputs()), expected, **EXACT)


def folded(model, method=DEEP, x=images):
    """How many norms were folded, after a look at the numbers."""
    ensemble = settled(pl.convert(model.double(), method, example=x))
    frozen = ensemble.freeze()
    assert_close(frozen(x), ensemble(x).detach(), **EXACT)
    return sum("is part of" in note for note in frozen.notes)


class Two(nn.Module):
    """A convolution and a norm, put together by a function."""

    def __init__(self, forward, conv=None, norm=None):
        super().__init__()
        self.conv, self.norm = conv or nn.Conv2d(2, 2, 3, padding=1), norm or nn.BatchNorm2d(2)
        self.head, self.run = nn.Linear(2, 3), forward

    def forward(self, x):
        return self.head(self.run(self, x).mean((2, 3)))


GROUPED = nn.Conv2d(2, 2, 3, groups=2, padding_mode="reflect", bias=False)


@pytest.mark.parametrize(
    ("model", "x", "count"),
    [
        (Two(lambda m, x: m.norm(m.conv(x))), images, 1),
        (Two(lambda m, x: m.norm(m.conv(m.norm(m.conv(x))))), images, 1),
        (Two(lambda m, x: m.norm(m.conv(x)) + m.norm(x)), images, 1),
        (Two(lambda m, x: m.norm(m.conv(x)).relu_()), images, 1),
        (Two(lambda m, x: m.norm(m.conv(x)), GROUPED), images, 1),
        (Two(lambda m, x: m.norm(m.conv(x)), norm=nn.BatchNorm2d(2, affine=False)), images, 1),
        (zoo.batch_norm_mlp(), normal(6)(), 1),
        (zoo.residual_cnn(), images, 2),
    ],
    ids=["plain", "twice", "elsewhere too", "in place", "grouped", "not affine", "linear", "residual"],
)
def test_norms_that_follow_a_layer_alone_are_folded(model, x, count):
    assert folded(model, x=x) == count


@pytest.mark.parametrize(
    "model",
    [
        Two(lambda m, x: m.norm(m.conv(x).relu())),
        Two(lambda m, x: m.norm(y := m.conv(x)) + y),
        Two(lambda m, x: m.norm(m.conv(x)) + m.conv(x)),
        Two(lambda m, x: m.conv(m.norm(x))),
        Two(lambda m, x: m.norm(m.conv(x)) + m.conv.weight.mean()),
        Two(lambda m, x: m.norm(m.conv(x)) + F.conv2d(x, m.conv.weight, padding=1)),
        Two(lambda m, x: m.norm(m.conv(x)), norm=nn.BatchNorm2d(2, track_running_stats=False)),
        Two(lambda m, x: m.norm(m.conv(x)), conv=nn.Linear(8, 8)),
        Two(lambda m, x: m.norm(m.conv(x)) if x.isfinite().all() else x),
    ],
    ids=[
        *("between", "read twice", "run twice", "before", "weight read", "weight run"),
        *("batch statistics", "other axis", "no graph"),
    ],
)
def test_others_stay(model):
    assert folded(model) == 0


@pytest.mark.parametrize(("method", "count"), [(DEEP, 1), (MCDropout(draws=2), 0)], ids=str)
def test_dropout_that_only_kept_draws_run_stays_between(method, count):
    def run(model, x):
        x = model.conv(x)
        return model.norm(F.dropout(x, 0.5) if model.training else x)

    assert folded(Two(run), method) == count


def test_whoever_holds_a_norm_finds_it_folded():
    model = Two(lambda m, x: m.steps[1](m.steps[0](x)) * m.norm.num_features)
    model.steps = [model.conv, model.norm]  # a plain list, which torch does not look into
    assert folded(model) == 1


def operators(frozen):
    """The names of the operators of a frozen ensemble's graph."""
    return [operator_name(node) for node in frozen.module.graph.nodes if node.op == "call_function"]


def test_all_norms_of_a_resnet_are_folded():
    frozen = pl.convert(resnet18(width=2), DEEP).freeze()
    assert sum("is part of" in note for note in frozen.notes) == 20
    assert not any(normalises(name) for name in operators(frozen))


def test_linear_layers_of_members_are_one_product_each():
    frozen = pl.convert(zoo.batch_norm_mlp(), DeepEnsembles(members=9)).freeze()
    # All members read the same samples first, so their narrow first layers are one wide product.
    assert operators(frozen).count("addmm") == operators(frozen).count("baddbmm") == 1
    assert "linear" not in operators(frozen)


def test_narrow_convolutions_have_channels_last_where_no_view_minds():
    def pooled(m, x):
        return m.conv(x).reshape(len(x), 2, -1).view(-1, 2, 8, 8)

    for model, last in ((zoo.residual_cnn(), True), (Two(pooled), False)):
        frozen = pl.convert(model.double(), DEEP, example=images).freeze()
        weights = [tensor for tensor in frozen.parameters() if tensor.ndim == 4 and tensor.shape[-1] > 1]
        assert weights
        assert ("channels last in memory" in frozen.notes) == last
        assert all(weight.is_contiguous(memory_format=torch.channels_last) == last for weight in weights)


def test_wide_convolutions_stay():
    model = nn.Sequential(nn.Conv2d(2, 160, 3), nn.Conv2d(160, 320, 3), zoo.Apply(lambda x: x.mean((2, 3))))
    assert pl.convert(model, DEEP, example=torch.randn(2, 2, 9, 9)).freeze().notes == ()


@pytest.mark.parametrize(("fewest", "sizes"), [(1, [2, 1]), (2, [2, 3])])
def test_graphs_are_compared_on_one_sample_unless_the_members_refuse_it(fewest, sizes):
    def run(m, x):
        # Not `len`, which fixes the size of the batch in the graph.
        if x.shape[0] < fewest:
            raise ValueError
        return m.conv(x)

    ensemble = pl.convert(Two(run).double(), DEEP, example=images).eval()
    (kind,) = ensemble.freeze().kinds
    proofs = list(_proofs(ensemble.members, Inputs.of(images), kind.signature))
    assert [inputs.batch for inputs, _ in proofs] == [expected.shape[1] for _, expected in proofs] == sizes


@pytest.mark.parametrize(("of_batch", "rows"), [(False, [2, 1]), (True, [2, 1, 2])])
def test_one_member_runs_on_the_second_batch_where_samples_are_apart(of_batch, rows, monkeypatch):
    def run(m, x):
        return m.conv(x - x.mean(0, keepdim=True) if of_batch else x)

    ensemble = pl.convert(Two(run).double(), DEEP, example=images).eval()
    (kind,) = ensemble.freeze().kinds
    ran = []

    def counted(members, some, inputs):
        ran.append(len(some))
        return run_slowly(members, some, inputs)

    monkeypatch.setattr("pluribus.mechanisms.running.freeze.run_slowly", counted)
    proofs = _proofs(ensemble.members, Inputs.of(images), kind.signature)
    assert ran == rows
    monkeypatch.undo()
    for inputs, expected in proofs:
        every = run_slowly(ensemble.members, ensemble.members.index.rows(training=False), inputs)
        assert_close(every, expected)


def test_a_network_that_cannot_be_read_says_so():
    ensemble = pl.convert(Two(lambda m, x: m.norm(m.conv(x)) if x.sum() > 0 else x), DEEP)
    (note,) = ensemble.freeze().notes
    assert note.startswith("members are looped: the data flow of Two cannot be read by torch.export")


def test_a_frozen_ensemble_can_be_copied_pickled_and_moved():
    frozen = settled(pl.convert(zoo.residual_cnn(), DEEP, example=images.float())).freeze()
    x, expected = images.float(), frozen(images.float())
    for other in (copy.deepcopy(frozen), pickle.loads(pickle.dumps(frozen))):
        assert_close(other(x), expected, rtol=0, atol=0)
    assert_close(frozen.double()(images).float(), expected)


class ReadBothWays(nn.Module):
    """A recurrent network, whose first state is made for the size of the batch."""

    def __init__(self):
        super().__init__()
        self.cell, self.lstm = nn.GRUCell(4, 6), nn.LSTM(4, 6, batch_first=True, bidirectional=True)
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        start = x.new_zeros(len(x), 6)
        last = self.cell(x[:, 0], start)
        return self.head(self.lstm(x)[0][:, -1]) + last[:, :3]


def test_states_of_the_size_of_the_batch_are_copied_pickled_saved_and_cast(tmp_path):
    x = torch.randn(3, 5, 4)
    frozen = settled(pl.convert(ReadBothWays(), DEEP, example=x)).freeze()
    expected = frozen(x)
    frozen.save(tmp_path / "frozen")
    saved = pl.load_frozen(tmp_path / "frozen")
    for other in (copy.deepcopy(frozen), pickle.loads(pickle.dumps(frozen)), saved):
        assert_close(other(x), expected, rtol=0, atol=0)
        assert_close(other.double()(x.double()).float(), expected)


class Nodes(nn.Module):
    """A network on one graph, whose samples are its nodes: edges name them by number."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, nodes, edges):
        hidden = torch.relu(self.first(nodes))
        source, target = edges
        return self.head(hidden + torch.zeros_like(hidden).index_add(0, target, hidden[source]))


def test_nodes_of_one_graph_are_frozen_and_saved(tmp_path):
    nodes, edges = torch.randn(6, 4), torch.tensor([[0, 5, 3, 1], [5, 2, 4, 0]])
    ensemble = settled(pl.convert(Nodes(), DEEP, example=(nodes, edges)))
    frozen = ensemble.freeze()
    assert frozen.kinds, frozen.notes
    frozen.save(tmp_path / "frozen")
    for count in (6, 9):
        x = torch.randn(count, 4)
        assert_close(frozen(x, edges), ensemble(x, edges))
        assert_close(pl.load_frozen(tmp_path / "frozen")(x, edges), frozen(x, edges), rtol=0, atol=0)


def test_a_batch_that_the_code_makes_a_number_of_is_named():
    token = torch.randn(1, 2, 8, 8)
    ensemble = pl.convert(Two(lambda m, x: m.norm(m.conv(x + token.to(x).expand(len(x), -1, -1, -1)))), DEEP)
    frozen = ensemble.freeze(examples=[images[:4].float()])
    assert frozen(images[:4].float()).shape[:2] == (2, 4)
    assert FIXED_BATCH in frozen.notes
    with pytest.raises(pl.InputError, match=r"as len\(x\) does"):
        frozen(images[:3].float())


class Several(nn.Module):
    """A network that returns two predictions."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 3), nn.Linear(6, 2)

    def forward(self, x):
        return {"first": self.first(x), "rest": [self.second(x)]}


def test_an_output_that_is_computed_is_part_of_the_graph(tmp_path):
    x = torch.randn(3, 6)
    ensemble = pl.convert(
        Several(), DEEP, example=x, output=lambda made: torch.cat([made["first"], made["rest"][0]], 1)
    )
    frozen = ensemble.freeze()
    assert frozen.kinds, frozen.notes
    frozen.save(tmp_path / "frozen")
    for other in (frozen, pickle.loads(pickle.dumps(frozen)), pl.load_frozen(tmp_path / "frozen")):
        assert_close(other(x), ensemble(x))


def test_an_output_that_cannot_be_read_is_called_on_the_results():
    x = torch.randn(3, 6)
    ensemble = pl.convert(
        Several(), DEEP, example=x, output=lambda made: torch.from_numpy(made["first"].detach().numpy() * 2)
    )
    frozen = ensemble.eval().freeze()
    assert "output= is a function" in frozen.notes[0]
    assert_close(frozen(x), ensemble(x))


class Spectral(nn.Module):
    """A layer of complex weights on low frequencies."""

    def __init__(self):
        super().__init__()
        self.weight, self.head = nn.Parameter(torch.randn(3, 3, 4, dtype=torch.cfloat)), nn.Linear(16, 2)

    def forward(self, x):
        low = torch.fft.rfft(x)
        mixed = torch.zeros_like(low)
        mixed[..., :4] = torch.einsum("bix,iox->box", low[..., :4], self.weight)
        return self.head(torch.fft.irfft(mixed, n=16).sum(1))


def test_complex_weights_are_saved_as_they_are(tmp_path):
    x = torch.randn(3, 3, 16)
    frozen = pl.convert(Spectral(), DeepEnsembles(members=2, start="copy"), example=x).freeze()
    frozen.save(tmp_path / "frozen")
    assert_close(pl.load_frozen(tmp_path / "frozen")(x), frozen(x), rtol=0, atol=0)


def test_the_ensemble_stays_as_it_was():
    ensemble = settled(pl.convert(zoo.residual_cnn().double(), DEEP))
    before, state = ensemble(images), copy.deepcopy(ensemble.state_dict())
    ensemble.freeze()(images)
    assert_close(ensemble(images), before, rtol=0, atol=0)
    assert_close(dict(ensemble.state_dict()), dict(state), rtol=0, atol=0)


@pytest.mark.parametrize("positions", [[0], [0, 1], [1, 0]], ids=str)
@pytest.mark.sampled(3)
def test_exits_without_the_output_are_a_graph_that_ends_there(positions):
    x = normal(6)()
    ensemble = settled(pl.convert(blocks(3).double(), EarlyExit(), example=x))
    small = ensemble.shrink(positions)
    frozen = small.freeze()
    assert frozen.kinds, frozen.notes
    assert_close(frozen(x), ensemble(x)[positions].detach(), **EXACT)
    assert pl.cost(frozen, x).multiply_adds < pl.cost(ensemble.freeze(), x).multiply_adds
    # What was shrunk may be shrunk again.
    again = small.shrink([0]).freeze()
    assert_close(again(x), ensemble(x)[positions[:1]].detach(), **EXACT)


def test_cut_members_share_no_memory_with_the_ensemble():
    x = torch.randn(4, 6)
    network = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    ensemble = pl.convert(network, Masksembles(members=3), example=x).eval()
    frozen = ensemble.freeze()
    held = {tensor.untyped_storage().data_ptr() for tensor in ensemble.members.state_dict().values()}
    tensors = [*frozen.module.parameters(), *frozen.module.buffers()]
    assert held.isdisjoint(tensor.untyped_storage().data_ptr() for tensor in tensors)
    # A view would keep all of the tensor in which it lies.
    assert all(tensor.untyped_storage().nbytes() == tensor.nbytes for tensor in tensors)
    expected = frozen(x).clone()
    with torch.no_grad():
        for parameter in ensemble.parameters():
            parameter.zero_()
    assert torch.equal(frozen(x), expected)
