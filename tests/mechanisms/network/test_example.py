"""Examples: two samples that the network accepts, made from the network alone."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from pluribus.errors import ConversionError
from pluribus.mechanisms.network.example import BATCH, make_example
from pluribus.mechanisms.network.network import Network
from tests import zoo
from tests.zoo import Apply


class Reversed(nn.Module):
    """Its first layer in the register is not the first in forward."""

    def __init__(self):
        super().__init__()
        self.head, self.stem = nn.Linear(8, 3), nn.Linear(6, 8)

    def forward(self, x):
        return self.head(self.stem(x))


def mnist_mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 3))


def language_model():
    return nn.Sequential(nn.Embedding(3, 6), nn.LSTM(6, 4, batch_first=True), Apply(lambda output: output[0]))


def images_only():
    def square(x):
        assert x.ndim == 4
        return x.flatten(1)

    return nn.Sequential(Apply(square), nn.Linear(64, 3))


MADE = [
    (zoo.mlp, [(6,)]),
    (zoo.batch_norm_mlp, [(6,)]),
    (lambda: nn.BatchNorm1d(5), [(5,)]),
    (lambda: nn.BatchNorm2d(5), [(5, 32, 32)]),
    (zoo.residual_cnn, [(2, 32, 32)]),
    (lambda: nn.Sequential(nn.Conv2d(1, 4, 5), nn.Flatten(), nn.Linear(4 * 24 * 24, 3)), [(1, 28, 28)]),
    (zoo.conv1d, [(2, 32)]),
    (zoo.conv3d, [(1, 32, 32, 32)]),
    (mnist_mlp, [(784,)]),
    (images_only, [(1, 8, 8)]),
    (zoo.Attention, [(8, 4)]),
    (lambda: nn.MultiheadAttention(6, 2), None),
    (lambda: zoo.recurrent(nn.LSTM, 2, 0.1), [(8, 4)]),
    (zoo.tied_embedding, [(8,)]),
    (language_model, [(8,)]),
    (zoo.embedding_bag, [(8,)]),
    (zoo.transformer, [(8, 4)]),
    (zoo.hf_vit, [(3, 8, 8)]),
    (zoo.hf_resnet, [(3, 32, 32)]),
    (lambda: zoo.hugging_face("BertForSequenceClassification", **zoo.TINY, vocab_size=12), [(8,)]),
]


@pytest.mark.parametrize(
    ("build", "shapes"), [row for row in MADE if row[1]], ids=lambda value: getattr(value, "__name__", None)
)
def test_an_example_is_made_from_the_network(build, shapes):
    model = build().eval()
    example = make_example(model)
    assert [tensor.shape for tensor in example.tensors()] == [(BATCH, *shape) for shape in shapes]
    model(*example.args, **example.keywords)


def test_an_example_has_the_dtype_of_the_network():
    assert make_example(zoo.mlp().double()).args[0].dtype == torch.float64
    assert make_example(zoo.mlp().bfloat16()).args[0].dtype == torch.bfloat16
    assert make_example(zoo.tied_embedding().double()).args[0].dtype == torch.int64


def test_tokens_are_words_that_the_embedding_has():
    assert make_example(language_model()).args[0].max() == 2


@pytest.mark.parametrize(
    ("build", "tried"),
    [
        (zoo.TwoInputs, r"tried \(float32\[2, 6\]\), "),
        (Reversed, r"tried \(float32\[2, 8\]\), "),
        (lambda: nn.Sequential(nn.ReLU()), "tried nothing: no layer with a known input"),
    ],
)
def test_an_impossible_example_is_refused_with_what_was_tried(build, tried):
    with pytest.raises(
        ConversionError, match=rf"could not be made \({tried}.*Pass convert\(\.\.\., example=x\)"
    ):
        make_example(build())


def test_what_was_given_is_the_example():
    x = torch.zeros(3, 6)
    assert torch.equal(Network(zoo.mlp(), x).example.args[0], x)
    keywords = Network(zoo.Keywords(), {"image": x, "age": x}).example.keywords
    assert list(keywords) == ["image", "age"]
    assert all(torch.equal(value, x) for value in keywords.values())


def test_making_an_example_leaves_the_network_as_it_was():
    model = zoo.batch_norm_mlp()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    make_example(model)
    assert model.training
    assert_close(dict(model.state_dict()), before, rtol=0, atol=0)


def test_making_an_example_leaves_random_numbers_as_they_were():
    before = torch.get_rng_state()
    first = make_example(zoo.mlp()).args[0]
    torch.set_rng_state(before)
    model = zoo.mlp()
    before = torch.get_rng_state()
    assert_close(make_example(model).args[0], first, rtol=0, atol=0)
    assert_close(torch.get_rng_state(), before)
