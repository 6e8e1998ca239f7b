"""Details of what is saved, beside Python's own readers of zip archives and pickles: tensors with
attributes of their own, archives of more members than their first directory can count."""

from __future__ import annotations

import io
import os
import pickle
import stat
import struct
import zipfile
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import pytest
import tenon as tn
from tenon.io import _tensor, gguf, npy, pt_reader, pt_writer, unpickle
from tenon.io.errors import FileFormatError, UnsafeContentError
from tenon.io.zip_reader import Archive
from tenon.io.zip_writer import ArchiveWriter


def saved(value: Any) -> Any:
    file = io.BytesIO()
    tn.save(value, file)
    file.seek(0)
    return tn.load(file)


class Name(str):
    """A constructor that notes what it gets."""

    calls: Calls

    def __new__(cls, name: str, calls: Calls) -> Name:
        self = super().__new__(cls, name)
        self.calls = calls
        return self

    def __call__(self, *args: Any) -> str:
        self.calls.seen.append((str(self), args))
        return str(self)


class Calls(pickle.Unpickler):
    """Which constructors a file names and what they get; nothing is made."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.seen: list[tuple[str, tuple[Any, ...]]] = []

    def find_class(self, module: str, name: str) -> Any:
        if name == "OrderedDict":
            return OrderedDict
        return Name(f"{module}.{name}", self)

    def persistent_load(self, pid: Any) -> Any:
        return "storage"


def structure(value: Any) -> Calls:
    """What stands in the file that save() writes."""
    file = io.BytesIO()
    tn.save(value, file)
    with zipfile.ZipFile(file) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith("/data.pkl")]
        calls = Calls(io.BytesIO(archive.read(name)))
    calls.load()
    return calls


@pytest.mark.parametrize("learns", [False, True])
def test_parameters_with_attributes(learns: bool) -> None:
    p = tn.nn.Parameter(tn.arange(3.0), requires_grad=learns)
    p.tag = {"decay": [0.5, "none"]}
    back = saved([p, p])
    assert back[0] is back[1]
    assert type(back[0]) is tn.nn.Parameter and back[0].requires_grad is learns
    assert back[0].tag == p.tag and back[0].tolist() == [0.0, 1.0, 2.0]
    name, args = structure(p).seen[-1]
    assert name == "torch._utils._rebuild_parameter_with_state"
    assert args[1:] == (learns, OrderedDict(), {"tag": p.tag})


TENSORS = {
    "strided": lambda: tn.arange(6.0).reshape(2, 3).mT,
    "a leaf": lambda: tn.ones(2, requires_grad=True),
    "of bytes": lambda: tn.arange(3).to(tn.uint16),
    "sparse": lambda: tn.eye(2).to_sparse(),
    "compressed": lambda: tn.eye(2).to_sparse_csr(),
    "meta": lambda: tn.empty(2, 3, device="meta"),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_with_attributes(name: str) -> None:
    """As in PyTorch's files: _rebuild_from_type_v2(function, type, arguments, state)."""
    t = TENSORS[name]()
    plain = structure(t).seen[-1]
    t.tag, t.other = {"scale": 0.5}, t
    with pytest.raises(ValueError, match="nested more than"):
        saved(t)
    t.other = tn.ones(1)
    back = saved({"a": t, "b": t})
    assert back["a"] is back["b"] and type(back["a"]) is tn.Tensor
    assert back["a"].tag == {"scale": 0.5} and back["a"].other.tolist() == [1.0]
    assert (back["a"].layout, back["a"].dtype, back["a"].requires_grad) == (
        t.layout, t.dtype, t.requires_grad,
    )  # fmt: skip
    assert back["a"].shape == t.shape and back["a"].device == t.device
    if not t.is_meta:
        assert tn.equal(back["a"].to_dense(), t.to_dense())
    called, args = structure(t).seen[-1]
    assert called == "torch._tensor._rebuild_from_type_v2"
    assert args[2] == plain[1] and args[3]["tag"] == t.tag
    del t.tag, t.other
    assert structure(t).seen[-1] == plain


@pytest.mark.parametrize("learns", [False, True])
def test_parameters(learns: bool) -> None:
    p = tn.nn.Parameter(tn.arange(3.0), requires_grad=learns)
    back = saved(p)
    assert type(back) is tn.nn.Parameter and back.requires_grad is learns
    name, args = structure(p).seen[-1]
    assert name == "torch._utils._rebuild_parameter" and args[1:] == (learns, OrderedDict())


def test_a_parameter_is_learned_where_the_file_does_not_say() -> None:
    """The older form of a call of _rebuild_parameter has the tensor alone."""
    assert pt_reader._parameter(tn.ones(2)).requires_grad


def test_factories_of_dicts() -> None:
    for factory in (list, dict, int, float, set, str, None):
        value = defaultdict(factory, {"a": 1, 2: "b"})
        back = saved(value)
        assert type(back) is defaultdict and back == value and back.default_factory is factory
    with pytest.raises(TypeError, match="a defaultdict whose factory is no plain type"):
        saved(defaultdict(lambda: 3))


@pytest.mark.parametrize("count", [0xFFFE, 0xFFFF])
def test_archives_of_many_members(count: int) -> None:
    """From 65,535 on the directory's place and length stand in the zip64 fields."""
    file = io.BytesIO()
    writer = ArchiveWriter(file)
    for i in range(count):
        writer.add(f"{i:x}", b"" if i % 1000 else i.to_bytes(4, "little"))
    writer.finish()
    ends = file.getvalue()[-98:].count(b"PK\6\6"), file.getvalue()[-98:].count(b"PK\6\7")
    assert ends == ((1, 1) if count >= 0xFFFF else (0, 0))
    with zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
        assert len(infos) == count and infos[-1].filename == f"{count - 1:x}"
        assert archive.read("fa00") == (64000).to_bytes(4, "little")
    own = Archive(file)
    assert len(own.members) == count
    assert own.read(own.members["fa00"]) == (64000).to_bytes(4, "little")


def test_bounds_of_what_headers_say() -> None:
    assert gguf.size_of("x", 0, (4, 3)) == 48
    with pytest.raises(FileFormatError, match="'x' is too large"):
        gguf.size_of("x", 0, (1 << 59, 2))
    assert gguf.size_of("x", 0, (1 << 59,)) == 1 << 61
    with pytest.raises(FileFormatError, match="a tensor whose dtype is no dtype"):
        pt_reader._tensor_v3(None, 0, (1,), (1,), False, OrderedDict(), "float32")


@pytest.mark.parametrize("dims", [64, 65])
def test_an_array_has_as_many_dimensions_as_a_tensor(dims: int, tmp_path: Path) -> None:
    header = f"{{'descr': '|b1', 'fortran_order': False, 'shape': ({'1, ' * dims}), }}"
    text = header.ljust(400).encode() + b"\n"
    path = tmp_path / "a.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + b"\x01")
    if dims == 64:
        assert npy.load(path).shape == (1,) * 64
        return
    with pytest.raises(FileFormatError, match="an array of more than 64 dimensions"):
        npy.load(path)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_what_is_written_is_nested_within_bounds() -> None:
    assert saved(nested(pt_writer.MAX_DEPTH)) == nested(pt_writer.MAX_DEPTH)
    with pytest.raises(ValueError, match=f"is nested more than {pt_writer.MAX_DEPTH} deep"):
        saved(nested(pt_writer.MAX_DEPTH + 1))


def test_tuples_are_keys_within_bounds() -> None:
    inner: Any = ()
    for _ in range(unpickle.MAX_DEPTH_OF_KEYS - 1):
        inner = (inner,)
    assert saved({inner: 1}) == {inner: 1}
    with pytest.raises(UnsafeContentError, match="an object of type tuple is used as a key"):
        saved({(inner,): 1})


@pytest.mark.parametrize("there", [False, True])
def test_a_file_and_its_name_are_on_the_disk(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies behind a name is written before the name, and the name before save() returns."""
    seen = list[str]()
    if there:
        (tmp_path / "a").write_bytes(b"before")

    def noted(fd: int) -> None:
        folder = stat.S_ISDIR(os.fstat(fd).st_mode)
        now = (tmp_path / "a").read_bytes() if (tmp_path / "a").exists() else b"before"
        seen.append(f"{'folder' if folder else 'file'} {'before' if now == b'before' else 'after'}")

    monkeypatch.setattr(os, "fsync", noted)
    tn.save([1], tmp_path / "a")
    assert seen == ["file before", "folder after"]


def test_an_archive_has_so_many_members(tmp_path: Path) -> None:
    """Its directory is read where it may be one: here there are zeros in its place."""
    most = 1 << 20
    for count, words in ((most, "directory is damaged"), (most + 1, f"claims {most + 1} members")):
        size = 46 * count
        with open(tmp_path / "a", "w+b") as file:
            file.seek(size)
            end = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, 0)
            file.write(end + struct.pack("<4sLQL", b"PK\6\7", 0, size, 1))
            file.write(struct.pack("<4s4H2LH", b"PK\5\6", *[0xFFFF] * 4, 0, 0, 0))
            with pytest.raises(FileFormatError, match=words):
                Archive(file)


def test_bytes_of_a_plugin_s_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_tensor, "plugin_of", lambda kind: "theirs")
    row = tn.tensor([1.5, -2.0]).view(tn.uint8)
    assert _tensor.from_raw(row, "float32", "theirs", (2, 1)).tolist() == [[1.5], [-2.0]]
    assert _tensor.from_raw(row[:0], "float32", "theirs", (2, 0)).shape == (2, 0)
    for wrong, shape in ((row.view(2, 4), (2,)), (row.view(tn.int8), (2,)), (row, (3,)),
                         (row[:7], (2,)), (row, ())):  # fmt: skip
        with pytest.raises(FileFormatError, match=f"has {wrong.numel()} bytes"):
            _tensor.from_raw(wrong, "float32", "theirs", shape)
    with pytest.raises(FileFormatError, match="do not lie side by side"):
        _tensor.from_raw(row[:1].expand(8), "float32", "theirs", (2,))
