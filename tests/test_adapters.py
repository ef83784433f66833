"""Adapters that peft saved become members; hostile and foreign folders are refused by name."""

import json

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.adapters import CONFIG, TENSORS

X = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
CONFIGURATION = {"peft_type": "LORA", "r": 2, "lora_alpha": 6, "target_modules": ["body"], "bias": "none"}


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.classifier = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.classifier(self.body(x).relu())


@pytest.fixture
def network():
    torch.manual_seed(0)
    return Small().eval()


def write(folder, tensors, **changes):
    """Write a folder as peft does."""
    folder.mkdir()
    (folder / CONFIG).write_text(json.dumps(CONFIGURATION | changes))
    save_file({f"base_model.model.{name}": t.contiguous() for name, t in tensors.items()}, folder / TENSORS)
    return folder


def matrices(rank, seed):
    generator = torch.Generator().manual_seed(seed)
    down, up = torch.randn(rank, 6, generator=generator), torch.randn(8, rank, generator=generator)
    return {"body.lora_A.weight": down, "body.lora_B.weight": up}


def expected(network, stored, scale, classifier=None):
    weight = network.body.weight + scale * stored["body.lora_B.weight"] @ stored["body.lora_A.weight"]
    hidden = nn.functional.linear(X, weight, network.body.bias).relu()
    return nn.functional.linear(hidden, *(classifier or (network.classifier.weight, network.classifier.bias)))


def test_members_have_the_matrices_of_their_folders(network, tmp_path):
    first, second, third = matrices(2, 1), matrices(1, 2), matrices(2, 3)
    folders = [
        write(tmp_path / "first", first),
        write(tmp_path / "second", second, r=1, alpha_pattern={"body": 3}),
        write(tmp_path / "third", third, use_rslora=True),
    ]
    ensemble = pl.from_checkpoints(network, folders, example=X)
    scales = (6 / 2, 3 / 1, 6 / 2**0.5)
    for row, (stored, scale) in enumerate(zip((first, second, third), scales, strict=True)):
        assert_close(ensemble(X)[row], expected(network, stored, scale))
    assert ensemble.members.tensors.shared.body.weight.shape == (8, 6)


def test_of_several_alphas_that_fit_a_layer_the_first_counts(network, tmp_path):
    # As in peft's get_pattern_key.
    stored, patterns = matrices(2, 1), {"body": 3, "ody": 5}
    nested, names = nn.Sequential(network), {f"0.{name}": tensor for name, tensor in stored.items()}
    folder = write(tmp_path / "a", names, alpha_pattern={**patterns, "0.body": 7})
    ensemble = pl.from_checkpoints(nested, [folder], example=X)
    assert_close(ensemble(X)[0], expected(network, stored, 3 / 2))


def test_a_last_layer_that_was_trained_whole_is_the_members_own(network, tmp_path):
    stored = matrices(2, 1)
    whole = {"classifier.weight": torch.randn(3, 8), "classifier.bias": torch.randn(3)}
    folders = [write(tmp_path / "a", stored | whole), write(tmp_path / "b", stored)]
    ensemble = pl.from_checkpoints(network, folders, example=X)
    assert_close(
        ensemble(X)[0], expected(network, stored, 3.0, (whole["classifier.weight"], whole["classifier.bias"]))
    )
    assert_close(ensemble(X)[1], expected(network, stored, 3.0))


def test_weights_with_the_axes_of_a_table_are_transposed(tmp_path):
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6, 8))

        def forward(self, x):
            return x @ self.weight

    class Model(Small):
        def __init__(self):
            super().__init__()
            self.body = Table()

    model, stored = Model().eval(), matrices(2, 1)
    ensemble = pl.from_checkpoints(model, [write(tmp_path / "a", stored, fan_in_fan_out=True)], example=X)
    weight = model.body.weight + 3 * (stored["body.lora_B.weight"] @ stored["body.lora_A.weight"]).T
    assert_close(ensemble(X)[0], model.classifier((X @ weight).relu()))


@pytest.mark.parametrize(
    ("tensors", "changes", "message"),
    [
        ({}, {"peft_type": "IA3"}, "must hold a plain LoRA adapter"),
        ({}, {"use_dora": True}, "got DoRA"),
        ({}, {"alora_invocation_tokens": [1]}, "got activated LoRA"),
        ({}, {"bias": "lora_only"}, "got trained biases"),
        ({}, {"init_lora_weights": "pissa_niter_4"}, "leaves the network's weights as they are"),
        ({}, {"init_lora_weights": "olora"}, "leaves the network's weights as they are"),
        ({"body.lora_embedding_A": torch.ones(2, 6)}, {}, "got the embedding"),
        ({}, {"r": 0}, "field r must be"),
        ({}, {"alpha_pattern": {"(a+)+$": 1}}, "alpha_pattern must have names"),
        (
            {"other.lora_A.weight": torch.ones(2, 6), "other.lora_B.weight": torch.ones(8, 2)},
            {},
            "which the network",
        ),
        ({"body.lora_B.weight": torch.ones(8, 3)}, {}, "must have matrices of 8 x r"),
        ({"body.lora_B.weight": torch.full((8, 2), torch.nan)}, {}, "NaN"),
        ({"body.bias": torch.ones(8)}, {}, "last layer alone"),
        (
            {"body.lora_A.weight": torch.ones(9, 6), "body.lora_B.weight": torch.ones(8, 9)},
            {},
            "rank of at most 6",
        ),
    ],
)
def test_a_foreign_adapter_is_refused(network, tmp_path, tensors, changes, message):
    folder = write(tmp_path / "a", matrices(2, 1) | tensors, **changes)
    with pytest.raises(pl.CheckpointError, match=message):
        pl.from_checkpoints(network, [folder], example=X)


def test_half_an_adapter_is_refused(network, tmp_path):
    folder = write(tmp_path / "a", {"body.lora_A.weight": torch.ones(2, 6)})
    with pytest.raises(pl.CheckpointError, match="A and B of every adapted weight"):
        pl.from_checkpoints(network, [folder], example=X)


def test_files_and_adapters_are_not_mixed(network, tmp_path):
    save_file(network.state_dict(), tmp_path / "whole.safetensors")
    paths = [tmp_path / "whole.safetensors", write(tmp_path / "a", matrices(2, 1))]
    with pytest.raises(pl.CheckpointError, match="got both"):
        pl.from_checkpoints(network, paths)


@pytest.mark.slow
def test_members_predict_as_peft_does(tmp_path):
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    config = transformers.BertConfig(vocab_size=50, num_labels=3, **sizes)
    torch.manual_seed(0)
    base = transformers.BertForSequenceClassification(config).eval()
    tokens = torch.randint(50, (4, 7))
    folders, outputs = [], []
    for seed in range(2):
        torch.manual_seed(seed)
        wanted = peft.LoraConfig(
            task_type="SEQ_CLS", r=2 + seed, lora_alpha=5, target_modules=["query", "value"], lora_dropout=0.0
        )
        copied = transformers.BertForSequenceClassification(config).eval()
        copied.load_state_dict(base.state_dict())
        adapted = peft.get_peft_model(copied, wanted).eval()
        with torch.no_grad():
            for parameter in adapted.parameters():
                if parameter.requires_grad:
                    parameter.add_(0.1 * torch.randn_like(parameter))
            outputs.append(adapted(input_ids=tokens).logits)
        adapted.save_pretrained(tmp_path / str(seed))
        folders.append(tmp_path / str(seed))
    ensemble = pl.from_checkpoints(base, folders, example={"input_ids": tokens})
    assert_close(ensemble(input_ids=tokens), torch.stack(outputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "down",
    [torch.ones(6), torch.tensor(1.0), torch.ones(2, 6, dtype=torch.int64), torch.ones(0, 6)],
    ids=["vector", "number", "whole", "empty"],
)
def test_adapters_that_are_no_matrices_of_floats_are_refused(network, tmp_path, down):
    folder = write(tmp_path / "a", matrices(2, 1) | {"body.lora_A.weight": down})
    with pytest.raises(pl.CheckpointError, match="must have a matrix of floats"):
        pl.from_checkpoints(network, [folder], example=X)
