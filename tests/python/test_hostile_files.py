"""Files that were made to hurt: each is refused, in time and memory that fit its size.

The cases are read in a process of their own with little memory. One that hangs or takes the process
down is named by the last line that this wrote.
"""

from __future__ import annotations

import io
import json
import pickle
import resource
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon.io import npy, safetensors
from tenon.io.errors import FileFormatError

torch: Any
try:
    import torch
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")
MEMORY = 1 << 31  # for the process that reads


def zipped(pieces: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in pieces.items():
            archive.writestr(name, data)
    return file.getvalue()


def pt(structure: bytes, **more: bytes) -> bytes:
    """A checkpoint with that pickled structure, and storages `s0`, `s1` ..."""
    pieces = {"a/data.pkl": b"\x80\x02" + structure + b".", "a/version": b"3\n"}
    for name, data in more.items():
        pieces[f"a/data/{name[1:]}" if name[0] == "s" else f"a/{name}"] = data
    return zipped(pieces)


def name(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def text(value: str) -> bytes:
    return b"X" + struct.pack("<L", len(value)) + value.encode()


def integer(value: int) -> bytes:
    size = (value.bit_length() >> 3) + 1
    return b"\x8b" + struct.pack("<L", size) + value.to_bytes(size, "little", signed=True)


def storage(kind: str, count: int, key: str = "0") -> bytes:
    return (
        b"(" + text("storage") + name("torch", f"{kind}Storage") + text(key) + text("cpu")
        + integer(count) + b"tQ"
    )  # fmt: skip


def tensor(
    stored: bytes, shape: tuple[int, ...], strides: tuple[int, ...], more: bytes = b""
) -> bytes:
    sizes = [b"(" + b"".join(map(integer, values)) + b"t" for values in (shape, strides)]
    return (
        name("torch._utils", "_rebuild_tensor_v2") + b"(" + stored + integer(0) + b"".join(sizes)
        + b"\x89" + name("collections", "OrderedDict") + b")R" + more + b"tR"
    )  # fmt: skip


def reduced_often(constructor: bytes, argument: bytes, times: int) -> bytes:
    """A list of objects that are all made of one argument, which stands there once."""
    again = b"h\x00h\x01R"
    return constructor + b"q\x00" + b"0" + argument + b"\x85q\x01" + b"0](" + again * times + b"e"


def nested_keys(depth: int, width: int) -> bytes:
    """((1, 1, ...), (1, 1, ...), ...) of that depth as a key, each level written once."""
    level = b"K\x01"
    for i in range(depth):
        level += b"q" + bytes([i]) + b"0(" + b"h" + bytes([i])
        level += (b"h" + bytes([i])) * (width - 1) + b"t"
    return b"}" + level + b"K\x01s"


def from_the_top(levels: int, make: bytes) -> bytes:
    """Nested objects, each put into the outer one before it is filled itself."""
    out = b""
    for i in range(levels):
        out += b"0" * (i > 0) + make + b"r" + struct.pack("<L", i)
        if i:
            out += b"0j" + struct.pack("<L", i - 1) + b"K\x00j" + struct.pack("<L", i) + b"s0"
            out += b"j" + struct.pack("<L", i)
    return out


BIG_LIST = b"](" + b"K\x01" * 5000 + b"e"
DEFAULT = name("collections", "defaultdict")
PRIME = 2**61 - 1  # Python's hash of a whole number is the rest by it


def defaults(levels: int) -> bytes:
    """Dicts with a default, one in the other."""
    make = DEFAULT + b"q\x00" + b"0"
    return make + b"h\x00)RK\x00" * levels + b"N" + b"s" * levels


def cycles(count: int) -> bytes:
    """Dicts that hold themselves, one in the other by way of what holds them."""
    return (
        b"]("
        + b"".join(
            b"]r" + struct.pack("<L", i) + b"j" + struct.pack("<L", i) + b"a" for i in range(count)
        )
        + b"e"
    )


def pairs(keys: list[int]) -> bytes:
    return b"](" + b"".join(integer(k) + b"K\x01\x86" for k in keys) + b"e"


def counted(keys: list[int]) -> bytes:
    return b"}(" + b"".join(integer(k) + b"N" for k in keys) + b"u"


CASES: dict[str, bytes] = {
    "dicts with defaults, nested": pt(defaults(30_000)),
    "dicts with defaults, nested, then an error": pt(defaults(30_000) + b"h\x09"),
    "dicts with defaults, filled from the top": pt(from_the_top(20_000, DEFAULT + b")R")),
    "lists, nested": pt(b"]" * 30_000 + b"a" * 29_999),
    "lists that hold themselves": pt(cycles(1000)),
    "tuples as a key, nested deep": pt(b"})" + b"\x85" * 100_000 + b"K\x01s"),
    "tuples as a key, each twice in the next": pt(nested_keys(8, 200)),
    "a set of such": pt(b"\x8f(" + nested_keys(8, 200)[1:-3] + b"\x90"),
    "bytearrays of one text": pt(
        reduced_often(name("builtins", "bytearray"), b"B\x88\x13\0\0" + bytes(5000), 30_000)
    ),
    "bytes of one text": pt(reduced_often(name("_codecs", "encode"), text("x" * 5000), 30_000)),
    "sets of one list": pt(reduced_often(name("builtins", "set"), BIG_LIST, 30_000)),
    "frozensets of one list": pt(reduced_often(name("builtins", "frozenset"), BIG_LIST, 30_000)),
    "ordered dicts of one list": pt(
        reduced_often(name("collections", "OrderedDict"), pairs(list(range(5000))), 30_000)
    ),
    "counters of one dict": pt(
        reduced_often(name("collections", "Counter"), counted(list(range(5000))), 30_000)
    ),
    "keys with one hash": pt(counted([i * PRIME for i in range(1, 20_000)])),
    "an ordered dict of keys with one hash": pt(
        name("collections", "OrderedDict")
        + pairs([i * PRIME for i in range(1, 20_000)]) + b"\x85R"
    ),
    "a set of complex numbers with one hash": pt(
        b"\x8f(" + b"".join(
            name("builtins", "complex") + b"G" + struct.pack(">d", 1000003.0 * i)
            + b"G" + struct.pack(">d", float(-i)) + b"\x86R" for i in range(1, 20_000)
        ) + b"\x90"
    ),
    "one byte as four gigabytes of a plugin's dtype": pt(
        name("tenon", "_plugin_tensor") + b"(" + tensor(storage("Byte", 1), (1 << 32,), (0,))
        + text("uint8") + text("none") + b"(" + integer(1 << 32) + b"t\x89tR", s0=b"\x00",
    ),
    "an integer with too many digits as a size": pt(
        tensor(storage("Byte", 1), (1 << 30_000,), (0,)), s0=b"\x00"
    ),
    "an integer with too many digits as a count": pt(storage("Byte", 1 << 30_000), s0=b"\x00"),
    "a nested list as a size": pt(
        name("torch", "Size") + b"](" + b"]" * 400 + b"a" * 399 + b"e\x85R"
    ),
    "a list whose text is endless as a size": pt(
        b"N" + b"".join(
            b"q" + bytes([i]) + b"0](" + (b"h" + bytes([i])) * 2 + b"e" for i in range(60)
        ) + b"q\xff0" + name("torch", "Size") + b"](h\xffe\x85R"
    ),
    "a gradient of whole numbers": pt(
        tensor(storage("Long", 1), (1,), (1,)).replace(b"\x89", b"\x88"), s0=bytes(8)
    ),
    "two dtypes in a storage of the other byte order": pt(
        b"](" + tensor(storage("Float", 2), (2,), (1,))
        + tensor(storage("Double", 1), (1,), (1,)) + b"e",
        s0=bytes(8), byteorder=b"big",
    ),
    "a flag that is not known": pt(
        tensor(storage("Float", 1), (1,), (1,), b"}" + text("lazy") + b"\x88s"), s0=bytes(4)
    ),
    "metadata that is no dict": pt(tensor(storage("Float", 1), (1,), (1,), b"K\x01"), s0=bytes(4)),
    "a device with a NUL": pt(storage("Byte", 1).replace(text("cpu"), text("c\0pu")), s0=b"\x00"),
    "a tensor that is rebuilt by its own rule": pt(
        name("torch._tensor", "_rebuild_from_type_v2") + b"q\x00(h\x00" + name("torch", "Tensor")
        + b")NtR"
    ),
    "a tensor that is rebuilt as text": pt(
        name("torch._tensor", "_rebuild_from_type_v2") + b"(" + name("_codecs", "encode")
        + name("torch", "Tensor") + text("x") + b"\x85NtR"
    ),
}  # fmt: skip


def npy_file(header: bytes, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\x02\x00" + struct.pack("<L", len(header)) + header + data


NPY: dict[str, bytes] = {
    "digits that can be split in many ways": npy_file(
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"1" * 40 + b"x), }"
    ),
    "many digits": npy_file(b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"1" * 60_000),
    "many spaces": npy_file(b"{'descr': '<f4'," + b" " * 60_000 + b"x"),
    "many commas": npy_file(
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"1,," * 20_000
    ),
    "many dimensions": npy_file(
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"1," * 20_000 + b")}", bytes(4)
    ),
    "many names": npy_file(b"{" + b"'descr':'<f4'," * 4000 + b"}"),
    "an open text": npy_file(b"{'" + b"a" * 60_000),
    "more after the header": npy_file(
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} {", bytes(4)
    ),
}


def safetensors_file(header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header)) + header + data


SAFETENSORS: dict[str, bytes] = {
    "lists, nested": safetensors_file(b'{"a":' + b"[" * 100_000),
    "objects, nested": safetensors_file(b'{"a":' * 100_000),
    "an integer with too many digits": safetensors_file(b'{"a":' + b"1" * 100_000 + b"}"),
    "a number with a long fraction": safetensors_file(b'{"a":0.' + b"1" * 100_000 + b"}"),
    "half of a surrogate pair as a name": safetensors_file(
        b'{"\\ud800":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}}', bytes(8)
    ),
    "sizes whose product is too large": safetensors_file(
        json.dumps({"a": {"dtype": "U8", "shape": [2**40] * 60, "data_offsets": [0, 8]}}).encode(),
        bytes(8),
    ),
}

READERS: dict[str, tuple[dict[str, bytes], Callable[[Path], Any]]] = {
    "pt": (CASES, tn.load),
    "npy": (NPY, npy.load),
    "safetensors": (SAFETENSORS, safetensors.load_file),
}


def read_all(folder: Path) -> None:
    """In a process with little memory: every file of a folder must be refused as a bad file."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for path in sorted(folder.iterdir()):
        print(path.name, flush=True)
        try:
            READERS[path.suffix[1:]][1](path)
        except FileFormatError as err:
            assert len(str(err)) < 1000
        else:
            raise SystemExit("it was read")


@pytest.mark.parametrize("kind", READERS)
def test_hostile_files_are_refused(kind: str, tmp_path: Path) -> None:
    for case, data in READERS[kind][0].items():
        (tmp_path / f"{case}.{kind}").write_bytes(data)
    done = subprocess.run(
        [sys.executable, __file__, str(tmp_path)], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr[-3000:]


def test_what_is_just_large_is_read() -> None:
    """Budgets do not hit honest files."""
    value = {
        "lists": [[] for _ in range(20_000)],
        "keys": {(i, (i + 1, "x")): i for i in range(5000)},
        "wide": {i * 2**70 for i in range(200)},
        "bytes": [bytes([i % 256]) * 50 for i in range(2000)],
        "text": "x" * 100_000,
        "bytearray": bytearray(100_000),
        "again": [(1, 2, 3)] * 10_000,
    }
    for protocol in (2, 3, 4, 5):
        data = zipped({"a/data.pkl": pickle.dumps(value, protocol), "a/version": b"3\n"})
        assert tn.load(io.BytesIO(data)) == value


@pytest.mark.parametrize("protocol", [2, 4])
def test_what_holds_itself_is_read(protocol: int) -> None:
    inner: dict[str, Any] = {}
    outer: list[Any] = [inner, inner]
    inner["parent"] = outer
    data = zipped({"a/data.pkl": pickle.dumps(outer, protocol), "a/version": b"3\n"})
    found = tn.load(io.BytesIO(data))
    assert found[0] is found[1] and found[0]["parent"] is found


@pytest.mark.parametrize("levels", [400])
def test_what_is_nested_within_bounds_is_read(levels: int) -> None:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    data = zipped({"a/data.pkl": pickle.dumps(value), "a/version": b"3\n"})
    assert tn.load(io.BytesIO(data)) == value


# ---- Views that PyTorch has not computed yet -----------------------------------------------------


@needs_torch
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_lazy_views_of_torch(dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    base = torch.arange(12).reshape(3, 4).to(getattr(torch, dtype)) * (1 + 2j)
    conj = base.conj()
    value = {
        "base": base, "conj": conj, "part": conj[1:, ::2], "imag": conj.imag, "real": conj.real,
        "wide": conj[:1, :1].expand(1000, 1000), "leaf": conj.detach().requires_grad_(),
    }  # fmt: skip
    assert value["conj"].is_conj() and value["imag"].is_neg()
    for key in value:  # one at a time: torch does not write two dtypes of one storage
        torch.save(value[key], path)
        found = tn.load(path)
        want = value[key].detach().resolve_conj().resolve_neg().numpy()
        np.testing.assert_array_equal(found.detach().numpy(), want)
        assert found.stride() == value[key].stride()
        assert found.requires_grad == value[key].requires_grad


@pytest.mark.parametrize(("flags", "change"), [
    ({"conj": True}, np.conj), ({"neg": True}, np.negative),
    ({"conj": True, "neg": True}, lambda a: -np.conj(a)), ({"conj": False}, lambda a: a),
])  # fmt: skip
def test_lazy_views_by_hand(flags: dict[str, bool], change: Any) -> None:
    """The same without PyTorch: the flags are a dict in the metadata of the tensor."""
    data = np.array([1 + 2j, 3 - 4j], dtype=np.complex64)
    more = b"}" + b"".join(text(k) + (b"\x88" if v else b"\x89") + b"s" for k, v in flags.items())
    file = pt(tensor(storage("ComplexFloat", 2), (2,), (1,), more), s0=data.tobytes())
    np.testing.assert_array_equal(tn.load(io.BytesIO(file)).numpy(), change(data))


def test_other_byte_order_of_untyped_storages() -> None:
    """A storage without a dtype is turned around for the dtype of its tensor."""
    data = np.array([1.5, -2.0], dtype=">f8")
    kind = name("torch", "float64")
    stored = storage("Untyped", 16).replace(
        name("torch", "UntypedStorage"), name("torch.storage", "UntypedStorage")
    )
    structure = tensor(stored, (2,), (1,)).replace(b"_v2", b"_v3")[:-2] + kind + b"tR"
    file = pt(structure, s0=data.tobytes(), byteorder=b"big")
    assert tn.load(io.BytesIO(file)).tolist() == [1.5, -2.0]


if __name__ == "__main__":
    read_all(Path(sys.argv[1]))
