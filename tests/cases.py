"""The zoo: small models that are awkward to convert, each with inputs, a target and measured facts.

Every model has a few thousand parameters at most, because every method is tested on every case.
No weight or input has a side of length `BATCH` but the batch: an axis taken for another is noticed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from tests.zoo import (
    Attention,
    Branched,
    Checkpointed,
    CountedBatch,
    CustomMatmul,
    DataDependent,
    FunctionalDropout,
    Keywords,
    Listed,
    ListedParameters,
    MiniViT,
    SharedModule,
    TupleOutput,
    TwoInputs,
    UnusedLayer,
    alpha_dropout,
    batch_norm_mlp,
    conv1d,
    conv3d,
    dropout_layers,
    embedding_bag,
    frozen_trunk,
    grouped_cnn,
    hf_bert,
    hf_convnext,
    hf_resnet,
    hf_vit,
    layer_norm,
    mlp,
    monai_densenet,
    monai_unet,
    normed_cnn,
    parametrized_cnn,
    recurrent,
    repeated_child,
    residual_cnn,
    tied_embedding,
    tied_linears,
    transformer,
    transposed_conv,
)

BATCH = 10

Inputs = Tensor | tuple[Tensor, ...] | dict[str, Tensor]


@dataclass(frozen=True)
class Case:
    """One model, how to call it, and what is true of it.

    Args:
        name: Unique; the id of the case in test reports.
        build: Makes the model, in any dtype, from torch's global random numbers.
        inputs: A tensor, positional tensors or keyword tensors, batch first, the same at every call.
        classes: Number of logits.
        dense: Sides of the logit map of a segmentation; empty for one answer per sample.
        has_dropout: Drops units of its own, with positive probability, in train mode.
        has_drop_path: Drops whole residual branches by other means than a dropout operator.
        exports: `torch.export` with a dynamic batch takes it, in train and in eval mode.
        unused: Names of the trainable parameters that get no gradient.
    """

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], Inputs]
    classes: int = 3
    dense: tuple[int, ...] = ()
    has_dropout: bool = False
    has_drop_path: bool = False
    exports: bool = True
    unused: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the logits, `[batch, classes, *dense]`."""
        return (BATCH, self.classes, *self.dense)

    @property
    def random_in_training(self) -> bool:
        """Return True if two passes in train mode differ."""
        return self.has_dropout or self.has_drop_path

    def model(self) -> nn.Module:
        """The model in float64, as built and so in train mode, with the same weights at every call."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.build().double()

    def target(self) -> Tensor:
        """One class per sample, `[batch, *dense]`."""
        return torch.randint(self.classes, (BATCH, *self.dense), generator=seeded(1))


def seeded(seed: int) -> torch.Generator:
    """Random numbers of their own."""
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> Callable[[], Tensor]:
    """Standard normal inputs, `[batch, *shape]`."""
    return lambda: torch.randn(BATCH, *shape, dtype=torch.float64, generator=seeded(seed))


def set_apart(ensemble: nn.Module) -> nn.Module:
    """Return an ensemble in eval mode, all parameters moved at random, so that its members differ."""
    generator = seeded(1)
    with torch.no_grad():
        for parameter in ensemble.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return ensemble.eval()


def tokens(length: int, vocabulary: int) -> Callable[[], Tensor]:
    """Token numbers, `[batch, length]`."""
    return lambda: torch.randint(vocabulary, (BATCH, length), generator=seeded(0))


def padded_tokens(length: int, vocabulary: int) -> Callable[[], dict[str, Tensor]]:
    """Token numbers and a mask that ends every second sequence early."""
    mask = torch.ones(BATCH, length, dtype=torch.long)
    mask[::2, -2:] = 0
    return lambda: {"input_ids": tokens(length, vocabulary)(), "attention_mask": mask.clone()}


def pixels(*shape: int) -> Callable[[], dict[str, Tensor]]:
    """Images under the keyword that Hugging Face gives them."""
    return lambda: {"pixel_values": normal(*shape)()}


def run(model: nn.Module, inputs: Inputs) -> Any:
    """The model's output as it is, inputs passed the way their container says."""
    if isinstance(inputs, Tensor):
        return model(inputs)
    return model(**inputs) if isinstance(inputs, dict) else model(*inputs)


def logits(output: Any) -> Tensor:
    """The logits in a model's output: itself, the first of a tuple, or under `"logits"`."""
    if isinstance(output, Mapping):
        output = output["logits"]
    elif isinstance(output, tuple | list):
        output = output[0]
    assert isinstance(output, Tensor)
    return output


HEAVY = ("hf_resnet", "monai_densenet")
"""Cases that take seconds to read, and of whose kind there are others: tested by `make test-slow`."""
FEW = (
    "mlp",
    "residual_cnn",
    "grouped_cnn",
    "shared_module",
    "tied_embedding",
    "root_layer",
    "mini_vit",
    "lstm",
)
FEW += ("transformer_encoder", "keywords", "tuple_output", "frozen_trunk", "dropout_layers", "weight_norm")
FEW += ("lstm", "hf_vit", "hf_bert", "monai_unet")
"""One case of each kind."""


def each(cases: list[Case], few: bool = False) -> pytest.MarkDecorator:
    """Run a test once for every case, as its argument `case`.

    Two thirds of the cases, or all but a few, are slow. Every test leaves out other ones; a mark `sampled` of
    the test itself replaces this share.
    """

    def marks(case: Case) -> list[pytest.MarkDecorator]:
        if case.name in HEAVY or (few and case.name not in FEW):
            return [pytest.mark.slow]
        return [] if few else [pytest.mark.sampled(3)]

    given = [pytest.param(case, id=case.name, marks=marks(case)) for case in cases]
    return pytest.mark.parametrize("case", given)


def case_named(name: str) -> Case:
    """The case of that name."""
    return {case.name: case for case in CASES}[name]


def blocks(depth: int) -> nn.Sequential:
    """A network of so many equal blocks between a first and a last layer, 6 numbers to 2."""
    middle = [nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(depth)]
    return nn.Sequential(nn.Linear(6, 8), *middle, nn.Linear(8, 2))


CASES = [
    Case("mlp", mlp, normal(6)),
    Case("batch_norm_mlp", batch_norm_mlp, normal(6)),
    Case("residual_cnn", residual_cnn, normal(2, 8, 8)),
    Case("grouped_cnn", grouped_cnn, normal(4, 8, 8)),
    Case("conv1d", conv1d, normal(2, 16)),
    Case("conv3d", conv3d, normal(1, 6, 6, 6)),
    Case("transposed_conv", transposed_conv, normal(2, 8, 8), dense=(8, 8)),
    Case("shared_module", SharedModule, normal(6)),
    Case("repeated_child", repeated_child, normal(6)),
    Case("tied_linears", tied_linears, normal(6)),
    Case("tied_embedding", tied_embedding, tokens(7, 12), classes=12),
    Case("root_layer", lambda: nn.Linear(6, 3), normal(6)),
    Case("attention", Attention, normal(5, 4), has_dropout=True),
    Case("transformer_layer", transformer, normal(5, 4), has_dropout=True),
    Case("sequence_first", lambda: transformer(batch_first=False), normal(5, 4), has_dropout=True),
    Case("transformer_encoder", lambda: transformer(depth=2), normal(5, 4), has_dropout=True),
    Case("module_list", Listed, normal(6)),
    Case("module_dict", Branched, normal(6)),
    Case("parameter_list", ListedParameters, normal(6)),
    Case("mini_vit", MiniViT, normal(2, 8, 8), has_dropout=True),
    Case("two_inputs", TwoInputs, lambda: (normal(6)(), normal(4, seed=1)())),
    Case("keywords", Keywords, lambda: {"image": normal(1, 6, 6)(), "age": normal(1, seed=1)()}),
    Case("tuple_output", TupleOutput, normal(6)),
    Case("frozen_trunk", frozen_trunk, normal(2, 8, 8)),
    Case("lstm", lambda: recurrent(nn.LSTM, layers=2, dropout=0.2), normal(5, 4), has_dropout=True),
    Case("gru", lambda: recurrent(nn.GRU, layers=1, dropout=0.0), normal(5, 4)),
    Case("functional_dropout", FunctionalDropout, normal(6), has_dropout=True),
    Case("dropout_layers", dropout_layers, normal(2, 8, 8), has_dropout=True),
    Case("alpha_dropout", alpha_dropout, normal(6), has_dropout=True),
    Case("group_norm", lambda: normed_cnn(nn.GroupNorm(4, 8)), normal(2, 8, 8)),
    Case("instance_norm", lambda: normed_cnn(nn.InstanceNorm2d(8, affine=True)), normal(2, 8, 8)),
    Case("layer_norm", layer_norm, normal(6)),
    Case("weight_norm", lambda: parametrized_cnn(parametrizations.weight_norm), normal(2, 8, 8)),
    Case("spectral_norm", lambda: parametrized_cnn(parametrizations.spectral_norm), normal(2, 8, 8)),
    Case("custom_matmul", CustomMatmul, normal(6)),
    Case("embedding_bag", embedding_bag, tokens(7, 12)),
    Case("unused_layer", UnusedLayer, normal(6), unused=("middle.weight", "middle.bias")),
    Case("checkpointed", Checkpointed, normal(6)),
    Case("data_dependent", DataDependent, normal(6), exports=False),
    Case("counted_batch", CountedBatch, normal(6), exports=False),
    Case("hf_vit", hf_vit, pixels(3, 8, 8)),
    Case("hf_resnet", hf_resnet, pixels(3, 16, 16)),
    Case("hf_convnext", hf_convnext, pixels(3, 16, 16), has_drop_path=True),
    Case("hf_bert", hf_bert, padded_tokens(7, 12), has_dropout=True),
    Case("monai_unet", monai_unet, normal(1, 16, 16), dense=(16, 16)),
    Case("monai_densenet", monai_densenet, normal(1, 16, 16)),
]
