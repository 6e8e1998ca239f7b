"""Programs in files (.tng) that are wrong in one place and signed anew, each refused with the words
of the check for that place."""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tenon as tn
from refusals import check
from tenon import _program

sys.path.append(str(Path(__file__).parents[1] / "fuzz"))
import programs  # noqa: E402

Parts = list[programs.Part]
MUL, ADD, CLONE, CAT, EINSUM, SUM, RESHAPE = range(7)
NODES = 7


@cache
def good() -> tuple[Parts, bytes, int]:
    """x [rows, 3] with a free size, a weight w, and arguments of each kind."""
    w = tn.tensor([1.0, 2.0, 3.0])

    def calls(x: tn.Tensor) -> list[tn.Tensor]:
        y = tn.cat([x * 2.5, x.add(w, alpha=2).clone()], 1)
        return [tn.einsum("ij,kj->ik", y, y).sum([0], keepdim=True), x.reshape(x.shape[0] * 3)]

    def recorded(rows: int) -> _program.Program:
        x = tn.ones(rows, 3)
        return _program.record(lambda: calls(x), {"x": x}, [("w", 0, w)])[0]

    made = recorded(4)
    made.generalize(recorded(5), [0], 0, 1, 77, "rows")
    whole = made.to_bytes()
    reader = programs.Reader(whole)
    parts = reader.graph()
    return parts, whole[reader.data_at : reader.data_at + reader.data_n], reader.version


def places(role: str, node: int | None = None) -> list[int]:
    """Where parts of that role stand, of all or of a node."""
    parts = good()[0]
    starts = [i for i, p in enumerate(parts) if p.role == "which operator"] + [len(parts)]
    first, end = (0, len(parts)) if node is None else starts[node : node + 2]
    return [i for i in range(first, end) if parts[i].role == role]


def signed(parts: Parts) -> bytes:
    return programs.file_of(parts, *good()[1:])


def changed(role: str, k: int, value: Any, node: int | None = None) -> bytes:
    """The k-th part of that role is another one."""
    parts = list(good()[0])
    at = places(role, node)[k]
    parts[at] = programs.Part(parts[at].form, value, role)
    return signed(parts)


def header(at: int, form: str, value: int) -> bytes:
    """A number of the header is another one."""
    raw = bytearray(signed(good()[0]))
    struct.pack_into("<" + form, raw, at, value)
    return bytes(raw)


def with_sums(
    change: Callable[[list[int]], Any], magic: bytes = b"TNGSUMS\n", off: int = 0
) -> bytes:
    """The checksums of the weights are others."""
    parts, data, version = good()
    found = [zlib.crc32(data[:12])]
    change(found)
    listed = struct.pack(f"<{len(found)}I", *found)
    head = struct.pack("<8sII", magic, len(found), (zlib.crc32(listed) + off) % 2**32)
    whole = signed(parts)
    return whole[: len(whole) - len(programs.sums(parts, data))] + head + listed


def filled_up(at: int) -> bytes:
    """A byte is no zero, counted from the end of the data."""
    parts, data, _ = good()
    raw = bytearray(signed(parts))
    raw[len(raw) - len(programs.sums(parts, data)) + at] = 1
    return bytes(raw)


def more_data() -> bytes:
    """64 bytes more of data, and no checksums, in a version that has none."""
    parts, data, _ = good()
    raw = bytearray(signed(parts)[: -len(programs.sums(parts, data))] + bytes(64))
    struct.pack_into("<I", raw, 8, 3)
    struct.pack_into("<Q", raw, 40, len(data) + 64)
    return bytes(raw)


WHOLE = len(signed(good()[0]))
NO_PROGRAM = "this is no program: it does not begin as a .tng file does"
POINTS_OUT = "its header points out of the file, which may be cut off"
SUMS = "the checksums behind the weights are not what was written"
NO_KIND = "a value of no kind"
TOO_MANY = "a count that is too large"
OTHERS = "with other arguments than it has here"
OUTSIDE = "a weight does not lie where the one before it ends"

CASES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "nothing": (NO_PROGRAM, lambda: b""),
    "another magic": (NO_PROGRAM, lambda: b"\x88" + signed(good()[0])[1:]),
    "a header that ends": ("it ends within its header", lambda: signed(good()[0])[:63]),
    "version 0": ("the file has version 0, and this Tenon reads up", lambda: header(8, "I", 0)),
    "version 5": ("the file has version 5, and this Tenon reads up", lambda: header(8, "I", 5)),
    "a longer header": (POINTS_OUT, lambda: header(12, "I", 65)),
    "a graph in the header": (POINTS_OUT, lambda: header(16, "Q", 63)),
    "a graph behind the end": (POINTS_OUT, lambda: header(16, "Q", WHOLE + 1)),
    "a long graph": (POINTS_OUT, lambda: header(24, "Q", WHOLE - 63)),
    "data behind the end": (POINTS_OUT, lambda: header(32, "Q", (WHOLE // 64 + 1) * 64)),
    "data off their place": (POINTS_OUT, lambda: header(32, "Q", 1)),
    "data further on": (POINTS_OUT, lambda: header(32, "Q", WHOLE // 64 * 64)),
    "long data": (POINTS_OUT, lambda: header(40, "Q", WHOLE)),
    "data of 12 bytes": (POINTS_OUT, lambda: header(40, "Q", 12)),
    "a graph behind its place": (POINTS_OUT, lambda: header(16, "Q", 65)),
    "something behind the graph": (
        "the graph is not what was written", lambda: filled_up(-len(good()[1]) - 1)
    ),
    "something behind a weight": (
        "what stands behind a weight is not what was written", lambda: filled_up(-1)
    ),
    "something behind the weights": ("something follows the weights", more_data),
    "something in the room for more": (POINTS_OUT, lambda: header(56, "Q", 1)),
    "another hash": ("the graph is not what was written", lambda: header(48, "Q", 1)),
    "sums with another magic": (SUMS, lambda: with_sums(lambda s: None, b"TNGSUMZ\n")),
    "sums of other sums": (SUMS, lambda: with_sums(lambda s: None, off=1)),
    "sums that end": (SUMS, lambda: signed(good()[0])[:-1]),
    "no sums": (SUMS, lambda: with_sums(list.clear)[:-16]),
    "a sum of another weight": (
        "the values of the weight 'w' are not those that were written",
        lambda: with_sums(lambda s: s.insert(0, 5)),
    ),
    "a weight without a sum": ("a weight without a checksum", lambda: with_sums(list.clear)),
    "a sum too many": ("checksums of no weights", lambda: with_sums(lambda s: s.append(5))),
    "a stream that ends": (
        "it ends too early",
        lambda: programs.file_of(good()[0][:1], good()[1], 3),
    ),
    "a stream that goes on": (
        "something follows the graph",
        lambda: signed([*good()[0], programs.Part("i", 0, "")]),
    ),
    "a zero in a text": ("a text with a zero", lambda: changed("note", 0, "a\0b")),
    "symbols without end": (TOO_MANY, lambda: changed("count", 0, 2**30)),
    "fewer than no symbols": (TOO_MANY, lambda: changed("count", 0, -1)),
    "a size from below 0": ("a size that no size is", lambda: changed("size", 0, -1)),
    "a size to below its least": ("a size that no size is", lambda: changed("size", 1, 0)),
    "a size of -1 that was seen": ("a size that no size is", lambda: changed("size", 2, -1)),
    "a flag of 2": ("neither 0 nor 1", lambda: changed("flag", 0, 2)),
    "role 3": (NO_KIND, lambda: changed("role", 2, 3)),
    "kind -1": (NO_KIND, lambda: changed("kind", 0, -1)),
    "kind 3": (NO_KIND, lambda: changed("kind", 0, 3)),
    "a value without a dtype": (NO_KIND, lambda: changed("dtype", 0, "")),
    "a value without a device": ("a value without a device", lambda: changed("device", 0, "")),
    "a negative size": ("a negative size", lambda: changed("size", 4, -2)),
    "a weight of a free size": ("a negative size", lambda: changed("size", 5, -1)),
    "a weight off its place": (OUTSIDE, lambda: changed("place", 0, 1)),
    "a weight behind the data": (OUTSIDE, lambda: changed("place", 0, 128)),
    "a weight at the data's end": (OUTSIDE, lambda: changed("place", 0, 64)),
    "a weight of 13 bytes": (OUTSIDE, lambda: changed("place", 1, 13)),
    "a longer weight": (OUTSIDE, lambda: changed("size", 5, 4)),
    "an unknown operator": ("no_such", lambda: changed("operator", 0, "no_such@1")),
    "another operator": (OTHERS, lambda: changed("operator", 0, "clone@1")),
    "another name of an argument": (OTHERS, lambda: changed("field", 0, "inputs")),
    "another kind of an argument": (OTHERS, lambda: changed("kind", 9 + ADD, 14)),
    "an operator that is none": (
        "an operator that is not listed",
        lambda: changed("which operator", 0, NODES),
    ),
    "an operator below 0": (
        "an operator that is not listed",
        lambda: changed("which operator", 0, -1),
    ),
    "a number of no kind": ("a number of no kind", lambda: changed("number's kind", 0, 4, MUL)),
    "an operand without a number": (
        "a number is missing",
        lambda: changed("number's kind", 0, -1, MUL),
    ),
    "alpha without a number": ("a number is missing", lambda: changed("number's kind", 0, -1, ADD)),
    "a format that is none": ("a choice that is none", lambda: changed("argument", 0, 4, CLONE)),
    "a format below 0": ("a choice that is none", lambda: changed("argument", 0, -1, CLONE)),
    "a list of -1": ("a list of a wrong length", lambda: changed("argument", 0, -1, CAT)),
    "a list of 2**31": ("a list of a wrong length", lambda: changed("argument", 0, 2**31, CAT)),
    "no equation": (
        "a text is missing",
        lambda: signed([p for i, p in enumerate(cut_flag(EINSUM)) if i not in places("text")]),
    ),
    "keepdim of 2": ("a choice that is none", lambda: changed("argument", 1, 2, SUM)),
    "keepdim of -1": ("a choice that is none", lambda: changed("argument", 1, -1, SUM)),
    "a list of -2 numbers": (TOO_MANY, lambda: changed("count", 3, -2, SUM)),
    "a list of 2**40 numbers": (TOO_MANY, lambda: changed("count", 3, 2**40, SUM)),
    "a size over nothing": (
        "a size divided by nothing",
        lambda: changed("size", 1, 0, RESHAPE),
    ),
    "inputs without end": (TOO_MANY, lambda: changed("count", -2, 2**30)),
}  # fmt: skip


def with_a_number_in_a_list() -> bytes:
    parts = list(good()[0])
    first, second = places("value", CAT)[:2]
    parts[first] = programs.Part("i", -2, "value")
    scalar = [programs.Part(form, 1, "") for form in "iqdd"]
    return signed([*parts[: second + 1], *scalar, *parts[second + 1 :]])


def without_a_result() -> bytes:
    parts = list(good()[0])
    parts[places("count", MUL)[1]] = programs.Part("i", 0, "count")
    del parts[places("value", MUL)[2]]
    return signed(parts)


TENSORS = "another number of tensors"
EARLY = "a value is used before it is there"
NOWHERE = "a result goes where nothing is"
NOT_OWN = "a result is no value of its own"
OF_NOTHING = "a size of nothing"
# What verification says of a file that can be read.
GRAPHS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "a list of one of two": (f"node 3 of the program (cat): {TENSORS}",
                             lambda: changed("argument", 0, 1, CAT)),
    "a list of three of two": (TENSORS, lambda: changed("argument", 0, 3, CAT)),
    "no tensor": ("node 0 of the program (mul): a tensor is missing",
                  lambda: changed("value", 0, -1, MUL)),
    "no tensor in a list": ("a tensor is missing", lambda: changed("value", 0, -1, CAT)),
    "a number in a list": ("a number in a list", with_a_number_in_a_list),
    "a value of later": (EARLY, lambda: changed("value", 0, 8, CAT)),
    "its own result": (EARLY, lambda: changed("value", 0, 2, MUL)),
    "a value of nothing": (EARLY, lambda: changed("value", 0, 9, MUL)),
    "a value below 0": (EARLY, lambda: changed("value", 0, -3, MUL)),
    "no result": ("another number of results", without_a_result),
    "an output of later": (NOWHERE, lambda: changed("value", 3, 8, MUL)),
    "an output of nothing": (NOWHERE, lambda: changed("value", 3, 9, MUL)),
    "an output below 0": (NOWHERE, lambda: changed("value", 3, -2, MUL)),
    "an input as a result": (NOT_OWN, lambda: changed("value", 2, 0, MUL)),
    "a result of another node": (NOT_OWN, lambda: changed("value", 2, 3, MUL)),
    "a result of nothing": (NOT_OWN, lambda: changed("value", 2, 9, MUL)),
    "a result below 0": (NOT_OWN, lambda: changed("value", 2, -2, MUL)),
    "a result of the node before": (NOT_OWN, lambda: changed("value", 2, 2, ADD)),
    "the size of a tensor": (OF_NOTHING, lambda: changed("derived", 0, 0, RESHAPE)),
    "the size of no argument": (OF_NOTHING, lambda: changed("derived", 0, 3, RESHAPE)),
    "the size of an argument below 0": (OF_NOTHING, lambda: changed("derived", 0, -1, RESHAPE)),
    "the size behind a list": (OF_NOTHING, lambda: changed("derived", 1, 1, RESHAPE)),
    "the size before a list": (OF_NOTHING, lambda: changed("derived", 1, -1, RESHAPE)),
    "a size of no symbol": (OF_NOTHING, lambda: changed("derived", 2, 1, RESHAPE)),
    "a size of a symbol below 0": (OF_NOTHING, lambda: changed("derived", 2, -1, RESHAPE)),
    "an input of no symbol": ("value 0 of the program has an unknown size",
                              lambda: changed("symbol", 0, 1)),
    "an input of a symbol below -1": ("value 0 of the program has an unknown size",
                                      lambda: changed("symbol", 1, -2)),
    "a result too large": ("value 2 of the program is larger than a tensor",
                           lambda: changed("size", 6, 2**62)),
    "an input without a name": ("input 0 of the program is no value of its own",
                                lambda: signed(nameless())),
    "an input of another place": ("input 0 of the program is no value of its own",
                                  lambda: changed("value", 0, 1)),
    "a weight as an input": ("input 0 of the program is no value of its own",
                             lambda: changed("value", -3, 1)),
    "a result as an input": ("input 0 of the program is no value of its own",
                             lambda: changed("value", -3, 2)),
    "nothing as an input": ("input 0 of the program is no value of its own",
                            lambda: changed("value", -3, 9)),
    "an input below 0": ("input 0 of the program is no value of its own",
                         lambda: changed("value", -3, -1)),
    "nothing as a result": ("output 1 of the program is not computed",
                            lambda: changed("value", -1, 9)),
    "an output of -1": ("output 0 of the program is not computed",
                        lambda: changed("value", -2, -1)),
}  # fmt: skip


def nameless() -> Parts:
    """The parts where the input has no name."""
    parts = list(good()[0])
    parts[places("flag")[0]] = programs.Part("I", 0, "flag")
    del parts[places("name")[1]]
    return parts


def cut_flag(node: int) -> Parts:
    """The parts where a text is said to be missing."""
    parts = list(good()[0])
    at = places("text", node)[0] - 1
    parts[at] = programs.Part(parts[at].form, 0, "flag")
    return parts


def test_the_good_one_is_read() -> None:
    x = tn.arange(6.0).reshape(2, 3)
    (sums, flat) = _program.load(signed(good()[0]))(x)
    y = np.hstack([x.numpy() * 2.5, x.numpy() + 2 * np.array([1.0, 2.0, 3.0])])
    np.testing.assert_allclose(sums.numpy(), (y @ y.T).sum(0, keepdims=True), rtol=1e-6)
    assert flat.shape == (6,)
    np.testing.assert_array_equal(
        _program.load(with_sums(lambda s: None))(x)[0].numpy(), sums.numpy()
    )


@pytest.mark.parametrize("case", CASES)
def test_a_file_with(case: str) -> None:
    words, make = CASES[case]
    check((ValueError, words, lambda: _program.load(make())))


@pytest.mark.parametrize("case", GRAPHS)
def test_a_graph_with(case: str) -> None:
    words, make = GRAPHS[case]
    check((ValueError, words, lambda: _program.load(make())))


@cache
def with_rules() -> tuple[Parts, bytes, int]:
    """Two sizes of a result follow from two free sizes."""
    whole = programs.cut()
    reader = programs.Reader(whole)
    return reader.graph(), whole[reader.data_at :][: reader.data_n], reader.version


@pytest.mark.parametrize(
    ("role", "k", "value"),
    [("step", -1, 1), ("step", -2, 2), ("derived", -1, 2), ("derived", -1, -1), ("derived", -2, 2),
     ("derived", -2, -1)],
)  # fmt: skip
def test_a_rule_of_nothing(role: str, k: int, value: int) -> None:
    parts, data, version = with_rules()
    at = [i for i, p in enumerate(parts) if p.role == role][k]
    other = [*parts[:at], programs.Part(parts[at].form, value, role), *parts[at + 1 :]]
    words = "value 1 of the program has a rule of nothing"
    check((ValueError, words, lambda: _program.load(programs.file_of(other, data, version))))


def test_steps_that_are_none() -> None:
    parts, data, version = with_rules()
    at = [i for i, p in enumerate(parts) if p.role == "step"][0]
    for step in (-1, 3):
        other = [*parts[:at], programs.Part("i", step, "step"), *parts[at + 1 :]]
        raw = programs.file_of(other, data, version)
        check((ValueError, "a number without a rule", lambda raw=raw: _program.load(raw)))
