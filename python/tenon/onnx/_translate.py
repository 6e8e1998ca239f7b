"""Programs into ONNX models: a translation for each operator, in the files beside this one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tenon
from tenon import onnx as _onnx
from tenon._program import Program, number_of_sizes
from tenon._program.apart import take_apart
from tenon._program.as_fx import value
from tenon.export import ExportedProgram
from tenon.export.decompositions import composites
from tenon.onnx import _rules
from tenon.utils._pytree import tree_leaves

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as err:
    raise ImportError("tenon.onnx needs the package onnx: pip install onnx") from err

ELEMENT = {
    "float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "float16": TensorProto.FLOAT16,
    "int64": TensorProto.INT64, "int32": TensorProto.INT32, "int16": TensorProto.INT16,
    "int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "bool": TensorProto.BOOL,
}  # fmt: skip
TRANSLATIONS: dict[str, Callable[[Call], Any]] = {}


def translates(*names: str) -> Callable[[Callable[[Call], Any]], Callable[[Call], Any]]:
    """Marks the translation of operators. It returns the name of the result, or names."""

    def mark(fn: Callable[[Call], Any]) -> Callable[[Call], Any]:
        TRANSLATIONS.update(dict.fromkeys(names, fn))
        return fn

    return mark


class Size(str):
    """The name of a value [1] of int64 that is a size."""


class Call:
    """One call of an operator: its arguments, facts of its results, a way to add ONNX nodes."""

    def __init__(self, writer: Writer, node: dict[str, Any]) -> None:
        self.writer, self.node = writer, node
        self.args = {k: writer.argument(v) for k, v in node["args"].items()}
        self.outs = [writer.values[i] if i >= 0 else None for i in node["outs"]]

    def __getitem__(self, name: str) -> Any:
        return self.args[name]

    def fact(self, name: str) -> dict[str, Any]:
        """dtype and shape of a tensor argument."""
        return self.writer.values[self.node["args"][name]["v"]]

    def rank(self, name: str) -> int:
        return len(self.fact(name)["shape"])

    def shape(self, name: str) -> list[Any]:
        return self.fact(name)["shape"]

    @property
    def dtype(self) -> str:
        return self.outs[0]["dtype"]

    def is_tensor(self, name: str) -> bool:
        given = self.node["args"][name]
        return isinstance(given, dict) and "v" in given

    def refuse(self, why: str) -> Any:
        raise _onnx.OnnxExporterError(f"onnx.export: {self.node['op']}: {why}")

    # ---- Nodes -----------------------------------------------------------------------------------

    def emit(self, op: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        """A node; numbers among its inputs are constants in the result's dtype."""
        named = [i if isinstance(i, str) else self.number(i, self.dtype) for i in inputs]
        if any(isinstance(a, Size) for a in tree_leaves(attributes)):
            raise TypeError(f"an attribute of {op}")
        return self.writer.emit(op, named, outputs, attributes)

    def const(self, data: Any, dtype: str | None = None) -> str:
        return self.writer.const(np.asarray(data, dtype=dtype))

    def ints(self, data: Any) -> str:
        """A list of ints and sizes as a value."""
        return self.writer.ints(data)

    def number(self, data: Any, dtype: str) -> str:
        return self.const(data, dtype)

    def cast(self, name: str, to: str) -> str:
        if to not in ELEMENT:
            self.refuse(f"ONNX models of ours have no {to}")
        return self.emit("Cast", name, to=ELEMENT[to])

    def operand(self, name: str, dtype: str) -> str:
        """An argument, a number too, in a dtype."""
        if isinstance(self.args[name], Size):
            flat = self.emit("Squeeze", self.args[name])
            return flat if dtype == "int64" else self.cast(flat, dtype)
        if not self.is_tensor(name):
            return self.number(self.args[name], dtype)
        given = self.args[name]
        return given if self.fact(name)["dtype"] == dtype else self.cast(given, dtype)

    def common(self, *names: str) -> str:
        """The dtype that tensors and numbers are promoted to."""
        parts = [
            tenon.empty(
                [1] * min(self.rank(n), 1), dtype=getattr(tenon, self.fact(n)["dtype"])
            ) if self.is_tensor(n) else (0 if isinstance(self.args[n], Size) else self.args[n])
            for n in names
        ]  # fmt: skip
        found = tenon.result_type(parts[0], parts[1]) if len(parts) == 2 else parts[0].dtype
        return str(found).split(".")[-1]


# Names nodes that fail where a size is none that was recorded.
_FOLLOWS = "a_size_does_not_follow_as_in_the_recording"


class Writer:
    """A graph in the making."""

    def __init__(self, program: Program, opset: int) -> None:
        self.program, self.data, self.opset = program, program.data, opset
        self.values = self.data["values"]
        self.names: dict[int, str] = {}
        self.domains: set[str] = set()  # of nodes that rules have made
        self.nodes: list[Any] = []
        self.constants: dict[bytes, str] = {}
        self.initializers: list[Any] = []
        self.arrays: dict[int, Any] = {}
        self.sizes: dict[str, str] = {}
        self.count = 0
        # What a value looks at: another one, the node that made it a view (None: all of it), which
        # result. How often memory was written; how many of these writes a name has seen.
        self.looks: dict[int, tuple[int, Any, int]] = {}
        self.writes: dict[int, int] = {}
        self.seen: dict[int, int] = {}
        # Values that nodes or outputs take; zeros to be added to the shape of an output.
        self.used: set[int] = set()
        self.asked: list[str] = []

    def fresh(self, hint: str) -> str:
        self.count += 1
        return f"{hint}_{self.count}"

    def emit(self, op: str, inputs: Any, outputs: int, attributes: dict[str, Any]) -> Any:
        names = [self.fresh(op.lower()) for _ in range(outputs)]
        kept = {k: v for k, v in attributes.items() if v is not None}
        self.nodes.append(helper.make_node(op, list(inputs), names, **kept))
        return names[0] if outputs == 1 else names

    def const(self, array: Any) -> str:
        array = np.asarray(array)
        key = f"{array.dtype}{array.shape}".encode() + array.tobytes()
        if key not in self.constants:
            self.constants[key] = name = self.fresh("const")
            self.initializers.append(numpy_helper.from_array(array, name))
        return self.constants[key]

    def ints(self, data: Any) -> str:
        if not any(isinstance(d, Size) for d in data):
            return self.const(np.asarray(data, dtype=np.int64))
        parts = [d if isinstance(d, Size) else self.const(np.asarray([d], np.int64)) for d in data]
        return self.emit("Concat", parts, 1, {"axis": 0})

    def size(self, data: dict[str, Any]) -> Size:
        """A number that follows from sizes that differ."""

        def apply(op: str, size: str, by: int | str) -> Any:
            other = by if isinstance(by, str) else self.const(np.asarray([by], np.int64))
            return self.emit(op, [size, other], 1, {})

        return Size(number_of_sizes(data, self._symbol, apply))

    def _symbol(self, name: str) -> str:
        """A size, out of the shape of the first input that has it."""
        if name not in self.sizes:
            at = next(i for i in self.data["inputs"] if name in self.values[i]["shape"])
            dim = self.values[at]["shape"].index(name)
            part = {"start": dim, "end": dim + 1}
            self.sizes[name] = self.emit("Shape", [self.names[at]], 1, part)
        return self.sizes[name]

    def argument(self, data: Any) -> Any:
        def special(kind: str, data: dict[str, Any]) -> Any:
            if kind == "generator":  # an operator of ONNX has random numbers of its own
                return None
            return self.names[data["v"]] if kind == "v" else self.size(data)

        return value(data, special)

    # ---- A whole program -------------------------------------------------------------------------

    def weight(self, i: int, name: str, tensor: Any) -> None:
        if self.values[i]["dtype"] not in ELEMENT:
            raise _onnx.OnnxExporterError(f"onnx.export: a weight is {self.values[i]['dtype']}")
        array = tensor.detach().cpu().contiguous().numpy()
        self.arrays[i] = array
        self.names[i] = name or self.fresh("constant")
        self.initializers.append(numpy_helper.from_array(array, self.names[i]))

    # ---- Writes ----------------------------------------------------------------------------------
    # ONNX has none: what is written gets a new name, and with it the memory that it looks at. What
    # else looks at that memory is made anew when it is read.

    def targets(self, node: dict[str, Any]) -> list[tuple[int, int]]:
        """Which result is written into which value."""
        found = [(at, g) for at, g in enumerate(node["given"]) if g >= 0]
        if node["in_place"]:
            found += [(0, i) for i in _tensors(node)[:1]]
        into = {i for _, i in found}
        if any(self.values[self.base(i)]["role"] != "node" for i in into):
            raise _onnx.OnnxExporterError(
                f"onnx.export: {node['op']} writes to an input or weight: ONNX has no writes. Use "
                "the form that returns a new tensor"
            )
        # Statistics count as written in eval(), too, where they stay as they are.
        kept = node["op"] == "batch_norm" and not node["args"]["training"]
        bases = {self.base(i) for i in into}
        if any(self.base(i) not in bases for i in node["wrote"]) and not kept:
            raise _onnx.OnnxExporterError(
                f"onnx.export: {node['op']} writes to a weight: export a module in eval()"
            )
        return found

    def base(self, i: int) -> int:
        """The value whose memory this one looks at."""
        while i in self.looks:
            i = self.looks[i][0]
        return i

    def settle(self, i: int) -> None:
        """Gives the value a name that has seen all writes so far."""
        now = self.writes.get(self.base(i), 0)
        if self.seen.get(i, 0) == now:
            return
        self.seen[i] = now
        if i in self.looks:
            source, node, at = self.looks[i]
            self.settle(source)
            self.names[i] = self.names[source] if node is None else self.view(source, node, at)

    def view(self, source: int, node: dict[str, Any], at: int, name: str | None = None) -> str:
        """What the view's node makes of its source, or of another tensor of that shape."""
        before = self.names[source]
        self.names[source] = name or before
        made = self.translated(Call(self, node))
        self.names[source] = before
        return made if isinstance(made, str) else made[at]

    def write(self, i: int, name: str) -> None:
        first, base = i, self.base(i)
        self.names[i] = name
        while i in self.looks:
            source, node, at = self.looks[i]
            self.settle(source)
            if node is not None:
                name = self.put(name, source, node, at)
            i, self.names[source] = source, name
            self.seen[i] = -1
        self.writes[base] = self.writes.get(base, 0) + 1
        self.seen[base] = self.seen[first] = self.writes[base]

    def put(self, name: str, source: int, node: dict[str, Any], at: int) -> str:
        """The source of a view with the view's elements replaced: the view of the elements' places
        tells which they are."""
        flat = self.const(np.asarray([-1], np.int64))
        shape, places = self.places(self.names[source])
        chosen = self.view(source, node, at, places)
        chosen = self.emit("Cast", [chosen], 1, {"to": TensorProto.INT64})
        parts = [self.names[source], chosen, name]
        made = [self.emit("Reshape", [part, flat], 1, {}) for part in parts]
        return self.emit("Reshape", [self.emit("ScatterElements", made, 1, {}), shape], 1, {})

    def places(self, name: str) -> tuple[str, str]:
        """A tensor's shape, and a tensor of that shape that counts its elements."""
        zero, one = (self.const(np.asarray(n, np.int64)) for n in (0, 1))
        shape = self.emit("Shape", [name], 1, {})
        count = self.emit("ReduceProd", [shape], 1, {"keepdims": 0})
        counted = self.emit("Range", [zero, count, one], 1, {})
        return shape, self.emit("Reshape", [counted, shape], 1, {})

    def kept_sizes(self, i: int, name: str) -> str:
        """The value as long as sizes that were read of it are what they followed from, else an
        error of whoever runs the model: the index of what is not there."""
        rules: dict[int, list[dict[str, Any]]] = {}
        for dim, step in self.values[i].get("rules", ()):
            rules.setdefault(dim, []).append(step)
        wants = {
            dim: self.size({"steps": steps} if len(steps) > 1 else steps[0])
            for dim, steps in rules.items()
        }
        if self.values[i].get("held"):  # sizes that follow from values
            sizes = enumerate(self.values[i]["shape"])
            wants |= {d: self.const(np.array([n])) for d, n in sizes if type(n) is int and n >= 0}
        if not wants:
            return name
        nothing = self.const(np.zeros(1, np.int64))
        for dim, wanted in wants.items():
            found = self.emit("Shape", [name], 1, {"start": dim, "end": dim + 1})
            apart = self.emit("Sub", [found, wanted], 1, {})
            apart = self.emit("Mul", [apart, apart], 1, {})
            nothing = self.emit("Gather", [nothing, apart], 1, {"name": self.fresh(_FOLLOWS)})
        if i not in self.used:  # who runs the model may leave out what nobody needs
            self.asked.append(nothing)
            return name
        return self.as_asked(name, nothing)

    def as_asked(self, name: str, nothing: str) -> str:
        """The value, whose shape is added zeros that somebody has to compute."""
        shape = self.emit("Add", [self.emit("Shape", [name], 1, {}), nothing], 1, {})
        return self.emit("Reshape", [name, shape], 1, {})

    # ---- All nodes -------------------------------------------------------------------------------

    def run(self, inputs: list[str] | None) -> None:
        for k, i in enumerate(self.data["inputs"]):
            own = self.values[i]["name"]
            self.names[i] = inputs[k] if inputs and k < len(inputs) else own
        places = [i for i, v in enumerate(self.values) if v["role"] == "weight"]
        for i, (name, _, tensor) in zip(places, self.program.weights, strict=True):
            self.weight(i, name, tensor)
        unknown = _unknown(self.program, self.opset)
        if unknown:
            raise _onnx.OnnxExporterError(f"onnx.export has no translation of {', '.join(unknown)}")
        self.used = {i for n in self.data["nodes"] for i in _tensors(n)} | {*self.data["outputs"]}
        for node in self.data["nodes"]:
            self.run_node(node)
        for i in self.data["outputs"]:
            self.settle(i)
            for nothing in self.asked:
                self.names[i] = self.as_asked(self.names[i], nothing)
            self.asked = []

    def translated(self, call: Call) -> Any:
        """What the program's own rule makes of a call, or else ours."""
        op = call.node["op"]
        rule = _rules.find(op, self.opset)
        return _rules.translate(rule, call) if rule else TRANSLATIONS[op](call)

    def run_node(self, node: dict[str, Any]) -> None:
        into, sources = self.targets(node), _tensors(node)
        for i in sources:
            self.settle(i)
        call = Call(self, node)
        try:
            made = self.translated(call)
        except (TypeError, ValueError) as err:
            if not self.data["symbols"] or _rules.find(node["op"], self.opset):
                raise
            call.refuse(
                f"a number that follows from a free size, where ONNX has fixed ones ({err})"
            )
        made = [made] if isinstance(made, str) else made
        written = dict(into)
        for at, (out, name) in enumerate(zip(node["outs"], made, strict=False)):
            if out < 0:
                continue
            self.names[out] = self.kept_sizes(out, name)
            if at in written:
                self.looks[out] = (written[at], None, 0)
            elif sources and not node["fresh"] and not into:
                self.looks[out] = (sources[0], node, at)
        for at, i in into:
            self.write(i, made[at])
        for out in node["outs"]:
            if out in self.looks:
                self.seen[out] = self.writes.get(self.base(out), 0)


def _tensors(node: dict[str, Any]) -> list[int]:
    found: list[int] = []
    for given in node["args"].values():
        for part in given if isinstance(given, list) else [given]:
            if isinstance(part, dict) and "v" in part:
                found.append(part["v"])
    return found


def _is_known(op: str, opset: int) -> bool:
    return op in TRANSLATIONS or _rules.find(op, opset) is not None


def _unknown(program: Program, opset: int) -> list[str]:
    return sorted(n for n in {n["op"] for n in program.data["nodes"]} if not _is_known(n, opset))


def _in_known_parts(exported: ExportedProgram, opset: int) -> Program:
    """The program with composites that have no translation as their parts."""
    unknown = _unknown(exported.program, opset)
    if not unknown:
        return exported.program
    names = [n for forms in composites().values() for n in forms if not _is_known(n, opset)]
    try:
        return take_apart(exported.program, names, exported._examples())
    except RuntimeError as err:
        raise _onnx.OnnxExporterError(
            f"onnx.export has no translation of {', '.join(unknown)}, and of the parts none: {err}"
        ) from err


def _info(name: str, fact: dict[str, Any]) -> Any:
    if fact["dtype"] not in ELEMENT:
        raise _onnx.OnnxExporterError(f"onnx.export: '{name}' is {fact['dtype']}")
    shape = [None if s == -1 else s for s in fact["shape"]]
    return helper.make_tensor_value_info(name, ELEMENT[fact["dtype"]], shape)


def _read(nodes: Any) -> Iterator[str]:
    """The names that nodes read, those in their bodies too."""
    for node in nodes:
        yield from node.input
        for attribute in node.attribute:
            yield from _read(attribute.g.node)


def translate(
    exported: ExportedProgram, opset: int, inputs: list[str] | None, outputs: list[str] | None,
    domains: dict[str, int],
) -> Any:  # fmt: skip
    """The model of a program; domains have versions, those that are not named the first."""
    from tenon.onnx import _indexing, _layers, _losses, _numbers, _operators, _special

    # They fill TRANSLATIONS.
    assert _indexing and _layers and _losses and _numbers and _operators and _special
    w = Writer(_in_known_parts(exported, opset), opset)
    w.run(inputs)
    results = []
    for k, i in enumerate(w.data["outputs"]):
        name = outputs[k] if outputs and k < len(outputs) else f"output_{k}"
        w.nodes.append(helper.make_node("Identity", [w.names[i]], [name]))
        results.append(_info(name, w.values[i]))
    used = set(_read(w.nodes))
    graph = helper.make_graph(
        w.nodes,
        "program",
        [_info(w.names[i], w.values[i]) for i in w.data["inputs"]],
        results,
        [t for t in w.initializers if t.name in used],
    )
    own = {name: domains.get(name, 1) for name in sorted(w.domains)}
    imports = [helper.make_opsetid(k, v) for k, v in {"": opset, **own}.items()]
    model = helper.make_model(graph, opset_imports=imports, producer_name="tenon", ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return model
