"""Tensors in notebooks: shape, dtype, statistics, and a small picture of what looks like an image.

The picture is a PNG written here, so that nothing has to be installed for it.
"""

from __future__ import annotations

import html
import struct
import zlib
from base64 import b64encode

from tenon import _C
from tenon._C import Tensor

_LARGEST = 128  # pixels of a side: a larger image is thinned out


def _statistics(x: Tensor) -> str:
    """Ends, mean and deviation of the finite numbers, and how many are not finite."""
    if not x.numel() or x.is_complex() or x.layout != _C.strided or x.device.type == "meta":
        return ""
    values = x.to(_C.float64 if x.dtype == _C.float64 else _C.float32).reshape(-1)
    finite = values[values.isfinite()]
    lost = values.numel() - finite.numel()
    parts = []
    if finite.numel():
        low, high, mean = finite.min().item(), finite.max().item(), finite.mean().item()
        spread = finite.std(correction=0).item()
        parts.append(f"min {low:.4g}, max {high:.4g}, mean {mean:.4g}, std {spread:.4g}")
    if lost:
        parts.append(f"{lost} not finite")
    return "; ".join(parts)


def _is_image(x: Tensor) -> bool:
    """(H, W), (1, H, W) or (3, H, W) with sides that are worth a picture."""
    if x.layout != _C.strided or x.device.type == "meta" or x.is_complex():
        return False
    if x.dim() not in (2, 3) or (x.dim() == 3 and x.shape[0] not in (1, 3)):
        return False
    return min(x.shape[-2:]) >= 8


def png(x: Tensor) -> bytes:
    """An image file of a (H, W), (1, H, W) or (3, H, W) tensor: bytes as they are, other numbers
    from their smallest, black, to their largest, white."""
    pixels = x.detach()
    if pixels.dim() == 2:
        pixels = pixels.unsqueeze(0)
    step = max(1, -(-max(pixels.shape[-2:]) // _LARGEST))
    pixels = pixels[:, ::step, ::step].cpu()
    if pixels.dtype != _C.uint8:
        pixels = pixels.to(_C.float32).nan_to_num(0.0, 0.0, 0.0)
        low, high = pixels.min(), pixels.max()
        pixels = ((pixels - low) / (high - low).clamp_min(1e-30) * 255).round().to(_C.uint8)
    channels, height, width = pixels.shape
    data = bytes(pixels.permute(1, 2, 0).reshape(-1).tolist())
    row = width * channels
    lines = b"".join(b"\0" + data[i * row : (i + 1) * row] for i in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    out = b"\x89PNG\r\n\x1a\n"
    for name, body in ((b"IHDR", head), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")):
        out += struct.pack(">I", len(body)) + name + body
        out += struct.pack(">I", zlib.crc32(name + body))
    return out


def _repr_html_(self: Tensor) -> str:
    """What a notebook shows of the tensor."""
    with _C.no_grad():
        x = self.detach()
        shape = "×".join(str(n) for n in x.shape) or "0-d"
        facts = [shape, str(x.dtype), str(x.device), _statistics(x)]
        if self.requires_grad:
            facts.append("requires grad")
        line = html.escape(", ".join(fact for fact in facts if fact))
        picture = ""
        if _is_image(x):
            code = b64encode(png(x)).decode()
            picture = f'<img alt="{shape}" src="data:image/png;base64,{code}"/>'
        return f"<div><div>{line}</div>{picture}<pre>{html.escape(repr(self))}</pre></div>"
