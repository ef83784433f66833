"""LoRA ensembles: Eq. (1), members that start as the network, and what is trained and stored."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.methods import LoRAEnsembles
from pluribus.methods.lora_ensembles import low_rank
from tests.cases import logits, run
from tests.perturb import perturbed
from tests.verify import verify_forms
from tests.zoo import hugging_face

X = torch.randn(6, 2, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 1, 2, 0, 1, 2])


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(216, 8), nn.ReLU()),
        nn.Linear(8, 3),
    ).double()


def trained(ensemble, steps=8, lr=0.05):
    optimizer = torch.optim.SGD([p for p in ensemble.parameters() if p.requires_grad], lr=lr)
    ensemble.train()
    for _ in range(steps):
        optimizer.zero_grad()
        ensemble.loss(X, Y).backward()
        optimizer.step()
    return ensemble.eval()


def test_low_rank_is_eq_1():
    weight, down, up = torch.randn(5, 4, 3), torch.randn(2, 2, 12), torch.randn(2, 5, 2)
    for member, found in enumerate(low_rank(weight, down, up, 1.0)):
        change = torch.zeros(5, 12)
        for out in range(5):
            for into in range(12):
                change[out, into] = sum(up[member, out, r] * down[member, r, into] for r in range(2))
        assert_close(found, weight + 0.5 * change.view(5, 4, 3))


@pytest.mark.parametrize("freeze", [True, False])
def test_every_member_starts_as_the_network(freeze):
    ensemble = pl.convert(network(), LoRAEnsembles(members=3, freeze_shared=freeze), example=X).eval()
    assert_close(ensemble(X), network().eval()(X).expand(3, -1, -1), rtol=0, atol=1e-12)


def test_members_become_distinct_though_they_see_the_same_batches():
    ensemble = trained(pl.convert(network(), LoRAEnsembles(members=3), example=X))
    outputs = ensemble(X)
    for one in range(3):
        for other in range(one):
            assert (outputs[one] - outputs[other]).abs().max() > 1e-3


def test_only_matrices_and_the_output_are_trained():
    ensemble = pl.convert(network(), LoRAEnsembles(members=3, rank=2), example=X)
    own = sum(p.numel() for p in ensemble.parameters() if p.requires_grad)
    # The convolution is 6 x 18 and the first linear layer 8 x 216; the last layer has 27 numbers.
    assert own == 3 * (2 * (6 + 18) + 2 * (8 + 216) + 27)
    before = {name: tensor.clone() for name, tensor in ensemble.members.tensors.shared.named_parameters()}
    trained(ensemble)
    assert_close(dict(ensemble.members.tensors.shared.named_parameters()), before, rtol=0, atol=0)


def test_members_train_as_if_each_were_alone():
    together = trained(pl.convert(network(), LoRAEnsembles(members=2), example=X))
    for member in range(2):
        alone = trained(pl.convert(network(), LoRAEnsembles(members=2), example=X).shrink([member]))
        assert_close(alone(X)[0], together(X)[member])


def test_a_frozen_network_is_adapted():
    model = network().requires_grad_(False)
    ensemble = trained(pl.convert(model, LoRAEnsembles(members=2), example=X))
    assert not torch.equal(ensemble(X)[0], ensemble(X)[1])


def test_where_names_the_layers():
    ensemble = pl.convert(network(), LoRAEnsembles(members=2, where="4"), example=X)
    assert [record.names[0] for record in ensemble.conversion.converted] == ["4", "6"]


def test_rank_is_at_most_that_of_the_matrix():
    ensemble = pl.convert(network(), LoRAEnsembles(members=2, rank=100, own_output=False), example=X)
    assert ensemble.members.tensors.down.get_submodule("6").weight.shape == (2, 3, 8)


def test_a_divided_batch_shows_each_member_a_part():
    ensemble = pl.convert(network(), LoRAEnsembles(members=3, repeat=False), example=X).train()
    assert [len(part) for part in ensemble.method.assign(6, range(3), 0.0)] == [2, 2, 2]
    ensemble.loss(X, Y).backward()


@pytest.mark.parametrize(
    "method",
    [
        LoRAEnsembles(members=3),
        LoRAEnsembles(members=9, own_output=False),
        LoRAEnsembles(members=3, merge=False),
    ],
)
@pytest.mark.sampled(3)
def test_every_form_agrees(method, tmp_path):
    verify_forms(perturbed(pl.convert(network(), method, example=X)), network, X, tmp_path)


def test_files_hold_the_shared_weights_once(tmp_path):
    ensemble = pl.convert(network(), LoRAEnsembles(members=8, rank=1), example=X)
    ensemble.save(tmp_path / "saved")
    numbers = sum(t.numel() for t in ensemble.state_dict().values())
    single = sum(t.numel() for t in network().state_dict().values())
    assert numbers < 3.5 * single
    assert (tmp_path / "saved" / "weights.safetensors").stat().st_size < 8 * numbers + 8192


def test_a_network_of_one_layer_is_refused():
    with pytest.raises(pl.ConversionError, match="own_output=False"):
        pl.convert(nn.Linear(3, 2), LoRAEnsembles(), example=torch.zeros(1, 3))


@pytest.mark.parametrize("where", [(), 3, ("a", 1)])
def test_where_must_be_patterns(where):
    with pytest.raises(pl.SettingError, match="where must be"):
        LoRAEnsembles(where=where)


def test_orders_of_their_own_divide_a_batch_into_whole_batches():
    method = LoRAEnsembles(members=3, shuffle_members=True)
    assert method.data_orders == 3
    assert [part.tolist() for part in method.assign(6, range(3), 0.0)] == [[0, 1], [2, 3], [4, 5]]
    assert LoRAEnsembles(members=3, shuffle_members=True, repeat=False).data_orders == 1


WIDE = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
IMAGES = torch.randn(5, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def bert():
    return hugging_face("BertForSequenceClassification", **WIDE, vocab_size=12, max_position_embeddings=7)


def vit():
    return hugging_face("ViTForImageClassification", **WIDE, image_size=8, patch_size=4)


def encoder():
    layer = nn.TransformerEncoderLayer(64, 2, dim_feedforward=128, batch_first=True)
    return nn.Sequential(nn.Linear(8, 64), nn.TransformerEncoder(layer, 2), nn.Flatten(), nn.Linear(1536, 3))


@pytest.mark.parametrize(
    ("build", "x"),
    [
        (bert, {"input_ids": torch.arange(35).view(5, 7) % 12}),
        (vit, {"pixel_values": IMAGES}),
        (encoder, IMAGES.flatten(1, 2)),
    ],
    ids=["bert", "vit", "encoder"],
)
@pytest.mark.sampled(3)
def test_attention_is_adapted(build, x, tmp_path):
    torch.manual_seed(0)
    model = build().double().eval()
    ensemble = pl.convert(model, LoRAEnsembles(members=6, rank=1, merge=False), example=x).eval()
    with torch.no_grad():
        assert_close(run(ensemble, x), logits(run(model, x)).expand(6, 5, 3), rtol=0, atol=1e-10)
    adapted = [record.names[0] for record in ensemble.conversion.converted]
    assert any("attention" in one or "attn" in one for one in adapted)

    # After training every member is another one.
    optimizer = torch.optim.Adam([p for p in ensemble.parameters() if p.requires_grad], lr=0.01)
    ensemble.train()
    for _ in range(3):
        optimizer.zero_grad()
        ensemble.loss(x, Y[:5]).backward()
        optimizer.step()
    outputs = run(ensemble.eval(), x).detach()
    for one in range(6):
        for other in range(one):
            assert (outputs[one] - outputs[other]).abs().max() > 1e-4

    # Shared weights are stored once, in files and in graphs.
    ensemble.save(tmp_path / "saved")
    frozen = ensemble.freeze()
    assert_close(run(frozen, x), outputs)
    single = 8 * sum(p.numel() for p in model.parameters())
    assert single < (tmp_path / "saved" / "weights.safetensors").stat().st_size < 1.7 * single
    held = {
        tensor.untyped_storage().data_ptr(): tensor.nbytes for tensor in frozen.module.state_dict().values()
    }
    assert sum(held.values()) < 1.7 * single


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "x"),
    [
        (bert, {"input_ids": torch.arange(35).view(5, 7) % 12}),
        (vit, {"pixel_values": IMAGES.float()}),
        (encoder, IMAGES.float().flatten(1, 2)),
    ],
    ids=["bert", "vit", "encoder"],
)
@pytest.mark.parametrize("format", ["onnx", "pt2"])
def test_exports_hold_shared_weights_once(build, x, format, tmp_path):
    sizes = {}
    for merge in (True, False):
        torch.manual_seed(0)
        method = LoRAEnsembles(members=6, rank=1, merge=merge)
        ensemble = perturbed(pl.convert(build(), method, example=x)).eval()
        sizes[merge] = ensemble.export(tmp_path / str(merge), format).stat().st_size
    single = 4 * sum(p.numel() for p in build().parameters())
    if format == "onnx":
        # Weights of members are computed in the file, from the shared ones and the matrices.
        assert max(sizes.values()) < 2 * single
    else:
        # A .pt2 file keeps whole weights of merged members; the text of the graph is as large in both.
        assert sizes[False] < sizes[True] - 3 * single
