"""onnx: programs as ONNX models, through the `onnx` package, which has to be installed.

`export` records a call (docs/graphs.md) and translates its operators; what has no translation is
named in the error, all of it at once.
"""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from collections.abc import Iterator
from enum import Enum
from typing import Any

import tenon
from tenon._tensor.dims import wrapped_dim
from tenon.export import Dim, ExportedProgram
from tenon.export import exported as _exported
from tenon.io import atomic
from tenon.nn import Module
from tenon.onnx import _rules

__all__ = [
    "ONNXProgram", "OnnxExporterError", "OperatorExportTypes", "TrainingMode", "export",
    "is_in_onnx_export", "load", "register_custom_op_symbolic", "unregister_custom_op_symbolic",
]  # fmt: skip

_OPSETS = range(18, 22)


class OnnxExporterError(RuntimeError):
    """A program that has no translation."""


class TrainingMode(Enum):
    """How a model is exported: as it is, for evaluation or for training."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2

    def __str__(self) -> str:
        return f"TrainingMode.{self.name}"


class OperatorExportTypes(Enum):
    """What operators become: those of ONNX, of all others there are none here."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


_exporting = threading.local()


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Any, opset_version: int) -> None:
    """A translation of calls of an operator: `symbolic_fn(g, *arguments)` makes nodes by
    `g.op("domain::Name", x, alpha_f=0.5)` and returns their results. Operators of the table are
    named `aten::relu`, those of plugins by their namespace; a `library.custom_op` is what it does
    in a program, and no rule is asked for it."""
    _rules.add(symbolic_name, symbolic_fn, opset_version)


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Takes such a rule back."""
    _rules.remove(symbolic_name, opset_version)


def is_in_onnx_export() -> bool:
    """Whether the caller is being exported to ONNX."""
    return getattr(_exporting, "depth", 0) > 0


@contextlib.contextmanager
def _in_export() -> Iterator[None]:
    _exporting.depth = getattr(_exporting, "depth", 0) + 1
    try:
        yield
    finally:
        _exporting.depth -= 1


# Options that change nothing here, and the values of others that do.
_IDLE = {
    "artifacts_dir", "autograd_inlining", "do_constant_folding", "dump_exported_program", "dynamo",
    "external_data", "fallback", "optimize", "profile", "report", "verbose",
}  # fmt: skip
_ASKED = {
    "custom_translation_table": (None, {}), "export_params": (True,),
    "export_modules_as_functions": (False,), "keep_initializers_as_inputs": (None, False),
    "operator_export_type": (OperatorExportTypes.ONNX,),
    "training": (TrainingMode.EVAL, TrainingMode.PRESERVE),
}  # fmt: skip


def _check_options(options: dict[str, Any]) -> None:
    for name, value in options.items():
        if name in _IDLE or name in ("verify", "custom_opsets"):
            continue
        if name not in _ASKED:
            raise TypeError(f"export() got an unexpected keyword argument '{name}'")
        if value not in _ASKED[name]:
            raise OnnxExporterError(f"onnx.export: {name}={value!r} is not there")


class ONNXProgram:
    """A model, with the program that it was made of."""

    def __init__(self, model_proto: Any, exported_program: ExportedProgram) -> None:
        self.model_proto, self.exported_program = model_proto, exported_program

    def save(self, destination: str | os.PathLike[str], **options: Any) -> None:
        """Writes the model; that its weights are left out, or inputs, is not there."""
        for name, value in options.items():
            usual = {"include_initializers": True, "keep_initializers_as_inputs": False}
            if name != "external_data" and (name not in usual or value is not usual[name]):
                raise OnnxExporterError(f"ONNXProgram.save: {name}={value!r} is not there")
        atomic.replace(destination, self.model_proto.SerializeToString())

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """What the model gives for the arguments of the program, as a tuple."""
        from tenon.utils import _pytree

        given = [t for t in _pytree.tree_leaves((args, kwargs)) if isinstance(t, tenon.Tensor)]
        with tenon.no_grad():
            made = load(self.model_proto.SerializeToString())(*given)
        return made if isinstance(made, tuple) else (made,)

    call_reference = __call__

    def optimize(self) -> None:
        """What export can do in advance it has done."""


def load(source: str | os.PathLike[str] | bytes) -> Module:
    """The module of an ONNX model, which is called with the model's inputs and can be trained.

    Initialisers are its parameters, under their names. Several outputs come as a tuple.
    """
    from tenon.onnx import _load

    return _load.load(source)


def _shapes(
    names: list[str], tensors: list[Any], axes: dict[str, Any] | None
) -> dict[str, dict[int, Dim]] | None:
    """dynamic_axes, by input name, as dynamic_shapes."""
    if not axes:
        return None
    made: dict[str, Dim] = {}
    found: dict[str, dict[int, Dim]] = {}
    for name, given in axes.items():
        if name not in names:
            continue  # an output's sizes follow
        pairs = given.items() if isinstance(given, dict) else ((d, f"{name}_{d}") for d in given)
        rank = tensors[names.index(name)].ndim
        for dim, label in pairs:
            found.setdefault(name, {})[wrapped_dim(dim, rank)] = made.setdefault(
                label, Dim(label, min=1)
            )
    return found


def export(
    model: Module | ExportedProgram,
    args: Any = (),
    f: Any = None,
    *,
    kwargs: dict[str, Any] | None = None,
    input_names: list[str] | None = None,
    output_names: list[str] | None = None,
    opset_version: int | None = None,
    dynamic_axes: dict[str, Any] | None = None,
    dynamic_shapes: Any = None,
    **options: Any,
) -> ONNXProgram:
    """Writes `model`, called with `args`, to `f` (a path, a file or nothing) as an ONNX model.

    verify=True runs it and holds its results against the module's. With dynamo=False what follows
    from values that the module looks at is a constant, as in jit.trace, with a warning.
    """
    from tenon.onnx._translate import translate

    _check_options(options)

    opset = 18 if opset_version is None else opset_version
    if 0 < opset < _OPSETS.start:
        warnings.warn(
            f"onnx.export writes opset {_OPSETS.start}: opset {opset} has other forms of operators",
            stacklevel=2,
        )
        opset = _OPSETS.start
    if opset not in _OPSETS:
        raise OnnxExporterError(
            f"onnx.export writes opset {_OPSETS.start} to {_OPSETS.stop - 1}, not {opset_version}"
        )
    if not isinstance(model, ExportedProgram):
        args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
        if dynamic_axes and dynamic_shapes is None:
            dynamic_shapes = _by_position(model, args, kwargs, input_names, dynamic_axes)
        with _in_export():
            traced = options.get("dynamo") is False
            model = _exported(model, args, kwargs, dynamic_shapes, values_fixed=traced)
    proto = translate(
        model, opset, input_names, output_names, dict(options.get("custom_opsets") or {})
    )
    made = ONNXProgram(proto, model)
    if options.get("verify"):
        _verify(made)
    if isinstance(f, (str, os.PathLike)):
        made.save(f)
    elif f is not None:
        f.write(proto.SerializeToString())
    return made


def _verify(made: ONNXProgram) -> None:
    """Raises where the model gives something else than the program."""
    from tenon.utils import _pytree

    given = made.exported_program.example_inputs
    if given is None:
        raise OnnxExporterError("onnx.export: verify=True needs the arguments of the call")
    args, kwargs = _pytree.tree_map_only(tenon.Tensor, lambda t: t.detach().clone(), given)
    wanted = _pytree.tree_leaves(made.exported_program.module()(*args, **kwargs))
    found = made(*given[0], **given[1])
    tensors = [t for t in wanted if isinstance(t, tenon.Tensor)]
    for i, (a, b) in enumerate(zip(found, tensors, strict=True)):
        if a.shape != b.shape or not tenon.allclose(a, b.detach(), 1e-3, 1e-5, equal_nan=True):
            raise OnnxExporterError(f"onnx.export: output {i} of the model is another one")


def _by_position(
    model: Module, args: Any, kwargs: Any, names: list[str] | None, axes: dict[str, Any]
) -> Any:
    """dynamic_axes speaks of input_names, dynamic_shapes of arguments: both are in order."""
    import inspect

    signature = inspect.signature(model.forward)
    bound = signature.bind(*args, **(kwargs or {})).arguments
    kinds = [p for p in signature.parameters.values() if p.name in bound]
    if len(kinds) == 1 and kinds[0].kind is kinds[0].VAR_POSITIONAL:
        found = _shapes((names or [])[: len(args)], list(args), axes) or {}
        return {kinds[0].name: tuple(found.get(name) for name in (names or [])[: len(args)])}
    if not all(isinstance(v, tenon.Tensor) for v in bound.values()):
        raise OnnxExporterError("dynamic_axes needs tensors as arguments; use dynamic_shapes")
    own = list(bound)
    names = [*(names or [])[: len(own)], *own[len(names or []) :]]
    found = _shapes(names, list(bound.values()), axes) or {}
    return {name: found.get(label) for name, label in zip(own, names, strict=True)}
