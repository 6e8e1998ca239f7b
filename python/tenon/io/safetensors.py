"""Reads and writes safetensors files: 8 bytes of length, a JSON header, the tensors' bytes.

The reader is strict: everything that the format does not allow is an error, in time and memory
proportional to the file.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, BinaryIO

import tenon
from tenon.io import _tensor
from tenon.io.atomic import open_to_read, replacing
from tenon.io.errors import FileFormatError

DTYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64",
    "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64", "C64": "complex64",
    "U16": "uint16", "U32": "uint32", "U64": "uint64", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
}  # fmt: skip
CODES = {name: code for code, name in DTYPES.items()}
# A tensor of a plugin's dtype is a row of bytes; a text of the file says, under this key and its
# name, what it is: dtype, plugin and sizes.
PLUGIN_KEY = "tenon.dtype."
MAX_HEADER = 100_000_000
MAX_TENSORS = 100_000
MAX_DIMS = 64
MAX_NUMBER = 1 << 62

Path = str | os.PathLike[str]


class _Header:
    """Checked contents of a header."""

    def __init__(self, raw: bytes, data_bytes: int) -> None:
        self.metadata: dict[str, str] = {}
        self.tensors: dict[str, tuple[str, tuple[int, ...], int, int]] = {}
        entries = _parse(raw)
        metadata = entries.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(type(v) is str for v in metadata.values()):
            raise FileFormatError("safetensors: __metadata__ is no dict from text to text")
        self.metadata = metadata
        for name, entry in entries.items():
            self.tensors[name] = _entry(name, entry, data_bytes)
        at = 0
        for begin, end, name in sorted((b, e, n) for n, (_, _, b, e) in self.tensors.items()):
            if begin != at:
                kind = "overlaps another" if begin < at else "leaves a gap before it"
                raise FileFormatError(f"safetensors: the tensor {name[:80]!r} {kind}")
            at = end
        if at != data_bytes:
            raise FileFormatError(
                f"safetensors: the tensors take {at} bytes, the file holds {data_bytes}"
            )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise FileFormatError("safetensors: the header has a key twice")
    return result


def _whole(text: str) -> int:
    if not re.fullmatch("0|[1-9][0-9]{0,18}", text):
        raise FileFormatError(f"safetensors: {text[:40]} is no size or offset")
    return int(text)


def _refuse(text: str) -> Any:
    raise FileFormatError(f"safetensors: {text[:40]} is no size or offset")


def _parse(raw: bytes) -> dict[str, Any]:
    if not raw.startswith(b"{"):
        raise FileFormatError("safetensors: the header does not begin with '{'")
    if raw.count(b'"data_offsets"') > MAX_TENSORS:
        raise FileFormatError(f"safetensors: more than {MAX_TENSORS} tensors")
    try:
        entries = json.loads(
            raw.decode("utf-8"), object_pairs_hook=_unique, parse_int=_whole, parse_float=_refuse,
            parse_constant=_refuse,
        )  # fmt: skip
    except UnicodeDecodeError as err:
        raise FileFormatError(f"safetensors: the header is no UTF-8: {err}") from None
    except RecursionError:
        raise FileFormatError("safetensors: the header is nested too deep") from None
    except json.JSONDecodeError as err:
        raise FileFormatError(f"safetensors: the header is no JSON: {err}") from None
    if not isinstance(entries, dict):
        raise FileFormatError("safetensors: the header is no object")
    return entries


def _entry(name: str, entry: Any, data_bytes: int) -> tuple[str, tuple[int, ...], int, int]:
    shown = f"{name[:80]!r}"
    if "\0" in name or ".." in name.replace("\\", "/").split("/") or name.startswith("/"):
        raise FileFormatError(f"safetensors: the name {shown} is not allowed")
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise FileFormatError(f"safetensors: {shown} needs dtype, shape and data_offsets alone")
    code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if type(code) is not str or code not in DTYPES:
        raise FileFormatError(f"safetensors: {shown} has the unknown dtype {code!r:.40}")
    if not isinstance(shape, list) or len(shape) > MAX_DIMS or not _all_whole(shape):
        raise FileFormatError(f"safetensors: {shown} has no valid shape")
    if not isinstance(offsets, list) or len(offsets) != 2 or not _all_whole(offsets):
        raise FileFormatError(f"safetensors: {shown} has no valid data_offsets")
    begin, end = offsets
    if begin > end or end > data_bytes:
        raise FileFormatError(f"safetensors: {shown} lies outside of the file")
    kind = DTYPES[code]
    size = _tensor.ITEMSIZE[kind]
    for n in shape:
        size *= n
        if size >= MAX_NUMBER:
            raise FileFormatError(f"safetensors: {shown} is too large")
    if size != end - begin:
        raise FileFormatError(
            f"safetensors: {shown} of shape {shape} and dtype {code} needs {size} bytes, but has "
            f"{end - begin}"
        )
    return kind, tuple(shape), begin, end


def _all_whole(values: list[Any]) -> bool:
    return all(type(v) is int for v in values)


def _read_header(file: BinaryIO) -> tuple[_Header, int]:
    """The header, and where the data begins."""
    total = file.seek(0, os.SEEK_END)
    file.seek(0)
    head = file.read(8)
    if len(head) != 8:
        raise FileFormatError("safetensors: the file is shorter than 8 bytes")
    length = int.from_bytes(head, "little")
    if length > MAX_HEADER:
        raise FileFormatError(f"safetensors: the header of {length} bytes is too large")
    if length > total - 8:
        raise FileFormatError("safetensors: the header is longer than the file")
    raw = file.read(length)
    if len(raw) != length:
        raise FileFormatError("safetensors: the header is cut off")
    return _Header(raw, total - 8 - length), 8 + length


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    result, step = [], 1
    for n in reversed(shape):
        result.append(step)
        step *= max(n, 1)
    return tuple(reversed(result))


def _read(file: BinaryIO, where: Any) -> dict[str, tenon.Tensor]:
    header, start = _read_header(file)
    place = None if where is None else tenon.device(where)
    result = {}
    for name, (kind, shape, begin, end) in header.tensors.items():
        file.seek(start + begin)
        data = _tensor.read_exactly(file, end - begin, f"safetensors: {name[:80]!r}")
        if _tensor.NATIVE == "big":
            data = _tensor.swapped(data, _tensor.SWAP_UNIT.get(kind, _tensor.ITEMSIZE[kind]))
        result[name] = _tensor.Block(data, place).cut(kind, shape, _strides(shape), 0)
        text = header.metadata.get(PLUGIN_KEY + name)
        if text is not None:
            result[name] = _of_plugin(name, result[name], text)
    return result


def _of_plugin(name: str, row: tenon.Tensor, text: str) -> tenon.Tensor:
    words = text.split()
    if len(words) < 2 or not all(w.isdecimal() and len(w) < 20 for w in words[2:]):
        raise FileFormatError(f"safetensors: {name[:80]!r} has an unknown dtype {text[:40]!r}")
    return _tensor.from_raw(row, words[0], words[1], tuple(int(w) for w in words[2:]))


def load_file(filename: Path, device: Any = None) -> dict[str, tenon.Tensor]:
    """All tensors of a file by name."""
    with open_to_read(filename) as file:
        return _read(file, device)


def load(data: bytes) -> dict[str, tenon.Tensor]:
    """All tensors in bytes that hold a whole file."""
    import io

    return _read(io.BytesIO(data), None)


def metadata(filename: Path) -> dict[str, str]:
    """The texts that a file carries beside its tensors."""
    with open_to_read(filename) as file:
        return _read_header(file)[0].metadata


def _told(t: tenon.Tensor) -> str:
    """ "posit16 tenon_posit16 2 3"."""
    return " ".join([_tensor.name_of(t.dtype), str(t.dtype.plugin), *map(str, t.shape)])


def _write(tensors: dict[str, tenon.Tensor], texts: dict[str, str] | None, file: BinaryIO) -> None:
    header: dict[str, Any] = {}
    if texts:
        if not all(type(k) is str and type(v) is str for k, v in texts.items()):
            raise TypeError("save_file(): metadata must be a dict from str to str")
        header["__metadata__"] = dict(texts)
    for name, t in tensors.items():
        if type(name) is not str or not isinstance(t, tenon.Tensor):
            raise TypeError("save_file(): expected a dict from str to Tensor")
        if _tensor.plugin_of(t.dtype) is None and _tensor.name_of(t.dtype) not in CODES:
            raise TypeError(f"save_file(): {name!r} has the dtype {t.dtype}, which has no code")
    told = {PLUGIN_KEY + n: _told(t) for n, t in tensors.items() if _tensor.plugin_of(t.dtype)}
    if told:
        header["__metadata__"] = {**(texts or {}), **told}
        plain = {n: t for n, t in tensors.items() if not _tensor.plugin_of(t.dtype)}
        tensors = {n: plain.get(n, _tensor.raw_row(t)) for n, t in tensors.items()}
    # Large elements first, so that every tensor is aligned.
    order = sorted(tensors, key=lambda n: (-tensors[n].element_size(), n))
    at = 0
    for name in order:
        t = tensors[name]
        size = t.numel() * t.element_size()
        code = CODES[_tensor.name_of(t.dtype)]
        entry = {"dtype": code, "shape": list(t.shape), "data_offsets": [at, at + size]}
        _entry(name, entry, at + size)
        header[name] = entry
        at += size
    raw = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    if len(raw) > MAX_HEADER:
        raise ValueError(f"save_file(): the header would take {len(raw)} bytes")
    file.write(len(raw).to_bytes(8, "little"))
    file.write(raw)
    for name in order:
        row = _tensor.elements_of(tensors[name])
        data = _tensor.bytes_of(row)
        if _tensor.NATIVE == "big":
            kind = _tensor.name_of(row.dtype)
            unit = _tensor.SWAP_UNIT.get(kind, _tensor.ITEMSIZE[kind])
            data = memoryview(_tensor.swapped(bytearray(data), unit))
        file.write(data)


def save_file(
    tensors: dict[str, tenon.Tensor], filename: Path, metadata: dict[str, str] | None = None
) -> None:
    """Writes tensors by name; the file at `filename` is replaced when the new one is complete."""
    with replacing(filename) as file:
        _write(tensors, metadata, file)


def save(tensors: dict[str, tenon.Tensor], metadata: dict[str, str] | None = None) -> bytes:
    """The bytes of the file that save_file writes."""
    import io

    file = io.BytesIO()
    _write(tensors, metadata, file)
    return file.getvalue()
