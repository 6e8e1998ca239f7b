"""Files that are wrong in one place, each refused with the words of the check for that place."""

from __future__ import annotations

import io
import re
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon.io import gguf, npy, pt_reader, safetensors, unpickle
from tenon.io.errors import FileFormatError
from tenon.io.zip_reader import Archive

L4, L8 = (lambda n: struct.pack("<L", n)), (lambda n: struct.pack("<Q", n))
PICKLES = {
    b"\x80\x02M\x01": "pickled data ends inside an item, at byte 3",
    b"\x80\x02X" + L4(9) + b"abc.": "pickled data ends inside an item, at byte 7",
    b"\x80\x02N": "pickled data ends without its stop mark",
    b"\x80\x02a.": "takes from an empty stack at byte 3",
    b"\x80\x020.": "takes from an empty stack at byte 3",
    b"\x80\x02(a.": "takes from an empty stack at byte 4",
    b"\x80\x022.": "takes from an empty stack at byte 3",
    b"\x80\x02Nt.": "pickled data has no mark at byte 4",
    b"\x80\x02NNa.": "fills an object of the wrong type at 5",
    b"\x80\x02}Na.": "fills an object of the wrong type at 5",
    b"\x80\x02]NNs.": "fills an object of the wrong type at 6",
    b"\x80\x02]q\x00\x85h\x00Na.": "fills an object that is in use at byte 10",
    b"\x80\x02}]Ns.": "an object of type list is used as a key",
    b"\x80\x02}(]Nu.": "an object of type list is used as a key",
    b"\x80\x02X" + L4(1) + b"\xff.": "pickled data holds text that is not UTF-8",
    b"\x80\x02\xff.": "opcode 0xff at byte 2 is not among those that build data",
    b"\x80\x02q\x00.": "pickled data stores nothing at byte 4",
    b"\x80\x02(q\x00.": "pickled data stores nothing at byte 5",
    b"\x80\x02h\x00.": "refers to an item 0 that is not there",
    b"\x80\x02cos" + b"x" * 1100 + b"\n.": "pickled data has an overlong name at byte 3",
    b"\x80\x06N.": "pickle protocol 6 is not known",
    b"\x80\x04\x95" + L8(3) + b"N.": "pickled data ends inside a frame",
    b"\x80\x02.": "takes from an empty stack",
}


def archive(members: dict[str, bytes], **given: Any) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", **given) as made:
        for name, content in members.items():
            made.writestr(name, content)
    return file.getvalue()


def patched(data: bytes, mark: bytes, at: int, new: bytes, last: bool = True) -> bytes:
    """With `new` behind a mark, of which the last or the first counts."""
    place = (data.rindex if last else data.index)(mark) + at
    return data[:place] + new + data[place + len(new) :]


GOOD = {"a/data.pkl": b"\x80\x02N.", "a/version": b"3\n"}
FILE = archive(GOOD)
ARCHIVES = {
    "has a compressed member": (
        archive(GOOD, compression=zipfile.ZIP_DEFLATED), "compressed; only stored is read"),
    "has an encrypted member": (patched(FILE, b"PK\1\2", 8, b"\1\0"), "is encrypted"),
    "names a size that is not the packed one": (
        patched(FILE, b"PK\1\2", 20, L4(1)), "compressed; only stored is read"),
    "leads up": (archive(GOOD | {"a/../b": b""}), "leads out of it"),
    "leads to the root": (archive(GOOD | {"/b": b""}), "leads out of it"),
    "leads out by a backslash": (archive(GOOD | {"a\\b": b""}), "leads out of it"),
    "has two structures": (archive(GOOD | {"b/data.pkl": b"\x80\x02N."}), "no single data.pkl"),
    "has none": (archive({"a/version": b"3\n"}), "no single data.pkl"),
    "is a program": (archive(GOOD | {"a/constants.pkl": b"N."}), "this is a TorchScript archive"),
    "has an order of bytes of its own": (
        archive(GOOD | {"a/byteorder": b"mixed"}), "the byte order 'mixed' is not known"),
    "has members in one place": (
        patched(FILE, b"PK\1\2", 42, L4(0)), "members of the zip archive overlap"),
    "has a member behind its end": (patched(FILE, b"PK\1\2", 42, L4(1 << 30)), "is cut off"),
    "has a member that is no header": (
        patched(FILE, b"PK\1\2", 42, L4(2)), "does not lie inside the zip archive"),
    "has a directory with a damaged mark": (
        patched(FILE, b"PK\1\2", 0, b"PK\1\3"), "the zip archive's directory is damaged"),
    "has too short a directory": (
        patched(FILE, b"PK\5\6", 12, L4(50)), "claims"),
    "is wide without the place of its end": (
        patched(FILE, b"PK\5\6", 8, b"\xff\xff\xff\xff"), "the zip64 archive's end is damaged"),
    "claims more members": (
        patched(FILE, b"PK\5\6", 8, b"\xff\x7f\xff\x7f"), "claims 32767 members"),
}  # fmt: skip


@pytest.mark.parametrize("stream", PICKLES)
def test_pickled_data(stream: bytes) -> None:
    with pytest.raises(FileFormatError, match=re.escape(PICKLES[stream])):
        tn.load(io.BytesIO(archive(GOOD | {"a/data.pkl": stream})))


@pytest.mark.parametrize("case", ARCHIVES)
def test_an_archive_that(case: str) -> None:
    data, words = ARCHIVES[case]
    with pytest.raises(RuntimeError, match=re.escape(words)):
        tn.load(io.BytesIO(data))
    assert tn.load(io.BytesIO(FILE)) is None


def array(header: str, data: bytes = bytes(12), mark: bytes = b"\x93NUMPY\x01\x00") -> bytes:
    return mark + struct.pack("<H", len(header)) + header.encode() + data


FINE = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }"
ARRAYS = {
    "another mark": (array(FINE, mark=b"\x93NUMPX\x01\x00"), "does not begin with NumPy's mark"),
    "version 9": (array(FINE, mark=b"\x93NUMPY\x09\x00"), "a version that is not known"),
    "a header behind the end": (array(FINE)[:10] + b"{", "npy: a header of 57 bytes"),
    "fewer numbers": (array(FINE, bytes(8)), "the array takes 12 bytes, the file holds 8"),
    "more numbers": (array(FINE, bytes(16)), "the array takes 12 bytes, the file holds 16"),
    "objects": (array(FINE.replace("<f4", "|O")), "elements of the type '|O' are not read"),
    "no order": (array(FINE.replace("<f4", "f4")), "elements of the type 'f4' are not read"),
    "code": (array(FINE.replace("False", "f()")), "npy: "),
    "a sign": (array(FINE.replace("(3,)", "$")), "the header is not understood from character"),
    "a key twice": (array(FINE.replace("}", "'shape': (3,), }")), "has 'shape' twice"),
    "a key of its own": (
        array(FINE.replace("}", "'more': (3,), }")),
        "has 'more' twice or without",
    ),
    "no shape": (array(FINE.replace("'shape': (3,), ", "")), "lacks descr, fortran_order or shape"),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_an_array_with(case: str, tmp_path: Path) -> None:
    data, words = ARRAYS[case]
    path = tmp_path / "a.npy"
    path.write_bytes(data)
    with pytest.raises(FileFormatError, match=re.escape(words)):
        npy.load(path)
    path.write_bytes(array(FINE))
    assert npy.load(path).tolist() == np.load(path).tolist() == [0, 0, 0]


def text(value: bytes) -> bytes:
    return L8(len(value)) + value


def settings(
    *items: bytes, tensors: bytes = b"", count: int = 0, head: bytes = b"GGUF\3\0\0\0"
) -> bytes:
    return head + L8(count) + L8(len(items)) + b"".join(items) + tensors


def number(name: bytes, value: int) -> bytes:
    return text(name) + L4(4) + L4(value)


def tensor(name: bytes, dims: int = 1, kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + L4(dims) + L8(1) * dims + L4(kind) + L8(offset)


MODELS = {
    "another mark": (settings(head=b"GGUX\3\0\0\0"), "the file does not begin with GGUF"),
    "version 9": (settings(head=b"GGUF\x09\0\0\0"), "the version 9 is not known"),
    "no head": (b"GGUF\3\0", "the header ends inside an item, at byte 4"),
    "a name twice": (settings(number(b"abcdef", 1), number(b"abcdef", 2)), "'abcdef' is there"),
    "text that is none": (settings(number(b"abcde\xff", 1)), "text that is no UTF-8"),
    "an unknown setting": (settings(text(b"abcdefgh") + L4(77)), "a setting of the type 77"),
    "no alignment": (settings(number(b"general.alignment", 0)), "an alignment that is none"),
    "a great alignment": (settings(number(b"general.alignment", 1 << 21)), "an alignment that is"),
    "too many dimensions": (settings(tensors=tensor(b"abc", 65), count=1), "has 65 dimensions"),
    "tensors twice": (
        settings(tensors=tensor(b"abc") * 2 + bytes(64), count=2), "'abc' is there twice"),
    "an unknown type": (
        settings(tensors=tensor(b"abc", kind=99) + bytes(64), count=1), "the type 99"),
    "overlapping tensors": (
        settings(tensors=tensor(b"abc") + tensor(b"def") + bytes(64), count=2), "tensors overlap"),
    "a tensor behind the end": (
        settings(tensors=tensor(b"abc", offset=64) + bytes(40), count=1), "do not lie in the file"),
    "too many settings": (b"GGUF\3\0\0\0" + L8(0) + L8(1 << 40), "items do not lie in the file"),
}  # fmt: skip


@pytest.mark.parametrize("case", MODELS)
def test_a_model_with(case: str, tmp_path: Path) -> None:
    data, words = MODELS[case]
    path = tmp_path / "a.gguf"
    path.write_bytes(data)
    with pytest.raises(FileFormatError, match=re.escape(words)):
        gguf.load(path)


def test_sizes_of_a_wide_archive() -> None:
    """Only what the directory leaves open is taken, in this order, from the field of that kind."""
    other, most = struct.pack("<2H", 0x7075, 3) + b"abc", 0xFFFFFFFF

    def wide(*numbers: int) -> bytes:
        return struct.pack("<2H", 1, 8 * len(numbers)) + b"".join(map(L8, numbers))

    assert Archive._wide(b"", 3, 4, 5) == Archive._wide(other, 3, 4, 5) == (3, 4, 5)
    for extra in (wide(1 << 40, 1 << 41, 7), other + wide(1 << 40, 1 << 41, 7) + other):
        assert Archive._wide(extra, most, most, most) == (1 << 40, 1 << 41, 7)
        assert Archive._wide(extra, 3, most, 5) == (3, 1 << 40, 5)
    with pytest.raises(FileFormatError, match="a zip64 field is cut off"):
        Archive._wide(other + wide(9), most, most, 5)


def test_work_that_data_may_ask_for() -> None:
    budget = unpickle.Budget(2)
    budget.charge(unpickle.LEAST_WORK + 2 * unpickle.WORK_PER_BYTE)
    budget.charge(0)
    with pytest.raises(FileFormatError, match="asks for more work than data of its size"):
        budget.charge(1)


def test_flags_of_views() -> None:
    assert pt_reader._bits(None) == pt_reader._bits({}) == ()
    assert pt_reader._bits({"neg": True, "conj": True}) == ("conj", "neg")
    assert pt_reader._bits({"neg": True, "conj": False}) == ("neg",)
    for wrong, words in (({"other": True}, "the unknown flag 'other'"), ([], "no dict of flags"),
                         ({"conj": 1}, "no dict of flags")):  # fmt: skip
        with pytest.raises(FileFormatError, match=words):
            pt_reader._bits(wrong)


EIGHT = tn.zeros(4, dtype=tn.uint8)


@pytest.mark.parametrize("said", ["bfloat7", "bfloat7 plugin x", "bfloat7 plugin -1"])
def test_a_dtype_of_no_plugin_in_safetensors(said: str) -> None:
    data = safetensors.save({"a": EIGHT}, {safetensors.PLUGIN_KEY + "a": said})
    with pytest.raises(FileFormatError, match="'a' has an unknown dtype 'bfloat7"):
        safetensors.load(data)


def test_a_plugin_s_dtype_that_nobody_offers() -> None:
    said = {safetensors.PLUGIN_KEY + "a": "bfloat7 their 2 2"}
    data = safetensors.save({"a": EIGHT}, said)
    words = "dtype 'bfloat7', which no plugin here offers: .*'their'"
    with pytest.raises(FileFormatError, match=words):
        safetensors.load(data)
