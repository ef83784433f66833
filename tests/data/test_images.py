"""Published image sets: made-up files in the published forms, and the real ones where they are."""

import hashlib

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from pluribus.data import load_task
from pluribus.data.image_files import idx, npz_part
from pluribus.data.images import image_set, medmnist
from pluribus.errors import InputError, SettingError
from pluribus.likelihood import Categorical, Gaussian
from tests.data.test_image_files import idx_bytes, pixels

DIFFERENCED = {
    "cifar10/train_20k.npz": "8eb0fde4870633e0e286a8b443b35c5c",
    "cifar10/test.npz": "f1aa22116df97725db0e47461c45a82b",
    "cifar100/test_5k.npz": "3891ad6fcca3f6d8b36150c8c41e59ee",
    "svhn/test_5k.npz": "08ea668221b3d752351021bd6e3e4af5",
    "tiny_imagenet/val2k_32.npz": "53f7e4f196d880c9f3f11490e75fb9b2",
}


def write_mnist(folder, name, count=40):
    (folder / name).mkdir()
    for part in ("train", "t10k"):
        (folder / name / f"{part}-images-idx3-ubyte").write_bytes(idx_bytes(pixels(count, 28, 28)))
        marks = (np.arange(count) % 10).astype(np.uint8)
        (folder / name / f"{part}-labels-idx1-ubyte").write_bytes(idx_bytes(marks))


def test_the_published_files_make_a_task(tmp_path):
    write_mnist(tmp_path, "mnist")
    write_mnist(tmp_path, "fashion_mnist")
    task = image_set("mnist", tmp_path)
    assert (task.input_shape, task.classes, len(task.shifted)) == ((1, 28, 28), 10, 95)
    assert (len(task.train), len(task.validation), len(task.test)) == (36, 4, 40)
    assert list(task.ood) == ["fashion_mnist"]
    assert task.ood["fashion_mnist"].shape == (40, 1, 28, 28)
    assert task.missing["kmnist"].startswith(f"Kuzushiji-MNIST (test) must lie in {tmp_path} as kmnist/t10k-")


def test_a_border_is_black_in_all_parts_and_sets(tmp_path):
    write_mnist(tmp_path, "mnist")
    write_mnist(tmp_path, "fashion_mnist")
    task, plain = (image_set("mnist", tmp_path, border=border) for border in (2, 0))
    for framed, bare in (
        (task.test.x, plain.test.x),
        (task.ood["fashion_mnist"], plain.ood["fashion_mnist"]),
    ):
        raw, inner = task.scaling.invert(framed), plain.scaling.invert(bare)
        assert_close(raw[:, :, 2:30, 2:30], inner)
        assert_close(raw.sum((1, 2, 3)), inner.sum((1, 2, 3)))
    assert task.input_shape == task.shifted["fog", 1].x.shape[1:] == (1, 32, 32)
    with pytest.raises(SettingError, match="border must be at least 0, got -1"):
        image_set("mnist", tmp_path, border=-1)


def test_the_binary_form_of_cifar_makes_a_task(tmp_path):
    (tmp_path / "cifar-100-binary").mkdir()
    for name in ("train", "test"):
        records = pixels(200, 3074)
        records[:, 1] = np.arange(200) % 100
        (tmp_path / "cifar-100-binary" / f"{name}.bin").write_bytes(records.tobytes())
    task = load_task("cifar100", tmp_path, validation=0)
    assert (task.classes, task.input_shape, len(task.train)) == (100, (3, 32, 32), 200)
    assert list(task.missing) == ["svhn", "cifar10", "tiny_imagenet"]


def test_the_forms_of_one_set_give_one_task(tmp_path):
    images, marks = pixels(60, 3, 32, 32), (np.arange(60) % 10).astype(np.uint8)
    plain, binary = tmp_path / "plain", tmp_path / "binary"
    (binary / "cifar-10-batches-bin").mkdir(parents=True)
    plain.mkdir()
    records = np.concatenate((marks[:, None], images.reshape(60, -1)), 1)
    for i in range(5):
        path = binary / "cifar-10-batches-bin" / f"data_batch_{i + 1}.bin"
        path.write_bytes(records[10 * i : 10 * i + 10].tobytes())
    (binary / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(records[50:].tobytes())
    last = images.transpose(0, 2, 3, 1)
    parts = {"x_train": last[:50], "y_train": marks[:50], "x_test": last[50:], "y_test": marks[50:]}
    np.savez(plain / "cifar10.npz", **parts)
    one, other = image_set("cifar10", plain), image_set("cifar10", binary)
    assert_close(one.train.x, other.train.x, rtol=0, atol=0)
    assert_close(one.test.x, other.test.x, rtol=0, atol=0)
    assert one.class_names[3] == "cat"


def test_sets_that_are_asked_for_must_be_there(tmp_path):
    write_mnist(tmp_path, "mnist")
    assert not image_set("mnist", tmp_path, ood=()).missing
    with pytest.raises(InputError, match=r"SVHN .* as svhn/test_32x32.mat, got .*housenumbers and put it"):
        image_set("mnist", tmp_path, ood=["svhn"])
    with pytest.raises(
        SettingError, match=r"ood must name sets of .* however: 'kmnst'. Did you mean 'kmnist'\?"
    ):
        image_set("mnist", tmp_path, ood=["kmnst"])


def test_other_sets_must_have_the_same_shape(tmp_path):
    write_mnist(tmp_path, "mnist")
    np.savez(tmp_path / "svhn.npz", x_test=pixels(4, 32, 32, 3), y_test=np.arange(4))
    with pytest.raises(
        InputError, match=r"svhn inputs must have the shape \[1, 28, 28\] .* got \[3, 32, 32\]"
    ):
        image_set("mnist", tmp_path, ood=["svhn"])


def test_a_missing_file_is_named_with_its_home(tmp_path):
    message = (
        rf"CIFAR-10 \(train\) must lie in {tmp_path} as cifar-10-batches-bin/data_batch_1.bin, got no such "
        r"file .*Get it from https://www.cs.toronto.edu/~kriz/cifar.html \(binary version\) and put it"
    )
    with pytest.raises(InputError, match=message):
        image_set("cifar10", tmp_path)


def test_a_damaged_file_is_named(tmp_path):
    write_mnist(tmp_path, "mnist")
    path = tmp_path / "mnist" / "train-images-idx3-ubyte"
    path.with_suffix(".gz").write_bytes(b"\x1f\x8b cut")
    with pytest.raises(InputError, match=r"train-images-idx3-ubyte.gz must be a whole file of its kind"):
        image_set("mnist", tmp_path)
    path.with_suffix(".gz").unlink()
    (tmp_path / "mnist" / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(InputError, match=r"No such file .*train-labels-idx1-ubyte"):
        image_set("mnist", tmp_path)


def write_medical(folder, name, *shape, grades=2):
    (folder / "medmnist").mkdir(exist_ok=True)
    counts = {"train": 30, "val": 10, "test": 20}
    images = {f"{part}_images": pixels(n, *shape) for part, n in counts.items()}
    marks = {f"{part}_labels": (np.arange(n) % grades)[:, None] for part, n in counts.items()}
    np.savez(folder / "medmnist" / f"{name}mnist.npz", **images, **marks)


def test_medical_images_get_a_black_border(tmp_path):
    write_medical(tmp_path, "blood", 28, 28, 3, grades=8)
    task = medmnist("blood", tmp_path)
    assert (task.name, task.classes, task.input_shape) == ("blood_mnist", 8, (3, 32, 32))
    assert (len(task.train), len(task.validation), len(task.test)) == (30, 10, 20)
    raw = task.scaling.invert(task.train.x)
    assert_close(raw[:, :, [0, 1, 30, 31]], torch.zeros(30, 3, 4, 32), rtol=0, atol=1e-6)
    assert raw[:, :, 2:30, 2:30].mean() > 0.4
    assert medmnist("blood", tmp_path, border=0).input_shape == (3, 28, 28)


def test_grades_of_the_retina_are_numbers_from_0_to_1(tmp_path):
    write_medical(tmp_path, "retina", 28, 28, 3, grades=5)
    task = medmnist("retina", tmp_path)
    assert (task.likelihood, task.classes, task.outputs) == (Gaussian(), None, 2)
    assert_close(task.train.y[:5], torch.tensor([[0.0], [0.25], [0.5], [0.75], [1.0]]))
    assert (task.target_mean, task.target_std) == (0, 4)


@pytest.mark.parametrize(("path", "digest"), DIFFERENCED.items())
def test_real_differences_give_the_images_back(data_file, path, digest):
    images = npz_part("test")(data_file(path)).x
    assert hashlib.md5(images.numpy().tobytes()).hexdigest() == digest


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_real_mnist_and_fashion_mnist(data_file, name):
    folder = data_file(f"{name}/train-images-idx3-ubyte.gz").parent.parent
    task = image_set(name, folder, train=2000)
    assert (len(task.train), len(task.validation), len(task.test)) == (2000, 6000, 10_000)
    if name == "fashion_mnist":
        for split, each in ((task.train, 200), (task.validation, 600), (task.test, 1000)):
            assert torch.bincount(split.y).tolist() == [each] * 10
    else:
        assert torch.bincount(task.test.y).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    mean, std = {"mnist": (0.1307, 0.3081), "fashion_mnist": (0.2860, 0.3530)}[name]
    assert task.scaling.mean.item() == pytest.approx(mean, abs=0.005)
    assert task.scaling.std.item() == pytest.approx(std, abs=0.005)
    for other in task.ood.values():
        assert other.shape == (10_000, 1, 28, 28)


def test_real_mnist_parts_share_no_image(data_file):
    folder = data_file("mnist/train-images-idx3-ubyte.gz").parent.parent
    task = image_set("mnist", folder, ood=())
    assert (len(task.train), len(task.validation)) == (54_000, 6000)
    raw = [(task.scaling.invert(s.x) * 255).round().byte() for s in (task.train, task.validation)]
    found = torch.cat(raw).flatten(1).numpy()
    published = idx(folder / "mnist" / "train-images-idx3-ubyte.gz").reshape(60_000, -1)
    weights = np.random.default_rng(0).integers(1, 2**20, 784).astype(float)
    sums = [
        np.sort(images.astype(float) @ weights) for images in (found, published)
    ]  # exact; tell images apart
    np.testing.assert_array_equal(*sums)


def test_real_cifar10(data_file):
    folder = data_file("cifar10/train_20k.npz").parent.parent
    task = image_set("cifar10", folder, train=1000, test=500)
    assert (len(task.train), len(task.validation), len(task.test)) == (1000, 2000, 500)
    assert torch.bincount(task.test.y).tolist() == [50] * 10
    counts = torch.bincount(task.train.y)
    assert 96 <= counts.min() <= counts.max() <= 103
    assert_close(task.scaling.mean.flatten(), torch.tensor([0.491, 0.482, 0.447]).double(), rtol=0, atol=0.02)
    assert list(task.ood) == ["svhn", "cifar100", "tiny_imagenet"]
    assert [len(x) for x in task.ood.values()] == [5000, 5000, 2000]
    assert task.shifted["snow", 5].x.shape == (500, 3, 32, 32)


MEDICAL = {  # counts of train, validation and test; counts of the training classes; channels
    "pneumonia": ((4708, 524, 624), [1214, 3494], 1),
    "breast": ((546, 78, 156), [147, 399], 1),
    "blood": ((11_959, 1712, 3421), None, 3),
    "retina": ((1080, 120, 400), [486, 128, 206, 194, 66], 3),
}


@pytest.mark.parametrize("name", MEDICAL)
def test_real_medical_sets(data_file, name):
    folder = data_file(f"medmnist/{name}mnist.npz").parent.parent
    task = load_task(f"{name}_mnist", folder)
    counts, classes, channels = MEDICAL[name]
    assert (len(task.train), len(task.validation), len(task.test)) == counts
    assert task.input_shape == (channels, 32, 32)
    grades = (task.train.y * 4).round().long().flatten() if name == "retina" else task.train.y
    if classes:
        assert torch.bincount(grades).tolist() == classes
    assert task.likelihood == (Gaussian() if name == "retina" else Categorical())
    assert task.shifted["frost", 2].x.isfinite().all()
