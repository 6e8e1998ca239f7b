"""The base of data sets of pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tenon.utils.data import Dataset


class StandardTransform:
    """A transform of the picture and one of the target."""

    def __init__(self, transform: Any = None, target_transform: Any = None) -> None:
        self.transform = transform
        self.target_transform = target_transform

    def __call__(self, input: Any, target: Any) -> tuple[Any, Any]:
        if self.transform is not None:
            input = self.transform(input)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return input, target


class VisionDataset(Dataset[Any]):
    """Pictures and targets below a folder."""

    def __init__(
        self,
        root: str | Path | None = None,
        transforms: Callable[..., Any] | None = None,
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
    ) -> None:
        self.root = str(Path(root).expanduser()) if root is not None else root
        if transforms is not None and (transform is not None or target_transform is not None):
            raise ValueError(
                "Only transforms or transform/target_transform can be passed as argument"
            )
        self.transform = transform
        self.target_transform = target_transform
        if transform is not None or target_transform is not None:
            transforms = StandardTransform(transform, target_transform)
        self.transforms = transforms

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def extra_repr(self) -> str:
        """More lines for repr."""
        return ""

    def __repr__(self) -> str:
        lines = [f"Number of datapoints: {len(self)}"]
        if self.root is not None:
            lines.append(f"Root location: {self.root}")
        lines += self.extra_repr().splitlines()
        return "\n    ".join([f"Dataset {type(self).__name__}", *lines])


def both(dataset: Any, picture: Any, target: Any) -> tuple[Any, Any]:
    """A picture and its target, as the data set's transforms leave them."""
    if dataset.transforms is None:
        return picture, target
    return dataset.transforms(picture, target)


def missing(name: str, folder: Path, files: Any) -> RuntimeError:
    """What is raised where files are not there."""
    listed = ", ".join(files)
    return RuntimeError(
        f"Dataset not found: {name} is not downloaded here. Put its files ({listed}) into {folder}"
    )
