"""MNIST and data sets in its format: files of numbers with a short head, packed or not."""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tenon
from tenon import Tensor
from tenon.vision.datasets.vision import VisionDataset, both, missing

_KINDS = {8: "uint8", 9: "int8", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def read_sn3_pascalvincent_tensor(path: str | Path, strict: bool = True) -> Tensor:
    """The numbers in a file: two zero bytes, a dtype, a number of dimensions, their sizes."""
    import numpy as np

    opener = gzip.open if str(path).endswith(".gz") else open
    with opener(path, "rb") as file:
        data = file.read()
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _KINDS:
        raise ValueError(f"{path} is no file of MNIST's format")
    kind, dims = np.dtype(_KINDS[data[2]]), data[3]
    sizes = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(dims)]
    values = np.frombuffer(data, kind, offset=4 + 4 * dims) if len(data) > 4 + 4 * dims else []
    if strict and len(values) != math.prod(sizes):
        raise ValueError(f"{path} holds {len(values)} numbers, not {math.prod(sizes)}")
    return tenon.from_numpy(np.array(values, kind.newbyteorder("="))).reshape(sizes)


def _found(folder: Path, name: str) -> Path | None:
    return next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)


class MNIST(VisionDataset):
    """Handwritten digits, from the files in root/MNIST/raw."""

    classes = [
        "0 - zero", "1 - one", "2 - two", "3 - three", "4 - four", "5 - five", "6 - six",
        "7 - seven", "8 - eight", "9 - nine",
    ]  # fmt: skip

    def __init__(
        self,
        root: str | Path,
        train: bool = True,
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
        download: bool = False,
    ) -> None:
        del download
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.train = train
        pictures, labels = (_found(Path(self.raw_folder), name) for name in self._files())
        if pictures is None or labels is None:
            raise missing(type(self).__name__, Path(self.raw_folder), self._files())
        self.data = read_sn3_pascalvincent_tensor(pictures)
        self.targets = read_sn3_pascalvincent_tensor(labels).long()

    def _files(self) -> tuple[str, str]:
        start = "train" if self.train else "t10k"
        return f"{start}-images-idx3-ubyte", f"{start}-labels-idx1-ubyte"

    @property
    def raw_folder(self) -> str:
        """Where the files are."""
        return str(Path(self.root) / type(self).__name__ / "raw")

    @property
    def class_to_idx(self) -> dict[str, int]:
        """Numbers by the names of classes."""
        return {name: i for i, name in enumerate(self.classes)}

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        from PIL import Image

        return both(self, Image.fromarray(self.data[index].numpy()), int(self.targets[index]))

    def __len__(self) -> int:
        return len(self.data)

    def extra_repr(self) -> str:
        return f"Split: {'Train' if self.train else 'Test'}"


class FashionMNIST(MNIST):
    """Pieces of clothing."""

    classes = [
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
        "Ankle boot",
    ]  # fmt: skip


class KMNIST(MNIST):
    """Japanese characters."""

    classes = ["o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"]
