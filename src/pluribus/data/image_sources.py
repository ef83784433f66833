"""Addresses of the files of published image sets, and their paths in the data folder."""

from pathlib import Path

import torch

from pluribus.data.image_files import cifar_binary, idx_pair, npz_part, svhn_mat
from pluribus.data.pictures import pictures
from pluribus.data.sources import Source
from pluribus.data.split import Split

CIFAR = "https://www.cs.toronto.edu/~kriz/cifar.html (binary version)"
BATCHES = [f"data_batch_{i}.bin" for i in range(1, 6)]
MNIST_KIN = {  # title, where to get it, folders
    "mnist": ("MNIST", "https://ossci-datasets.s3.amazonaws.com/mnist", ("mnist", "MNIST/raw")),
    "fashion_mnist": (
        "Fashion-MNIST",
        "https://github.com/zalandoresearch/fashion-mnist",
        ("fashion_mnist", "FashionMNIST/raw"),
    ),
    "kmnist": ("Kuzushiji-MNIST", "https://github.com/rois-codh/kmnist", ("kmnist", "KMNIST/raw")),
}


def mnist_kin(part: str) -> dict[str, Source[Split]]:
    """Sets in the files of MNIST, compressed or not, or in one `.npz` file."""
    stem = f"{'train' if part == 'train' else 't10k'}-images-idx3-ubyte"
    sources = {}
    for name, (title, home, folders) in MNIST_KIN.items():
        paths = [f"{folder}/{stem}{end}" for folder in folders for end in (".gz", "")]
        npz = {path: npz_part(part) for path in (f"{name}.npz", f"ood/{name}_{part}.npz")}
        sources[name] = Source(f"{title} ({part})", home, dict.fromkeys(paths, idx_pair) | npz)
    return sources


def tiny_imagenet(path: Path) -> Split:
    """The published pictures, averaged to 32 × 32, without their labels."""
    x = pictures(sorted(path.glob("*.JPEG")), size=32)
    return Split(x, torch.zeros(len(x), dtype=torch.int64))


TRAIN: dict[str, Source[Split]] = {
    **mnist_kin("train"),
    "cifar10": Source(
        "CIFAR-10 (train)",
        CIFAR,
        {
            f"cifar-10-batches-bin/{BATCHES[0]}": cifar_binary(1, *BATCHES),
            "cifar10.npz": npz_part("train"),
            "cifar10/train_20k.npz": npz_part("train"),
        },
    ),
    "cifar100": Source(
        "CIFAR-100 (train)",
        CIFAR,
        {"cifar-100-binary/train.bin": cifar_binary(2, "train.bin"), "cifar100.npz": npz_part("train")},
    ),
}
TEST: dict[str, Source[Split]] = {
    **mnist_kin("test"),
    "cifar10": Source(
        "CIFAR-10 (test)",
        CIFAR,
        {
            "cifar-10-batches-bin/test_batch.bin": cifar_binary(1, "test_batch.bin"),
            "cifar10.npz": npz_part("test"),
            "cifar10/test.npz": npz_part("test"),
        },
    ),
    "cifar100": Source(
        "CIFAR-100 (test)",
        CIFAR,
        {
            "cifar-100-binary/test.bin": cifar_binary(2, "test.bin"),
            "cifar100.npz": npz_part("test"),
            "cifar100/test_5k.npz": npz_part("test"),
        },
    ),
    "svhn": Source(
        "SVHN (test, cropped digits)",
        "http://ufldl.stanford.edu/housenumbers",
        {
            "svhn/test_32x32.mat": svhn_mat,
            "svhn.npz": npz_part("test"),
            "svhn/test_5k.npz": npz_part("test"),
        },
    ),
    "tiny_imagenet": Source(
        "Tiny ImageNet (validation)",
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        {
            "tiny-imagenet-200/val/images": tiny_imagenet,
            "tiny_imagenet32.npz": npz_part("test"),
            "tiny_imagenet/val2k_32.npz": npz_part("test"),
        },
    ),
}
