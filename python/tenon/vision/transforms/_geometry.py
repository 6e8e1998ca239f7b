"""What transforms of pictures share: modes of interpolation, sizes, random numbers."""

from __future__ import annotations

from enum import Enum
from typing import Any

import tenon
from tenon import Tensor


class InterpolationMode(Enum):
    """How values between the elements of a picture come about."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


# Pillow's numbers of the modes.
PILLOW = {"nearest": 0, "nearest-exact": 0, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5,
          "lanczos": 1}  # fmt: skip


def mode_of(interpolation: Any) -> InterpolationMode:
    """A mode by itself, by its name or by Pillow's number."""
    if isinstance(interpolation, InterpolationMode):
        return interpolation
    if isinstance(interpolation, int):
        numbers = {n: name for name, n in reversed(PILLOW.items())}
        if interpolation not in numbers:
            raise ValueError(f"interpolation is one of Pillow's {sorted(numbers)} or an "
                             f"InterpolationMode, not {interpolation}")  # fmt: skip
        return InterpolationMode(numbers[int(interpolation)])
    return InterpolationMode(interpolation)


def is_pil(img: Any) -> bool:
    """Whether a picture is one of Pillow's."""
    return not isinstance(img, Tensor) and hasattr(img, "getbands")


def check(img: Any) -> None:
    """Raises for what is no picture."""
    if not isinstance(img, Tensor) and not is_pil(img):
        raise TypeError(f"Unexpected type {type(img)}")


def size_of(img: Any) -> list[int]:
    """[width, height]."""
    check(img)
    return [img.shape[-1], img.shape[-2]] if isinstance(img, Tensor) else list(img.size)


def uniform(low: float, high: float) -> float:
    """A number of the default generator's stream."""
    return float(tenon.empty(1).uniform_(low, high))


def computed(img: Tensor, fn: Any) -> Tensor:
    """fn of a batch of float pictures, rounded back where they were whole numbers."""
    kind, lead = img.dtype, img.shape[:-3]
    flat = img.reshape(-1, *img.shape[-3:])
    work = flat if flat.is_floating_point() and kind is not tenon.float16 else flat.float()
    result = fn(work)
    result = result.reshape(*lead, *result.shape[1:])
    if result.dtype is kind:
        return result
    if not kind.is_floating_point:
        info = tenon.iinfo(kind)
        result = result.round().clamp(info.min, info.max)
    return result.to(kind)
