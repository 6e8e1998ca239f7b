"""Checkpoints, safetensors and npy files: what is written reads back, here and in PyTorch; what is
broken or hostile is refused without running, crashing or taking memory."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import sys
import zipfile
import zlib
from collections import Counter, OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tenon
from tenon.io import npy, safetensors
from tenon.io.errors import FileFormatError, UnsafeContentError
from tenon.io.unpickle import Reader, plain_globals

torch: Any
try:
    import torch
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")

DTYPES = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]


def example(lib: Any, dtype: str) -> Any:
    values = lib.tensor([[0, 1, 2], [3, 4, 100]])
    return values.to(getattr(lib, dtype))


def array(t: Any) -> np.ndarray:
    t = t.detach()
    return (t.float() if str(t.dtype).endswith("bfloat16") else t).numpy()


def structure(lib: Any) -> dict[Any, Any]:
    """An object with everything that a checkpoint may hold."""
    base = lib.arange(12.0).reshape(3, 4)
    weight = lib.nn.Parameter(lib.ones(2, 2))
    shared = [1, 2]
    state: OrderedDict = OrderedDict([("weight", lib.ones(2)), ("bias", lib.zeros(2))])
    state._metadata = OrderedDict([("", {"version": 1})])  # type: ignore[attr-defined]
    return {
        "state": state,
        "base": base,
        "view": base[1:, ::2],
        "t": base.t(),
        "p": weight,
        "frozen": lib.nn.Parameter(lib.zeros(1), requires_grad=False),
        "grad": lib.ones(2, requires_grad=True),
        "scalar": lib.tensor(2.5),
        "empty": lib.zeros(0, 3),
        "numbers": [0, 1, 255, 256, 65535, 65536, -1, 2**31, -(2**31), 2**63, -(2**80), 1.5, -0.0],
        "more": [float("inf"), 1 + 2j, True, False, None],
        "text": "ä\n'\x00" + "x" * 300,
        "bytes": bytes(range(256)),
        "bytearray": bytearray(b"\x00\xff"),
        "tuple": (1, (2,), ()),
        "set": {1, "a"},
        "size": lib.Size([1, 2]),
        "dtype": lib.float32,
        "device": lib.device("cpu"),
        "default": defaultdict(list, {"a": [1]}),
        "counter": Counter("aab"),
        "twice": [shared, shared],
        3: {"nested": {"deep": [[[]]]}},
        (1, "x"): 1,
        "many": list(range(300)),
    }


def compare(a: Any, b: Any) -> None:
    """a, from Tenon, holds what b, from either library, holds."""
    if isinstance(a, tenon.Tensor):
        assert str(a.dtype).rpartition(".")[2] == str(b.dtype).rpartition(".")[2]
        assert tuple(a.shape) == tuple(b.shape) and a.stride() == b.stride()
        assert a.requires_grad == b.requires_grad
        assert type(a).__name__ == type(b).__name__
        np.testing.assert_array_equal(array(a), array(b))
    elif isinstance(a, dict):
        assert type(a).__name__ == type(b).__name__ and list(map(str, a)) == list(map(str, b))
        for x, y in zip(a.values(), b.values(), strict=True):
            compare(x, y)
        if isinstance(a, OrderedDict):
            compare(dict(a.__dict__), dict(b.__dict__))
    elif isinstance(a, list) or type(a) is tuple:
        assert type(a).__name__ == type(b).__name__ and len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            compare(x, y)
    elif isinstance(a, tenon.dtype | tenon.device):
        assert str(a).rpartition(".")[2] == str(b).rpartition(".")[2]
    else:
        assert (
            type(a).__name__ == type(b).__name__
            and a == b
            and repr(a).replace("tenon", "torch") == repr(b).replace("tenon", "torch")
        )


# ---- Checkpoints ---------------------------------------------------------------------------------


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    want = structure(tenon)
    tenon.save(want, path)
    got = tenon.load(path)
    compare(got, want)
    assert got["twice"][0] is got["twice"][1]
    assert os.listdir(tmp_path) == ["a.pt"]
    got["base"][1, 0] = 77
    assert got["view"][0, 0].item() == 77 and got["t"][0, 1].item() == 77


def test_open_files() -> None:
    file = io.BytesIO()
    tenon.save([tenon.ones(3)], file)
    file.seek(0)
    compare(tenon.load(file), [tenon.ones(3)])


@needs_torch
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_both_ways(tmp_path: Path, dtype: str) -> None:
    tenon.save(example(tenon, dtype), tmp_path / "ours.pt")
    torch.save(example(torch, dtype), tmp_path / "theirs.pt")
    compare(example(tenon, dtype), torch.load(tmp_path / "ours.pt", weights_only=True))
    compare(tenon.load(tmp_path / "theirs.pt"), example(torch, dtype))


@needs_torch
@pytest.mark.parametrize("mmap", [False, True])
def test_torch_reads_ours(tmp_path: Path, mmap: bool) -> None:
    want = structure(tenon)
    tenon.save(want, tmp_path / "a.pt")
    if not mmap:
        full = torch.load(tmp_path / "a.pt", weights_only=False)
        compare(want, full)
    del want["default"]  # not on the list of what weights_only reads
    tenon.save(want, tmp_path / "a.pt")
    got = torch.load(tmp_path / "a.pt", weights_only=True, mmap=mmap)
    compare(want, got)
    got["base"][1, 0] = 77
    assert got["view"][0, 0].item() == 77


@needs_torch
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("mmap", [False, True])
def test_ours_reads_torch(tmp_path: Path, protocol: int, mmap: bool) -> None:
    want = structure(torch)
    torch.save(want, tmp_path / "a.pt", pickle_protocol=protocol)
    got = tenon.load(tmp_path / "a.pt", mmap=mmap)
    compare(got, want)
    got["base"][1, 0] = 77
    assert got["view"][0, 0].item() == 77
    assert torch.load(tmp_path / "a.pt", weights_only=False)["base"][1, 0].item() == 4


@needs_torch
def test_models_and_optimizers(tmp_path: Path) -> None:
    def trained(lib: Any) -> tuple[Any, Any]:
        model = lib.nn.Sequential(lib.nn.Linear(3, 4), lib.nn.ReLU(), lib.nn.Linear(4, 2))
        optimizer = lib.optim.AdamW(model.parameters(), lr=0.01)
        model(lib.ones(5, 3)).sum().backward()
        optimizer.step()
        return model, optimizer

    model, optimizer = trained(torch)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
    torch.save(state, tmp_path / "a.pt")
    ours, our_optimizer = trained(tenon)
    loaded = tenon.load(tmp_path / "a.pt")
    compare(loaded, state)
    ours.load_state_dict(loaded["model"])
    our_optimizer.load_state_dict(loaded["optimizer"])
    tenon.save(
        {"model": ours.state_dict(), "optimizer": our_optimizer.state_dict()}, tmp_path / "b.pt"
    )
    back = torch.load(tmp_path / "b.pt", weights_only=True)
    model.load_state_dict(back["model"])
    optimizer.load_state_dict(back["optimizer"])


def test_map_location(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    tenon.save(tenon.ones(3), path)
    seen = []

    def keep(storage: Any, location: str) -> Any:
        seen.append((storage.nbytes(), location))
        return storage

    for rule in ("cpu", tenon.device("cpu"), {"cpu": "cpu"}, keep, lambda s, loc: None):
        compare(tenon.load(path, map_location=rule), tenon.ones(3))
    assert seen == [(12, "cpu")]
    data = path.read_bytes().replace(b"X\x03\x00\x00\x00cpu", b"X\x03\x00\x00\x00xyz")
    with pytest.raises(RuntimeError):
        tenon.load(io.BytesIO(rezip(data)))
    with pytest.raises(RuntimeError):
        tenon.load(path, map_location="nonsense")


def test_other_byte_order(tmp_path: Path) -> None:
    pieces = unzip_of(tenon.tensor([1.0, 2.0]))
    pieces["archive/byteorder"] = b"big"
    pieces["archive/data/0"] = np.array([1, 2], ">f4").tobytes()
    compare(tenon.load(io.BytesIO(zipped(pieces))), tenon.tensor([1.0, 2.0]))


def test_members_are_aligned() -> None:
    file = io.BytesIO()
    tenon.save([tenon.ones(3), tenon.ones(5)], file)
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        for info in archive.infolist():
            file.seek(info.header_offset)
            header = file.read(30)
            assert (info.header_offset + 30 + sum(struct.unpack("<2H", header[26:]))) % 64 == 0


class Custom:
    pass


@pytest.mark.parametrize("value", [lambda: 0, {"a": [lambda: 0]}, defaultdict(lambda: 0), sys])
def test_objects_that_no_pickle_takes_are_not_written(tmp_path: Path, value: Any) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(b"old")
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        tenon.save(value, path)
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a.pt"]


def test_deep_objects_are_not_written(tmp_path: Path) -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(ValueError, match="nested"):
        tenon.save(value, tmp_path / "a.pt")


# ---- Hostile checkpoints -------------------------------------------------------------------------


def zipped(pieces: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in pieces.items():
            archive.writestr(name, data)
    return file.getvalue()


def unzipped(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def unzip_of(value: Any) -> dict[str, bytes]:
    file = io.BytesIO()
    tenon.save(value, file)
    return unzipped(file.getvalue())


def rezip(data: bytes) -> bytes:
    """The archive again, with checksums that fit its changed members."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(file, "w") as out:
        for info in archive.infolist():
            source = archive.open(info)
            source._expected_crc = None  # type: ignore[attr-defined]
            out.writestr(info.filename, source.read())
    return file.getvalue()


def load_structure(data: bytes) -> Any:
    return tenon.load(io.BytesIO(zipped({"a/data.pkl": data, "a/version": b"3\n"})))


class Runs:
    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/tenon-was-here",)


class Evaluates:
    def __reduce__(self) -> Any:
        return eval, ("1 + 1",)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("value", [Runs(), [Evaluates()], {"a": Custom()}, len, slice(1), range(3)])
def test_code_is_refused(value: Any, protocol: int) -> None:
    with pytest.raises(UnsafeContentError):
        load_structure(pickle.dumps(value, protocol))


@pytest.mark.parametrize(
    "data",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"(cos\nsystem\nS'true'\no.",
        b"(S'true'\nios\nsystem\n.",
        b"\x80\x02cbuiltins\ngetattr\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"\x80\x02ctorch\nload\n.",
        b"\x80\x02ctenon.io\nnpy\n.",
        b"\x80\x02\x82\x01.",
        b"\x80\x02}]K\x01s.",
        b"\x80\x02}}K\x01s.",
        b"\x80\x02]K\x01b.",
        b"\x80\x02N)R.",
        b"\x80\x02ccollections\nOrderedDict\n)R}X\x05\x00\x00\x00__x__K\x01sb.",
    ],
)
def test_opcodes_that_do_more_are_refused(data: bytes) -> None:
    with pytest.raises(UnsafeContentError):
        load_structure(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b".",
        b"\x80",
        b"\x80\x09N.",
        b"N",
        b"NN.",
        b"(.",
        b"a.",
        b"e.",
        b"t.",
        b"\x85.",
        b"h\x05.",
        b"X\xff\xff\xff\xffabc.",
        b"\x8d" + b"\xff" * 8 + b".",
        b"\x8b\xff\xff\xff\x7f.",
        b"\x95" + b"\xff" * 8 + b"N.",
        b"X\x01\x00\x00\x00\xff.",
        b"]K\x01K\x02s.",
        b"](K\x01u.",
        b"}(K\x01u.",
        b"ctorch",
        b"q\x00.",
        b"(0(1.",
        b"\x96" + b"\xff" * 8,
        b"G\x00.",
        b"\x80\x02ctorch\nSize\n(J\xff\xff\xff\xfft\x85R.",
        b"\x80\x02cbuiltins\nset\n(K\x01K\x02t.",
        b"\x80\x02cbuiltins\ncomplex\nK\x01NX\x00\x00\x00\x00\x87R.",
        b"\x80\x02ctorch\nSize\nK\x01R.",
    ],
)
def test_broken_structures_are_refused(data: bytes) -> None:
    try:
        load_structure(data)
    except FileFormatError:
        return
    assert data.startswith(b"\x80\x02cbuiltins\nset\n(")  # a bare name and a tuple left behind


def tensor_file(offset: int, size: tuple, stride: tuple, count: int = 4, key: str = "0") -> bytes:
    """A checkpoint of one tensor of that geometry over four floats."""
    out = io.BytesIO()
    out.write(b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((")
    out.write(b"X\x07\x00\x00\x00storagectorch\nFloatStorage\n")
    for text in (key, "cpu"):
        out.write(b"X" + struct.pack("<L", len(text)) + text.encode())
    out.write(number(count) + b"tQ" + number(offset))
    for values in (size, stride):
        out.write(b"(" + b"".join(map(number, values)) + b"t")
    out.write(b"\x89ccollections\nOrderedDict\n)RtR.")
    data = np.arange(4, dtype=np.float32).tobytes()
    return zipped({"a/data.pkl": out.getvalue(), "a/data/0": data, "a/version": b"3\n"})


def number(value: int) -> bytes:
    size = (value.bit_length() >> 3) + 1
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)


def test_geometries_that_fit() -> None:
    for offset, size, stride in (
        (0, (4,), (1,)),
        (3, (1,), (1,)),
        (0, (2, 2), (1, 2)),
        (1, (3, 5), (1, 0)),
        (4, (0,), (1,)),
        (0, (), ()),
        (0, (0, 2**40), (2**40, 1)),
    ):
        t = tenon.load(io.BytesIO(tensor_file(offset, size, stride)))
        assert tuple(t.shape) == size and t.stride() == stride
        assert t.numel() == 0 or t.storage_offset() == offset


@pytest.mark.parametrize(
    ("offset", "size", "stride", "count"),
    [
        (1, (4,), (1,), 4),
        (0, (2, 2), (1, 3), 4),
        (4, (1,), (1,), 4),
        (5, (0,), (1,), 4),
        (-1, (1,), (1,), 4),
        (0, (-1,), (1,), 4),
        (0, (2,), (-1,), 4),
        (0, (2**62,), (0,), 4),
        (0, (2**32, 2**32), (0, 0), 4),
        (0, (2**63,), (1,), 4),
        (2**63 - 10000, (1,), (1,), 4),
        (0, (4,), (1, 1), 4),
        (0, (4,), (1,), 3),
        (0, (4,), (1,), 2**60),
        (0, (1,) * 65, (1,) * 65, 4),
        (0, (2, 2), (2**62, 2**62), 4),
        (0, (1,), (2**64,), 4),
    ],
)
def test_geometries_that_do_not_fit(offset: int, size: tuple, stride: tuple, count: int) -> None:
    with pytest.raises(FileFormatError):
        tenon.load(io.BytesIO(tensor_file(offset, size, stride, count)))


def test_storages_that_are_not_there() -> None:
    for key in ("1", "../a/version", ""):
        with pytest.raises(FileFormatError):
            tenon.load(io.BytesIO(tensor_file(0, (4,), (1,), key=key)))


def test_archives_that_are_broken(tmp_path: Path) -> None:
    good = tensor_file(0, (4,), (1,))
    pieces = unzipped(good)
    bad = [
        b"",
        b"PK",
        good[:-1],
        good[:-30],
        good[: len(good) // 2],
        b"\x80\x02N.",
        b"PK\x05\x06" + bytes(17),
        zipped({}),
        zipped({"x": b"1"}),
        zipped({**pieces, "b/data.pkl": b"N."}),
        zipped({**pieces, "a/constants.pkl": b"N."}),
        zipped({**pieces, "a/byteorder": b"middle"}),
        zipped(pieces, zipfile.ZIP_DEFLATED),
        zipped({**pieces, "../x": b"1"}),
        zipped({**pieces, "/x": b"1"}),
        pickle.dumps([1]),
    ]
    at = good.find(np.arange(4, dtype=np.float32).tobytes())
    bad.append(good[:at] + b"\x01" + good[at + 1 :])
    for data in bad:
        with pytest.raises(FileFormatError):
            tenon.load(io.BytesIO(data))
    with pytest.warns(UserWarning):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("a/data.pkl", b"N.")
            archive.writestr("a/data.pkl", b"N.")
    file.seek(0)
    with pytest.raises(FileFormatError, match="twice"):
        tenon.load(file)
    with pytest.raises(FileNotFoundError):
        tenon.load(tmp_path / "missing.pt")


def test_every_flipped_byte_is_survived() -> None:
    """Damage anywhere gives an object or a FileFormatError, never another exception."""
    file = io.BytesIO()
    tenon.save({"a": tenon.ones(2), "b": [1, "x", (2.0,)]}, file)
    good = file.getvalue()
    rng = np.random.default_rng(0)
    for _ in range(3000):
        data = bytearray(good)
        for at in rng.integers(0, len(data), rng.integers(1, 4)):
            data[at] = rng.integers(0, 256)
        try:
            tenon.load(io.BytesIO(bytes(data)))
        except (FileFormatError, RuntimeError):
            pass


def test_random_opcodes_are_survived() -> None:
    rng = np.random.default_rng(1)
    codes = b"()]}.NRQabdehjlqrstu0123JKMGXUTCB\x85\x86\x87\x88\x89\x8a\x8c\x8f\x90\x91\x93\x94\x80"
    find = plain_globals(())
    for _ in range(5000):
        data = bytes(rng.choice(list(codes), rng.integers(1, 40))) + b"."
        try:
            Reader(data, lambda m, n: find["builtins.set"]).run()
        except FileFormatError:
            pass


def test_nothing_imports_pickle() -> None:
    folder = Path(tenon.__file__).parent / "io"
    for path in folder.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "import pickle" not in text and "importlib" not in text and "__import__" not in text


# ---- safetensors ---------------------------------------------------------------------------------


def test_safetensors_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    names = [d for d in DTYPES if d != "complex128"]
    want = {d: example(tenon, d) for d in names}
    want |= {
        "t": tenon.arange(6.0).reshape(2, 3).t(),
        "0-d": tenon.tensor(1.5),
        "e": tenon.ones(0, 2),
    }
    safetensors.save_file(want, path, {"format": "pt", "ä": "ö"})
    got = safetensors.load_file(path)
    assert set(got) == set(want)
    for name, t in want.items():
        assert got[name].dtype is t.dtype and got[name].is_contiguous()
        np.testing.assert_array_equal(array(got[name]), array(t))
    assert safetensors.metadata(path) == {"format": "pt", "ä": "ö"}
    compare(safetensors.load(safetensors.save({"a": tenon.ones(2)})), {"a": tenon.ones(2)})


def file_of(header: Any, data: bytes = b"") -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(raw).to_bytes(8, "little") + raw + data


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


EIGHT = bytes(8)
GOOD = b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1234567",
        (100).to_bytes(8, "little") + b"{}",
        (2**63).to_bytes(8, "little") + b"{}",
        (200_000_000).to_bytes(8, "little") + b"{}",
        file_of(b"[]"),
        file_of(b" {}"),
        file_of(b"{"),
        file_of(b'{"\xff":1}'),
        file_of(b'{"a":1}'),
        file_of(b'{"a":NaN}'),
        file_of(b"{}", b"x"),
        file_of(GOOD[:-1] + b"," + GOOD[1:], EIGHT),
        file_of(GOOD, EIGHT[:7]),
        file_of(GOOD, bytes(9)),
        file_of({"a": entry(), "b": entry()}, EIGHT),
        file_of({"a": entry(), "b": entry(offsets=(4, 12))}, bytes(12)),
        file_of({"a": entry(offsets=(8, 16))}, bytes(16)),
        file_of({"a": entry(offsets=(8, 0))}, EIGHT),
        file_of({"a": entry(offsets=(-8, 0))}, EIGHT),
        file_of({"a": entry(shape=(3,))}, EIGHT),
        file_of({"a": entry(shape=(-2,))}, EIGHT),
        file_of({"a": entry(shape=(2**62, 4))}, EIGHT),
        file_of({"a": entry(shape=(2**32, 2**32, 0))}, b""),
        file_of({"a": entry(dtype="F99")}, EIGHT),
        file_of({"a": entry(dtype=["F32"])}, EIGHT),
        file_of({"a": entry(shape=None)}, EIGHT),
        file_of({"a": entry(shape=(True, 2))}, EIGHT),
        file_of({"a": entry(shape=("2",))}, EIGHT),
        file_of({"a": {**entry(), "extra": 1}}, EIGHT),
        file_of({"a": {"dtype": "F32"}}, EIGHT),
        file_of({"../a": entry()}, EIGHT),
        file_of({"a\0": entry()}, EIGHT),
        file_of({"/a": entry()}, EIGHT),
        file_of(GOOD.replace(b"[2]", b"[2.0]"), EIGHT),
        file_of(GOOD.replace(b"[2]", b"[1e400]"), EIGHT),
        file_of(GOOD.replace(b"[0,", b"[-0,"), EIGHT),
        file_of(GOOD.replace(b"[2]", b"[02]"), EIGHT),
        file_of(GOOD.replace(b"[2]", b"[" + b"9" * 10_000 + b"]"), EIGHT),
        file_of(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        file_of({"__metadata__": {"a": 1}}),
        file_of({"__metadata__": [1]}),
        file_of(b'{"__metadata__":{},"__metadata__":{}}'),
    ],
)
def test_bad_safetensors(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(data)
    with pytest.raises(FileFormatError, match="safetensors"):
        safetensors.load_file(path)


def test_good_safetensors() -> None:
    compare(safetensors.load(file_of(GOOD + b"   ", EIGHT)), {"a": tenon.zeros(2)})
    both = {"a": entry(), "e": entry(shape=(0, 3), offsets=(8, 8))}
    assert set(safetensors.load(file_of(both, EIGHT))) == {"a", "e"}


def test_many_safetensors_entries() -> None:
    one = '"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    raw = ("{" + ",".join(one % i for i in range(120_000)) + "}").encode()
    with pytest.raises(FileFormatError, match="more than"):
        safetensors.load(file_of(raw))


# ---- npy -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bfloat16"])
def test_npy_both_ways(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "a.npy"
    values = np.arange(6).reshape(2, 3).astype(dtype)
    for a in (values, values.T, values[0], values[:0], values[0, 1], np.asfortranarray(values)):
        np.save(path, a)
        got = npy.load(path)
        np.testing.assert_array_equal(got.numpy(), a)
        npy.save(path, got)
        back = np.load(path)
        assert back.dtype == a.dtype
        np.testing.assert_array_equal(back, a)


def test_npy_big_endian(tmp_path: Path) -> None:
    for code in (">i2", ">f8", ">c8"):
        a = np.arange(5).astype(code)
        np.save(tmp_path / "a.npy", a)
        np.testing.assert_array_equal(npy.load(tmp_path / "a.npy").numpy(), a)


def npy_of(header: str, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    raw = header.encode()
    return b"\x93NUMPY" + version + len(raw).to_bytes(2, "little") + raw + data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x93NUMPY",
        b"\x93NUMPY\x09\x00\x02\x00{}",
        b"hello world",
        npy_of("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", bytes(8)),
        npy_of("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", bytes(4)),
        npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", bytes(4)),
        npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,), }", bytes(4)),
        npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999999999999,), }", b""),
        npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", bytes(4)),
        npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (3 4,), }", bytes(48)),
        npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", bytes(5)),
        npy_of("{'descr': '<f4', 'descr': '<f4', 'shape': (1,), }", bytes(4)),
        npy_of("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,), }", bytes(4)),
        npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': ()}", bytes(4)),
        npy_of("{'descr': '<f4', 'fortran_order': False}", bytes(4)),
        npy_of("[]"),
        npy_of("{" * 500),
        npy_of("{'descr': '<U4', 'fortran_order': False, 'shape': (1,), }", bytes(16)),
        b"\x93NUMPY\x02\x00" + (2**31).to_bytes(4, "little") + b"{}",
    ],
)
def test_bad_npy(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(data)
    with pytest.raises(FileFormatError, match="npy"):
        npy.load(path)


def test_npy_has_no_bfloat16(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="float32"):
        npy.save(tmp_path / "a.npy", tenon.ones(2, dtype=tenon.bfloat16))


def test_files_without_the_numbers(tmp_path: Path) -> None:
    state = tenon.nn.Linear(3, 2).state_dict()
    whole = tenon.nn.Linear(3, 2)
    full, empty = tmp_path / "full.pt", tmp_path / "empty.pt"
    tenon.save(state, full)
    with tenon.serialization.skip_data():
        tenon.save(state, empty)
        tenon.save(whole, tmp_path / "whole.pt")
        with tenon.serialization.skip_data():
            pass
        unread = tenon.load(full)
    for found in (tenon.load(empty), unread):
        assert {k: (v.shape, v.dtype) for k, v in found.items()} == {
            k: (v.shape, v.dtype) for k, v in state.items()
        }
        assert not any(v.any() for v in found.values())
    assert empty.stat().st_size == full.stat().st_size
    assert not tenon.load(tmp_path / "whole.pt", weights_only=False).weight.any()
    assert tenon.load(full)["weight"].equal(state["weight"]) and state["weight"].any()


def test_the_checksum_is_that_of_zip_archives() -> None:
    data = np.random.default_rng(0).integers(0, 256, 5000, dtype=np.uint8).tobytes()
    for size in [*range(200), 1024, 4999]:
        for start in (0, 1, 9):
            part = memoryview(data)[start : start + size]
            assert tenon._C._crc32(part, size) == zlib.crc32(part, size)
    assert tenon._C._crc32(data[100:], tenon._C._crc32(data[:100])) == zlib.crc32(data)


@pytest.mark.parametrize("new", [True, False])
def test_a_file_that_is_still_open_holds_what_was_saved(tmp_path, new):
    path = tmp_path / "x.pt"
    with open(path, "wb") as file:
        tenon.save({"x": tenon.ones(3)}, file, _use_new_zipfile_serialization=new)
        assert tenon.load(path)["x"].tolist() == [1, 1, 1]


def test_places_by_their_names_in_files() -> None:
    """As fairseq's map_location: a function that says where each storage goes."""
    data = io.BytesIO()
    tenon.save({"a": tenon.ones(3), "b": tenon.arange(4)[::2]}, data)
    for place, kind in (("cpu", "cpu"), ("meta", "meta")):
        data.seek(0)
        found = tenon.load(
            data,
            map_location=lambda storage, _, to=place: tenon.serialization.default_restore_location(
                storage, to
            ),
        )
        assert {t.device.type for t in found.values()} == {kind}
    storage = tenon.ones(2).untyped_storage()
    assert tenon.serialization.location_tag(storage) == "cpu"
    assert tenon.serialization.default_restore_location(storage, "cpu") is storage
    assert (
        tenon.serialization.location_tag(tenon.ones(2, device="meta").untyped_storage()) == "meta"
    )
    with pytest.raises(RuntimeError, match="nowhere"):
        tenon.serialization.default_restore_location(storage, "nowhere")
