"""Data sets of pictures in local files. Nothing is downloaded: what is missing is named, with the
folder where it belongs."""

from typing import Any

from tenon.vision.datasets.cifar import CIFAR10, CIFAR100
from tenon.vision.datasets.fakedata import FakeData
from tenon.vision.datasets.folder import DatasetFolder, ImageFolder
from tenon.vision.datasets.mnist import KMNIST, MNIST, FashionMNIST
from tenon.vision.datasets.vision import VisionDataset

# Names that packages import without using them: each says so when it is made.
_ABSENT = (
    "QMNIST", "EMNIST", "SVHN", "STL10", "ImageNet", "Places365", "INaturalist", "CocoDetection",
    "CelebA", "LSUN", "VOCDetection", "VOCSegmentation", "Cityscapes", "Omniglot", "Caltech101",
)  # fmt: skip


def __getattr__(name: str) -> type:
    if name not in _ABSENT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def refuse(self: Any, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"Tenon does not have the data set {name} yet")

    return type(name, (VisionDataset,), {"__init__": refuse, "__module__": __name__})


__all__ = [
    "CIFAR10", "CIFAR100", "DatasetFolder", "FakeData", "FashionMNIST", "ImageFolder", "KMNIST",
    "MNIST", "VisionDataset",
]  # fmt: skip
