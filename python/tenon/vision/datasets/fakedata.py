"""Pictures of noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tenon
from tenon.vision.datasets.vision import VisionDataset, both


class FakeData(VisionDataset):
    """Random pictures with random classes, the same each time."""

    def __init__(
        self,
        size: int = 1000,
        image_size: tuple[int, int, int] = (3, 224, 224),
        num_classes: int = 10,
        transform: Callable[..., Any] | None = None,
        target_transform: Callable[..., Any] | None = None,
        random_offset: int = 0,
    ) -> None:
        super().__init__(transform=transform, target_transform=target_transform)
        self.size = size
        self.num_classes = num_classes
        self.image_size = image_size
        self.random_offset = random_offset

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if index >= len(self):
            raise IndexError(f"{type(self).__name__} index out of range")
        from tenon.vision.transforms.functional import to_pil_image

        before = tenon.get_rng_state()
        tenon.manual_seed(index + self.random_offset)
        picture = tenon.randn(*self.image_size)
        target = int(tenon.randint(0, self.num_classes, size=(1,), dtype=tenon.long)[0])
        tenon.set_rng_state(before)
        return both(self, to_pil_image(picture), target)

    def __len__(self) -> int:
        return self.size
