"""GGUF files: the numbers are those of llama.cpp's own package (tests/data/store_gguf.py), and what
is wrong in a file is said."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import pytest
import tenon as tn
from tenon.io import gguf
from tenon.io.errors import FileFormatError

DATA = Path(__file__).parents[1] / "data"
FILE = DATA / "numbers.gguf"
KEPT = {"F32": tn.float32, "F16": tn.float16, "BF16": tn.bfloat16, "I32": tn.int32}


def test_every_type_has_its_numbers() -> None:
    found = gguf.load(FILE)
    with np.load(DATA / "numbers.npz") as want:
        assert set(found) == set(want)
        assert len(found) == len(gguf.BLOCKS) + len(KEPT)
        for name, numbers in want.items():
            assert found[name].dtype is KEPT.get(name, tn.float32), name
            assert found[name].double().numpy().tolist() == numbers.astype(float).tolist(), name


def test_load_knows_the_format() -> None:
    assert tn.load(FILE)["Q8_0"].equal(gguf.load(FILE)["Q8_0"])
    assert tn.load(io.BytesIO(FILE.read_bytes()))["Q8_0"].equal(gguf.load(FILE)["Q8_0"])
    assert tn.load(FILE, map_location="meta")["Q4_0"].is_meta


def test_settings() -> None:
    assert gguf.metadata(FILE) == {
        "general.architecture": "llama", "llama.block_count": 2, "llama.eps": 0.5,
        "llama.flag": True, "general.name": "a model", "tokenizer.tokens": ["a", "b", "ä"],
        "tokenizer.scores": [1.5, -2.0], "x.big": -(1 << 40),
    }  # fmt: skip


# ---- Files that are wrong ------------------------------------------------------------------------


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def tensor(name: str, dims: tuple[int, ...], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


def made(
    settings: tuple[bytes, ...] = (), tensors: tuple[bytes, ...] = (), data: int = 0,
    many_tensors: int = 0, many_settings: int = 0,
) -> bytes:  # fmt: skip
    counts = many_tensors or len(tensors), many_settings or len(settings)
    head = b"GGUF" + struct.pack("<IQQ", 3, *counts)
    header = head + b"".join(settings) + b"".join(tensors)
    return header + bytes(-len(header) % 32 + data)


NESTED = struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 10 + struct.pack("<IQ", 0, 0)
WRONG = {
    "version": (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "version 9"),
    "cut off": (FILE.read_bytes()[:100], "ends inside|do not lie"),
    "without its end": (FILE.read_bytes()[:-40], "do not lie in the file"),
    "tensors without end": (made(many_tensors=1 << 60), "items do not lie"),
    "settings without end": (made(many_settings=1 << 40), "items do not lie"),
    "a text without end": (made((struct.pack("<Q", 1 << 62),)), "items do not lie|ends inside"),
    "a list without end": (
        made((text("k") + struct.pack("<IIQ", 9, 0, 1 << 50),), data=64), "items do not lie"
    ),
    "lists in lists": (made((text("k") + NESTED,), data=64), "nested too deep"),
    "a setting of no type": (made((text("k") + struct.pack("<I", 99),), data=64), "type 99"),
    "a setting twice": (made((text("k") + struct.pack("<IB", 0, 1),) * 2, data=64), "twice"),
    "no UTF-8": (made((struct.pack("<Q", 1) + b"\xff",), data=64), "no UTF-8"),
    "a tensor twice": (made((), (tensor("t", (2,), 0, 0),) * 2, 64), "twice"),
    "many dimensions": (made((), (tensor("t", (1,) * 9, 0, 0),), 64), "9 dimensions"),
    "many numbers": (made((), (tensor("t", (1 << 40, 1 << 40), 0, 0),), 64), "too large"),
    "behind the end": (made((), (tensor("t", (2,), 0, 64),), 64), "do not lie in the file"),
    "on each other": (
        made((), (tensor("t", (8,), 0, 0), tensor("u", (8,), 0, 16)), 64), "overlap"
    ),
    "a type that is not read": (made((), (tensor("t", (256,), 10, 0),), 128), "type 10"),
    "half a block": (made((), (tensor("t", (16,), 2, 0),), 64), "no blocks of Q4_0"),
    "an alignment of nothing": (
        made((text("general.alignment") + struct.pack("<II", 4, 0),), data=64), "alignment"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_files_that_are_wrong(case: str) -> None:
    data, message = WRONG[case]
    with pytest.raises(FileFormatError, match=message):
        tn.load(io.BytesIO(data))


def test_empty_and_aligned() -> None:
    assert tn.load(io.BytesIO(made())) == {}
    unit = (text("general.alignment") + struct.pack("<II", 4, 128),)
    header = made(unit, (tensor("t", (2,), 0, 0), tensor("none", (0, 3), 0, 0)))
    data = header + bytes(-len(header) % 128) + struct.pack("<2f", 1.5, 2.5)
    found = tn.load(io.BytesIO(data))
    assert found["t"].tolist() == [1.5, 2.5] and found["none"].shape == (3, 0)
