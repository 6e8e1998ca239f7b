"""Programs and ONNX models that say what they should not: readers refuse them with one kind of
exception, import nothing, and take time and memory in proportion to the file."""

from __future__ import annotations

import builtins
import contextlib
import io
import json
import re
import sys
import warnings
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tenon as tn
from tenon import _program
from tenon._program.traced import Layout
from tenon.io.errors import FileFormatError
from tenon.utils import _pytree

sys.path.append(str(Path(__file__).parents[1] / "fuzz"))
import programs  # noqa: E402

LOADS = (tn.jit.load, tn.export.load)


def traced(change: Callable[[dict[str, Any]], Any]) -> io.BytesIO:
    """The file of a trace whose note was changed; what `change` returns, if anything, is it."""
    made = tn.jit.trace(lambda x: {"a": x + 1}, (tn.ones(2),), strict=False)
    data = io.BytesIO()
    tn.jit.save(made, data)
    program = _program.load(data.getvalue())
    note = json.loads(program.note)
    found = change(note)
    program.note = json.dumps(note if found is None else found)
    return io.BytesIO(program.to_bytes())


def structure(kind: str, context: Any) -> Callable[[dict[str, Any]], None]:
    """The result is a container of that kind."""

    def change(note: dict[str, Any]) -> None:
        spec = json.loads(note["outputs"]["spec"])
        spec[1].update(type=kind, context=context)
        note["outputs"]["spec"] = json.dumps(spec)

    return change


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize(
    ("kind", "context"),
    [
        ("collections.namedtuple", "this:Zen"),
        ("collections.namedtuple", "tenon.nn.modules.this:Zen"),
        ("collections.defaultdict", {"default_factory_module": "this", "dict_context": ["a"],
                                     "default_factory_name": "Zen"}),
        ("collections.defaultdict", {"default_factory_module": "subprocess", "dict_context": ["a"],
                                     "default_factory_name": "Popen"}),
        ("collections.deque", "-1"),
        ("builtins.dict", "[[]]"),
        ("builtins.dict", "3"),
        ("nobody.knows", "null"),
    ],
)  # fmt: skip
def test_structures_name_nothing_to_import(load: Any, kind: str, context: Any) -> None:
    sys.modules.pop("this", None)
    with pytest.raises(FileFormatError, match="structure"):
        load(traced(structure(kind, context)))
    assert "this" not in sys.modules


class Picky:
    """A program's own container, which takes tensors alone."""

    def __init__(self, held: Any) -> None:
        assert isinstance(held[0], tn.Tensor)


def test_structures_in_containers_of_a_programs_own() -> None:
    _pytree.register_pytree_node(Picky, lambda p: ([p.held], None), lambda held, _: Picky(*held))
    leaf = _pytree.tree_structure(0)
    for longest, fits in ((1, True), (None, True), (-1, False)):
        held = _pytree.TreeSpec(deque, longest, [leaf])
        layout = Layout(_pytree.TreeSpec(Picky, None, [held]), [None], [0])
        with contextlib.nullcontext() if fits else pytest.raises(ValueError, match="maxlen"):
            layout._check()


def test_structures_that_come_back() -> None:
    tree = {"a": defaultdict(list, x=1), "b": defaultdict(None, y=2), "c": tn.Size([1])}
    for part in (tree["a"], tree["b"]):
        spec = _pytree.tree_structure(part)
        back = _pytree.treespec_loads(_pytree.treespec_dumps(spec)).unflatten([5])
        assert back.default_factory is part.default_factory and list(back.values()) == [5]


def drop(*path: str) -> Callable[[dict[str, Any]], None]:
    def change(note: Any) -> None:
        for key in path[:-1]:
            note = note[key]
        del note[path[-1]]

    return change


def put(value: Any, *path: str) -> Callable[[dict[str, Any]], Any]:
    def change(note: Any) -> Any:
        if not path:
            return value
        owner = note
        for key in path[:-1]:
            owner = owner[key]
        owner[path[-1]] = value
        return note

    return change


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize(
    "change",
    [
        drop("kind"), drop("inputs"), drop("outputs"), drop("outputs", "spec"),
        drop("inputs", "fixed"), put([]), put("x"), put(0), put(2, "kind"), put([], "name"),
        put({}, "arguments"), put([1], "grads"), put("x", "training"), put([["a"]], "modules"),
        put([1], "outputs", "tensors"), put([0, 0], "outputs", "tensors"),
        put([-1], "outputs", "tensors"), put([[]], "inputs", "fixed"), put([], "inputs", "fixed"),
        put([7], "outputs", "numbers"), put(3, "inputs"), put({"a": 1}, "extra"),
        put([["x"]], "scopes"), put([5], "scope_of"), put("[" * 5000, "outputs", "spec"),
        put([], "inputs", "tensors"), put([], "scope_of"), put([[["forward", 0]]], "scopes"),
        put({"": "x"}, "ties"), put({"a..b": "x"}, "ties"), put({"__class__": "x"}, "ties"),
    ],
)  # fmt: skip
def test_notes_that_are_wrong(load: Any, change: Any) -> None:
    with pytest.raises(FileFormatError):
        load(traced(change))


def test_notes_of_another_reader() -> None:
    data = io.BytesIO()
    tn.jit.save(tn.jit.script(tn.nn.Linear(2, 2)), data)
    data.seek(0)
    with pytest.raises(FileFormatError, match=r"jit\.load reads"):
        tn.export.load(data)
    with pytest.raises(FileFormatError, match="begins|begin"):
        tn.export.load(io.BytesIO(b"no program at all"))


class Names(tn.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = tn.nn.Linear(2, 2)
        self.register_buffer("kept", tn.ones(2))

    def forward(self, taken: tn.Tensor) -> tn.Tensor:
        return self.layer(taken) + self.kept


@pytest.mark.parametrize("name", ["taken", "layer.weight", "kept"])
@pytest.mark.parametrize(
    "text",
    [
        "x=ran.append(1)", "x: ran.append(1)", "x): ran.append(1)\n#", "*x=ran.append(1)",
        'x", ran.append(1)) #', "x', ran.append(1)) #", "x\n    ran.append(1)",
        'x"), ran.append(1), ("', "x\\", "if", "a b", "taken", "ä\ud7ff'\"",
    ],
)  # fmt: skip
def test_names_are_no_code(name: str, text: str, tmp_path: Path, monkeypatch: Any) -> None:
    """Inputs and weights are named by the file, and graphs become Python."""
    ran: list[int] = []
    monkeypatch.setattr(builtins, "ran", SimpleNamespace(append=ran.append), raising=False)
    text = text.replace("ran.append(1)", "exec('ran' + chr(46) + 'append(1)')")  # a place has dots
    net = Names()
    data = tn.export.export(net, (tn.ones(2),)).program.to_bytes()
    reader = programs.Reader(data)
    parts = reader.graph()
    for part in parts:
        if part.form == "s" and part.value == name:
            part.value = text
    weights = data[reader.data_at : reader.data_at + reader.data_n]
    file = programs.file_of(parts, weights, reader.version)
    ep = tn.export.load(io.BytesIO(file))
    wanted = net(tn.ones(2)).detach()
    module = ep.module()
    module.recompile()
    assert tn.equal(module(tn.ones(2)).detach(), wanted)
    held = [*ep.state_dict.values()]
    assert tn.equal(ep.graph_module(*held, tn.ones(2))[0].detach(), wanted)
    assert tn.equal(tn.export.unflatten(ep)(tn.ones(2)).detach(), wanted)
    ep.run_decompositions().graph_module  # noqa: B018
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module.to_folder(tmp_path, "Told")
    exec(compile((tmp_path / "module.py").read_text(encoding="utf-8"), "told", "exec"), {})
    tn.jit.load(io.BytesIO(file))
    assert not ran


def test_devices_that_are_not_there() -> None:
    data = tn.export.export(Names(), (tn.ones(2),)).program.to_bytes()
    reader = programs.Reader(data)
    parts = reader.graph()
    next(p for p in parts if p.value == "cpu:0").value = "nowhere:0"
    weights = data[reader.data_at : reader.data_at + reader.data_n]
    file = programs.file_of(parts, weights, reader.version)
    for load in LOADS:
        with pytest.raises(FileFormatError, match="nowhere"):
            load(io.BytesIO(file))


def saved_trace(net: Any, path: Path) -> Callable[[], Any]:
    tn.jit.trace(net, tn.ones(2, 3)).save(path)
    return lambda: tn.jit.load(path).state_dict()


def saved_export(net: Any, path: Path) -> Callable[[], Any]:
    tn.export.save(tn.export.export(net, (tn.ones(2, 3),)), path)
    return lambda: tn.export.load(path).state_dict


@pytest.mark.parametrize("write", [saved_trace, saved_export])
def test_values_that_are_not_those_written(
    write: Callable[[Any, Path], Callable[[], Any]], tmp_path: Path
) -> None:
    """Weights are mapped, and yet a changed byte is an error, not another number."""
    net, path = tn.nn.BatchNorm1d(3).eval(), tmp_path / "net.tng"
    load = write(net, path)
    wanted = {k: v.tolist() for k, v in load().items()}
    good = path.read_bytes()
    reader = programs.Reader(good)
    refused = 0
    for at in range(reader.data_at, len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        try:
            assert {k: v.tolist() for k, v in load().items()} == wanted
        except FileFormatError as e:
            assert re.search("not (those that were|what was) written|checksums", str(e))
            refused += 1
    weights = sum(v.numel() * v.element_size() for v in net.state_dict().values())
    assert refused >= weights + 4 * len(wanted)
    cut = bytearray(good[: reader.data_at + reader.data_n])
    path.write_bytes(cut)
    with pytest.raises(FileFormatError, match="checksums"):
        load()
    cut[8] = 3  # the version of before there were checksums
    path.write_bytes(cut)
    assert {k: v.tolist() for k, v in load().items()} == wanted


# ---- ONNX ----------------------------------------------------------------------------------------


@pytest.fixture
def helper() -> Any:
    return pytest.importorskip("onnx").helper


def model(helper: Any, nodes: list[Any], weights: Any = (), functions: Any = ()) -> Any:
    infos = [helper.make_tensor_value_info(n, 1, None) for n in "xy"]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], list(weights))
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, functions=list(functions), opset_imports=imports)


def function(helper: Any, name: str, calls: list[str]) -> Any:
    """own.NAME(a) -> b by functions that are called one after the other."""
    steps = ["a", *(f"s{i}" for i in range(1, len(calls))), "b"]
    nodes = [
        helper.make_node(op, [steps[i]], [steps[i + 1]], domain="own" if op[0] == "F" else "")
        for i, op in enumerate(calls)
    ]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["a"], ["b"], nodes, imports)


def test_functions_that_call_functions(helper: Any) -> None:
    """They are made once, however often they are called, and never call themselves."""
    whole = [function(helper, f"F{i}", [f"F{i + 1}"] * 2) for i in range(60)]
    whole.append(function(helper, "F60", ["Neg"]))
    call = helper.make_node("F57", ["x"], ["y"], domain="own")
    x = tn.ones(3)
    assert tn.equal(tn.onnx.load(model(helper, [call], functions=whole))(x), x)
    tn.onnx.load(
        model(helper, [helper.make_node("F0", ["x"], ["y"], domain="own")], functions=whole)
    )
    circle = [function(helper, "F0", ["F1"]), function(helper, "F1", ["Neg", "F0"])]
    first = helper.make_node("F0", ["x"], ["y"], domain="own")
    with pytest.raises(FileFormatError, match="calls itself"):
        tn.onnx.load(model(helper, [first], functions=circle))


def test_values_in_other_files(helper: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """Those of a model's path are read; bytes name no file."""
    import onnx

    secret = tmp_path / "secret"
    secret.write_bytes(tn.arange(4.0).numpy().tobytes())
    w = onnx.TensorProto(name="w", dims=[4], data_type=1, data_location=1)
    w.external_data.add(key="location", value="secret")
    made = model(helper, [helper.make_node("Add", ["x", "w"], ["y"])], [w])
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    assert tn.onnx.load(path)(tn.zeros(4)).tolist() == [0, 1, 2, 3]
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileFormatError, match="another file"):
        tn.onnx.load(path.read_bytes())


def test_models_that_say_nonsense(helper: Any) -> None:
    node, tensor = helper.make_node, helper.make_tensor
    for weights, said in (
        ([tensor("a" + ".a" * 50000, 1, [1], [1.0])], "too deep"),
        ([tensor("a.forward.b", 1, [1], [1.0])], "already exists"),
    ):
        with pytest.raises(FileFormatError, match=said):
            tn.onnx.load(model(helper, [node("Neg", ["x"], ["y"])], weights))
    short = tensor("w", 1, [1], [1.0])
    short.dims[0] = 2**40
    with pytest.raises(FileFormatError, match="cannot reshape"):
        tn.onnx.load(model(helper, [node("Neg", ["x"], ["y"])], [short]))
    for nodes, said in (
        ([node("Add", ["x", "z"], ["y"])], "node Add takes 'z', which nothing gives"),
        ([node("Neg", ["x"], ["z"])], "takes 'y', which nothing gives"),
        ([node("Resize", ["x", "", "k"], ["y"])], "possible"),
        ([node("Resize", ["x", "", "n"], ["y"])], "scales"),
        ([node("Resize", ["x"], ["y"])], "neither"),
        ([node("If", ["b"], ["y"], then_branch=[1], else_branch=2)], "node If"),
    ):
        weights = [
            tensor("k", 1, [1], [1e30]), tensor("n", 1, [1], [float("nan")]),
            tensor("b", 9, [], [True]),
        ]  # fmt: skip
        with pytest.raises(FileFormatError, match=said):
            tn.onnx.load(model(helper, nodes, weights))(tn.ones(3))
