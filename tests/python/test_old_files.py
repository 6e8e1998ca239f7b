"""Checkpoints of before PyTorch 1.6, and tar archives of the first releases: what PyTorch wrote is
read, what is written PyTorch reads, and what goes wrong in a file is said."""

from __future__ import annotations

import base64
import io
import pickle
import re
import struct
import sys
import tarfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import tenon as tn
from tenon.io.errors import FileFormatError, UnsafeContentError
from tenon.io.outline import Outline
from tenon.io.pt_writer import MAGIC, PROTOCOL

# torch.save({"a": torch.arange(4.).view(2, 2).t(), "b": torch.tensor([1, 2])[1:], "n": 3}, f,
#            _use_new_zipfile_serialization=False) of PyTorch 2.13
BY_TORCH = base64.b64decode(
    "gAKKCmz8nEb5IGqoUBkugAJN6QMugAJ9cQAoWBAAAABwcm90b2NvbF92ZXJzaW9ucQFN6QNYDQAAAGxpdHRsZV9l"
    "bmRpYW5xAohYCgAAAHR5cGVfc2l6ZXNxA31xBChYBQAAAHNob3J0cQVLAlgDAAAAaW50cQZLBFgEAAAAbG9uZ3EH"
    "SwR1dS6AAn1xAChYAQAAAGFxAWN0b3JjaC5fdXRpbHMKX3JlYnVpbGRfdGVuc29yX3YyCnECKChYBwAAAHN0b3Jh"
    "Z2VxA2N0b3JjaApGbG9hdFN0b3JhZ2UKcQRYDgAAADk0MzcwNjU0MzA5NTUycQVYAwAAAGNwdXEGSwROdHEHUUsA"
    "SwJLAoZxCEsBSwKGcQmJY2NvbGxlY3Rpb25zCk9yZGVyZWREaWN0CnEKKVJxC3RxDFJxDVgBAAAAYnEOaAIoKGgD"
    "Y3RvcmNoCkxvbmdTdG9yYWdlCnEPWA4AAAA5NDM3MDY0OTAyNDc4NHEQaAZLAk50cRFRSwFLAYVxEksBhXETiWgK"
    "KVJxFHRxFVJxFlgBAAAAbnEXSwN1LoACXXEAKFgOAAAAOTQzNzA2NDkwMjQ3ODRxAVgOAAAAOTQzNzA2NTQzMDk1"
    "NTJxAmUuAgAAAAAAAAABAAAAAAAAAAIAAAAAAAAABAAAAAAAAAAAAAAAAACAPwAAAEAAAEBA"
)
OLD = {"_use_new_zipfile_serialization": False}


def written(value: Any, lib: Any = tn) -> io.BytesIO:
    file = io.BytesIO()
    lib.save(value, file, **OLD)
    file.seek(0)
    return file


def test_a_file_of_pytorch() -> None:
    found = tn.load(io.BytesIO(BY_TORCH))
    assert found["a"].tolist() == [[0, 2], [1, 3]] and found["a"].stride() == (1, 2)
    assert found["b"].tolist() == [2] and found["b"].storage_offset() == 1 and found["n"] == 3


def example(lib: Any) -> dict[str, Any]:
    base = lib.arange(6.0).reshape(2, 3)
    return {
        "base": base, "part": base[:, 1:].t(), "half": lib.ones(3).to(lib.bfloat16),
        "weight": lib.nn.Parameter(lib.ones(2)), "empty": lib.zeros(0, 4),
        "complex": lib.tensor([1 + 2j]), "sparse": lib.eye(3).to_sparse(),
        "more": OrderedDict(x=[1, (2.5, None)], t="text", d=lib.float64),
    }  # fmt: skip


def test_both_ways() -> None:
    torch = pytest.importorskip("torch")
    for source, target in ((tn, torch), (torch, tn), (tn, tn)):
        file = written(example(source), source)
        want, found = example(target), target.load(file)
        assert found.keys() == want.keys() and found["more"] == want["more"]
        for key in ("base", "part", "half", "weight", "empty", "complex"):
            assert found[key].dtype == want[key].dtype and found[key].equal(want[key]), key
            assert found[key].stride() == want[key].stride()
        assert found["sparse"].to_dense().equal(want["sparse"].to_dense())
        assert found["weight"].requires_grad and type(found["weight"]) is target.nn.Parameter
        found["base"][0, 1] = 9  # shares its memory with "part"
        assert found["part"][0, 0] == 9


def test_files_that_follow_each_other(tmp_path: Path) -> None:
    path = tmp_path / "two.pt"
    with path.open("wb") as file:
        for value in ([tn.ones(2)], {"x": tn.arange(3)}):
            tn.save(value, file, **OLD)
    with path.open("rb") as file:
        assert tn.load(file)[0].equal(tn.ones(2))
        assert tn.load(file)["x"].equal(tn.arange(3))
        assert not file.read(1)
    assert tn.load(path)[0].equal(tn.ones(2))


def test_whole_modules() -> None:
    torch = pytest.importorskip("torch")
    net = tn.nn.Sequential(tn.nn.Linear(2, 3), tn.nn.ReLU())
    file = written(net)
    with pytest.raises(UnsafeContentError, match="weights_only=False"):
        tn.load(file)
    for lib in (tn, torch):
        file.seek(0)
        twin = lib.load(file, weights_only=False)
        assert type(twin) is lib.nn.Sequential
        assert twin[0].weight.tolist() == net[0].weight.tolist()
    theirs = torch.nn.Linear(2, 3)  # PyTorch adds the source of a class
    twin = tn.load(written(theirs, torch), weights_only=False)
    assert type(twin) is tn.nn.Linear and twin.weight.tolist() == theirs.weight.tolist()


def test_places() -> None:
    file = written({"x": tn.ones(2)})
    seen = []
    tn.load(file, map_location=lambda storage, where: seen.append((storage.nbytes(), where)))
    assert seen == [(8, "cpu")]
    file.seek(0)
    assert tn.load(file, map_location="meta")["x"].is_meta
    with pytest.raises(ValueError, match="mmap"):
        tn.load(written([1]), mmap=True)


def test_storages() -> None:
    t = tn.arange(3.0)
    for options in ({}, OLD):
        file = io.BytesIO()
        tn.save([t.storage(), t], file, **options)
        file.seek(0)
        storage, twin = tn.load(file)
        assert isinstance(storage, tn.FloatStorage) and storage.tolist() == [0, 1, 2]
        assert storage.data_ptr() == twin.data_ptr()
        file = io.BytesIO()
        tn.save(t.untyped_storage(), file, **options)
        file.seek(0)
        found = tn.load(file)
        assert type(found) is tn.UntypedStorage and bytes(found.tolist()) == t.numpy().tobytes()
    assert sys.getsizeof(tn.ones(100).untyped_storage()) >= 400
    assert sys.getsizeof(tn.ones(100).storage()) >= 400


# ---- Tar archives --------------------------------------------------------------------------------


def name(full: str) -> bytes:
    module, _, last = full.rpartition(".")
    return f"c{module}\n{last}\n".encode()


def text(value: str) -> bytes:
    return b"X" + struct.pack("<L", len(value)) + value.encode()


def entry(key: int, second: bytes, kind: str) -> bytes:
    return b"\x80\x02" + b"J" + struct.pack("<l", key) + second + name(kind) + b"\x87."


def dumped(value: Any) -> bytes:
    return pickle.dumps(value, 2)


def tensor_entry(key: int, storage: int, sizes: tuple, strides: tuple, offset: int) -> bytes:
    numbers = struct.pack(f"<q{2 * len(sizes) + 1}q", len(sizes), *sizes, *strides, offset)
    return entry(key, b"J" + struct.pack("<l", storage), "torch.FloatTensor") + numbers


def tar(**changed: bytes) -> bytes:
    """A checkpoint of two tensors, one over a part of the other's storage."""
    members = {
        "storages": dumped(1) + entry(7, text("cpu"), "torch.FloatStorage")
        + struct.pack("<q6f", 6, *range(6)) + dumped([(8, 7, 2, 4)]),
        "tensors": dumped(2) + tensor_entry(20, 7, (2, 3), (1, 2), 0)
        + tensor_entry(21, 8, (2,), (2,), 1),
        "pickle": b"\x80\x02ccollections\nOrderedDict\n)R(" + text("a") + text("20") + b"Q"
        + text("b") + text("21") + b"Qu.",
    } | changed  # fmt: skip
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:", format=tarfile.PAX_FORMAT) as archive:
        for member, data in members.items():
            info = tarfile.TarInfo(member)
            info.size, info.mtime = len(data), 1.5  # which takes a header of its own
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def test_a_tar_archive(tmp_path: Path) -> None:
    path = tmp_path / "old.pt"
    path.write_bytes(tar())
    found = tn.load(path)
    assert list(found) == ["a", "b"]
    assert found["a"].tolist() == [[0, 2, 4], [1, 3, 5]] and found["b"].tolist() == [3, 5]
    found["a"][1, 1] = 9
    assert found["b"][0] == 9
    assert tn.load(path, weights_only=False)["b"].tolist() == [3, 5]


def test_pytorch_reads_the_same_tar_archive(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "old.pt"
    path.write_bytes(tar())
    theirs = torch.load(path, weights_only=False)
    assert theirs["a"].tolist() == [[0, 2, 4], [1, 3, 5]] and theirs["b"].tolist() == [3, 5]


WRONG = {
    "a tensor beyond its storage": tar(
        tensors=dumped(1) + tensor_entry(20, 7, (7,), (1,), 0)
    ),
    "a negative stride": tar(tensors=dumped(1) + tensor_entry(20, 7, (2,), (-1,), 2)),
    "a part beyond its storage": tar(
        storages=dumped(1) + entry(7, text("cpu"), "torch.FloatStorage")
        + struct.pack("<q6f", 6, *range(6)) + dumped([(8, 7, 4, 4)])
    ),
    "a storage that is cut off": tar(
        storages=dumped(1) + entry(7, text("cpu"), "torch.FloatStorage") + struct.pack("<q", 600)
    ),
    "more storages than there are": tar(storages=dumped(1 << 40)),
    "a storage of code": tar(storages=dumped(1) + entry(7, text("cpu"), "os.system")),
    "sizes without end": tar(
        tensors=dumped(1) + entry(20, b"K\x07", "torch.FloatTensor") + b"\xff" * 8
    ),
    "parts that are no list": tar(storages=dumped(0) + dumped((8, 7, 2, 4))),
    "a part without a size": tar(storages=dumped(0) + dumped([(8, 7, 2)])),
    "a part that is a list": tar(storages=dumped(0) + dumped([[8, 7, 2, 4]])),
    "a storage without a type": tar(storages=dumped(1) + dumped((7, "cpu"))),
    "a storage at a number": tar(storages=dumped(1) + entry(7, b"K\x05", "torch.FloatStorage")),
    "something that is not there": tar(pickle=b"\x80\x02" + text("99") + b"Q."),
    "a key of many digits": tar(pickle=b"\x80\x02" + text("9" * 5000) + b"Q."),
    "a module": tar(pickle=b"\x80\x02cos\nsystem\nNN\x87Q."),
    "no structure": tar(pickle=b""),
    "no tensors": tar().replace(b"tensors\0", b"tensorz\0"),
    "a member beyond the end": tar()[:2048],
    "a reference to a module": tar(pickle=b"\x80\x02" + text("module") + b"NN\x87Q."),
    "a size that is no number": tar().replace(b"00000000135\0", b"000000x0135\0", 1),
    "a member that is cut off": tar()[:5662],  # its 60 bytes begin at 5632
}  # fmt: skip
SAID = {
    "a tensor beyond its storage": "size (7,), stride (1,) and offset 0 does not fit",
    "a negative stride": "a number in a stride is -1",
    "a part beyond its storage": "a part of a storage that does not lie in it",
    "a storage that is cut off": "a storage of 2400 bytes does not lie in the file",
    "more storages than there are": "pickled data ends inside an item, at byte 0",
    "a storage of code": "a storage whose location or type is not known",
    "sizes without end": "the file is cut off in a tensor, or it has too many sizes",
    "parts that are no list": "the parts of storages are no list",
    "a part without a size": "a part of a storage that is no key, root, offset and size",
    "a part that is a list": "a part of a storage that is no key, root, offset and size",
    "a storage without a type": "a storage without key, location and type",
    "a storage at a number": "a storage whose location or type is not known",
    "something that is not there": "the file refers to '99', which is not in it",
    "a key of many digits": "the file refers to '9999999999",
    "a module": "the file refers to 'os.system', which is not plain data",
    "no structure": "pickled data ends inside an item, at byte 0",
    "no tensors": "this tar archive is no checkpoint: it has no tensors",
    "a member beyond the end": "this tar archive is no checkpoint: it has no tensors",
    "a reference to a module": "the file holds a module, which is code",
    "a size that is no number": "whose size is no octal number",
    "a member that is cut off": "a member of the tar archive does not lie in it",
}


@pytest.mark.parametrize("case", WRONG)
def test_tar_archives_that_are_wrong(case: str) -> None:
    with pytest.raises(FileFormatError, match=re.escape(SAID[case])):
        tn.load(io.BytesIO(WRONG[case]))


def test_a_tar_archive_may_end_with_its_last_member() -> None:
    assert tn.load(io.BytesIO(tar()[:5692]))["b"].tolist() == [3, 5]


def rewritten(old: bytes, new: bytes) -> bytes:
    data = written({"x": tn.ones(2)}).getvalue()
    assert old in data
    return data.replace(old, new, 1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (dumped([1]), "no checkpoint"),
        (rewritten(b"M\xe9\x03", b"M\xe8\x03"), "version"),
        (rewritten(b"FloatStorage", b"OtherStorage"), "OtherStorage"),
        (rewritten(b"FloatStorage", b"DoubleStorage"), "does not lie in the file"),
        (rewritten(text("0"), text("1")), "nothing refers"),
        (rewritten(struct.pack("<q", 2), struct.pack("<q", 3)), "does not lie in the file"),
        (rewritten(struct.pack("<q", 2), struct.pack("<q", 1)), "should have"),
        (rewritten(struct.pack("<q", 2), struct.pack("<q", -1)), "not a number"),
        (rewritten(b"K\x02N", b"K\x03N"), "should have"),
        (rewritten(b"NtQ", b"(" + text("v") + b"K\x01K\x02ttQ"), "does not lie"),
        (rewritten(b"NtQ", b"K\x01tQ"), "no name, offset and size"),
        (
            b"".join(map(dumped, (MAGIC, PROTOCOL, {}))) + b"\x80\x02(" + text("module")
            + name("torch.Tensor") + b"NNtQ." + dumped([]),
            "is code",
        ),
        (rewritten(b"torch._utils", b"torch.helper"), "not plain data"),
        (written([tn.ones(2)]).getvalue()[:-1], "does not lie in the file"),
        (written([tn.ones(2)]).getvalue()[:60], "ends inside|cut off"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_old_files_that_are_wrong(data: bytes, message: str) -> None:
    with pytest.raises(FileFormatError, match=message):
        tn.load(io.BytesIO(data))


def test_a_part_of_a_storage() -> None:
    data = rewritten(b"NtQ", b"(" + text("v") + b"K\x01K\x01ttQ")
    found = data.replace(b"\x01t(", b"\x01t(")
    with pytest.raises(FileFormatError, match="does not fit its storage of 1 elements"):
        tn.load(io.BytesIO(found))
    narrow = data.replace(b"K\x00(K\x02t(K\x01t", b"K\x00(K\x01t(K\x01t")
    assert tn.load(io.BytesIO(narrow))["x"].tolist() == [1]


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_the_outline_ends_where_the_pickle_does(protocol: int) -> None:
    value = {
        "n": [1, -5, 300, 1 << 40, 1 << 200, 2.5, None, True], "t": ("x" * 300, b"y" * 300),
        "s": {1, 2}, "f": frozenset((3,)), "nested": {(1, (2, 3)): [[]]}, "o": OrderedDict(a=1),
    }  # fmt: skip
    first = pickle.dumps(value, protocol)
    file = io.BytesIO(first + b"rest" * 1000)
    outline = Outline(file)
    assert outline.text == first and file.tell() == len(first) and outline.references == []


def test_the_outline_takes_time_in_proportion() -> None:
    """Many small pickles behind each other are read once each, not with all that follows."""
    file = io.BytesIO(b"\x80\x02N." * 50_000)
    read = 0

    class Counted:
        def read(self, n: int) -> bytes:
            nonlocal read
            data = file.read(n)
            read += len(data)
            return data

        tell, seek = file.tell, file.seek

    for _ in range(100):
        Outline(Counted())
    assert file.tell() == 400 and read <= 100 * 300
