"""Widths: groups of every case of the zoo, sizes by a factor, what a layer reads."""

import pytest
import torch
from torch import nn

from pluribus.backbones import pyramidnet, resnet18, vit
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.widths.groups import Group, read_widths
from tests.cases import CASES, case_named, each


def widths_of(name: str, keep=()):
    case = case_named(name)
    return read_widths(Network(case.model(), case.inputs()), keep)


SIZES = {
    "residual_cnn": [8, 8],
    "grouped_cnn": [8, 8, 12],
    "shared_module": [8],
    "tied_linears": [8],
    "tied_embedding": [6],
    "root_layer": [],
    "attention": [8, 8, 8],
    "transformer_encoder": [8, 8, 8, 12, 8, 8, 12],
    "module_dict": [5, 7],
    "parameter_list": [8],
    "mini_vit": [8, 8, 8],
    "keywords": [4],
    "lstm": [6],
    "weight_norm": [6, 8],
    "spectral_norm": [6, 8],
    "custom_matmul": [8],
    "hf_vit": [8, 8, 8, 12, 8, 8, 12],
    "hf_convnext": [4, 16, 8, 32, 32],
    "hf_bert": [8, 8, 8, 12, 8, 8, 12, 8],
    "monai_unet": [4, 6, 8, 4],
    "monai_densenet": [8, 8, 4, 8, 4, 8, 8, 4, 8, 4],
}


SLOW = ("hf_convnext", "hf_bert", "hf_vit", "monai_densenet", "monai_unet")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in SIZES]
)
def test_groups_have_the_sizes_that_the_code_gives_them(name):
    assert [group.size for group in widths_of(name).groups] == SIZES[name]


@each([case for case in CASES if case.name != "data_dependent"], few=True)
def test_every_axis_is_carried_by_whole_groups(case):
    widths = read_widths(Network(case.model(), case.inputs()))
    sizes = {group: group.size for group in widths.groups}
    for (name, axis), channels in widths.axes.items():
        assert widths.size(channels, sizes) == widths.network.tensors()[name].shape[axis]
        for group in widths.groups_in(channels):
            assert (name, axis) in group.axes


def test_heads_stay_and_their_size_shrinks():
    widths = read_widths(Network(vit(depth=1, width=24, heads=6, mlp=20, patch=8), torch.zeros(2, 3, 32, 32)))
    sizes = [(group.size, group.multiple, group.resized(0.3)) for group in widths.groups]
    assert sizes == [(24, 1, 7), (24, 6, 12), (24, 6, 12), (20, 1, 6)]


def test_attention_of_torch_is_as_wide_as_its_input():
    assert [group.resized(0.3) for group in widths_of("attention").groups] == [2, 2, 2]

    class Bare(nn.Module):  # it reads the input itself, which stays
        def __init__(self):
            super().__init__()
            self.attention, self.head = nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 3)

        def forward(self, x):
            return self.head((x + self.attention(x, x, x)[0]).mean(1))

    assert read_widths(Network(Bare(), torch.zeros(2, 5, 4))).groups == ()


def test_zero_padded_shortcuts_add_channels_to_those_before():
    model = pyramidnet(20, 30)
    widths = read_widths(Network(model, torch.zeros(2, 3, 32, 32)))
    sizes = widths.sizes(0.5)
    for block in (model.layer1[2], model.layer3[2]):
        name = next(name for name, module in model.named_modules() if module is block)
        width = block.conv2.weight.shape[0]
        assert widths.size(widths.axes[f"{name}.bn3.weight", 0], sizes) == width // 2


def test_sizes_are_cut_to_whole_numbers_and_rounded_up_to_multiples():
    group = Group("a", torch.arange(1, 13), ())
    assert [group.resized(factor) for factor in (0.01, 0.3, 0.5, 1.5)] == [1, 3, 6, 18]
    assert [group.resized(0.3, multiple) for multiple in (2, 5)] == [4, 5]
    assert Group("a", torch.arange(1, 13), (), multiple=4).resized(0.3, 6) == 12
    assert Group("a", torch.arange(1, 71), ()).resized(0.1 + 0.2 - 0.2) == 7


def test_tensors_can_be_kept():
    before, after = widths_of("residual_cnn"), widths_of("residual_cnn", keep=["0.weight"])
    assert [group.name for group in before.groups] == ["0.weight", "3.0.weight"]
    assert [group.name for group in after.groups] == ["3.0.weight"]


def test_widths_are_printed():
    text = str(widths_of("grouped_cnn"))
    assert text.splitlines()[:2] == [
        "Sequential: 3 groups of channels",
        "  8 (a multiple of 2): 0.weight[0], 0.bias[0], 2.weight[1]",
    ]


def test_only_the_prediction_must_keep_its_size():
    case = case_named("keywords")
    by_default = read_widths(Network(case.model(), case.inputs()))
    by_features = read_widths(Network(case.model(), case.inputs(), output="features"))
    assert [group.size for group in by_default.groups] == [4]
    assert [group.name for group in by_features.groups] == ["head.weight"]


def test_a_residual_network_has_one_group_per_stage_and_one_per_block():
    widths = read_widths(Network(resnet18(), torch.zeros(2, 3, 32, 32)))
    assert sorted(group.size for group in widths.groups) == sorted([64, 128, 256, 512] * 3)
