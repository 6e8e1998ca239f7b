"""ONNX models as modules: a graph is run node by node by functions of tensors.

A node's function is found by its operator's name (registry.py); an operator without one runs by the
function that its schema gives it, if it does. What has neither is named when the model is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import tenon
from tenon.io.atomic import open_to_read
from tenon.nn import Module, Parameter
from tenon.onnx._load import control, layers, math, pooling, recurrent, resize, shape
from tenon.onnx._load.registry import (
    FUNCTIONS,
    Context,
    OnnxLoadError,
    Subgraph,
    dtype_of,
    number_of,
)

__all__ = ["OnnxLoadError", "OnnxModule", "load"]
_FAMILIES = (control, layers, math, pooling, recurrent, resize, shape)  # they fill the registry

# Inputs that are numbers of a node, and no weights of a model.
_NUMBERS = {
    "Clip": (1, 2), "Pad": (2,), "Resize": (1, 2), "Upsample": (1,), "Range": (0, 1, 2),
    "BatchNormalization": (3, 4), "OneHot": (1, 2), "Dropout": (1,), "QuantizeLinear": (1, 2),
    "DequantizeLinear": (1, 2), "Pow": (1,),
}  # fmt: skip


_DEEPEST = 100  # modules within each other that a weight's name may lead through


def tensor_of(proto: Any) -> Any:
    """The tensor of a TensorProto."""
    import onnx

    if proto.data_location == onnx.TensorProto.EXTERNAL:
        raise OnnxLoadError(
            f"onnx.load: the values of '{proto.name}' lie in another file: load the model's path"
        )
    array = onnx.numpy_helper.to_array(proto)
    wanted = dtype_of(proto.data_type)
    if array.dtype.kind not in "biufc":  # a dtype that NumPy has no name for
        array = array.astype("float32")
    array = array.copy() if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    return tenon.from_numpy(array).to(wanted)


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


class _Node:
    """A node, ready to be called."""

    def __init__(self, proto: Any, ctx: Context) -> None:
        self.op, self.name = proto.op_type, proto.name
        self.inputs, self.outputs = list(proto.input), list(proto.output)
        self.attributes: dict[str, Any] = {}
        self.references: dict[str, str] = {}  # of a function's body: an attribute of the call
        for a in proto.attribute:
            if a.ref_attr_name:
                self.references[a.name] = a.ref_attr_name
            else:
                self.attributes[a.name] = _attribute(a, ctx)
        self.context = ctx.of_node(len(self.outputs))
        self.fn = FUNCTIONS.get(self.op) if _domain(proto.domain) == "" else None
        self.body = None if self.fn else _body(proto, ctx)
        if self.fn is None and self.body is None:
            ctx.missing.add(f"{proto.domain}.{self.op}".lstrip("."))

    def __call__(self, values: dict[str, Any], attributes: dict[str, Any]) -> None:
        own = dict(self.attributes)
        own.update({k: attributes[v] for k, v in self.references.items() if v in attributes})
        inputs = [_given(values, n, self) if n else None for n in self.inputs]
        try:
            if self.fn is not None:
                found = self.fn(self.context.among(values), *inputs, **own)
            else:
                assert self.body is not None
                found = self.body.call(inputs, own)
        except OnnxLoadError:
            raise
        except TypeError as err:
            if "unexpected keyword" in str(err) or "positional argument" in str(err):
                raise OnnxLoadError(f"onnx.load: {self}: {err}") from err
            raise
        except (AttributeError, LookupError, ArithmeticError, AssertionError) as err:
            raise OnnxLoadError(f"onnx.load: {self}: {type(err).__name__}: {err}") from err
        if not isinstance(found, tuple):
            found = (found,)
        for name, value in zip(self.outputs, found, strict=False):
            if name:
                values[name] = value

    def __str__(self) -> str:
        return f"node {self.op}" + (f" '{self.name}'" if self.name else "")


def _attribute(a: Any, ctx: Context) -> Any:
    import onnx

    value = onnx.helper.get_attribute_value(a)
    kinds = onnx.AttributeProto
    if a.type == kinds.STRING:
        return value.decode(errors="replace")
    if a.type == kinds.STRINGS:
        return [v.decode(errors="replace") for v in value]
    if a.type == kinds.TENSOR:
        return tensor_of(value)
    if a.type == kinds.GRAPH:
        return _Graph(value, ctx)
    if a.type in (kinds.INTS, kinds.FLOATS):
        return list(value)
    return value


class _Function:
    """An operator by other operators."""

    def __init__(self, proto: Any, ctx: Context) -> None:
        opsets = {_domain(o.domain): o.version for o in proto.opset_import}
        inner = ctx.of_function(opsets or ctx.opsets)
        self.inputs, self.outputs = list(proto.input), list(proto.output)
        self.defaults = {a.name: _attribute(a, inner) for a in proto.attribute_proto}
        self.nodes = [_Node(n, inner) for n in proto.node]

    def call(self, inputs: Sequence[Any], attributes: dict[str, Any]) -> tuple[Any, ...]:
        values = {n: None for n in self.inputs}
        values.update(zip(self.inputs, inputs, strict=False))
        for node in self.nodes:
            node(values, {**self.defaults, **attributes})
        return tuple(values.get(n) for n in self.outputs)


def _function_of(proto: Any, ctx: Context) -> _Function:
    """A model's function, made once: its nodes may call others, which all of them share."""
    key = (_domain(proto.domain), proto.name, tuple(sorted(ctx.opsets.items())))
    if key not in ctx.made:
        ctx.made[key] = None
        ctx.made[key] = _Function(proto, ctx)
    made = ctx.made[key]
    if made is None:
        raise OnnxLoadError(f"onnx.load: the function {proto.name} calls itself")
    return made


def _given(values: dict[str, Any], name: str, who: Any) -> Any:
    if name not in values:
        raise OnnxLoadError(f"onnx.load: {who} takes '{name}', which nothing gives")
    return values[name]


class _ByKinds:
    """An operator whose schema makes a function of the kinds of the inputs at hand."""

    def __init__(self, schema: Any, proto: Any, ctx: Context) -> None:
        self.schema, self.proto, self.ctx = schema, proto, ctx
        self.made: dict[Any, _Function] = {}

    def call(self, inputs: Sequence[Any], attributes: dict[str, Any]) -> tuple[Any, ...]:
        key = tuple(None if t is None else (t.dtype, tuple(t.shape)) for t in inputs)
        if key not in self.made:
            self.made[key] = self._make(inputs)
        return self.made[key].call(inputs, attributes)

    def _make(self, inputs: Sequence[Any]) -> _Function:
        import onnx

        types = [
            onnx.TypeProto().SerializeToString() if t is None
            else onnx.helper.make_tensor_type_proto(
                number_of(t.dtype), tuple(t.shape)).SerializeToString()
            for t in inputs
        ]  # fmt: skip
        text = self.schema.get_context_dependent_function(self.proto.SerializeToString(), types)
        body = onnx.FunctionProto()
        body.ParseFromString(text)
        inner = self.ctx.of_function(self.ctx.opsets)
        made = _Function(body, inner)
        if inner.missing:
            raise OnnxLoadError(f"onnx.load: no operators {', '.join(sorted(inner.missing))}")
        return made


def _body(proto: Any, ctx: Context) -> _Function | _ByKinds | None:
    """The function that the model, or the operator's schema, gives a node."""
    import onnx

    domain = _domain(proto.domain)
    known = ctx.functions.get((domain, proto.op_type))
    if known is not None:
        return _function_of(known, ctx)
    version = ctx.opsets.get(domain, 1)
    try:
        schema = onnx.defs.get_schema(proto.op_type, version, domain)
    except onnx.defs.SchemaError:
        return None
    if schema.has_function:
        body = schema.function_body
        made = onnx.FunctionProto()
        made.CopyFrom(body)
        for attribute in schema.attributes.values():
            if attribute.default_value.name:
                made.attribute_proto.add().CopyFrom(attribute.default_value)
        made.input[:] = [i.name for i in schema.inputs]
        made.output[:] = [o.name for o in schema.outputs]
        return _Function(made, ctx)
    if schema.has_context_dependent_function:
        return _ByKinds(schema, proto, ctx)
    return None


class _Graph(Subgraph):
    """A graph, or one within a node, which sees the values around it."""

    def __init__(self, proto: Any, ctx: Context) -> None:
        self.name = proto.name
        self.inputs = [i.name for i in proto.input]
        self.outputs = [o.name for o in proto.output]
        self.constants = {t.name: tensor_of(t) for t in proto.initializer}
        self.nodes = [_Node(n, ctx) for n in proto.node]

    def run(self, around: dict[str, Any], inputs: Sequence[Any] = ()) -> tuple[Any, ...]:
        values = dict(around)
        values.update(self.constants)
        values.update(zip(self.inputs, inputs, strict=False))
        for node in self.nodes:
            node(values, {})
        return tuple(_given(values, n, f"graph '{self.name}'") for n in self.outputs)


class OnnxModule(Module):
    """A model: called with its inputs by position or name, it gives its output, or a tuple of them.

    Initialisers of floating dtype are parameters, all others buffers; `state_dict` has their names.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        graph = model.graph
        if graph.sparse_initializer:
            raise OnnxLoadError("onnx.load: sparse initialisers are not read")
        opsets = {_domain(o.domain): o.version for o in model.opset_import}
        functions = {(_domain(f.domain), f.name): f for f in model.functions}
        ctx = Context(opsets, functions)
        numbers = {
            name
            for n in graph.node
            for i, name in enumerate(n.input)
            if i in _NUMBERS.get(n.op_type, ())
        }
        self._where: dict[str, tuple[str, ...]] = {}
        for proto in graph.initializer:
            self._add_weight(proto, proto.name in numbers)
        self.input_names = [i.name for i in graph.input if i.name not in self._where]
        self.output_names = [o.name for o in graph.output]
        self._nodes = [_Node(n, ctx) for n in graph.node]
        if ctx.missing:
            raise OnnxLoadError(f"onnx.load: no operators {', '.join(sorted(ctx.missing))}")
        self._last = self._uses()

    def _add_weight(self, proto: Any, is_number: bool) -> None:
        """Under its name, whose dots lead through modules as those of a state_dict do."""
        tensor, owner = tensor_of(proto), self
        *path, last = proto.name.split(".")
        taken = any(not part or hasattr(owner, part) for part in [*path, last][:1]) or not last
        if taken and not isinstance(getattr(self, path[0] if path else last, None), Module):
            path, last = [], f"weight_{proto.name.replace('.', '_')}"
        if len(path) > _DEEPEST:
            raise OnnxLoadError(f"onnx.load: the weight '{proto.name[:40]}...' lies too deep")
        for part in path:
            if part not in owner._modules:
                owner.add_module(part, Module())
            owner = owner._modules[part]
        trained = (tensor.is_floating_point() or tensor.is_complex()) and not is_number
        if trained:
            owner.register_parameter(last, Parameter(tensor))
        else:
            owner.register_buffer(last, tensor)
        self._where[proto.name] = (*path, last)

    def _weights(self) -> Iterator[tuple[str, Any]]:
        for name, path in self._where.items():
            at: Any = self
            for part in path:
                at = getattr(at, part)
            yield name, at

    def _uses(self) -> list[list[str]]:
        """After each node the values that nobody needs any more; a graph in a node may need all."""
        if any(isinstance(v, Subgraph) for n in self._nodes for v in n.attributes.values()):
            return [[] for _ in self._nodes]
        last = {name: i for i, n in enumerate(self._nodes) for name in (*n.inputs, *n.outputs)}
        drop: list[list[str]] = [[] for _ in self._nodes]
        for name, i in last.items():
            if name and name not in self.output_names:
                drop[i].append(name)
        return drop

    def forward(self, *inputs: Any, **named: Any) -> Any:
        if len(inputs) > len(self.input_names):
            raise TypeError(f"the model takes {len(self.input_names)} inputs, not {len(inputs)}")
        values = dict(self._weights())
        values.update(zip(self.input_names, inputs, strict=False))
        for name, value in named.items():
            if name not in self.input_names and name not in self._where:
                raise TypeError(f"the model has no input '{name}': {', '.join(self.input_names)}")
            values[name] = value
        absent = [n for n in self.input_names if n not in values]
        if absent:
            raise TypeError(f"the model needs its input '{absent[0]}'")
        for node, dropped in zip(self._nodes, self._last, strict=True):
            node(values, {})
            for name in dropped:
                values.pop(name, None)
        found = tuple(_given(values, n, "the model") for n in self.output_names)
        return found[0] if len(found) == 1 else found


def load(source: Any) -> OnnxModule:
    """The model of a file, of its bytes, or a ModelProto, as a module. OnnxLoadError, which is a
    RuntimeError, says what is wrong with it, or with a value that it needs when it is called."""
    import onnx

    if isinstance(source, onnx.ModelProto):
        model = source
    else:
        try:
            is_path = isinstance(source, (str, os.PathLike))
            if is_path:
                open_to_read(Path(source)).close()  # a pipe is refused, and nobody waits for it
            model = onnx.load(source) if is_path else onnx.load_from_string(bytes(source))
        except OSError:
            raise
        except Exception as err:
            raise OnnxLoadError(f"onnx.load: this is no ONNX model: {err}") from None
    if not model.graph.node and not model.graph.output:
        raise OnnxLoadError("onnx.load: this is no ONNX model: it has no graph")
    try:
        return OnnxModule(model)
    except (OnnxLoadError, MemoryError):
        raise
    except Exception as err:  # what ONNX's own reader and modules say of nonsense
        raise OnnxLoadError(
            f"onnx.load: the model is damaged: {type(err).__name__}: {err}"
        ) from err
