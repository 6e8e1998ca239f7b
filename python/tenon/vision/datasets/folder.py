"""Pictures in folders that have the names of classes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tenon.vision.datasets.vision import VisionDataset, both

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def has_file_allowed_extension(filename: str, extensions: Any) -> bool:
    """Whether a name ends in one of the endings."""
    return filename.lower().endswith(
        extensions if isinstance(extensions, str) else tuple(extensions)
    )


def is_image_file(filename: str) -> bool:
    """Whether a name is a picture's."""
    return has_file_allowed_extension(filename, IMG_EXTENSIONS)


def find_classes(directory: str | Path) -> tuple[list[str], dict[str, int]]:
    """Names of folders in order, and their numbers."""
    classes = sorted(p.name for p in Path(directory).iterdir() if p.is_dir())
    if not classes:
        raise FileNotFoundError(f"Couldn't find any class folder in {directory}.")
    return classes, {name: i for i, name in enumerate(classes)}


def make_dataset(
    directory: str | Path,
    class_to_idx: dict[str, int] | None = None,
    extensions: Any = None,
    is_valid_file: Callable[[str], bool] | None = None,
    allow_empty: bool = False,
) -> list[tuple[str, int]]:
    """(path, class) of all files below the classes' folders."""
    if class_to_idx is None:
        class_to_idx = find_classes(directory)[1]
    if (extensions is None) == (is_valid_file is None):
        raise ValueError(
            "Both extensions and is_valid_file cannot be None or not None at the same time"
        )
    valid = is_valid_file or (lambda name: has_file_allowed_extension(name, extensions))
    found, empty = [], []
    for name in sorted(class_to_idx):
        files = sorted(str(p) for p in (Path(directory) / name).rglob("*") if p.is_file())
        chosen = [(file, class_to_idx[name]) for file in files if valid(file)]
        found += chosen
        if not chosen:
            empty.append(name)
    if empty and not allow_empty:
        raise FileNotFoundError(f"Found no valid file for the classes {', '.join(empty)}.")
    return found


def default_loader(path: str) -> Any:
    """A picture with red, green and blue."""
    from PIL import Image

    with open(path, "rb") as file:
        return Image.open(file).convert("RGB")


class DatasetFolder(VisionDataset):
    """Files in folders that have the names of classes."""

    def __init__(
        self,
        root: str | Path,
        loader: Callable[[str], Any],
        extensions: Any = None,
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        super().__init__(root, transform=transform, target_transform=target_transform)
        self.classes, self.class_to_idx = self.find_classes(self.root)
        self.samples = make_dataset(
            self.root, self.class_to_idx, extensions, is_valid_file, allow_empty
        )
        self.loader = loader
        self.extensions = extensions
        self.targets = [s[1] for s in self.samples]

    def find_classes(self, directory: str | Path) -> tuple[list[str], dict[str, int]]:
        """Names of classes and their numbers."""
        return find_classes(directory)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        return both(self, self.loader(path), target)

    def __len__(self) -> int:
        return len(self.samples)


class ImageFolder(DatasetFolder):
    """Pictures in folders that have the names of classes."""

    def __init__(
        self,
        root: str | Path,
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
        loader: Callable[[str], Any] = default_loader,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        extensions = IMG_EXTENSIONS if is_valid_file is None else None
        super().__init__(
            root, loader, extensions, transform, target_transform, is_valid_file, allow_empty
        )
        self.imgs = self.samples
