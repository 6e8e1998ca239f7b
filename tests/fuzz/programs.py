"""Programs (.tng) that go wrong within their format: the stream of a good file is taken apart into
its numbers and texts, some of which change, and gets the hash of what it then is. formats.py reads
them."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import tenon as tn
from tenon import _program
from tenon.io.errors import FileFormatError

HEADER = struct.Struct("<8s2I6Q")
# tn_field_kind of tenon/ops_meta.h: what stands in the file for an argument of each kind.
# fmt: off
(TENSOR, TENSOR_OPT, TENSORS, OPERAND, INT, INT_OPT, DIM, DIM_OPT, INTS, DIMS, BOOL, FLOAT,
 FLOAT_OPT, SCALAR, SCALAR_OPT, DTYPE, DEVICE, FORMAT, STR, GENERATOR, OUT, OUTS) = range(22)
# fmt: on
NUMBERS = (
    -(2**63),
    -(2**31),
    -3,
    -2,
    -1,
    0,
    1,
    2,
    3,
    5,
    7,
    8,
    9,
    63,
    64,
    65,
    255,
    256,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**62,
    2**63 - 1,
)  # fmt: skip
FLOATS = (0.0, -1.0, 0.5, 1e300, float("inf"), float("nan"), -(2.0**63))
TEXTS = ("", "float64", "int64", "bool", "complex64", "float16", "cpu:0", "meta:0", "cpu:1", "meta",
         "a,b->ab", "mean", "reflect", "reflection", "x" * 300, "ä", "%s%n", "x", "if",
         "x=exit(9)", 'x", exit(9)) #', "x\n    exit(9)")  # fmt: skip


def numbers(text: str) -> str:
    """The format of struct without padding."""
    return "<" + text


class Part:
    """One number or text ("s") of a file, and what it is."""

    def __init__(self, form: str, value: Any, role: str) -> None:
        self.form, self.value, self.role = form, value, role

    def bytes(self) -> bytes:
        if self.form == "s":
            raw = self.value.encode()
            return struct.pack("<I", len(raw)) + raw
        value = self.value
        if self.form != "d":
            bits = 8 * struct.calcsize(numbers(self.form))
            value &= (1 << bits) - 1
            value -= (1 << bits) if self.form.islower() and value >> (bits - 1) else 0
        return struct.pack(numbers(self.form), value)


class Reader:
    """Reads the graph of a good file in the order that write.c puts it in."""

    def __init__(self, data: bytes) -> None:
        _, self.version, _, at, n, self.data_at, self.data_n, _, _ = HEADER.unpack_from(data)
        self.raw, self.at, self.end = data, at, at + n
        self.parts: list[Part] = []

    def take(self, form: str, role: str) -> Any:
        (value,) = struct.unpack_from(numbers(form), self.raw, self.at)
        self.at += struct.calcsize(numbers(form))
        self.parts.append(Part(form, value, role))
        return value

    def many(self, form: str, n: int, role: str) -> list[Any]:
        return [self.take(form, role) for _ in range(n)]

    def text(self, role: str) -> str:
        (n,) = struct.unpack_from("<I", self.raw, self.at)
        value = self.raw[self.at + 4 : self.at + 4 + n].decode()
        self.at += 4 + n
        self.parts.append(Part("s", value, role))
        return value

    def maybe_text(self, role: str) -> None:
        if self.take("I", "flag"):
            self.text(role)

    def scalar(self) -> None:
        self.take("i", "number's kind")
        self.take("q", "number")
        self.many("d", 2, "float")

    def graph(self) -> list[Part]:
        self.text("note")
        for _ in range(self.take("i", "count")):
            self.text("name")
            self.many("q", 3, "size")
        values = self.take("i", "count")
        for _ in range(values):
            self.value()
        operators = [self.operator() for _ in range(self.take("i", "count"))]
        for _ in range(self.take("i", "count")):
            self.node(operators)
        for _ in range(2):
            self.many("i", self.take("i", "count"), "value")
        for _ in range(values if self.version > 2 else 0):
            self.derived()
        assert self.at == self.end
        return self.parts

    def value(self) -> None:
        role = self.take("I", "role")
        self.take("i", "kind")
        self.take("i", "value")
        self.maybe_text("name")
        self.text("dtype")
        self.text("device")
        ndim = self.take("i", "rank")
        self.many("q", ndim, "size")
        if self.take("I", "flag"):
            self.many("i", ndim, "symbol")
        if role == 2:
            self.many("Q", 2, "place")

    def operator(self) -> list[int]:
        self.text("operator")
        kinds = []
        for _ in range(self.take("i", "count")):
            self.text("field")
            kinds.append(self.take("I", "kind"))
        return kinds

    def node(self, operators: list[list[int]]) -> None:
        kinds = operators[self.take("i", "which operator")]
        self.take("I", "flag")
        self.text("dtype")
        self.take("I", "flag")
        inputs = self.many("i", self.take("i", "count"), "value")
        for _ in range(inputs.count(-2)):
            self.scalar()
        if self.take("I", "flag"):
            self.many("B", len(inputs), "wrote")
        self.many("i", self.take("i", "count"), "value")
        self.many("i", sum(k in (OUT, OUTS) for k in kinds), "value")
        self.derived()
        for kind in kinds:
            self.field(kind)

    def derived(self) -> None:
        for _ in range(self.take("i", "count")):
            self.many("i", 3, "derived")
            self.many("q", 3, "size")
            if self.version > 1:
                self.take("i", "step")

    def field(self, kind: int) -> None:
        if kind in (TENSORS, INT, DIM, BOOL, FORMAT):
            self.take("q", "argument")
        elif kind == FLOAT:
            self.take("d", "float")
        elif kind in (INT_OPT, DIM_OPT):
            self.many("q", 2, "argument")
        elif kind == FLOAT_OPT:
            self.take("d", "float")
            self.take("q", "argument")
        elif kind in (INTS, DIMS):
            n = self.take("q", "count")
            self.many("q", max(n, 0), "argument")
        elif kind in (SCALAR, SCALAR_OPT):
            self.scalar()
        elif kind in (DTYPE, DEVICE):
            self.text("dtype" if kind == DTYPE else "device")
        elif kind == STR:
            self.maybe_text("text")


def sums(parts: list[Part], data: bytes) -> bytes:
    """The checksums of the weights, as far as these lie within the data."""
    places = [p.value for p in parts if p.role == "place"]
    found = [
        zlib.crc32(data[at : at + n]) for at, n in zip(places[::2], places[1::2], strict=False)
    ]
    listed = struct.pack(f"<{len(found)}I", *found)
    head = struct.pack("<8sII", b"TNGSUMS\n", len(found), zlib.crc32(listed))
    return head + listed if found else b""


def file_of(parts: list[Part], data: bytes, version: int) -> bytes:
    """A whole file, with the hash of its graph and the checksums of its weights."""
    graph = b"".join(p.bytes() for p in parts)
    digest = 14695981039346656037
    for byte in graph:
        digest = ((digest ^ byte) * 1099511628211) % 2**64
    at = -(-(HEADER.size + len(graph)) // 64) * 64
    head = HEADER.pack(
        b"\x89TNG\r\n\x1a\n", version, 64, 64, len(graph), at, len(data), digest, 0
    )  # fmt: skip
    return (head + graph).ljust(at, b"\0") + data + sums(parts, data)


# ---- Programs ------------------------------------------------------------------------------------


def free_sizes() -> bytes:
    """Two free sizes, one number of which follows from both: version 2."""

    class Flat(tn.nn.Module):
        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return (x.reshape(x.shape[0] * x.shape[1], 4) * 2).flatten()[: x.shape[0]]

    rows, columns = tn.export.Dim("rows", min=1, max=50), tn.export.Dim("columns", min=1, max=50)
    made = tn.export.export(
        Flat(), (tn.ones(3, 5, 4),), dynamic_shapes=({0: rows, 1: columns},)
    )  # fmt: skip
    return made.program.to_bytes()


def cut() -> bytes:
    """A size that was read of a result, which has to follow from the free one: version 3."""

    class Cut(tn.nn.Module):
        def forward(self, x: tn.Tensor) -> tn.Tensor:
            y = x[:, :9]
            return (x * y.shape[1]).reshape(y.shape[0] * x.shape[1])

    rows, columns = tn.export.Dim("rows", min=1, max=50), tn.export.Dim("columns", min=1, max=50)
    made = tn.export.export(Cut(), (tn.ones(2, 3),), dynamic_shapes=({0: rows, 1: columns},))
    return made.program.to_bytes()


def traced() -> bytes:
    tn.manual_seed(1)
    net = tn.nn.Sequential(tn.nn.Conv2d(1, 2, 3), tn.nn.ReLU(), tn.nn.Flatten(), tn.nn.Linear(8, 3))
    return tn.jit.trace(net.eval(), tn.ones(2, 1, 4, 4)).program.to_bytes()


def recorded(fn: Callable[..., list[Any]], *inputs: tn.Tensor) -> bytes:
    names = {f"x{i}": t for i, t in enumerate(inputs)}
    return _program.record(lambda: fn(*inputs), names)[0].to_bytes()


def pointwise() -> bytes:
    w = tn.linspace(-1, 1, 12).reshape(3, 4)
    return recorded(
        lambda x, y: [((x * w + y).relu() * 0.5 - x.t().t()).sigmoid().clamp(min=0.25).exp()],
        tn.ones(3, 4), tn.ones(4),
    )  # fmt: skip


def lists() -> bytes:
    def run(x: tn.Tensor, i: tn.Tensor) -> list[tn.Tensor]:
        a, b = x.split([1, 2])
        c = tn.cat([b, a, x], 1 - 1).index_select(0, i)
        v, k = tn.einsum("ij,kj->ik", c, x).sort(dim=1)
        return [v.to(tn.float64), k[:, None].expand(2, 3, 3), x[i], x.masked_fill(x > 1, 2.5)]

    return recorded(run, tn.arange(12.0).reshape(3, 4), tn.tensor([0, 2]))


def writes() -> bytes:
    def run(x: tn.Tensor, y: tn.Tensor) -> list[tn.Tensor]:
        z = x.clone()
        z[0].mul_(y).add_(1)
        z.view(-1)[1:].copy_(z.view(-1)[:-1].clone())
        with tn.no_grad():
            tn.add(z, 1, out=y.new_zeros(2, 3))
        z.index_put_((tn.tensor([1]),), tn.tensor(2.5))
        return [z, tn.nn.functional.pad(z[None], (1, 1), mode="replicate"), z.sum(0, keepdim=True)]

    return recorded(run, tn.ones(2, 3), tn.ones(3))


def modes() -> bytes:
    def run(x: tn.Tensor) -> list[tn.Tensor]:
        with tn.autocast("cpu", dtype=tn.bfloat16):
            y = x @ x.t()
        y = tn.nn.functional.dropout(y.float(), 0.5) + tn.zeros(3, 3, dtype=tn.float64)
        return [y, tn.full((2, 3), 7, dtype=tn.int32), tn.linspace(0, 1, 5), x.var(1), x.mean()]

    return recorded(run, tn.ones(3, 3))


def exported() -> bytes:
    net = tn.nn.Sequential(tn.nn.Linear(3, 2), tn.nn.BatchNorm1d(2), tn.nn.Sigmoid())
    rows = tn.export.Dim("rows", min=2, max=50)
    return tn.export.export(net, (tn.ones(4, 3),), dynamic_shapes=({0: rows},)).program.to_bytes()


@cache
def good() -> list[tuple[list[Part], bytes, int]]:
    """Graphs in their parts, data and version."""
    found = []
    for make in (free_sizes, cut, traced, pointwise, lists, writes, modes, exported):
        whole = make()
        reader = Reader(whole)
        parts = reader.graph()
        data = whole[reader.data_at : reader.data_at + reader.data_n]
        assert file_of(parts, data, reader.version) == whole
        found.append((parts, data, reader.version))
    return found


# ---- What goes wrong -----------------------------------------------------------------------------


def changed(rng: random.Random, part: Part, parts: list[Part]) -> Part:
    like = [p for p in parts if p.role == part.role and p.form == part.form]
    value: Any
    if rng.random() < 0.5:
        value = rng.choice(like).value
    elif part.form == "d":
        value = rng.choice(FLOATS)
    elif part.form == "s":
        value = rng.choice(TEXTS)
    else:
        value = rng.choice(
            (rng.choice(NUMBERS), part.value + rng.choice((-1, 1)), rng.randrange(9))
        )
    return Part(part.form, value, part.role)


def program_file(rng: random.Random) -> bytes:
    parts, data, version = rng.choice(good())
    parts = list(parts)
    roles = sorted({p.role for p in parts})
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        role = rng.choice(roles)  # rare ones as often as others
        places = [i for i, p in enumerate(parts) if p.role == role]
        at = rng.choice(places) if places else rng.randrange(len(parts))
        parts[at] = changed(rng, parts[at], parts)
    if rng.random() < 0.05:  # a piece of the stream is missing, there twice, or another
        at = rng.randrange(len(parts))
        parts[at : at + rng.randrange(3)] = parts[at : at + rng.randrange(9)]
    raw = bytearray(file_of(parts, data, version if rng.random() < 0.95 else rng.randrange(5)))
    if rng.random() < 0.05:  # of the header
        at = rng.randrange(8, 64, 4)
        raw[at : at + 4] = (rng.choice(NUMBERS) % 2**32).to_bytes(4, "little")
    if rng.random() < 0.03:
        del raw[rng.randrange(len(raw)) :]
    return bytes(raw)


# ---- What is done with them ----------------------------------------------------------------------

REFUSED = (ValueError, RuntimeError, ImportError)  # the last: a plugin that is not there
SAID = (ValueError, TypeError, RuntimeError, IndexError, NotImplementedError, MemoryError, OSError)
LARGEST = 10**6  # elements of an input that is made for a program


def inputs(program: _program.Program) -> list[tn.Tensor] | None:
    made = []
    seen = {s["name"]: s["seen"] for s in program.data["symbols"]}
    for (_, dtype, _, device), id_ in zip(program.inputs, program.data["inputs"], strict=True):
        shape = [seen.get(n, n) for n in program.data["values"][id_]["shape"]]
        count = 1
        for n in shape:
            count *= n
        if (
            not (0 <= count <= LARGEST)
            or min(shape, default=0) < 0
            or max(shape, default=0) > 2**40
        ):
            return None
        made.append((tn.arange(count, device=device) % 3).to(dtype).reshape(shape))
    return made


def results(program: _program.Program, given: list[tn.Tensor]) -> list[Any] | None:
    tn.manual_seed(1)
    try:
        return list(program(*(t.clone() for t in given)))
    except SAID:
        return None


def same(a: list[Any] | None, b: list[Any] | None) -> bool:
    if a is None or b is None:
        return a is b
    for x, y in zip(a, b, strict=True):
        if x.dtype != y.dtype or x.shape != y.shape or x.device != y.device:
            return False
        if x.device.type == "cpu" and x.numel() < LARGEST:
            p, q = x.detach().to(tn.complex128), y.detach().to(tn.complex128)
            if not tn.allclose(p, q, rtol=1e-4, atol=1e-5, equal_nan=True):
                return False
    return True


def check_runs(raw: bytes) -> None:
    """What should be the same program gives the same. Each run has weights of its own, which a
    program may write to."""
    first = _program.load(raw)
    given = inputs(first)
    if given is None:
        return
    try:
        whole = first.to_bytes()
    except NotImplementedError:  # a weight without data
        return
    assert _program.load(whole).to_bytes() == whole
    found = results(first, given)
    assert same(found, results(_program.load(whole), given)), "runs of one program differ"
    if found is not None and all(t.dtype == tn.float32 for t in given):
        # what is recorded runs node by node, or not at all where something is written
        recorded = results(_program.load(raw), [t.requires_grad_() for t in given])
        assert recorded is None or same(found, recorded), "a recorded run differs"


def read_program(path: Path) -> None:
    """Loads, looks at, runs, and writes a program. A run may fail, but not in one way only."""
    try:
        program = _program.load(path)
    except REFUSED:
        return
    assert all(program.print(form) for form in ("text", "dot", "json"))
    check_runs(path.read_bytes())
    with suppress(*SAID):  # what it computes in advance may fail
        program.optimize()
        given = inputs(program)
        if given is not None:
            results(program, given)
    for load in (tn.jit.load, tn.export.load):
        with suppress(FileFormatError):
            look_at(load(path))


def look_at(made: Any) -> None:
    """What readers have made is shown, and becomes Python: names in it run nothing."""
    with suppress(*SAID, AttributeError):
        repr(made)
        if isinstance(made, tn.export.ExportedProgram):
            str(made.graph_module.graph)
            made.module().recompile()
            tn.export.unflatten(made)
