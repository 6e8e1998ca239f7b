"""CIFAR-10 and CIFAR-100, from the files of their Python version."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tenon.vision.datasets._pickled import load_batch
from tenon.vision.datasets.vision import VisionDataset, both, missing


class CIFAR10(VisionDataset):
    """Small pictures of ten classes."""

    base_folder = "cifar-10-batches-py"
    train_list = [f"data_batch_{i}" for i in range(1, 6)]
    test_list = ["test_batch"]
    meta, meta_key, target_key = "batches.meta", "label_names", "labels"

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
        import numpy as np

        self.train = train
        folder = Path(self.root) / self.base_folder
        names = self.train_list if train else self.test_list
        if not all((folder / name).is_file() for name in [*names, self.meta]):
            raise missing(type(self).__name__, folder, [*names, self.meta])
        batches = [load_batch(folder / name) for name in names]
        self.targets = [t for b in batches for t in b[self.target_key]]
        rows = np.vstack([b["data"] for b in batches])
        self.data = rows.reshape(-1, 3, 32, 32).transpose((0, 2, 3, 1))  # as pictures are drawn
        self.classes = load_batch(folder / self.meta)[self.meta_key]
        self.class_to_idx = {name: i for i, name in enumerate(self.classes)}

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        from PIL import Image

        return both(self, Image.fromarray(self.data[index]), self.targets[index])

    def __len__(self) -> int:
        return len(self.data)

    def extra_repr(self) -> str:
        return f"Split: {'Train' if self.train else 'Test'}"


class CIFAR100(CIFAR10):
    """Small pictures of a hundred classes."""

    base_folder = "cifar-100-python"
    train_list = ["train"]
    test_list = ["test"]
    meta, meta_key, target_key = "meta", "fine_label_names", "fine_labels"
