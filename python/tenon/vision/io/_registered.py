"""The operators of torchvision's library for files of pictures, for a torchvision that is installed
beside Tenon."""

from __future__ import annotations

import io
from typing import Any

import tenon
from tenon import Tensor
from tenon.vision.io import image


def _decoded(input: Tensor, mode: int, apply_exif_orientation: bool = False) -> Tensor:
    return image.decode_image(input, image.ImageReadMode(mode), apply_exif_orientation)


def _decoded_gif(input: Tensor) -> Tensor:
    import numpy as np
    from PIL import Image, ImageSequence

    with Image.open(io.BytesIO(input.cpu().numpy().tobytes())) as file:
        frames = [np.array(frame.convert("RGB")) for frame in ImageSequence.Iterator(file)]
    pictures = tenon.stack([tenon.from_numpy(f).permute(2, 0, 1) for f in frames])
    return pictures[0] if len(frames) == 1 else pictures


_MODED = "(Tensor data, int mode, bool apply_exif_orientation=False) -> Tensor"
_SCHEMAS: dict[str, Any] = {
    "read_file(str filename) -> Tensor": image.read_file,
    "write_file(str filename, Tensor data) -> ()": image.write_file,
    f"decode_image{_MODED}": _decoded,
    f"decode_png{_MODED}": _decoded,
    f"decode_jpeg{_MODED}": _decoded,
    "decode_webp(Tensor data, int mode) -> Tensor": _decoded,
    "decode_gif(Tensor data) -> Tensor": _decoded_gif,
    "encode_png(Tensor data, int compression_level) -> Tensor": image.encode_png,
    "encode_jpeg(Tensor data, int quality) -> Tensor": image.encode_jpeg,
}

_library = tenon.library.Library("image", "DEF")
for _schema, _function in _SCHEMAS.items():
    _library.impl(_library.define(_schema), _function)
