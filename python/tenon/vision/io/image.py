"""Pictures as uint8 tensors (channels, height, width)."""

from __future__ import annotations

import io
from enum import Enum
from pathlib import Path
from typing import Any

import tenon
from tenon import Tensor
from tenon.io import atomic


class ImageReadMode(Enum):
    """Which channels a picture is read with; UNCHANGED are those of the file."""

    UNCHANGED = 0
    GRAY = 1
    GRAY_ALPHA = 2
    RGB = 3
    RGB_ALPHA = 4


_MODES = {
    ImageReadMode.GRAY: "L", ImageReadMode.GRAY_ALPHA: "LA", ImageReadMode.RGB: "RGB",
    ImageReadMode.RGB_ALPHA: "RGBA",
}  # fmt: skip


def read_file(path: str | Path) -> Tensor:
    """The bytes of a file."""
    return tenon.frombuffer(bytearray(Path(path).read_bytes()), dtype=tenon.uint8)


def write_file(filename: str | Path, data: Tensor) -> None:
    """Writes bytes to a file."""
    atomic.replace(filename, data.cpu().numpy().tobytes())


def _mode_of(mode: Any) -> ImageReadMode:
    return ImageReadMode[mode.upper()] if isinstance(mode, str) else mode


def decode_image(
    input: Any, mode: Any = ImageReadMode.UNCHANGED, apply_exif_orientation: bool = False
) -> Tensor:
    """The picture in bytes, or in a file with that name."""
    import numpy as np
    from PIL import Image, ImageOps

    if not isinstance(input, Tensor):
        input = read_file(input)
    with Image.open(io.BytesIO(input.cpu().numpy().tobytes())) as picture:
        if apply_exif_orientation:
            picture = ImageOps.exif_transpose(picture)
        wanted = _MODES.get(_mode_of(mode))
        if wanted is None and picture.mode in ("P", "1", "CMYK"):
            wanted = "RGB" if picture.mode != "1" else "L"
        if wanted is not None and picture.mode != wanted:
            picture = picture.convert(wanted)
        values = np.array(picture)
    t = tenon.from_numpy(values)
    return t.unsqueeze(0) if t.dim() == 2 else t.permute(2, 0, 1).contiguous()


def read_image(
    path: str | Path, mode: Any = ImageReadMode.UNCHANGED, apply_exif_orientation: bool = False
) -> Tensor:
    """The picture in a file."""
    return decode_image(read_file(path), mode, apply_exif_orientation)


decode_png = decode_jpeg = decode_image


def _encoded(input: Tensor, **options: Any) -> Tensor:
    from PIL import Image

    if input.dtype != tenon.uint8:
        raise RuntimeError(f"Input tensor dtype should be uint8, not {input.dtype}")
    if input.dim() != 3 or input.size(0) not in (1, 3):
        raise RuntimeError(
            "The input must have 3 dimensions and 1 or 3 channels, not the shape "
            f"{tuple(input.shape)}"
        )
    values = input.cpu().permute(1, 2, 0).contiguous().numpy()
    file = io.BytesIO()
    Image.fromarray(values[:, :, 0] if input.size(0) == 1 else values).save(file, **options)
    return tenon.frombuffer(bytearray(file.getvalue()), dtype=tenon.uint8)


def encode_png(input: Tensor, compression_level: int = 6) -> Tensor:
    """A picture as the bytes of a PNG file."""
    return _encoded(input, format="PNG", compress_level=compression_level)


def encode_jpeg(input: Tensor, quality: int = 75) -> Tensor:
    """A picture as the bytes of a JPEG file."""
    return _encoded(input, format="JPEG", quality=quality)


def write_png(input: Tensor, filename: str | Path, compression_level: int = 6) -> None:
    """Writes a picture as a PNG file."""
    write_file(filename, encode_png(input, compression_level))


def write_jpeg(input: Tensor, filename: str | Path, quality: int = 75) -> None:
    """Writes a picture as a JPEG file."""
    write_file(filename, encode_jpeg(input, quality))
