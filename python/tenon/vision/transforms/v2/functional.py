"""The functions of transforms, and conversions under the names of their second form."""

# ruff: noqa: F403
from __future__ import annotations

from typing import Any

import tenon
from tenon.vision.transforms._geometry import InterpolationMode
from tenon.vision.transforms.functional import *
from tenon.vision.transforms.functional import convert_image_dtype, pil_to_tensor

__all__ = ["InterpolationMode", "to_dtype", "to_dtype_image", "to_image"]


def to_image(inpt: Any) -> tenon.Tensor:
    """A tensor (channels, height, width) of a Pillow picture or an array; values stay."""
    if isinstance(inpt, tenon.Tensor):
        return inpt
    if hasattr(inpt, "__array_interface__") and not hasattr(inpt, "getbands"):
        found = tenon.from_numpy(inpt)
        return (found[..., None] if found.dim() == 2 else found).permute(2, 0, 1).contiguous()
    return pil_to_tensor(inpt)


def to_dtype(
    inpt: tenon.Tensor, dtype: tenon.dtype = tenon.float, scale: bool = False
) -> tenon.Tensor:
    """Another dtype; with `scale` the range of an integer one stands for [0, 1] of a float."""
    return convert_image_dtype(inpt, dtype) if scale else inpt.to(dtype)


to_dtype_image = to_dtype
