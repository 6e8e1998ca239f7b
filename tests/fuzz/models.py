"""Programs of `jit` and `export`, and ONNX models, that go wrong in what they say: entries of a
program's note and fields of a model's messages are changed, moved, doubled and left out.
formats.py reads them."""

from __future__ import annotations

import copy
import functools
import io
import json
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import programs
import tenon as tn
from tenon import _program
from tenon.io.errors import FileFormatError

try:
    import onnx
except ImportError:
    onnx = None  # type: ignore[assignment]

# ---- Programs with notes -------------------------------------------------------------------------


class Net(tn.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = tn.nn.Linear(3, 3)
        self.b = tn.nn.Sequential(tn.nn.ReLU(), tn.nn.Linear(3, 2))
        self.register_buffer("c", tn.ones(2))
        self.n = 3

    def forward(self, x: Any) -> Any:
        return {"y": self.b(self.a(x)) + self.c, "z": (x, [x * 2])}


class Branches(Net):
    def forward(self, x: Any) -> Any:
        if x.sum() > 0:
            x = x * self.n
        return {"y": self.b(self.a(x)) + self.c}


@functools.cache
def _programs() -> list[bytes]:
    x = tn.ones(2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = (
            tn.jit.trace(Net(), (x,), strict=False), tn.jit.script(Branches()),
            tn.jit.trace(lambda x, y: (x + y, [x]), (x, tn.ones(3)), strict=False),
        )  # fmt: skip
    files = [io.BytesIO() for _ in range(4)]
    for program, file in zip(made, files, strict=False):
        tn.jit.save(program, file, _extra_files={"k": "v"})
    tn.export.save(tn.export.export(Net(), (x,)), files[-1])
    return [file.getvalue() for file in files]


_VALUES = (
    None, True, 0, -1, 2**70, 1.5, float("nan"), "", "a.b", "forward", "__class__", "x" * 50, [],
    {}, [[]], [None], {"": None}, [[[[]]]], {"kind": "module"}, "\ud800", ["a", ["b"]], "[" * 9000,
    "x=exit(9)", 'x", exit(9)) #',
    {"type": "collections.namedtuple", "context": "this:c", "children_spec": []},
    {"type": "collections.deque", "context": "-1", "children_spec": []},
)  # fmt: skip


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    members = value.items() if isinstance(value, dict) else ()
    for key, member in enumerate(value) if isinstance(value, list) else members:
        yield from _places(member, (*path, key))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def changed(value: Any, rng: random.Random) -> Any:
    """A structure as JSON has them, with one place of another kind."""
    places = list(_places(value))
    path = rng.choice(places)
    if not path:
        return copy.deepcopy(rng.choice(_VALUES))
    owner, key, way = _at(value, path[:-1]), path[-1], rng.randrange(6)
    if isinstance(owner[key], str) and owner[key].startswith("[1, {"):  # a structure within
        owner[key] = json.dumps(changed(json.loads(owner[key]), rng))
    elif way == 0:
        del owner[key]
    elif way == 1 and isinstance(owner, list):
        owner.append(owner[key])
    elif way == 2 and isinstance(owner, dict):
        owner[rng.choice(("x", "0", "forward", "kind"))] = owner.pop(key)
    elif way == 3:
        owner[key] = copy.deepcopy(_at(value, rng.choice(places)))
    else:
        owner[key] = copy.deepcopy(rng.choice(_VALUES))
    return value


def noted_program(rng: random.Random) -> bytes:
    program = _program.load(rng.choice(_programs()))
    note = json.loads(program.note)
    for _ in range(rng.randrange(1, 4)):
        note = changed(note, rng)
    program.note = json.dumps(note)
    return program.to_bytes()


def read_noted(path: Path) -> None:
    """Each reader gives something, or says what is wrong, as all readers of files do."""
    for load in (tn.jit.load, tn.export.load):
        try:
            made = load(path)
        except FileFormatError as err:
            assert str(err)
            continue
        programs.look_at(made)
        if isinstance(made, tn.jit._Runs) and "program" in vars(made):
            repr(made)
            leaves = [tn.ones([abs(n) for n in v[2]]) for v in made.program.inputs]
            given = list(made._inputs.fixed)
            for i, leaf in zip(made._inputs.tensors, leaves, strict=True):
                given[i] = leaf
            made._outputs.build(made.program(*leaves))
            made._inputs.spec.unflatten(given)


# ---- Models --------------------------------------------------------------------------------------


@functools.cache
def _models() -> list[bytes]:
    helper, kinds = onnx.helper, onnx.TensorProto
    info = helper.make_tensor_value_info

    def weight(name: str, *shape: int) -> Any:
        count = 1
        for n in shape:
            count *= n
        return helper.make_tensor(name, kinds.FLOAT, shape, [0.5] * count)

    def model(nodes: list[Any], weights: list[Any], functions: list[Any] = ()) -> bytes:
        x, y = info("x", kinds.FLOAT, [1, 2, 4, 4]), info("y", kinds.FLOAT, None)
        graph = helper.make_graph(nodes, "g", [x], [y], weights)
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
        return helper.make_model(
            graph, functions=functions, opset_imports=imports
        ).SerializeToString()

    node = helper.make_node
    then, other = (
        helper.make_graph([node(op, ["x"], ["out"])], op, [], [info("out", kinds.FLOAT, None)])
        for op in ("Relu", "Neg")
    )
    body = helper.make_function(
        "own", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    return [
        model([node("Conv", ["x", "w.a", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
               node("Flatten", ["c"], ["f"]), node("Gemm", ["f", "m"], ["y"], transB=1)],
              [weight("w.a", 3, 2, 3, 3), weight("b", 3), weight("m", 2, 12)]),
        model([node("ReduceSum", ["x"], ["s"], keepdims=0), node("Greater", ["s", "z"], ["t"]),
               node("If", ["t"], ["y"], then_branch=then, else_branch=other)],
              [helper.make_tensor("z", kinds.FLOAT, [], [0.0])]),
        model([node("Twice", ["x"], ["u"], domain="own"), node("Softmax", ["u"], ["y"], axis=1)],
              [], [body]),
        model([node("Reshape", ["x", "s"], ["r"]), node("Resize", ["x", "", "k"], ["q"]),
               node("Slice", ["r", "i", "i"], ["p"]), node("Gather", ["r", "i"], ["y"], axis=-1)],
              [helper.make_tensor("s", kinds.INT64, [2], [4, -1]), weight("k", 4),
               helper.make_tensor("i", kinds.INT64, [1], [1])]),
    ]  # fmt: skip


_INTS = (0, 1, 2, 3, 7, 16, 255, 2**31 - 1, -1, -2, -(2**31))
_LONG = (2**31, 2**40, 2**62, 2**63 - 1, -(2**63))
_NAMES = ("", "x", "y", "w.a", "out", "a", "Twice", "Add", "Loop", "own", "then_branch", "pads",
          "." * 3000, "forward", "training", "a.b.c", "../x", "x" * 3000, "ai.onnx.ml")  # fmt: skip


def _messages(message: Any, depth: int = 0) -> Iterator[Any]:
    yield message
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE and depth < 8:
            for inner in value if field.is_repeated else [value]:
                yield from _messages(inner, depth + 1)


def _scalar(field: Any, rng: random.Random) -> Any:
    if field.type == field.TYPE_STRING:
        return rng.choice(_NAMES)
    if field.type == field.TYPE_BYTES:
        return rng.choice((b"", b"\0" * 4, b"x", rng.randbytes(12)))
    if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE):
        return rng.choice((0.0, -1.0, 1e30, float("inf"), float("nan"), 0.5))
    if field.type == field.TYPE_ENUM:
        return rng.choice(field.enum_type.values).number
    wide = field.type in (field.TYPE_INT64, field.TYPE_UINT64)
    value = rng.choice(_INTS + (_LONG if wide else ()))
    return abs(value) if field.type in (field.TYPE_UINT64, field.TYPE_UINT32) else value


def _change_message(message: Any, rng: random.Random, donors: list[Any]) -> None:
    field = rng.choice(message.DESCRIPTOR.fields)
    if rng.random() < 0.6 and message.ListFields():
        field = rng.choice(message.ListFields())[0]
    value = getattr(message, field.name)
    if field.type == field.TYPE_MESSAGE:
        fitting = [d for d in donors if d.DESCRIPTOR is field.message_type]
        if field.is_repeated and len(value) and rng.random() < 0.5:
            del value[rng.randrange(len(value))]
        elif fitting:
            donor = copy.deepcopy(rng.choice(fitting))
            (value.add() if field.is_repeated else value).CopyFrom(donor)
        else:
            message.ClearField(field.name)
    elif field.is_repeated:
        if len(value) and rng.random() < 0.3:
            del value[rng.randrange(len(value))]
        elif len(value) and rng.random() < 0.7:
            value[rng.randrange(len(value))] = _scalar(field, rng)
        else:
            value.append(_scalar(field, rng))
    elif rng.random() < 0.2:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, _scalar(field, rng))


def model_file(rng: random.Random) -> bytes:
    if onnx is None:
        return b""
    model = onnx.load_from_string(rng.choice(_models()))
    for _ in range(rng.randrange(1, 5)):
        messages = list(_messages(model))
        _change_message(rng.choice(messages), rng, messages)
    return model.SerializeToString()


def read_model(path: Path) -> None:
    """A model is read, or refused; a call may fail as that of any module."""
    if onnx is None:
        return
    try:
        model = tn.onnx.load(path.read_bytes())
    except FileFormatError as err:
        assert str(err)
        return
    repr(model)
    model.state_dict()
    if any(n.op in ("Loop", "Scan") for n in model._nodes):  # may go on for as long as it says
        return
    try:
        model(*[tn.ones(1, 2, 4, 4) for _ in model.input_names])
    except (ValueError, TypeError, RuntimeError, IndexError, MemoryError) as err:
        assert str(err), type(err)
