"""Pickled data in checkpoints, opcode by opcode: Python's own reader says what it stands for; and
how much of it is read."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections import OrderedDict
from typing import Any

import pytest
import tenon
from tenon.io.errors import FileFormatError, UnsafeContentError
from tenon.io.unpickle import MAX_CYCLES, MAX_DEPTH, MAX_INT_BYTES


def read(stream: bytes) -> Any:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a/data.pkl", stream)
        archive.writestr("a/version", b"3\n")
    file.seek(0)
    return tenon.load(file)


L4, L8 = (lambda n: struct.pack("<L", n)), (lambda n: struct.pack("<Q", n))
STREAMS = [
    b"\x80\x02N.", b"\x80\x05\x95" + L8(2) + b"N.", b"(\x88\x89t.", b"K\xff.", b"M\x01\xff.",
    b"J\xfe\xff\xff\xff.", b"\x8a\x00.", b"\x8a\x02\x00\x80.",
    b"\x8b" + L4(9) + b"\xff" * 8 + b"\x01.",
    b"G" + struct.pack(">d", -2.5) + b".", b"\x8c\x02\xc3\xa9.", b"X" + L4(2) + b"ab.",
    b"\x8d" + L8(3) + b"abc.", b"C\x02\x00\xff.", b"B" + L4(1) + b"x.", b"\x8e" + L8(1) + b"y.",
    b"U\x02a\xe9.", b"T" + L4(3) + b"a\xe9b.", b"\x96" + L8(2) + b"\x01\x02.", b").",
    b"K\x01\x85.", b"K\x01K\x02\x86.", b"K\x01K\x02K\x03\x87.", b"(K\x01(K\x02tt.", b"].",
    b"(K\x01K\x02l.", b"(K\x01lK\x02a.", b"](K\x01K\x02e.", b"]K\x01aK\x02a.", b"}.",
    b"(K\x01K\x02K\x03K\x04d.", b"(K\x01K\x02dK\x05K\x06s.", b"}K\x01K\x02s.",
    b"}(K\x01K\x02K\x03K\x04u.", b"\x8f(K\x01K\x02\x90.", b"(K\x01K\x02\x91.",
    b"(\x8f(K\x01\x90l.", b"K\x01K\x020.", b"K\x01(K\x02K\x031.", b"(K\x0121K\x04.",
    b"(K\x012t.", b"]q\x05K\x01ah\x05\x86.", b"]r" + L4(300) + b"K\x01a0j" + L4(300) + b".",
    b"(K\x07\x94K\x08\x94h\x00h\x01t.", b"(]\x94h\x00t.", b"]\x94h\x00a0K\x01.",
    b"ccollections\nOrderedDict\n)R.", b"\x8c\x0bcollections\x8c\x0bOrderedDict\x93)\x81.",
    b"ccollections\nOrderedDict\n](K\x01K\x02\x86K\x03K\x04\x86e\x85R.",
    b"ccollections\nOrderedDict\n)RK\x01K\x02s.",
    b"c__builtin__\nset\n](K\x01K\x02e\x85R.", b"cbuiltins\nfrozenset\n](K\x01K\x02e\x85R.",
    b"cbuiltins\ncomplex\nG" + struct.pack(">d", 0.5) + b"K\x02\x86R.",
    b"c_codecs\nencode\nX" + L4(2) + b"\xc3\xa9X" + L4(6) + b"latin1\x86R.",
    b"cbuiltins\nbytearray\nC\x02ab\x85R.", b"cbuiltins\nbytearray\n)R.",
    b"c__builtin__\nbytes\n)R.",
    b"cbuiltins\nbytearray\nX\x02\x00\x00\x00\xc3\xa9X" + L4(7) + b"latin-1\x86R.",
]  # fmt: skip


@pytest.mark.parametrize("stream", STREAMS, ids=lambda s: s[:24].hex())
def test_what_an_opcode_stands_for(stream: bytes) -> None:
    try:
        want = pickle.loads(stream, encoding="latin-1")
    except pickle.UnpicklingError as err:
        pytest.fail(f"a stream that Python does not read: {err}")
    found = read(stream)
    assert type(found) is type(want) and repr(found) == repr(want)


def test_the_largest_integer() -> None:
    value = (1 << (8 * MAX_INT_BYTES - 1)) - 1
    assert read(pickle.dumps(value, 2)) == value
    with pytest.raises(FileFormatError, match=f"an integer of {MAX_INT_BYTES + 1} bytes"):
        read(pickle.dumps(value * 2, 2))


# What surrounds a value, one level deeper each.
AROUND = {
    "list": (b"(", b"l"), "appended": (b"]", b"a"), "appended to a list": (b"(l", b"a"),
    "several": (b"](K\x01", b"e"), "tuple": (b"", b"\x85"), "marked tuple": (b"(K\x01", b"t"),
    "value": (b"}K\x01", b"s"), "value of a marked dict": (b"(K\x01", b"d"),
    "one of several values": (b"}(K\x01K\x02K\x03", b"u"),
    "ordered": (b"ccollections\nOrderedDict\n)RK\x01", b"s"),
}  # fmt: skip


@pytest.mark.parametrize("kind", AROUND)
def test_how_deep_things_are_nested(kind: str) -> None:
    before, after = AROUND[kind]
    levels = MAX_DEPTH - 1

    def stream(n: int) -> bytes:
        return before * n + b"]" + after * n + b"."

    value = read(stream(levels))
    for _ in range(levels):
        value = list(value.values() if isinstance(value, dict) else value)[-1]
    assert value == []
    with pytest.raises(FileFormatError, match=f"nested more than {MAX_DEPTH} deep"):
        read(stream(levels + 1))


def test_how_often_an_object_holds_itself() -> None:
    value = read(b"]q\x00(" + b"h\x00" * MAX_CYCLES + b"e.")
    assert len(value) == MAX_CYCLES and all(item is value for item in value)
    with pytest.raises(FileFormatError, match="hold themselves"):
        read(b"]q\x00(" + b"h\x00" * (MAX_CYCLES + 1) + b"e.")
    often = read(
        b"(]q\x00K\x01a\x85" + b"h\x00" * (MAX_CYCLES * 2) + b"t."
    )  # beside it, not inside
    assert len(often) == MAX_CYCLES * 2 + 1 and often[-1] is often[0][0]


WRONG = {
    b"\x80\x06N.": "protocol 6", b"\x95" + L8(3) + b"N.": "ends inside a frame",
    b"]0]q\x000h\x00K\x01a.": "in use", b"]2K\x01a.": "in use", b"0.": "empty stack",
    b"K\x01K\x02.": "leaves objects behind", b"K\x01\x8c\x01a\x93.": "no text",
    b"(K\x01d.": "key without a value",
    b"c" + b"a" * 1100 + b"\nb\n.": "overlong name",
    b"ccollections\nOrderedDict\n](K\x01e\x85R.": "no list of pairs",
    b"ccollections\nOrderedDict\n](K\x01K\x02K\x03\x87e\x85R.": "no list of pairs",
    b"cbuiltins\ncomplex\nK\x01N\x86R.": "no number",
    b"cbuiltins\ncomplex\nNK\x01\x86R.": "no number",
    b"cbuiltins\nset\nK\x01\x85R.": "no list", b"ccollections\nOrderedDict\nK\x01R.": "no tuple",
}  # fmt: skip


@pytest.mark.parametrize("stream", WRONG, ids=lambda s: s[:24].hex())
def test_streams_that_are_wrong(stream: bytes) -> None:
    with pytest.raises(FileFormatError, match=WRONG[stream]):
        read(stream)


@pytest.mark.parametrize(
    "stream",
    [
        b"cbuiltins\nbytearray\nK\x08\x85R.",  # eight zeros to Python
        b"(](K\x01e\x91.",
        b"cbuiltins\nset\n](]e\x85R.",
        b"c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00hex\x86R.",
    ],
)
def test_what_is_no_plain_data_is_refused(stream: bytes) -> None:
    with pytest.raises(UnsafeContentError):
        read(stream)


def test_work_is_paid_for() -> None:
    """A list that stands there once is made into sets again and again."""
    many = b"](" + b"K\x01" * 2000 + b"eq\x000"
    again = b"cbuiltins\nset\nq\x010(" + b"h\x01h\x00\x85R" * 4
    assert read(many + again + b"t.") == ({1},) * 4
    with pytest.raises(FileFormatError, match="more work"):
        read(many + b"cbuiltins\nset\nq\x010(" + b"h\x01h\x00\x85R" * 200 + b"t.")


def test_what_python_writes_is_read() -> None:
    shared = [1, 2]
    value = {
        "shared": [shared, shared], "text": ["é" * 300, "\ud800", ""], "bytes": [b"", b"x" * 300],
        "many": list(range(2000)), "dict": OrderedDict((i, (i,)) for i in range(300)),
        "sets": [{1, 2}, frozenset({(1, "a")})], "numbers": [-1, 255, 256, 65536, -(2**31), 2**63],
        "none": (None, True, 1.5, 2j, bytearray(b"ab")),
    }  # fmt: skip
    for protocol in (2, 3, 4, 5):
        found = read(pickle.dumps(value, protocol))
        assert found == value and found["shared"][0] is found["shared"][1]
