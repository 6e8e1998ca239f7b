"""Transforms as functions of a picture: a tensor (..., channels, height, width) or Pillow's."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import tenon
from tenon import Tensor
from tenon.nn import functional as F
from tenon.vision.transforms._geometry import (
    PILLOW,
    InterpolationMode,
    check,
    computed,
    is_pil,
    mode_of,
    size_of,
)

# ---- Facts ---------------------------------------------------------------------------------------


def get_dimensions(img: Any) -> list[int]:
    """[channels, height, width]."""
    width, height = size_of(img)
    return [get_image_num_channels(img), height, width]


def get_image_size(img: Any) -> list[int]:
    """[width, height]."""
    return size_of(img)


def get_image_num_channels(img: Any) -> int:
    """How many channels a picture has."""
    check(img)
    if is_pil(img):
        return len(img.getbands())
    return img.shape[-3] if img.dim() > 2 else 1


# ---- Between tensors and Pillow ------------------------------------------------------------------


def pil_to_tensor(pic: Any) -> Tensor:
    """A picture of Pillow's as a tensor with the values it has."""
    import numpy as np

    if not is_pil(pic):
        raise TypeError(f"pic should be PIL Image. Got {type(pic)}")
    values = np.array(pic, copy=True)
    t = tenon.from_numpy(values.reshape(pic.size[1], pic.size[0], len(pic.getbands())))
    return t.permute(2, 0, 1)


def to_tensor(pic: Any) -> Tensor:
    """A picture or an array (height, width, channels) as a tensor (channels, height, width); 8-bit
    values become 0..1."""
    import numpy as np

    if isinstance(pic, np.ndarray):
        if pic.ndim not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
        pic = pic[:, :, None] if pic.ndim == 2 else pic
        t = tenon.from_numpy(np.ascontiguousarray(pic.transpose((2, 0, 1))))
        return t.to(tenon.get_default_dtype()).div(255) if t.dtype is tenon.uint8 else t
    if not is_pil(pic):
        raise TypeError(f"pic should be PIL Image or ndarray. Got {type(pic)}")
    kinds = {"I": np.int32, "I;16": np.int16, "F": np.float32}
    values = np.array(pic, kinds.get(pic.mode, np.uint8), copy=True)
    if pic.mode == "1":
        values = 255 * values
    t = tenon.from_numpy(values.reshape(pic.size[1], pic.size[0], len(pic.getbands())))
    t = t.permute((2, 0, 1)).contiguous()
    return t.to(tenon.get_default_dtype()).div(255) if t.dtype is tenon.uint8 else t


_GRAY_MODES = {"uint8": "L", "int16": "I;16", "uint16": "I;16", "int32": "I", "float32": "F"}
_COLOR_MODES = {2: ("LA",), 3: ("RGB", "YCbCr", "HSV"), 4: ("RGBA", "CMYK", "RGBX")}


def to_pil_image(pic: Any, mode: str | None = None) -> Any:
    """A tensor (channels, height, width) or an array (height, width, channels) as Pillow's, whose
    mode says what the channels are."""
    import numpy as np
    from PIL import Image

    if isinstance(pic, Tensor):
        if pic.ndim not in (2, 3):
            raise ValueError(f"pic should be 2/3 dimensional. Got {pic.ndim} dimensions.")
        pic = pic.unsqueeze(0) if pic.ndim == 2 else pic
        if pic.shape[0] > 4:
            raise ValueError(f"pic should not have > 4 channels. Got {pic.shape[0]} channels.")
        if pic.is_floating_point() and mode != "F":
            pic = pic.mul(255).byte()
        pic = pic.permute(1, 2, 0).cpu().numpy()
    elif not isinstance(pic, np.ndarray):
        raise TypeError(f"pic should be Tensor or ndarray. Got {type(pic)}.")
    if pic.ndim == 2:
        pic = pic[:, :, None]
    count, kind = pic.shape[2], str(pic.dtype)
    if count == 1:
        if mode not in (None, _GRAY_MODES.get(kind)):
            raise ValueError(f"Incorrect mode ({mode}) supplied for input type {kind}. Should be "
                             f"{_GRAY_MODES.get(kind)}")  # fmt: skip
        return Image.fromarray(np.ascontiguousarray(pic[:, :, 0]))
    if count not in _COLOR_MODES:
        raise ValueError(f"pic should not have > 4 channels. Got {count} channels.")
    if mode not in (None, *_COLOR_MODES[count]):
        raise ValueError(f"Only modes {list(_COLOR_MODES[count])} are supported for {count} "
                         f"channels, not {mode}")  # fmt: skip
    if kind != "uint8":
        raise TypeError(f"Input type {kind} is not supported")
    return Image.frombytes(mode or _COLOR_MODES[count][0], pic.shape[1::-1], pic.tobytes())


def convert_image_dtype(image: Tensor, dtype: Any = tenon.float) -> Tensor:
    """Another dtype with values in its range: 0..1 for floats, 0..maximum for whole numbers."""
    if image.dtype == dtype:
        return image
    if image.is_floating_point():
        if dtype.is_floating_point:
            return image.to(dtype)
        if image.dtype == tenon.float32 and dtype in (tenon.int32, tenon.int64):
            raise RuntimeError(
                f"The cast from {image.dtype} to {dtype} cannot be performed safely."
            )
        return image.mul(tenon.iinfo(dtype).max + 1.0 - 1e-3).to(dtype)
    most = float(tenon.iinfo(image.dtype).max)
    if dtype.is_floating_point:
        return image.to(dtype) / most
    new = float(tenon.iinfo(dtype).max)
    if most > new:
        return image.div(int((most + 1) // (new + 1)), rounding_mode="floor").to(dtype)
    return image.to(dtype) * int((new + 1) // (most + 1))


def normalize(
    tensor: Tensor, mean: Sequence[float], std: Sequence[float], inplace: bool = False
) -> Tensor:
    """(value - mean) / std, channel by channel."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"img should be Tensor Image. Got {type(tensor)}")
    if not tensor.is_floating_point():
        raise TypeError(f"Input tensor should be a float tensor. Got {tensor.dtype}.")
    if tensor.ndim < 3:
        raise ValueError(
            "Expected tensor to be a tensor image of size (..., C, H, W). Got tensor.size() = "
            f"{tensor.size()}"
        )
    mean_, std_ = (
        tenon.as_tensor(v, dtype=tensor.dtype, device=tensor.device).view(-1, 1, 1)
        for v in (mean, std)
    )
    if (std_ == 0).any():
        raise ValueError(
            f"std evaluated to zero after conversion to {tensor.dtype}, leading to division by "
            "zero."
        )
    tensor = tensor if inplace else tensor.clone()
    return tensor.sub_(mean_).div_(std_)


# ---- Sizes and places ----------------------------------------------------------------------------


def _wanted(img: Any, size: Any, max_size: int | None) -> tuple[int, int]:
    """(height, width): one number is the shorter side's."""
    sizes = [size] if isinstance(size, int) else list(size)
    if len(sizes) == 2:
        if max_size is not None:
            raise ValueError("max_size should only be passed if size specifies the smaller edge")
        return sizes[0], sizes[1]
    width, height = size_of(img)
    short, long = min(width, height), max(width, height)
    new_short, new_long = sizes[0], int(sizes[0] * long / short)
    if max_size is not None:
        if max_size <= sizes[0]:
            raise ValueError(
                f"max_size = {max_size} must be strictly greater than the requested size for the "
                f"smaller edge size = {size}"
            )
        if new_long > max_size:
            new_short, new_long = int(max_size * new_short / new_long), max_size
    return (new_long, new_short) if width <= height else (new_short, new_long)


def resize(
    img: Any,
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    max_size: int | None = None,
    antialias: bool | None = True,
) -> Any:
    """The picture in another size; one number is the size of its shorter side."""
    mode = mode_of(interpolation)
    if not isinstance(size, int) and len(size) not in (1, 2):
        raise ValueError(f"Size must be an int or a 1 or 2 element tuple/list, not {len(size)}")
    height, width = _wanted(img, size, max_size)
    if [width, height] == size_of(img):
        return img
    if is_pil(img):
        return img.resize((width, height), PILLOW[mode.value])
    smooth = bool(antialias) and mode.value in ("bilinear", "bicubic")
    if mode.value not in ("nearest", "nearest-exact", "bilinear", "bicubic"):
        raise ValueError(f"Resize of tensors has no mode {mode}")
    corners = False if mode.value in ("bilinear", "bicubic") else None
    return computed(
        img,
        lambda x: F.interpolate(
            x, (height, width), mode=mode.value, align_corners=corners, antialias=smooth
        ),
    )


def pad(img: Any, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> Any:
    """A border around the picture: all sides, (left and right, top and bottom), or four numbers
    (left, top, right, bottom)."""
    check(img)
    sides = [padding] if isinstance(padding, int) else list(padding)
    if len(sides) not in (1, 2, 4):
        raise ValueError(f"Padding must be an int or a 1, 2, or 4 element tuple, not {len(sides)}")
    if len(sides) == 1:
        sides *= 4
    elif len(sides) == 2:
        sides *= 2
    if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
        raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
    if is_pil(img):
        if padding_mode == "constant":
            from PIL import ImageOps

            color = fill
            if isinstance(fill, (int, float)) and len(img.getbands()) > 1:
                color = (int(fill),) * len(img.getbands())
            return ImageOps.expand(img, border=tuple(sides), fill=color)
        return to_pil_image(pad(pil_to_tensor(img), padding, fill, padding_mode), img.mode)
    left, top, right, bottom = sides
    if padding_mode == "constant":
        value = fill if isinstance(fill, (int, float)) else fill[0]
        return F.pad(img, [left, right, top, bottom], value=float(value))
    rows, columns = (
        _border(img.shape[d], a, b, padding_mode).to(img.device)
        for d, a, b in ((-2, top, bottom), (-1, left, right))
    )
    return img.index_select(-2, rows).index_select(-1, columns)


def _border(size: int, before: int, after: int, mode: str) -> Tensor:
    """Which element each place of a padded dimension shows."""
    place = tenon.arange(-before, size + after)
    if mode == "edge":
        return place.clamp(0, size - 1)
    if mode == "symmetric":
        place = place.remainder(2 * size)
        return tenon.where(place < size, place, 2 * size - 1 - place)
    place = place.remainder(max(2 * size - 2, 1))
    return tenon.where(place < size, place, 2 * size - 2 - place)


def crop(img: Any, top: int, left: int, height: int, width: int) -> Any:
    """A part of the picture; what lies outside of it is 0."""
    check(img)
    if is_pil(img):
        return img.crop((left, top, left + width, top + height))
    w, h = size_of(img)
    right, bottom = left + width, top + height
    part = img[..., max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)]
    if left < 0 or top < 0 or right > w or bottom > h:
        sides = [
            max(-left + min(0, right), 0), max(right - max(w, left), 0),
            max(-top + min(0, bottom), 0), max(bottom - max(h, top), 0),
        ]  # fmt: skip
        part = F.pad(part, sides)
    return part


def _pair(size: Any) -> tuple[int, int]:
    if isinstance(size, numbers.Number):
        return int(size), int(size)
    return (size[0], size[0]) if len(size) == 1 else (size[0], size[1])


def center_crop(img: Any, output_size: Any) -> Any:
    """The middle of the picture, with a border of 0 where it is smaller."""
    height, width = _pair(output_size)
    w, h = size_of(img)
    if width > w or height > h:
        extra_w, extra_h = max(width - w, 0), max(height - h, 0)
        sides = [extra_w // 2, extra_h // 2, (extra_w + 1) // 2, (extra_h + 1) // 2]
        img = pad(img, sides, fill=0)
        w, h = size_of(img)
        if width == w and height == h:
            return img
    return crop(img, round((h - height) / 2.0), round((w - width) / 2.0), height, width)


def resized_crop(
    img: Any,
    top: int,
    left: int,
    height: int,
    width: int,
    size: Any,
    interpolation: Any = InterpolationMode.BILINEAR,
    antialias: bool | None = True,
) -> Any:
    """A part of the picture in another size."""
    return resize(crop(img, top, left, height, width), size, interpolation, antialias=antialias)


def hflip(img: Any) -> Any:
    """Left and right swapped."""
    check(img)
    return img.transpose(0) if is_pil(img) else img.flip(-1)


def vflip(img: Any) -> Any:
    """Top and bottom swapped."""
    check(img)
    return img.transpose(1) if is_pil(img) else img.flip(-2)


def five_crop(img: Any, size: Any) -> tuple[Any, ...]:
    """The corners and the middle."""
    height, width = _pair(size)
    w, h = size_of(img)
    if width > w or height > h:
        raise ValueError(
            f"Requested crop size {(height, width)} is bigger than input size {(h, w)}"
        )
    places = ((0, 0), (0, w - width), (h - height, 0), (h - height, w - width))
    corners = [crop(img, top, left, height, width) for top, left in places]
    return (*corners, center_crop(img, [height, width]))


def ten_crop(img: Any, size: Any, vertical_flip: bool = False) -> tuple[Any, ...]:
    """five_crop of the picture and of its mirror image."""
    flipped = vflip(img) if vertical_flip else hflip(img)
    return five_crop(img, size) + five_crop(flipped, size)


def erase(img: Tensor, i: int, j: int, h: int, w: int, v: Tensor, inplace: bool = False) -> Tensor:
    """Another picture's values in a part of the tensor."""
    if not isinstance(img, Tensor):
        raise TypeError(f"img should be Tensor Image. Got {type(img)}")
    img = img if inplace else img.clone()
    img[..., i : i + h, j : j + w] = v
    return img


def rotate(
    img: Any,
    angle: float,
    interpolation: Any = InterpolationMode.NEAREST,
    expand: bool = False,
    center: list[int] | None = None,
    fill: Any = None,
) -> Any:
    """Turned against the clock by degrees."""
    mode = mode_of(interpolation)
    if is_pil(img):
        color = None if fill is None else fill
        if isinstance(color, (int, float)) and len(img.getbands()) > 1:
            color = (int(color),) * len(img.getbands())
        return img.rotate(angle, PILLOW[mode.value], expand, center, fillcolor=color)
    w, h = size_of(img)
    offset = [0.0, 0.0] if center is None else [1.0 * (c - s * 0.5) for c, s in zip(center, (w, h))]
    matrix = _inverse_affine(offset, -angle, [0.0, 0.0], 1.0, [0.0, 0.0])
    return _moved(img, matrix, mode, fill, _around(matrix, w, h) if expand else None)


def _around(matrix: list[float], w: int, h: int) -> tuple[int, int]:
    """Width and height of what a picture takes that is moved so, with all of its corners."""
    corners = tenon.tensor([[x * w, y * h, 1.0] for x in (-0.5, 0.5) for y in (-0.5, 0.5)])
    moved = corners @ tenon.tensor(matrix).view(2, 3).T + tenon.tensor([w * 0.5, h * 0.5])
    low, high = moved.amin(0), moved.amax(0)
    # Rounding does not make an element more, nor less.
    sides = (high / 1e-4).trunc().mul(1e-4).ceil() - (low / 1e-4).trunc().mul(1e-4).floor()
    return int(sides[0]), int(sides[1])


def affine(
    img: Any,
    angle: float,
    translate: Sequence[int],
    scale: float,
    shear: Any,
    interpolation: Any = InterpolationMode.NEAREST,
    fill: Any = None,
    center: list[int] | None = None,
) -> Any:
    """Turned with the clock, moved, scaled and sheared."""
    mode = mode_of(interpolation)
    shears = [shear, 0.0] if isinstance(shear, numbers.Number) else list(shear)
    shears = shears * 2 if len(shears) == 1 else shears
    w, h = size_of(img)
    if is_pil(img):
        middle = [w * 0.5, h * 0.5] if center is None else center
        matrix = _inverse_affine(middle, angle, list(translate), scale, shears)
        color = 0 if fill is None else fill
        if isinstance(color, (int, float)) and len(img.getbands()) > 1:
            color = (int(color),) * len(img.getbands())
        return img.transform(img.size, 0, matrix, PILLOW[mode.value], fillcolor=color)
    offset = [0.0, 0.0] if center is None else [1.0 * (c - s * 0.5) for c, s in zip(center, (w, h))]
    matrix = _inverse_affine(offset, angle, [float(t) for t in translate], scale, shears)
    return _moved(img, matrix, mode, fill)


def _inverse_affine(
    center: Sequence[float], angle: float, translate: Sequence[float], scale: float, shear: Any
) -> list[float]:
    """Where in the source each place of the result lies: (a, b, c, d, e, f) of a x + b y + c."""
    rot, sx, sy = (math.radians(v) for v in (angle, *shear))
    a = math.cos(rot - sy) / math.cos(sy)
    b = -math.cos(rot - sy) * math.tan(sx) / math.cos(sy) - math.sin(rot)
    c = math.sin(rot - sy) / math.cos(sy)
    d = -math.sin(rot - sy) * math.tan(sx) / math.cos(sy) + math.cos(rot)
    matrix = [x / scale for x in (d, -b, 0.0, -c, a, 0.0)]
    (cx, cy), (tx, ty) = center, translate
    matrix[2] += matrix[0] * (-cx - tx) + matrix[1] * (-cy - ty) + cx
    matrix[5] += matrix[3] * (-cx - tx) + matrix[4] * (-cy - ty) + cy
    return matrix


def _moved(
    img: Tensor, matrix: list[float], mode: InterpolationMode, fill: Any,
    size: tuple[int, int] | None = None,
) -> Tensor:  # fmt: skip
    """Each place of the result from where the matrix says, counted from the middle. size: width and
    height of the result, where they are not the picture's."""
    w, h = size_of(img)
    wide, high = size or (w, h)
    x = tenon.arange(wide, dtype=tenon.float32) + (0.5 - wide * 0.5)
    y = (tenon.arange(high, dtype=tenon.float32) + (0.5 - high * 0.5)).unsqueeze(1)
    a, b, c, d, e, f = matrix
    across = a * x + b * y + c + (w * 0.5 - 0.5)
    down = d * x + e * y + f + (h * 0.5 - 0.5)
    values = [fill] if isinstance(fill, (int, float)) else list(fill or [0])
    color = tenon.tensor([float(v) for v in values]).view(-1, 1, 1)

    def read(flat: Tensor) -> Tensor:
        if mode is InterpolationMode.NEAREST:
            result, inside = _picked(flat, down.round(), across.round())
            return tenon.where(inside, result, color.to(result.dtype))
        result, share = 0.0, 0.0
        top, left = down.floor(), across.floor()
        for dy in (0, 1):
            for dx in (0, 1):
                weight = (1 - (down - top - dy).abs()) * (1 - (across - left - dx).abs())
                part, inside = _picked(flat, top + dy, left + dx)
                result, share = result + weight * part, share + weight * inside
        return result if fill is None else result * share + (1 - share) * color

    if mode not in (InterpolationMode.NEAREST, InterpolationMode.BILINEAR):
        raise ValueError(f"tensors are moved with modes NEAREST and BILINEAR, not {mode}")
    return computed(img, read)


def _picked(flat: Tensor, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """Values at places, 0 outside of the picture, and which places are inside."""
    h, w = flat.shape[-2:]
    inside = (rows >= 0) & (rows < h) & (columns >= 0) & (columns < w)
    index = rows.clamp(0, h - 1).long() * w + columns.clamp(0, w - 1).long()
    values = flat.flatten(-2)[..., index.flatten()].reshape(*flat.shape[:-2], *rows.shape)
    return values * inside, inside


from tenon.vision.transforms._color import (  # noqa: E402
    adjust_brightness,
    adjust_contrast,
    adjust_gamma,
    adjust_hue,
    adjust_saturation,
    adjust_sharpness,
    autocontrast,
    equalize,
    gaussian_blur,
    invert,
    posterize,
    rgb_to_grayscale,
    solarize,
    to_grayscale,
)

__all__ = [
    "InterpolationMode", "adjust_brightness", "adjust_contrast", "adjust_gamma", "adjust_hue",
    "adjust_saturation", "adjust_sharpness", "affine", "autocontrast", "center_crop",
    "convert_image_dtype", "crop", "equalize", "erase", "five_crop", "gaussian_blur",
    "get_dimensions", "get_image_num_channels", "get_image_size", "hflip", "invert", "normalize",
    "pad", "pil_to_tensor", "posterize", "resize", "resized_crop", "rgb_to_grayscale", "rotate",
    "solarize", "ten_crop", "to_grayscale", "to_pil_image", "to_tensor", "vflip",
]  # fmt: skip
