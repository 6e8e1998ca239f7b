"""Pictures and sound as bytes: PNG and WAV, by the standard library alone."""

from __future__ import annotations

import io
import struct
import wave
import zlib
from typing import Any

import tenon
from tenon import Tensor


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(image: Tensor) -> bytes:
    """A picture (height, width, 1, 3 or 4 channels) of uint8."""
    height, width, channels = image.shape
    kinds = {1: 0, 3: 2, 4: 6}
    rows = image.contiguous().view(height, -1)
    lines = b"".join(b"\0" + bytes(row.tolist()) for row in rows)
    header = struct.pack(">IIBBBBB", width, height, 8, kinds[channels], 0, 0, 0)
    body = _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(lines)) + _chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def bytes_of_image(image: Any, layout: str) -> Tensor:
    """An image as (height, width, channels) of uint8; floats are taken to lie in [0, 1].

    layout names the dimensions: C, H, W, and N for several, which become a grid.
    """
    x = tenon.as_tensor(image).detach().cpu()
    names = layout.upper()
    if x.ndim != len(names) or sorted(names) not in (sorted("HW"), sorted("CHW"), sorted("NCHW")):
        raise ValueError(f"an image of shape {tuple(x.shape)} has not the dimensions {layout!r}")
    if x.dtype != tenon.uint8:
        x = (x.float() * 255).clamp(0, 255).to(tenon.uint8)
    if "N" in names:
        x = _grid(x.permute([names.index(d) for d in "NCHW"])).permute(1, 2, 0)
    elif "C" in names:
        x = x.permute([names.index(d) for d in "HWC"])
    else:
        x = x.permute([names.index(d) for d in "HW"]).unsqueeze(-1)
    if x.shape[-1] not in (1, 3, 4):
        raise ValueError(f"an image has 1, 3 or 4 channels, not {x.shape[-1]}")
    return x


def _grid(images: Tensor, columns: int = 8) -> Tensor:
    """Several pictures side by side, as one of (C, H, W)."""
    count, channels, height, width = images.shape
    across = min(columns, count)
    down = -(-count // across)
    canvas = images.new_zeros(channels, down * height, across * width)
    for i in range(count):
        top, left = i // across * height, i % across * width
        canvas[:, top : top + height, left : left + width] = images[i]
    return canvas


def wav(sound: Any, sample_rate: int) -> tuple[bytes, int]:
    """Sound in [-1, 1] as 16-bit samples, and how many there are."""
    x = tenon.as_tensor(sound).detach().cpu().float().flatten().clamp(-1, 1)
    samples = (x * 32767).to(tenon.int16)
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(sample_rate)
        file.writeframes(struct.pack(f"<{samples.numel()}h", *samples.tolist()))
    return buffer.getvalue(), samples.numel()
